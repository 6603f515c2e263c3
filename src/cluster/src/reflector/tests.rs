//! Caches and lists of watches, over events.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::error::{Attempt, Cause, Target};
use WatchEvent::{Applied, Begin, Deleted, Failed, Initial, Resumed, Synced, Unreadable, WentBack};

fn object(name: &str, value: &str) -> Value {
    json!({"kind": "Thing", "metadata": {"namespace": "shop", "name": name}, "value": value})
}

fn synced() -> WatchEvent {
    Synced("7".to_owned())
}

fn error() -> Error {
    let cause = Box::new(Cause::TimedOut(Duration::from_secs(7)));
    Error { attempt: Attempt::Watch, subject: Box::new(Target::Cluster), cause }
}

/// An object with the value `bad` cannot be parsed, and `foreign` is irrelevant.
fn read(live: &Value) -> Result<Option<String>, String> {
    match live["value"].as_str().unwrap_or_default() {
        "bad" => Err("its value is bad".to_owned()),
        "foreign" => Ok(None),
        value => Ok(Some(value.to_owned())),
    }
}

/// Returns the changes of the last of these events as words.
fn last(events: impl IntoIterator<Item = WatchEvent>) -> Vec<String> {
    let mut cache = Cache::default();
    let mut words = Vec::new();
    for event in events {
        words = cache.take(event, read).map(|change| word(&change)).collect();
    }
    words
}

fn word(change: &Change<String>) -> String {
    let of = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    match change {
        Change::Changed { name, live, before } => {
            format!("changed {} {}->{}", name.1, of(before), live["value"].as_str().unwrap())
        }
        Change::Gone { name, before, last } => {
            format!("gone {} {before}{}", name.1, if last.is_some() { "" } else { ", missed" })
        }
        Change::Unreadable { name, why, .. } => format!("unreadable {}: {why}", name.1),
        Change::Complete { version } => format!("complete {version}"),
        Change::Failed(_) => "failed".to_owned(),
        Change::Resumed => "resumed".to_owned(),
    }
}

#[test]
fn a_list_that_lacks_an_object_says_that_it_is_gone() {
    let first = || [Begin, Initial(object("a", "1")), Initial(object("b", "1")), synced()];
    assert_eq!(last(first()), ["complete 7"]);
    let again = first().into_iter().chain([Begin, Initial(object("b", "1")), synced()]);
    assert_eq!(last(again), ["gone a 1, missed", "complete 7"]);
    let seen = first().into_iter().chain([Deleted(object("a", "1"))]);
    assert_eq!(last(seen), ["gone a 1"]);
    let once_more = first().into_iter().chain([Deleted(object("a", "1")), Deleted(object("a", "1"))]);
    assert_eq!(last(once_more), [""; 0], "it was gone already");
}

#[test]
fn a_repeated_list_ignores_objects_of_its_first_attempt() {
    let events = [
        Begin,
        Initial(object("a", "1")),
        Initial(object("b", "1")),
        // The list begins again, because its snapshot expired.
        Begin,
        Initial(object("b", "1")),
    ];
    let after = |more: WatchEvent| {
        let mut cache = Cache::default();
        for event in events.iter().map(copy).chain([more]) {
            cache.take(event, read).for_each(drop);
        }
        let mut names: Vec<_> = cache.iter().map(|(name, _)| name.1.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(after(Failed(error())), ["a", "b"], "nothing is gone before the list is complete");
    assert_eq!(after(synced()), ["b"]);
}

fn copy(event: &WatchEvent) -> WatchEvent {
    match event {
        Initial(live) => Initial(live.clone()),
        _ => Begin,
    }
}

#[test]
fn a_duplicate_event_changes_nothing() {
    let first = || [Begin, Initial(object("a", "1")), synced()];
    let then = |event: WatchEvent| last(first().into_iter().chain([event]));
    assert_eq!(then(Applied(object("a", "1"))), [""; 0]);
    assert_eq!(then(Applied(object("a", "2"))), ["changed a 1->2"]);
    let mut with_another_field = object("a", "1");
    with_another_field["other"] = json!("2");
    assert_eq!(then(Applied(with_another_field)), [""; 0], "nothing that is kept has changed");
    let listed = first().into_iter().chain([Begin, Initial(object("a", "1"))]);
    assert_eq!(last(listed), [""; 0], "nor by a list that comes again");
    let missed = first().into_iter().chain([Begin, Initial(object("a", "2"))]);
    assert_eq!(last(missed), ["changed a 1->2"]);
}

#[test]
fn is_complete_only_after_the_first_whole_list() {
    let mut cache = Cache::default();
    let mut after = |event| {
        cache.take(event, read).for_each(drop);
        cache.is_complete()
    };
    assert!(!after(Begin) && !after(Initial(object("a", "1"))) && !after(Failed(error())) && !after(Begin));
    assert!(after(synced()));
    assert!(after(Failed(error())) && after(Resumed) && after(Begin), "what was listed stays known");
}

#[test]
fn an_object_that_cannot_be_read_is_skipped_with_a_message_and_becomes_good_later() {
    let first = [Begin, Initial(object("a", "bad")), Initial(object("b", "1")), synced(), Applied(object("a", "2"))];
    assert_eq!(last(first), ["changed a -->2"]);
    assert_eq!(last([Begin, Applied(object("a", "bad"))]), ["unreadable a: its value is bad"]);
    let good = || [Begin, Initial(object("a", "1")), synced()];
    let then = |events: Vec<WatchEvent>| last(good().into_iter().chain(events));
    assert_eq!(
        then(vec![Applied(object("a", "bad")), Applied(object("a", "1"))]),
        [""; 0],
        "what was read of it stayed"
    );
    assert_eq!(then(vec![Begin, Initial(object("a", "bad")), synced()]), ["complete 7"], "it is there");
    assert_eq!(then(vec![Begin, Unreadable(object("a", ""), error()), synced()]), ["complete 7"], "it is there");
    assert_eq!(then(vec![Applied(object("a", "bad")), Deleted(object("a", "bad"))]), ["gone a 1"]);
}

#[test]
fn an_object_that_does_not_matter_any_more_is_gone() {
    let first = || [Begin, Initial(object("a", "1")), Initial(object("b", "foreign")), synced()];
    assert_eq!(last(first().into_iter().chain([Applied(object("a", "foreign"))])), ["gone a 1"]);
    assert_eq!(last(first().into_iter().chain([Deleted(object("b", "foreign"))])), [""; 0]);
}

#[test]
fn the_answer_to_a_write_counts_until_a_list_shows_otherwise() {
    let name = ("shop".to_owned(), "a".to_owned());
    let mut cache = Cache::default();
    cache.take(Begin, read).for_each(drop);
    cache.insert(name.clone(), "1".to_owned());
    let changes: Vec<_> = cache.take(synced(), read).map(|change| word(&change)).collect();
    assert_eq!(changes, ["complete 7"], "the list may be older than the write");
    cache.take(Begin, read).for_each(drop);
    let changes: Vec<_> = cache.take(synced(), read).map(|change| word(&change)).collect();
    assert_eq!(changes, ["gone a 1, missed", "complete 7"]);
    cache.insert(name.clone(), "1".to_owned());
    assert_eq!((cache.remove(&name), cache.get("shop", "a")), (Some("1".to_owned()), None));
}

#[test]
fn every_state_is_a_change_of_a_cache_of_names() {
    let mut cache = Cache::of_names();
    let mut count = |event| cache.take(event, |_| Ok(Some(()))).count();
    assert_eq!((count(Begin), count(Initial(object("a", "1"))), count(Applied(object("a", "1")))), (0, 1, 1));
    assert_eq!(count(Unreadable(object("b", ""), error())), 1);
    assert_eq!((count(Begin), count(synced())), (0, 3), "also that cannot be read is known and gone");
}

#[test]
fn a_hundred_thousand_changes_leave_nothing_behind() {
    let (mut cache, mut shown) = (Cache::default(), Shown::default());
    for event in [Begin, Initial(object("a", "0")), synced()] {
        shown.take(copy_of_any(&event), name_of);
        cache.take(event, read).for_each(drop);
    }
    for number in 0..100_000 {
        let event = Applied(object("a", &number.to_string()));
        shown.take(copy_of_any(&event), name_of);
        cache.take(event, read).for_each(drop);
    }
    assert_eq!((cache.iter().count(), cache.get("shop", "a")), (1, Some(&"99999".to_owned())));
    assert!(shown.listed.is_none(), "nothing is listed");
}

fn copy_of_any(event: &WatchEvent) -> WatchEvent {
    match event {
        Initial(live) => Initial(live.clone()),
        Applied(live) => Applied(live.clone()),
        Synced(version) => Synced(version.clone()),
        _ => Begin,
    }
}

#[test]
fn a_list_says_to_a_store_what_it_lacks() {
    let mut shown = Shown::default();
    let name = |name: &str| ("shop".to_owned(), name.to_owned());
    let mut take = |event| shown.take(event, name_of);
    assert!(take(Begin).is_none());
    assert!(matches!(take(Initial(object("a", "1"))), Some(Delta::Listed(..))));
    assert!(take(Begin).is_none());
    assert!(matches!(take(Initial(object("b", "1"))), Some(Delta::Listed(..))));
    assert!(matches!(take(Unreadable(object("c", ""), error())), Some(Delta::Unreadable(..))));
    let Some(Delta::Complete(list)) = take(synced()) else { panic!("it is complete") };
    assert_eq!(["a", "b", "c"].map(|one| list.lacks(&name(one))), [true, false, false]);
    assert_eq!(list.version(), "7");
    assert!(take(Applied(json!({"metadata": {}}))).is_none(), "it has no name");
}

#[test]
fn a_list_that_is_older_than_an_earlier_change_shows_a_restored_server() {
    let mut shown = Shown::default();
    let change = |version: &str| json!({"metadata": {"namespace": "shop", "name": "a", "resourceVersion": version}});
    let mut went_back = |events: Vec<WatchEvent>| {
        let mut last = None;
        for event in events {
            last = shown.take(event, name_of);
        }
        matches!(last, Some(Delta::Complete(list)) if list.went_back())
    };
    let listed = |version: &str| vec![Begin, Synced(version.to_owned())];
    assert!(!went_back(listed("880")), "it is the first list");
    assert!(!went_back(listed("880")), "nothing has changed");
    went_back(vec![Applied(change("890")), Deleted(change("900")), Applied(change("v1"))]);
    assert!(!went_back(listed("900")));
    assert!(!went_back(listed("")), "the server did not send a version");
    let aborted = [Begin, Initial(change("90")), Begin, Applied(change("120")), Synced("100".to_owned())];
    assert!(went_back(aborted.into()), "the first of its lists ended early");
    let changed_meanwhile = vec![Begin, Deleted(change("120")), Synced("110".to_owned())];
    assert!(!went_back(changed_meanwhile), "a change during a list does not count");
    assert!(!went_back(listed("0")), "an aggregated server sends no other version");
    went_back(vec![Deleted(change("130"))]);
    assert!(went_back(listed("129")));
}

#[test]
fn a_list_that_is_older_than_a_version_of_another_list_or_of_a_bookmark_shows_a_restored_server() {
    let mut shown = Shown::default();
    let mut went_back = |noted: [&str; 2], before: Vec<WatchEvent>, version: &str| {
        shown.note_version(noted[0]);
        assert!(shown.take(Begin, name_of).is_none());
        shown.note_version(noted[1]);
        for event in before {
            assert!(shown.take(event, name_of).is_none());
        }
        matches!(shown.take(Synced(version.to_owned()), name_of), Some(Delta::Complete(list)) if list.went_back())
    };
    assert!(!went_back(["", ""], Vec::new(), "100"), "it is the first list");
    assert!(went_back(["900", ""], Vec::new(), "500"), "the other list was complete before this one");
    assert!(!went_back(["0", "900"], Vec::new(), "600"), "the other list ended during this one");
    assert!(went_back(["", ""], vec![WentBack], "700"), "the watch has seen a bookmark");
    assert!(went_back(["", ""], vec![WentBack, Begin], "800"), "the list begins again");
    assert!(!went_back(["", ""], Vec::new(), "900"));
}

#[test]
fn a_list_notes_no_more_unknown_objects_than_allowed() {
    let mut shown = Shown::default();
    let note = |key: &Name, count| (count < 10 || key.1 == "known").then(|| key.clone());
    shown.take_noting(Begin, name_of, note);
    for number in 0..1000 {
        shown.take_noting(Initial(object(&number.to_string(), "1")), name_of, note);
    }
    shown.take_noting(Initial(object("known", "1")), name_of, note);
    let Some(Delta::Complete(list)) = shown.take_noting(synced(), name_of, note) else { panic!("it is complete") };
    assert_eq!((list.shown().len(), list.lacks(&("shop".to_owned(), "known".to_owned()))), (11, false));
}

#[tokio::test]
async fn a_reflector_reports_what_is_gone_before_it_is_complete_and_waits_for_more() {
    let events = [Begin, Initial(object("a", "1")), synced(), Begin, Initial(object("b", "1")), synced()];
    let events = stream::iter(events).chain(stream::pending()).boxed();
    let mut reflector = Reflector::new(events, Cache::default(), Box::new(read));
    let mut words = Vec::new();
    for _ in 0..5 {
        words.push(word(&reflector.next().await));
    }
    assert_eq!(words, ["changed a -->1", "complete 7", "changed b -->1", "gone a 1, missed", "complete 7"]);
    assert!(futures::FutureExt::now_or_never(reflector.next()).is_none());
    assert!(reflector.cache().is_complete());
}

#[test]
fn a_change_shows_no_value() {
    let mut cache = Cache::default();
    let changes: Vec<_> = cache.take(Applied(object("a", "hunter2")), read).collect();
    assert_eq!(format!("{changes:?}"), "[Changed shop/a]");
}
