//! Functions are watched, and every Function has a task; as soon as the cluster knows the kind.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use futures::StreamExt;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::announce::Announcer;
use super::inputs::{Name, name_of, read};
use crate::api::Function;
use crate::cluster::{Cluster, Kind, Regarding, Scope, Selection, WatchEvent};
use crate::function::{self, Context};

/// Name of the definition that brings Functions to a cluster.
const DEFINITION: &str = "functions.serverless.kyma-project.io";

/// One Function's task and what feeds it.
struct Running {
    feed: watch::Sender<Option<Arc<Function>>>,
    uid: Option<String>,
    /// Cancelled when the task has come to its end.
    over: CancellationToken,
}

/// Follows the Functions until `stop` and runs a task for each.
pub(super) struct Functions {
    context: Arc<Context>,
    announcer: Announcer,
    running: HashMap<Name, Running>,
    /// Tasks that are coming to their end; a new Function of the same name waits for the old one's.
    ended: HashMap<Name, CancellationToken>,
    stop: CancellationToken,
}

impl Functions {
    pub(super) fn new(context: Arc<Context>, announcer: Announcer, stop: CancellationToken) -> Self {
        Self { context, announcer, running: HashMap::new(), ended: HashMap::new(), stop }
    }

    /// Runs until `stop`, or until a task breaks.
    pub(super) async fn run(
        mut self,
        cluster: Cluster,
        mut repositories: watch::Receiver<bool>,
    ) -> Result<(), JoinError> {
        if !is_defined(&cluster, &self.stop).await {
            return Ok(());
        }
        // Until all of them are known, a Function could miss its own.
        let _ = self.stop.run_until_cancelled(repositories.wait_for(|known| *known)).await;
        let mut tasks = JoinSet::new();
        for watch in self.context.watches(&self.stop) {
            tasks.spawn(watch);
        }
        tasks.spawn(Arc::clone(&self.context.secrets).run(cluster.clone(), self.stop.clone()));
        let mut events = cluster.watch(&Arc::new(function::functions()), Selection::default());
        let mut missing: HashSet<Name> = HashSet::new();
        loop {
            let event = tokio::select! {
                () = self.stop.cancelled() => break,
                Some(ended) = tasks.join_next() => {
                    ended?;
                    continue;
                }
                event = events.next() => event,
            };
            match event {
                Some(WatchEvent::Begin) => missing = self.running.keys().cloned().collect(),
                Some(WatchEvent::Initial(value) | WatchEvent::Applied(value)) => {
                    let Some(name) = name_of(&value) else { continue };
                    missing.remove(&name);
                    if let Some(function) = read::<Function>(value) {
                        self.feed(name, function, &mut tasks);
                    }
                }
                Some(WatchEvent::Deleted(value)) => {
                    if let Some(name) = name_of(&value) {
                        self.end(&name);
                    }
                }
                Some(WatchEvent::Synced(_)) => {
                    for name in std::mem::take(&mut missing) {
                        self.end(&name);
                    }
                }
                Some(WatchEvent::Trouble(error)) => {
                    tracing::warn!(why = crate::failure::chain(&error), "Functions cannot be watched");
                }
                None => break,
            }
        }
        Ok(())
    }

    fn feed(&mut self, name: Name, function: Function, tasks: &mut JoinSet<()>) {
        let uid = function.metadata.uid.clone();
        if let Some(running) = self.running.get(&name) {
            if running.uid == uid && !running.over.is_cancelled() {
                running.feed.send_replace(Some(Arc::new(function)));
                return;
            }
            // Deleted and created again: the old task ends before the new one begins.
            self.end(&name);
        }
        let kind = function::functions();
        let key = kind.key(Some(&name.0), &name.1);
        let subject = Regarding { key, api_version: kind.api_version(), uid: uid.clone() };
        self.announcer.know(&function::owner(&name.0, &name.1), Some(subject));
        let (feed, input) = watch::channel(Some(Arc::new(function)));
        let over = CancellationToken::new();
        let (old, ending) = (self.ended.remove(&name), over.clone().drop_guard());
        let (context, stop) = (Arc::clone(&self.context), self.stop.clone());
        let (namespace, own) = name.clone();
        tasks.spawn(async move {
            let _ending = ending;
            if let Some(old) = old {
                old.cancelled().await;
            }
            function::run(context, namespace, own, input, stop).await;
        });
        self.running.insert(name, Running { feed, uid, over });
    }

    fn end(&mut self, name: &Name) {
        if let Some(running) = self.running.remove(name) {
            running.feed.send_replace(None);
            self.ended.retain(|_, over| !over.is_cancelled());
            self.ended.insert(name.clone(), running.over);
            self.announcer.know(&function::owner(&name.0, &name.1), None);
        }
    }
}

/// Waits until the cluster knows the kind; false: `stop` came first.
async fn is_defined(cluster: &Cluster, stop: &CancellationToken) -> bool {
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let definitions = Arc::new(Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster));
    let mut events = cluster.watch(&definitions, Selection::named(None, DEFINITION));
    while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
        if let WatchEvent::Initial(live) | WatchEvent::Applied(live) = event
            && is_established(&live)
        {
            return true;
        }
    }
    false
}

fn is_established(definition: &Value) -> bool {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array);
    conditions.into_iter().flatten().any(|c| c["type"] == "Established" && c["status"] == "True")
}
