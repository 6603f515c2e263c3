//! Wires the component for Functions: their watch, settings, registries, logins and bindings.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::error::Error;
use super::notify::Notifier;
use super::shown::Shown;
use super::{copies, functions, operator_settings, registry_login, retention};
use mainstay_cluster::Cluster;
use mainstay_cluster::liveness::Liveness;
use mainstay_engine::apply::Writer;
use mainstay_engine::drift::Drift;
use mainstay_function::Context;
use mainstay_function::bindings::{self, Bindings};

/// The parts of the agent that the tasks of this component share.
pub(super) struct Serverless<'a> {
    /// The agent's own namespace.
    pub(super) namespace: &'a str,
    pub(super) cluster: &'a Cluster,
    pub(super) notifier: &'a Notifier,
    pub(super) shown: &'a Shown,
    pub(super) liveness: &'a Liveness,
    pub(super) functions: &'a Arc<Context>,
    pub(super) writer: &'a Writer,
}

impl Serverless<'_> {
    /// Spawns all tasks.
    pub(super) fn spawn(
        &self,
        bound: Arc<Bindings>,
        drift: Drift,
        repositories: watch::Receiver<bool>,
        tasks: &mut JoinSet<Result<(), Error>>,
        stop: &CancellationToken,
    ) {
        let Self { namespace, cluster, notifier, shown, liveness, functions, writer } = *self;
        let home = || namespace.to_owned();
        let (settings_set, excluded) = watch::channel(None);
        let following = operator_settings::follow(
            Arc::clone(functions),
            settings_set,
            notifier.clone(),
            cluster.clone(),
            home(),
            stop.clone(),
        );
        let copying = copies::propagate(home(), excluded.clone(), writer.clone(), notifier.clone(), stop.clone());
        let login = registry_login::make(cluster.clone(), home(), stop.clone());
        let keeping = retention::keep(
            Arc::clone(functions),
            excluded.clone(),
            notifier.clone(),
            Arc::clone(&shown.retention),
            cluster.clone(),
            home(),
            stop.clone(),
        );
        tasks.spawn(async move {
            tokio::join!(following, copying, login);
            Ok(())
        });
        tasks.spawn(async move {
            keeping.await;
            Ok(())
        });
        let watching = bindings::watch(Arc::clone(&bound), cluster.clone(), stop.clone());
        let reporting = bindings::run(bound, cluster.clone(), stop.clone());
        let component = liveness.component("the watch of ServiceBindingUsages");
        tasks.spawn(async move {
            component.track_loop(async { tokio::join!(watching, reporting) }).await;
            Ok(())
        });
        let component = liveness.component("the watch of Functions");
        let following = functions::follow(
            Arc::clone(functions),
            drift,
            notifier.clone(),
            cluster.clone(),
            repositories,
            excluded,
            stop.clone(),
        );
        tasks.spawn(async move { component.track_loop(following).await.map_err(Error::Task) });
    }
}
