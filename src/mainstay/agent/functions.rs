//! Watches Functions and runs a task for each, once the cluster serves the kind.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::inputs::REPOSITORIES_WITHIN;
use super::kept::{Labels, Name};
use super::notify::Notifier;
use super::tasks::{Input, Tasks, Work};
use mainstay_api::Function;
use mainstay_cluster::reflector::Change;
use mainstay_cluster::secrets::{Referrer, SecretReferences as _};
use mainstay_cluster::{Cluster, Kind, Scope, Selection};
use mainstay_engine::apply::Writer;
use mainstay_engine::drift::Drift;
use mainstay_function::Context;
use mainstay_git::{Consumer, ConsumerKind};
use mainstay_object::{Owner, is_established};

/// Memory of a Function with its task and the state of its children, in bytes.
const EACH: usize = 16 << 10;

/// Records that there are no Functions, so that no other part waits for them.
pub(super) fn are_absent(context: &Context) {
    context.source.all_registered(ConsumerKind::Function);
    context.secrets.set_listed(Referrer::Function);
}

/// Watches Functions until `stop`, or until a task panics, and runs a task for each.
pub(super) async fn follow(
    context: Arc<Context>,
    drift: Drift,
    notifier: Notifier,
    cluster: Cluster,
    mut repositories: watch::Receiver<bool>,
    mut excluded: watch::Receiver<Option<Vec<String>>>,
    stop: CancellationToken,
) -> Result<(), JoinError> {
    // Without the CRD, there are no Functions.
    if !is_defined(&mainstay_function::functions(), &cluster, || are_absent(&context), &stop).await {
        return Ok(());
    }
    // Every Function depends on the operator's settings, which are known once `excluded` is set.
    let _ = stop.run_until_cancelled(excluded.wait_for(Option::is_some)).await;
    // A Git Function needs its GitRepository, but other Functions do not, so the wait is limited.
    let known = tokio::time::timeout(REPOSITORIES_WITHIN, repositories.wait_for(|known| *known));
    let _ = stop.run_until_cancelled(known).await;
    let others: JoinSet<()> = context.watches(&drift, &stop).into_iter().collect();
    Tasks::new(Functions { context }, notifier, others, stop).run(&cluster).await
}

struct Functions {
    context: Arc<Context>,
}

impl Work for Functions {
    type Object = Function;

    fn kind(&self) -> Kind {
        mainstay_function::functions()
    }

    fn owner(&self, (namespace, name): &Name) -> Owner {
        Owner::function(namespace, name)
    }

    fn writer(&self) -> &Writer {
        &self.context.writer
    }

    const LABELS: Labels = Labels::Kept;

    const CONDITION: &str = "ConfigurationReady";

    /// Includes the memory of the Function's children. The source is counted separately.
    fn counted(&self, _: usize) -> usize {
        EACH
    }

    fn keep(&self, owner: &Owner, function: &mut Function, bytes: usize) -> bool {
        self.context.keep(owner, function, bytes)
    }

    fn may_keep(&self, owner: &Owner, bytes: usize) -> bool {
        self.context.may_keep(owner, bytes)
    }

    fn see(&self, (namespace, name): &Name, function: Option<&Function>) {
        let references = function.map(|function| function.spec.secret_references()).unwrap_or_default();
        self.context.secrets.set_references(namespace, (Referrer::Function, name), references);
    }

    fn enter(&self, _: &Owner, (namespace, name): &Name) {
        self.context.source.register(&Consumer::new(ConsumerKind::Function, namespace, name));
    }

    fn complete(&self) {
        self.context.secrets.set_listed(Referrer::Function);
        self.context.source.all_registered(ConsumerKind::Function);
    }

    fn run(
        &self,
        (namespace, name): Name,
        input: Input<Function>,
        (stop, _): (CancellationToken, CancellationToken),
    ) -> impl Future<Output = ()> + Send + 'static {
        mainstay_function::run(Arc::clone(&self.context), namespace, name, input, stop)
    }
}

/// Waits until the cluster serves a kind of a CRD, and calls `absent` if the CRD does not exist. Returns false if `stop`
/// came first.
pub(super) async fn is_defined(kind: &Kind, cluster: &Cluster, absent: impl Fn(), stop: &CancellationToken) -> bool {
    let name = &*kind.resource;
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definitions = Arc::new(Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster));
    let mut reflector = cluster.states(&definitions, Selection::named(None, name));
    while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
        match change {
            Change::Changed { live, .. } if is_established(&live) => return true,
            Change::Complete { .. } if reflector.cache().get("", name).is_none() => absent(),
            _ => {}
        }
    }
    false
}
