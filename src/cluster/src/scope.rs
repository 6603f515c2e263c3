//! The namespaces to which an agent without cluster-wide permissions is limited.
//!
//! A list or watch of a namespaced kind in all namespaces becomes one per namespace, so Roles are sufficient.
//! Controllers do not notice the difference.
//!
//! Invariant: a merged watch keeps the guarantees of [`WatchEvent`]. If one of its parts lists again, all do. The
//! merged watch is synced once all parts are, and its version is the oldest of theirs.
//!
//! Not here: objects outside these namespaces. `gitsync` refuses to apply them.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::stream::{self, BoxStream, StreamExt};

use super::connect::Cluster;
use super::kind::Kind;
use super::selection::Selection;
use super::watch::WatchEvent;

impl Cluster {
    /// Merges `count` watches into one. `begin` opens each of them. The watches must never end.
    pub(super) fn merged(
        count: usize,
        begin: impl FnMut(usize) -> BoxStream<'static, WatchEvent> + Send + 'static,
    ) -> BoxStream<'static, WatchEvent> {
        merge(count, begin)
    }

    /// Limits lists and watches of this cluster and its clones to these namespaces. Only the first call has an effect.
    pub fn limit_to(&self, namespaces: Arc<[String]>) {
        let _ = self.0.scope.set(namespaces);
    }

    /// Whether this cluster is limited to some namespaces.
    pub fn is_limited(&self) -> bool {
        self.0.scope.get().is_some()
    }

    /// Returns the selections to request in place of `selection`.
    pub(super) fn scoped(&self, kind: &Kind, selection: Selection) -> Vec<Selection> {
        match self.0.scope.get() {
            Some(namespaces) if kind.namespaced && selection.namespace().is_none() => {
                namespaces.iter().map(|namespace| selection.clone().within(namespace)).collect()
            }
            _ => vec![selection],
        }
    }
}

/// A watch of the same kind in one namespace.
struct Part {
    events: BoxStream<'static, WatchEvent>,
    has_begun: bool,
    /// The version of the part's complete list.
    synced: Option<String>,
}

/// The state of a merged watch; `begin` opens one of its parts.
struct Merged<F> {
    parts: Vec<Part>,
    begin: F,
    /// The part that is polled first.
    next: usize,
    /// Whether `Begin` was emitted.
    is_announced: bool,
    is_synced: bool,
}

fn merge(
    count: usize,
    begin: impl FnMut(usize) -> BoxStream<'static, WatchEvent> + Send + 'static,
) -> BoxStream<'static, WatchEvent> {
    let mut merged = Merged { parts: Vec::new(), begin, next: 0, is_announced: false, is_synced: false };
    merged.parts = (0..count).map(|at| Part::new((merged.begin)(at))).collect();
    stream::unfold(merged, |mut merged| async move { Some((merged.event().await, merged)) }).boxed()
}

impl Part {
    fn new(events: BoxStream<'static, WatchEvent>) -> Self {
        Self { events, has_begun: false, synced: None }
    }
}

impl<F: FnMut(usize) -> BoxStream<'static, WatchEvent>> Merged<F> {
    async fn event(&mut self) -> WatchEvent {
        loop {
            let (at, event) = self.poll().await;
            if let Some(event) = self.take(at, event) {
                return event;
            }
        }
    }

    /// Returns the next event of any part. The parts take turns.
    async fn poll(&mut self) -> (usize, WatchEvent) {
        let count = self.parts.len();
        let (at, event) = poll_fn(|cx| {
            for at in (0..count).map(|step| (self.next + step) % count) {
                if let Poll::Ready(Some(event)) = self.parts[at].events.poll_next_unpin(cx) {
                    return Poll::Ready((at, event));
                }
            }
            Poll::Pending
        })
        .await;
        self.next = at + 1;
        (at, event)
    }

    fn take(&mut self, at: usize, event: WatchEvent) -> Option<WatchEvent> {
        match event {
            WatchEvent::Begin => {
                if std::mem::replace(&mut self.parts[at].has_begun, true) {
                    self.begin_others_anew(at);
                }
                self.parts[at].synced = None;
                (!std::mem::replace(&mut self.is_announced, true)).then_some(WatchEvent::Begin)
            }
            WatchEvent::Synced(version) => {
                self.parts[at].synced = Some(version);
                let versions: Option<Vec<&str>> = self.parts.iter().map(|part| part.synced.as_deref()).collect();
                let oldest = oldest(&versions?);
                let is_first = !std::mem::replace(&mut self.is_synced, true);
                is_first.then_some(WatchEvent::Synced(oldest))
            }
            // Until the merged watch is synced, a change counts as part of the list.
            WatchEvent::Applied(object) if !self.is_synced => Some(WatchEvent::Initial(object)),
            event => Some(event),
        }
    }

    /// Restarts the other parts, because only a common list shows which objects are gone. The part `but` itself keeps
    /// its backoff.
    fn begin_others_anew(&mut self, but: usize) {
        for at in (0..self.parts.len()).filter(|at| *at != but) {
            self.parts[at] = Part::new((self.begin)(at));
        }
        (self.is_announced, self.is_synced) = (false, false);
    }
}

/// Returns the oldest resource version; empty if one is not a number. Leaves out empty versions: the list of an absent
/// namespace has none.
fn oldest(versions: &[&str]) -> String {
    let known = versions.iter().filter(|version| !version.is_empty());
    let numbers: Option<Vec<u64>> = known.map(|version| version.parse().ok()).collect();
    numbers.and_then(|numbers| numbers.into_iter().min()).map(|oldest| oldest.to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use serde_json::json;

    use super::super::kind::tests::kind;
    use super::*;

    /// Returns the next `count` events of a merge of these watches as words. A watch that is opened again has the
    /// events in `again`.
    fn merged(watches: [Vec<WatchEvent>; 2], again: Vec<&'static str>, count: usize) -> Vec<String> {
        let opened = AtomicUsize::new(0);
        let mut watches: Vec<_> = watches.into_iter().map(Some).collect();
        let mut events = merge(2, move |at| {
            let is_first = opened.fetch_add(1, Ordering::Relaxed) < 2;
            let first = watches[at].take().filter(|_| is_first);
            let all = first.unwrap_or_else(|| again.iter().map(|word| event(word)).collect());
            stream::iter(all).chain(stream::pending()).boxed()
        });
        let mut words = Vec::new();
        while let Some(Some(event)) = events.next().now_or_never() {
            words.push(match event {
                WatchEvent::Begin => "begin".to_owned(),
                WatchEvent::Initial(object) => format!("initial {}", object.as_str().unwrap()),
                WatchEvent::Applied(object) => format!("applied {}", object.as_str().unwrap()),
                WatchEvent::Synced(version) => format!("synced {version}"),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(words.len(), count, "{words:?}");
        words
    }

    fn event(word: &str) -> WatchEvent {
        match word.split_once(' ') {
            Some(("initial", name)) => WatchEvent::Initial(json!(name)),
            Some(("applied", name)) => WatchEvent::Applied(json!(name)),
            Some(("synced", version)) => WatchEvent::Synced(version.to_owned()),
            _ => WatchEvent::Begin,
        }
    }

    fn events(words: &[&str]) -> Vec<WatchEvent> {
        words.iter().map(|word| event(word)).collect()
    }

    #[test]
    fn several_watches_appear_as_one_list_at_the_oldest_version() {
        let watches = [
            events(&["begin", "initial a", "synced 20", "applied b"]),
            events(&["begin", "initial x", "synced 9", "applied y"]),
        ];
        let words = merged(watches, Vec::new(), 6);
        assert_eq!((&*words[0], &*words[1], &*words[2]), ("begin", "initial a", "initial x"));
        assert_eq!((&*words[3], &*words[5]), ("synced 9", "applied y"), "{words:?}");
    }

    #[test]
    fn an_absent_namespace_does_not_hide_the_version_of_the_others() {
        let words = merged([events(&["begin", "synced "]), events(&["begin", "synced 9"])], Vec::new(), 2);
        assert_eq!(words, ["begin", "synced 9"]);
        assert_eq!([oldest(&["", ""]), oldest(&["v1", "9"]), oldest(&["v1", ""])], ["", "", ""]);
    }

    #[test]
    fn a_list_is_not_complete_while_one_namespace_is_missing() {
        let words = merged([events(&["begin", "synced 20", "applied b"]), events(&["begin"])], Vec::new(), 2);
        assert_eq!(words, ["begin", "initial b"], "what changes meanwhile is part of the list");
    }

    #[test]
    fn a_watch_that_always_fails_neither_completes_nor_hides_the_others() {
        let failed = || {
            let cause = crate::Cause::TimedOut(std::time::Duration::from_secs(1));
            WatchEvent::Failed(crate::Error::new(crate::Attempt::List, crate::Target::Cluster, cause))
        };
        let watches = [
            events(&["begin", "initial a", "synced 1", "applied c"]),
            vec![WatchEvent::Begin, failed(), failed(), failed()],
        ];
        let words = merged(watches, Vec::new(), 6);
        assert_eq!((&*words[0], words.iter().filter(|word| **word == "begin").count()), ("begin", 1));
        let shown = words.iter().filter(|word| word.starts_with("initial")).collect::<Vec<_>>();
        assert_eq!(shown, ["initial a", "initial c"], "{words:?}");
    }

    #[test]
    fn one_watch_that_lists_again_makes_all_others_list_again() {
        let watches = [
            events(&["begin", "initial a", "synced 1", "begin", "synced 30"]),
            events(&["begin", "initial x", "synced 2"]),
        ];
        let words = merged(watches, vec!["begin", "initial z", "synced 31"], 7);
        assert_eq!(words[..4], ["begin", "initial a", "initial x", "synced 1"]);
        assert_eq!(words[4..], ["begin", "initial z", "synced 30"], "else x would count as missing");
    }

    #[tokio::test]
    async fn only_namespaced_kinds_without_a_namespace_are_limited() {
        let (cluster, _server) = super::super::fake::cluster();
        let maps = kind("v1", "ConfigMap", "configmaps", true);
        let count = |kind: &Kind, selection| cluster.scoped(kind, selection).len();
        assert_eq!(count(&maps, Selection::default()), 1);
        assert!(!cluster.is_limited());
        cluster.limit_to(["a".to_owned(), "b".to_owned()].into());
        assert!(cluster.is_limited());
        let asked = cluster.acting_as(None).scoped(&maps, Selection::with_label("l"));
        let paths: Vec<_> = asked.iter().map(|selection| selection.path(&maps)).collect();
        let path = |namespace| format!("/api/v1/namespaces/{namespace}/configmaps?labelSelector=l");
        assert_eq!(paths, [path("a"), path("b")]);
        assert_eq!(count(&maps, Selection::named(Some("c"), "x")), 1);
        assert_eq!(count(&kind("v1", "Namespace", "namespaces", false), Selection::default()), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_selection_in_an_absent_namespace_counts_as_empty_for_a_limited_agent() {
        let (cluster, mut server) = super::super::fake::cluster();
        cluster.limit_to(["a".to_owned(), "b".to_owned()].into());
        let maps = Arc::new(kind("v1", "ConfigMap", "configmaps", true));
        tokio::spawn(async move {
            loop {
                let asked = server.next().await;
                let code = if asked.line().contains("/configmaps") { 403 } else { 404 };
                asked.json(code, &json!({"kind": "Status", "status": "Failure", "code": code})).await;
            }
        });
        let mut events = cluster.watch_existing(&maps, Selection::with_label("l").within("a"));
        let first = [events.next().await, events.next().await];
        assert!(
            matches!(&first, [Some(WatchEvent::Begin), Some(WatchEvent::Synced(version))] if version.is_empty()),
            "{first:?}"
        );
        let mut events = cluster.watch(&maps, Selection::with_label("l").within("a"));
        let first = [events.next().await, events.next().await];
        assert!(matches!(&first, [Some(WatchEvent::Begin), Some(WatchEvent::Failed(_))]), "{first:?}");
    }
}
