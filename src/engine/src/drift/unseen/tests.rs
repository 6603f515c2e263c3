//! Tests of the lists beside a watch.

use futures::{FutureExt as _, stream};
use serde_json::json;

use super::*;
use mainstay_cluster::{Attempt, Cause, Scope, Target};

fn kind() -> Arc<Kind> {
    Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced))
}

fn live(name: &str) -> Value {
    json!({"metadata": {"namespace": "shop", "name": name}})
}

fn keys(names: &[&str]) -> HashSet<Key> {
    names.iter().map(|name| kind().key(Some("shop"), name)).collect()
}

/// Returns a list of these objects that is complete at version 7, and then shows nothing more.
fn listed(names: &[&str]) -> BoxStream<'static, WatchEvent> {
    let initial = names.iter().map(|name| WatchEvent::Initial(live(name)));
    let all: Vec<_> = [WatchEvent::Begin].into_iter().chain(initial).chain([WatchEvent::Synced("7".into())]).collect();
    stream::iter(all).chain(stream::pending()).boxed()
}

/// Returns the steps that are possible without time.
fn steps(lists: &mut Lists) -> Vec<String> {
    let mut steps = Vec::new();
    while let Some(step) = lists.next().now_or_never() {
        let is_due = matches!(step, Step::Due);
        steps.push(match step {
            Step::Due => "due".to_owned(),
            Step::Listed(key, _) => format!("listed {}", key.name),
            Step::Unreadable(key, ..) => format!("unreadable {}", key.name),
            Step::Missing { keys, version, .. } => {
                let mut names: Vec<_> = keys.iter().map(|key| key.name.to_string()).collect();
                names.sort();
                format!("missing {} at {version}", names.join(","))
            }
            Step::Failed(..) => "failed".to_owned(),
        });
        // The caller begins the list.
        if is_due {
            break;
        }
    }
    steps
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_awaited_objects_only_and_ends_with_the_last_one() {
    let mut lists = Lists::new(&kind());
    lists.begin_with(listed(&["a", "b", "c", "d"]), keys(&["b", "c"]));
    assert_eq!(steps(&mut lists), ["listed b", "listed c"]);
    assert!(lists.running.is_none(), "the rest of the list is not read");
    lists.begin_with(listed(&["a", "b"]), keys(&["b", "x"]));
    assert_eq!(steps(&mut lists), ["listed b", "missing x at 7"]);
    lists.begin_with(listed(&["a"]), HashSet::new());
    assert!(lists.running.is_none());
}

#[test]
fn objects_of_one_namespace_need_only_its_list() {
    let mut objects = keys(&["a", "b"]);
    assert_eq!(only_namespace(&objects), Some("shop"));
    objects.insert(kind().key(Some("other"), "a"));
    assert_eq!(only_namespace(&objects), None);
    assert_eq!(only_namespace(&HashSet::from([Key::new("", "Namespace", None, "a")])), None);
    assert_eq!(only_namespace(&HashSet::new()), None);
}

#[tokio::test(start_paused = true)]
async fn many_requests_begin_one_list_and_do_not_interrupt_it() {
    let mut lists = Lists::new(&kind());
    for _ in 0..500 {
        lists.request();
    }
    assert_eq!(steps(&mut lists), [""; 0], "requests are gathered");
    tokio::time::sleep(GATHER).await;
    assert_eq!(steps(&mut lists), ["due"]);
    lists.begin_with(listed(&["a", "b"]), keys(&["a", "x"]));
    for _ in 0..500 {
        lists.request();
    }
    assert_eq!(steps(&mut lists), ["listed a", "missing x at 7"]);
    tokio::time::sleep(GATHER).await;
    assert_eq!(steps(&mut lists), ["due"], "one more list follows");
    lists.begin_with(listed(&[]), HashSet::new());
    tokio::time::sleep(LONGEST_PAUSE).await;
    assert_eq!(steps(&mut lists), [""; 0], "and none after it");
}

#[tokio::test(start_paused = true)]
async fn the_pause_after_many_lists_in_a_row_is_as_long_as_the_list() {
    let mut lists = Lists::new(&kind());
    let pauses = [500, 500, 500, 500, 2000, 2000];
    for (number, pause) in pauses.into_iter().enumerate() {
        lists.begin_with(stream::pending().boxed(), keys(&["a"]));
        tokio::time::sleep(Duration::from_secs(2)).await;
        lists.request();
        lists.end();
        tokio::time::sleep(Duration::from_millis(pause - 1)).await;
        assert_eq!(steps(&mut lists), [""; 0], "list {number}");
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(steps(&mut lists), ["due"], "list {number}");
    }
    tokio::time::sleep(BREAK).await;
    lists.begin_with(stream::pending().boxed(), keys(&["a"]));
    assert_eq!(lists.in_a_row, 0);
}

#[tokio::test(start_paused = true)]
async fn a_list_leaves_out_objects_with_events_of_the_watch() {
    let mut lists = Lists::new(&kind());
    let key = |name: &str| kind().key(Some("shop"), name);
    lists.begin_with(listed(&["a", "b"]), keys(&["a", "b", "c", "d"]));
    lists.see_watch(&Delta::Gone(key("a"), live("a")));
    lists.see_watch(&Delta::Changed(key("c"), live("c")));
    assert_eq!(steps(&mut lists), ["listed b", "missing d at 7"]);
    lists.begin_with(listed(&["a"]), keys(&["a", "x"]));
    lists.see_watch(&Delta::Complete(std::iter::empty().collect()));
    assert!(lists.running.is_none(), "the watch has listed all objects");
    assert!(lists.due.is_some(), "and perhaps before they were managed");
    lists.due = None;
    lists.see_watch(&Delta::Complete(std::iter::empty().collect()));
    assert!(lists.due.is_none(), "there was no list");
}

#[tokio::test(start_paused = true)]
async fn a_stuck_list_ends_and_another_one_is_due_after_a_growing_delay() {
    let mut lists = Lists::new(&kind());
    for delay in [1, 2, 4] {
        lists.begin_with(stream::pending().boxed(), keys(&["a"]));
        tokio::time::sleep(IDLE).await;
        assert_eq!(steps(&mut lists), ["failed"]);
        lists.request();
        tokio::time::sleep(Duration::from_millis(delay * 1000 - 1)).await;
        assert_eq!(steps(&mut lists), [""; 0]);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(steps(&mut lists), ["due"]);
    }
    lists.begin_with(listed(&["a"]), keys(&["a"]));
    assert_eq!(steps(&mut lists), ["listed a"]);
    assert_eq!((lists.failures, lists.refused.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_ends_before_it_is_complete_fails_and_is_repeated() {
    let mut lists = Lists::new(&kind());
    let ended = || stream::iter([WatchEvent::Begin, WatchEvent::Initial(live("a"))]).boxed();
    lists.begin_with(ended(), keys(&["a", "b"]));
    assert_eq!(steps(&mut lists), ["listed a", "failed"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(steps(&mut lists), ["due"]);
    lists.begin_with(ended(), keys(&["b"]));
    assert!(matches!(lists.next().now_or_never(), Some(Step::Failed(_, 2))));
    lists.begin_with(ended(), HashSet::new());
    assert_eq!(lists.failures, 0, "no object is awaited any more");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_rejects_its_lists_does_not_delay_the_others() {
    let mut lists = Lists::new(&kind());
    let key = |namespace: &str| kind().key(Some(namespace), "x");
    let refused = || {
        let (subject, cause) = (Box::new(Target::Object(key("b"))), Box::new(Cause::TimedOut(IDLE)));
        let failed = WatchEvent::Failed(Error { attempt: Attempt::List, subject, cause });
        stream::iter([WatchEvent::Begin, failed]).chain(stream::pending()).boxed()
    };
    let begin = |lists: &mut Lists, namespaces: &[&str]| {
        let mut begun = None;
        lists.begin_in_one(namespaces.iter().copied().map(key).collect(), |namespace| {
            begun = Some(namespace.to_owned());
            if namespace == "b" { refused() } else { listed(&[]) }
        });
        begun
    };
    assert_eq!(begin(&mut lists, &["a", "b", "c"]).as_deref(), Some("a"));
    assert_eq!(steps(&mut lists), ["missing x at 7"]);
    tokio::time::sleep(GATHER).await;
    assert_eq!(steps(&mut lists), ["due"]);
    assert_eq!(begin(&mut lists, &["b", "c"]).as_deref(), Some("b"));
    assert_eq!(steps(&mut lists), ["failed"]);
    tokio::time::sleep(GATHER).await;
    assert_eq!(steps(&mut lists), ["due"]);
    assert_eq!(begin(&mut lists, &["b", "c"]).as_deref(), Some("c"));
    assert_eq!(steps(&mut lists), ["missing x at 7"]);
    tokio::time::sleep(GATHER).await;
    assert_eq!(steps(&mut lists), ["due"]);
    assert_eq!(begin(&mut lists, &["b"]), None, "it waits");
    lists.request();
    tokio::time::sleep(GATHER).await;
    assert_eq!(steps(&mut lists), ["due"], "a request does not wait for it");
    assert_eq!(begin(&mut lists, &["a", "b"]).as_deref(), Some("a"));
    assert_eq!(steps(&mut lists), ["missing x at 7"]);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(steps(&mut lists), ["due"]);
    assert_eq!(begin(&mut lists, &["b"]).as_deref(), Some("b"), "it is tried again");
    assert_eq!(steps(&mut lists), ["failed"]);
    assert_eq!(lists.refused.values().map(|refused| refused.failures).collect::<Vec<_>>(), [2]);
    assert_eq!(begin(&mut lists, &[]), None);
    assert!(lists.refused.is_empty() && lists.due.is_none(), "no object is awaited there any more");
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_works_ends_the_delay_after_a_rejected_list() {
    let working: [fn() -> Delta<Key>; 2] = [|| Delta::Complete(std::iter::empty().collect()), || Delta::Resumed];
    for seen in working {
        let mut lists = Lists::new(&kind());
        lists.begin_with(stream::pending().boxed(), keys(&["a"]));
        lists.fail("forbidden".to_owned(), None, UNSERVED);
        lists.request();
        tokio::time::sleep(UNSERVED / 2).await;
        assert_eq!(steps(&mut lists), [""; 0]);
        lists.see_watch(&seen());
        tokio::time::sleep(GATHER).await;
        assert_eq!((steps(&mut lists), lists.failures), (vec!["due".to_owned()], 0));
        let mut lists = Lists::new(&kind());
        let key = kind().key(Some("b"), "x");
        lists.begin_in_one(HashSet::from([key.clone()]), |_| stream::pending().boxed());
        lists.fail("forbidden".to_owned(), None, UNSERVED);
        lists.due = None;
        lists.see_watch(&seen());
        assert!(lists.refused.is_empty() && lists.due.is_none(), "no list was requested");
        lists.begin_in_one(HashSet::from([key]), |_| listed(&[]));
        assert_eq!(steps(&mut lists), ["missing x at 7"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_ends_and_waits_for_a_limited_retry_after() {
    let mut lists = Lists::new(&kind());
    lists.begin_with(stream::pending().boxed(), keys(&["a"]));
    assert!(matches!(lists.fail("busy".into(), Some(Duration::from_secs(300)), Duration::ZERO), Step::Failed(_, 1)));
    tokio::time::sleep(LONGEST_RETRY * 9 / 10).await;
    assert_eq!(steps(&mut lists), [""; 0]);
    tokio::time::sleep(LONGEST_RETRY / 10).await;
    assert_eq!(steps(&mut lists), ["due"]);
    let begins = stream::iter((0..=BEGINNINGS).map(|_| WatchEvent::Begin)).chain(stream::pending());
    lists.begin_with(begins.boxed(), keys(&["a"]));
    assert_eq!(steps(&mut lists), ["failed"], "the server ends the list again and again");
}
