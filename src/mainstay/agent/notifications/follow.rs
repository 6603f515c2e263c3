//! Watches Providers and Alerts, and runs a task for each Provider and the task that matches messages, once the cluster
//! serves the kinds.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::alert::{self, Alerts, Known};
use super::context::{Context, MOST};
use super::provider::{self, Provider};
use super::{slices, status};
use crate::agent::functions::is_defined;
use crate::agent::kept::Name;
use crate::agent::own_kinds::{Object, Running, fits, read, without_room};
use mainstay_api::{Alert, ProviderSpec};
use mainstay_cluster::reflector::{Change, Reflector};
use mainstay_cluster::secrets::{Referrer, SecretReferences as _};
use mainstay_cluster::{Kind, Selection};
use mainstay_object::failure::chain;

/// Watches Providers and Alerts until `stop`, or until a task panics.
pub(in crate::agent) async fn follow(context: Arc<Context>, stop: CancellationToken) -> Result<(), JoinError> {
    let absent = || {
        context.secrets.set_listed(Referrer::Provider);
        context.notifier.outbox().complete();
    };
    let (providers, alerts) = (Arc::new(Kind::of::<mainstay_api::Provider>()), Arc::new(Kind::of::<Alert>()));
    if !is_defined(&providers, &context.cluster, absent, &stop).await {
        return Ok(());
    }
    let providers = context.cluster.reflect(&providers, Selection::default(), read::<ProviderSpec>);
    let alerts = context.cluster.reflect(&alerts, Selection::default(), alert::read);
    let (known, mut tasks) = (Alerts::new(Arc::clone(&context)), JoinSet::new());
    tasks.spawn(slices::run(context.notifier.outbox().clone()));
    Following { context, providers, running: BTreeMap::new(), alerts, known, tasks }.run(stop).await
}

struct Following {
    context: Arc<Context>,
    providers: Reflector<Object<ProviderSpec>>,
    running: BTreeMap<Name, Running<ProviderSpec>>,
    alerts: Reflector<Known>,
    known: Alerts,
    tasks: JoinSet<Result<(), JoinError>>,
}

impl Following {
    async fn run(mut self, stop: CancellationToken) -> Result<(), JoinError> {
        let mut again: Option<Instant> = None;
        loop {
            let written_again = async {
                match again {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let is_complete = self.is_complete();
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                Some(ended) = self.tasks.join_next() => ended??,
                () = self.known.begins_to_report(), if is_complete => {}
                change = self.providers.next() => self.see_provider(change, &stop),
                change = self.alerts.next() => self.see_alert(change),
                () = written_again => {}
            }
            if self.is_complete() {
                self.context.notifier.outbox().complete();
                again = self.known.report(&self.running, Timestamp::now()).await;
            }
        }
    }

    /// Whether all Providers and Alerts are known.
    fn is_complete(&self) -> bool {
        self.providers.cache().is_complete() && self.alerts.cache().is_complete()
    }

    fn see_provider(&mut self, change: Change<Object<ProviderSpec>>, stop: &CancellationToken) {
        match change {
            Change::Changed { name, live, before } => {
                let Some(object) = self.providers.cache().get(&name.0, &name.1).cloned() else { return };
                let references = object.spec.secret_references();
                self.context.secrets.set_references(&name.0, (Referrer::Provider, &name.1), references);
                let is_same = before.is_some_and(|before| before.uid == object.uid);
                match self.running.get(&name).filter(|_| is_same) {
                    Some(running) => {
                        running.feed.send_replace(object);
                    }
                    None => self.begin(name, object, status::conditions(&live), stop),
                }
            }
            Change::Gone { name, .. } => {
                self.running.remove(&name);
                self.context.notifier.outbox().close(&name);
                self.context.secrets.set_references(&name.0, (Referrer::Provider, &name.1), Vec::new());
                self.known.provider_changed(&name);
                if let Some((next, object)) = without_room(&self.running, &name.0) {
                    self.begin(next, object, Vec::new(), stop);
                }
            }
            Change::Complete { .. } => self.context.secrets.set_listed(Referrer::Provider),
            Change::Failed(error) => tracing::warn!(why = chain(&error), "Providers cannot be watched"),
            Change::Unreadable { .. } | Change::Resumed => {}
        }
    }

    /// Starts the task of a Provider. The task of an older object with this name ends when its feed is closed.
    fn begin(
        &mut self,
        name: Name,
        object: Object<ProviderSpec>,
        conditions: Vec<Condition>,
        stop: &CancellationToken,
    ) {
        let fits = fits(&self.running, &name, MOST);
        // The queue is opened here, because messages from before the first list are offered right after that list.
        let _ = provider::open(&self.context, &name, &object.spec, fits);
        let (feed, input) = watch::channel(object);
        self.known.provider_changed(&name);
        self.running.insert(name.clone(), Running { feed, fits });
        let task = Provider::new(Arc::clone(&self.context), name, conditions, fits);
        let stop = stop.clone();
        self.tasks.spawn(async move {
            let _ = stop.run_until_cancelled(task.run(input)).await;
            Ok(())
        });
    }

    fn see_alert(&mut self, change: Change<Known>) {
        match change {
            Change::Changed { name, live, before } => {
                let Some(alert) = self.alerts.cache().get(&name.0, &name.1) else { return };
                let conditions = status::conditions(&live);
                if before.is_some_and(|before| before.object == alert.object) {
                    self.known.set_conditions(&name, conditions);
                } else {
                    self.known.set(&name, &alert.object, conditions);
                }
            }
            Change::Gone { name, .. } => {
                self.known.remove(&name);
                if let Some((next, conditions)) = self.known.without_room(&name.0)
                    && let Some(alert) = self.alerts.cache().get(&next.0, &next.1)
                {
                    self.known.set(&next, &alert.object, conditions);
                }
            }
            Change::Failed(error) => tracing::warn!(why = chain(&error), "Alerts cannot be watched"),
            Change::Complete { .. } | Change::Unreadable { .. } | Change::Resumed => {}
        }
    }
}
