//! Lists and watches in one of the namespaces to which the agent is limited.
//!
//! The agent's Roles in a namespace are deleted with the namespace, so the API server rejects lists there. Until the
//! namespace and the Roles exist again, its list counts as empty, and the lists of the other namespaces continue.
//!
//! Invariant: a rejected list in an existing namespace is a failure, unless the namespace was absent and could not be
//! read since then.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};

use super::connect::Cluster;
use super::error::Error;
use super::kind::{Kind, Scope};
use super::selection::Selection;
use super::watch::WatchEvent;

impl Cluster {
    /// Whether a rejected list or watch of a namespace counts as empty.
    pub(super) async fn counts_as_empty(&self, namespace: &str, error: &Error) -> bool {
        if !error.is_forbidden() {
            return false;
        }
        let kind = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster);
        let found = self.get(&kind, None, namespace).await;
        let absent = &self.0.absent;
        match found {
            Ok(Some(live)) if live.pointer("/metadata/deletionTimestamp").is_none() => {
                let Some(is_new) = absent.exists_again(namespace) else { return false };
                if is_new {
                    tracing::warn!(
                        namespace,
                        "the namespace exists again, and the agent has no permissions in it; apply the output of \
                         `mainstay install` again"
                    );
                }
                true
            }
            Ok(_) => {
                if absent.insert(namespace) {
                    tracing::warn!(
                        namespace,
                        "the namespace of --namespaces does not exist; the agent continues with the others"
                    );
                }
                true
            }
            Err(_) => absent.contains(namespace),
        }
    }

    fn is_read_again(&self, namespace: &str) {
        if self.0.absent.remove(namespace) {
            tracing::info!(namespace, "the namespace is read again");
        }
    }

    /// Same as [`watch`](Self::watch), but a namespace to which the agent is limited may be absent: a selection in it then
    /// counts as empty.
    pub fn watch_existing(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, WatchEvent> {
        let is_limited = self.is_limited() && kind.namespaced && selection.namespace().is_some();
        if is_limited { self.watch_in(kind, selection) } else { self.watch(kind, selection) }
    }

    /// Watches one of the namespaces to which the agent is limited.
    pub(super) fn watch_in(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, WatchEvent> {
        let Some(namespace) = selection.namespace().map(str::to_owned) else { return self.watch_one(kind, selection) };
        let (cluster, kind) = (self.clone(), Arc::clone(kind));
        let open = move |cluster: &Self| cluster.watch_one(&kind, selection.clone());
        let events = open(&cluster);
        let lenient =
            Lenient { cluster, namespace, open, events, queue: VecDeque::new(), is_blank: false, is_empty: false };
        stream::unfold(lenient, |mut lenient| async move { Some((lenient.next().await?, lenient)) }).boxed()
    }
}

/// A watch that counts as empty while its namespace is absent.
struct Lenient<F> {
    cluster: Cluster,
    namespace: String,
    open: F,
    events: BoxStream<'static, WatchEvent>,
    queue: VecDeque<WatchEvent>,
    /// Whether a list has begun and no object has arrived yet.
    is_blank: bool,
    /// Whether the watch counts as empty now.
    is_empty: bool,
}

impl<F: Fn(&Cluster) -> BoxStream<'static, WatchEvent>> Lenient<F> {
    async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            match self.events.next().await? {
                WatchEvent::Failed(error) if self.cluster.counts_as_empty(&self.namespace, &error).await => {
                    if !std::mem::replace(&mut self.is_empty, true) {
                        self.events = (self.open)(&self.cluster);
                        let begin = (!self.is_blank).then_some(WatchEvent::Begin);
                        self.queue.extend(begin.into_iter().chain([WatchEvent::Synced(String::new())]));
                    }
                }
                WatchEvent::Failed(error) => return Some(WatchEvent::Failed(error)),
                WatchEvent::Begin if self.is_empty => {}
                event => {
                    self.is_blank = matches!(event, WatchEvent::Begin);
                    if !std::mem::take(&mut self.is_empty) {
                        return Some(event);
                    }
                    self.cluster.is_read_again(&self.namespace);
                    self.queue.push_back(event);
                    return Some(WatchEvent::Begin);
                }
            }
        }
    }
}
