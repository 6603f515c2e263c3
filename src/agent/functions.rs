//! Functions are watched, and every Function has a task; as soon as the cluster knows the kind.

use std::sync::Arc;

use futures::StreamExt;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::announce::Announcer;
use super::inputs::REPOSITORIES_WITHIN;
use super::tasks::{Input, Name, Tasks, Work};
use crate::api::Function;
use crate::cluster::{Cluster, Kind, Scope, Selection, WatchEvent};
use crate::drift::Owner;
use crate::function::{self, Context};
use crate::source::{Reader, ReaderKind};

/// Name of the definition that brings Functions to a cluster.
const DEFINITION: &str = "functions.serverless.kyma-project.io";

/// Follows the Functions until `stop`, or until a task breaks, and runs a task for each.
pub(super) async fn follow(
    context: Arc<Context>,
    announcer: Announcer,
    cluster: Cluster,
    mut repositories: watch::Receiver<bool>,
    stop: CancellationToken,
) -> Result<(), JoinError> {
    if !is_defined(&context, &cluster, &stop).await {
        return Ok(());
    }
    // Until all of them are known, a Function could miss its own; but not all of them need one.
    let known = tokio::time::timeout(REPOSITORIES_WITHIN, repositories.wait_for(|known| *known));
    let _ = stop.run_until_cancelled(known).await;
    let others: JoinSet<()> = context.watches(&stop).into_iter().collect();
    Tasks::new(Functions { context }, announcer, others, stop).run(&cluster).await
}

struct Functions {
    context: Arc<Context>,
}

impl Work for Functions {
    type Object = Function;

    fn kind(&self) -> Kind {
        function::functions()
    }

    fn owner(&self, (namespace, name): &Name) -> Owner {
        function::owner(namespace, name)
    }

    fn enter(&self, _: &Owner, (namespace, name): &Name) {
        self.context.source.expect(&Reader::new(ReaderKind::Function, namespace, name));
    }

    fn complete(&self) {
        self.context.source.expect_no_more(ReaderKind::Function);
    }

    fn run(
        &self,
        (namespace, name): Name,
        input: Input<Function>,
        stop: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        function::run(Arc::clone(&self.context), namespace, name, input, stop)
    }
}

/// Waits until the cluster knows the kind; false: `stop` came first.
async fn is_defined(context: &Context, cluster: &Cluster, stop: &CancellationToken) -> bool {
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definitions = Arc::new(Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster));
    let mut events = cluster.watch(&definitions, Selection::named(None, DEFINITION));
    let mut is_there = false;
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        match event {
            WatchEvent::Initial(live) | WatchEvent::Applied(live) if is_established(&live) => return true,
            WatchEvent::Initial(_) | WatchEvent::Applied(_) => is_there = true,
            // Without a definition there is no Function.
            WatchEvent::Synced(_) if !is_there => context.source.expect_no_more(ReaderKind::Function),
            _ => {}
        }
    }
    false
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}
