//! The objects of a GitSync that deviate from its branch: failed, missing, drifted, held from deletion, or paused, each
//! with its difference.
//!
//! Invariant: the number of objects and the size of their differences are limited. Invariant: the size of an object is
//! estimated before it is copied or written as YAML. Invariant: only the names of a Secret's keys are shown.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize as _;
use serde_json::Value;

use crate::address::key_of;
use crate::difference::{Side, difference_within};
use crate::field::{message_at, text_at};
use crate::shown::{changed_yaml, yaml};
use crate::text::{MESSAGE, SHORT, plain};
use crate::trace::ManifestPart;
use crate::tree::{Node, Presence};
use mainstay_api::git_sync::Change;
use mainstay_object::Key;

/// Maximum number of entries of a list in the status.
const LISTED: usize = 200;
/// Maximum number of reasons why objects were not checked, and of objects that are named for each.
const REASONS: usize = 20;
const NAMED: usize = 10;
/// Maximum number of changes of an object, and of reasons in words.
const CHANGES: usize = 40;
const TEXTS: usize = 10;
/// Maximum size of a live object that is compared, in bytes of its names and values.
const OBJECT: usize = 1 << 20;
/// Maximum size of both YAML documents of an object, in bytes.
const DOCUMENTS: usize = 64 << 10;
/// Maximum size of all differences of a page, in bytes.
pub(crate) const ALL: usize = 512 << 10;
/// Maximum time to search for the shortest difference of an object.
const WITHIN: Duration = Duration::from_millis(100);
const TOO_LONG: &str = "The difference is too long for this page. The page of the object has it.";

/// Why an object deviates. The worst reason is first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// The agent could not apply the object, or the object is not healthy.
    Failed,
    Missing,
    Drifted,
    /// The object was removed from the repository, and a guard keeps it.
    Held,
    Paused,
}

impl Why {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Drifted => "drifted",
            Self::Held => "held",
            Self::Paused => "paused",
        }
    }
}

/// An object that deviates.
#[derive(Clone, Debug)]
pub(crate) struct Deviation {
    /// The object as the status names it.
    pub(crate) object: String,
    /// `None` if the name cannot be parsed.
    pub(crate) key: Option<Key>,
    pub(crate) why: BTreeSet<Why>,
    /// The reasons in words.
    pub(crate) texts: Vec<String>,
    /// Why the object is held, which may end with a command of the agent.
    pub(crate) held: Vec<String>,
    /// The changed fields with both values, as far as the status has them.
    pub(crate) changes: Vec<Change>,
}

impl Deviation {
    /// Returns whether no value of the object is shown.
    pub(crate) fn is_secret(&self) -> bool {
        self.object.starts_with("Secret ")
    }
}

/// Objects that were not checked for the same reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotChecked {
    pub(crate) why: String,
    /// The first objects.
    pub(crate) objects: Vec<String>,
    /// Number of further objects.
    pub(crate) more: usize,
}

/// Returns the objects of a tree that were not checked, by reason.
pub(crate) fn not_checked(objects: &[Node]) -> Vec<NotChecked> {
    let mut all: Vec<NotChecked> = Vec::new();
    for node in objects {
        let Presence::NotChecked(why) = &node.presence else { continue };
        let mut why = plain(why, MESSAGE);
        if all.len() >= REASONS && all.iter().all(|one| one.why != why) {
            "for other reasons".clone_into(&mut why);
        }
        let at = all.iter().position(|one| one.why == why).unwrap_or_else(|| {
            all.push(NotChecked { why, objects: Vec::new(), more: 0 });
            all.len() - 1
        });
        let one = &mut all[at];
        if one.objects.len() < NAMED {
            one.objects.push(plain(&node.key.to_string(), SHORT));
        } else {
            one.more += 1;
        }
    }
    all
}

/// The difference of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Lines(Vec<(Side, String)>),
    /// Why there are no lines.
    Text(String),
}

/// Returns the objects that deviate, the worst first: those that the status lists, and the missing ones of the tree.
pub(crate) fn deviations(live: &Value, objects: &[Node]) -> Vec<Deviation> {
    let list = |name: &str| {
        let all = live.pointer(&format!("/status/{name}")).and_then(Value::as_array);
        all.into_iter().flatten().take(LISTED)
    };
    let object = |one: &Value| text_at(one, "/object", SHORT);
    let mut all = BTreeMap::new();
    for one in list("failures").filter(|one| text_at(one, "/reason", SHORT) != "Progressing") {
        let text = format!("{}: {}", text_at(one, "/reason", SHORT), message_at(one, "/message"));
        add(&mut all, &object(one), Why::Failed).texts.push(text);
    }
    for node in objects.iter().filter(|node| node.presence == Presence::Missing) {
        let missing = add(&mut all, &plain(&node.key.to_string(), SHORT), Why::Missing);
        missing.key = Some(node.key.clone());
    }
    for one in list("drifted") {
        let changes = one.get("changes").and_then(Value::as_array).into_iter().flatten().take(CHANGES);
        let changes = changes.filter_map(|change| Change::deserialize(change).ok()).filter(is_short);
        add(&mut all, &object(one), Why::Drifted).changes.extend(changes);
    }
    for one in list("held").filter_map(Value::as_str) {
        let (object, why) = one.split_once(": ").unwrap_or((one, ""));
        let held = add(&mut all, &plain(object, SHORT), Why::Held);
        held.held.extend((!why.is_empty()).then(|| plain(why, MESSAGE)));
    }
    for one in list("paused") {
        let problem = message_at(one, "/problem");
        let paused = add(&mut all, &object(one), Why::Paused);
        paused.texts.extend((!problem.is_empty()).then_some(problem));
    }
    let mut all: Vec<Deviation> = all.into_values().collect();
    for one in &mut all {
        // Several entries of a list may name the same object.
        one.changes.truncate(CHANGES);
        one.texts.truncate(TEXTS);
        one.held.truncate(TEXTS);
    }
    all.sort_by_key(|one| one.why.first().copied());
    all
}

/// Returns whether the values of a change can be part of a difference.
fn is_short(change: &Change) -> bool {
    change.field.len() + change.found.len() + change.restored.len() <= DOCUMENTS
}

/// Returns the entry of an object with this reason.
fn add<'d>(all: &'d mut BTreeMap<String, Deviation>, object: &str, why: Why) -> &'d mut Deviation {
    let new = || Deviation {
        object: object.to_owned(),
        key: key_of(object),
        why: BTreeSet::new(),
        texts: Vec::new(),
        held: Vec::new(),
        changes: Vec::new(),
    };
    let one = all.entry(object.to_owned()).or_insert_with(new);
    one.why.insert(why);
    one
}

/// Returns the number of objects that the status counts and does not list. An object may be in two lists.
pub(crate) fn unlisted(live: &Value) -> u64 {
    let more = |count: &str, list: &str| {
        let counted = live.pointer(&format!("/status/{count}")).and_then(Value::as_u64).unwrap_or(0);
        let listed = live.pointer(&format!("/status/{list}")).and_then(Value::as_array).map_or(0, Vec::len);
        counted.saturating_sub(u64::try_from(listed).unwrap_or(u64::MAX))
    };
    let lists = [("driftedObjects", "drifted"), ("heldObjects", "held"), ("pausedObjects", "paused")];
    lists.into_iter().map(|(count, list)| more(count, list)).fold(0, u64::saturating_add)
}

/// Returns the part of a live object that its manifest sets, with these changes undone.
type Part<'p> = &'p dyn Fn(&Value, &[Change]) -> Option<ManifestPart>;

/// Returns the difference of an object from the part that its manifest sets. An object that is too large is not compared.
/// The other arguments are those of [`shown`].
pub(crate) fn compared(
    deviation: &Deviation,
    found: &Result<Option<Value>, String>,
    part: Part<'_>,
    left: &mut usize,
) -> Shown {
    let live = found.as_ref().ok().and_then(Option::as_ref);
    if live.is_some_and(|live| !fits(live, OBJECT)) {
        return Shown::Text(TOO_LONG.to_owned());
    }
    let part = live.and_then(|live| part(live, &deviation.changes));
    shown(deviation, found, part.as_ref(), left)
}

/// Returns whether the names and values of a document have at most so many bytes. Its YAML has more.
fn fits(document: &Value, most: usize) -> bool {
    fn rest(value: &Value, left: usize) -> Option<usize> {
        // A line of YAML has at least two more bytes.
        let left = left.checked_sub(2)?;
        match value {
            Value::String(text) => left.checked_sub(text.len()),
            Value::Array(items) => items.iter().try_fold(left, |left, item| rest(item, left)),
            Value::Object(fields) => {
                fields.iter().try_fold(left, |left, (name, value)| rest(value, left.checked_sub(name.len())?))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(left),
        }
    }
    rest(document, most).is_some()
}

/// Returns the difference of an object. `found` is the live object, `None` if it does not exist, or why it was not read.
/// `part` is the part that its manifest sets. `left` is the size that the page has left, in bytes.
fn shown(
    deviation: &Deviation,
    found: &Result<Option<Value>, String>,
    part: Option<&ManifestPart>,
    left: &mut usize,
) -> Shown {
    let text = |text: &str| Shown::Text(text.to_owned());
    let (key, part) = match (found, &deviation.key, part) {
        (Err(why), _, _) => return Shown::Text(plain(why, MESSAGE)),
        (Ok(_), None, _) => return text("The name of the object cannot be read."),
        (Ok(None), Some(_), _) => return text("The object does not exist in the cluster."),
        (Ok(Some(_)), Some(_), None) => return text("Not known: Mainstay has not applied the object."),
        (Ok(Some(_)), Some(key), Some(part)) => (key, part),
    };
    // A held object is no longer in the repository.
    let is_held = deviation.why.contains(&Why::Held);
    // The values of a Secret are replaced by short ones.
    let is_long = |part: &Value| !key.is("", "Secret") && !fits(part, DOCUMENTS);
    if is_long(&part.found) || (!is_held && is_long(&part.wanted)) {
        return text(TOO_LONG);
    }
    let (cluster, repository) = if is_held {
        (yaml(key, &part.found).text, String::new())
    } else {
        changed_yaml(key, &part.found, &part.wanted)
    };
    if cluster.len() + repository.len() > DOCUMENTS {
        return text(TOO_LONG);
    }
    let lines = difference_within(&cluster, &repository, WITHIN);
    let size: usize = lines.iter().map(|(_, line)| line.len() + 1).sum();
    if lines.is_empty() {
        return text("No field with another value is known.");
    }
    if size > *left {
        return text(TOO_LONG);
    }
    *left -= size;
    Shown::Lines(lines)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::facts::Facts;
    use crate::tree::Mark;

    fn node(name: &str, presence: Presence) -> Node {
        let key = Key::new("", "Service", Some("shop"), name);
        let state = String::new();
        Node { key, mark: Mark::Failed, state, created: None, presence, facts: Facts::default(), children: Vec::new() }
    }

    fn of(status: Value, objects: &[Node]) -> Vec<Deviation> {
        deviations(&json!({ "status": status }), objects)
    }

    #[test]
    fn each_object_is_listed_once_with_its_reasons_and_the_worst_first() {
        let change = json!({"field": "data.a", "found": "1", "restored": "2"});
        let status = json!({
            "paused": [{"object": "ConfigMap shop/a"}, {"object": "ConfigMap shop/b", "problem": "no time"}],
            "held": ["ConfigMap shop/old: a guard keeps it: really"],
            "drifted": [{"object": "ConfigMap shop/a", "changes": [change, null, {"field": 1}]}],
            "failures": [
                {"object": "Job.batch shop/j", "reason": "ApplyFailed", "message": "no"},
                {"object": "Job.batch shop/k", "reason": "Progressing", "message": "wait"},
            ],
        });
        let all = of(status, &[node("web", Presence::Missing), node("api", Presence::AsExpected)]);
        let words = |one: &Deviation| one.why.iter().map(|why| why.word()).collect::<Vec<_>>().join("+");
        let lines: Vec<String> = all
            .iter()
            .map(|one| format!("{}: {} {}", one.object, words(one), [&*one.texts, &*one.held].concat().join("; ")))
            .collect();
        let expected = [
            "Job.batch shop/j: failed ApplyFailed: no",
            "Service shop/web: missing ",
            "ConfigMap shop/a: drifted+paused ",
            "ConfigMap shop/old: held a guard keeps it: really",
            "ConfigMap shop/b: paused no time",
        ];
        assert_eq!(lines, expected);
        assert_eq!(all[2].changes.len(), 1);
    }

    #[test]
    fn objects_that_were_not_checked_are_counted_by_reason() {
        let of = |name: &str, why: &str| node(name, Presence::NotChecked(why.to_owned()));
        let mut objects = vec![node("web", Presence::Missing), of("api", "forbidden")];
        objects.extend((0..15).map(|number| of(&format!("n{number}"), "timed out")));
        let all = not_checked(&objects);
        let counts: Vec<_> = all.iter().map(|one| (&*one.why, one.objects.len(), one.more)).collect();
        assert_eq!(counts, [("forbidden", 1, 0), ("timed out", 10, 5)]);
        assert_eq!(all[0].objects, ["Service shop/api"]);
        let many: Vec<Node> = (0..100).map(|number| of("a", &number.to_string())).collect();
        let all = not_checked(&many);
        assert_eq!((all.len(), all[REASONS].objects.len(), all[REASONS].more), (REASONS + 1, 10, 70));
    }

    #[test]
    fn statuses_of_any_form_have_deviations_within_limits() {
        for status in [json!(null), json!({"held": [1, null], "drifted": {}, "paused": ["x"], "failures": [null]})] {
            assert!(of(status, &[]).len() <= 2);
        }
        let many: Vec<Value> =
            (0..1000).map(|at| json!(format!("ConfigMap shop/{at}: {}", "x".repeat(9000)))).collect();
        let all = of(json!({ "held": many }), &[]);
        assert!(all.len() == LISTED && all.iter().all(|one| one.held[0].len() < 5000));
        let counts =
            json!({"status": {"driftedObjects": 25, "drifted": [1, 2], "heldObjects": -1, "pausedObjects": 3}});
        assert_eq!(unlisted(&counts), 26);
    }

    fn part(found: Value, wanted: Value) -> ManifestPart {
        ManifestPart { wanted, found, unknown: Vec::new() }
    }

    #[test]
    fn a_drifted_object_has_lines_of_both_sides_and_a_held_one_those_of_the_cluster() {
        let live = Ok(Some(json!({})));
        let part = part(json!({"data": {"a": "live"}}), json!({"data": {"a": "desired"}}));
        let (drifted, held) =
            (json!({"drifted": [{"object": "ConfigMap shop/a"}]}), json!({"held": ["ConfigMap shop/a"]}));
        let mut left = ALL;
        let mut lines = |status: Value| match shown(&of(status, &[])[0], &live, Some(&part), &mut left) {
            Shown::Lines(lines) => {
                let changed = lines.into_iter().filter(|(side, _)| *side != Side::Both);
                changed.map(|(side, line)| format!("{side:?} {}", line.trim())).collect::<Vec<_>>()
            }
            Shown::Text(text) => vec![text],
        };
        assert_eq!(lines(drifted), ["Cluster a: live", "Repository a: desired"]);
        assert_eq!(lines(held), ["Cluster data:", "Cluster a: live"]);
    }

    #[test]
    fn an_object_without_lines_says_why() {
        let drifted = of(json!({"drifted": [{"object": "ConfigMap shop/a"}]}), &[]);
        let strange = of(json!({"drifted": [{"object": "a b c"}]}), &[]);
        let same = part(json!({"a": 1}), json!({"a": 1}));
        let long = part(json!({"a": "x".repeat(DOCUMENTS)}), json!({}));
        let check =
            |one: &Deviation, found: &Result<Option<Value>, String>, part: Option<&ManifestPart>, expected: &str| {
                let Shown::Text(text) = shown(one, found, part, &mut 10) else { panic!("{expected}") };
                assert!(text.contains(expected), "{text}");
            };
        let there = Ok(Some(json!({})));
        check(&drifted[0], &Err("pods is forbidden".to_owned()), None, "forbidden");
        check(&drifted[0], &Ok(None), None, "does not exist");
        check(&drifted[0], &there, None, "has not applied");
        check(&drifted[0], &there, Some(&same), "No field");
        check(&drifted[0], &there, Some(&long), "too long");
        let beyond = part(json!({"a": "live value"}), json!({"a": "desired value"}));
        check(&drifted[0], &there, Some(&beyond), "too long");
        check(&strange[0], &there, Some(&same), "cannot be read");
    }

    #[test]
    fn a_large_object_is_not_copied_and_entries_of_one_object_are_limited_together() {
        let change = json!({"field": "data.a", "found": "1", "restored": "2"});
        let long = json!({"field": "data.b", "found": "1", "restored": "x".repeat(DOCUMENTS)});
        let entry = json!({"object": "ConfigMap shop/a", "changes": [change.clone(), long, change]});
        let failure = json!({"object": "ConfigMap shop/a", "reason": "ApplyFailed", "message": "no"});
        let all = of(json!({"drifted": vec![entry; 100], "failures": vec![failure; 100]}), &[]);
        assert_eq!((all.len(), all[0].changes.len(), all[0].texts.len()), (1, CHANGES, TEXTS));
        assert!(all[0].changes.iter().all(|change| change.field == "data.a"));
        let unread = |_: &Value, _: &[Change]| -> Option<ManifestPart> { panic!("the object is too large") };
        for large in [json!("x".repeat(OBJECT)), json!(vec![0; OBJECT]), json!({"a": {"b".repeat(OBJECT): 1}})] {
            let shown = compared(&all[0], &Ok(Some(large)), &unread, &mut 10);
            assert_eq!(shown, Shown::Text(TOO_LONG.to_owned()));
        }
        let small = |_: &Value, _: &[Change]| Some(part(json!({"a": 1}), json!({"a": 1})));
        let shown = compared(&all[0], &Ok(Some(json!({"a": [1, null, {"b": "c"}]}))), &small, &mut 10);
        assert_eq!(shown, Shown::Text("No field with another value is known.".to_owned()));
    }

    #[test]
    fn values_of_a_secret_are_in_no_line() {
        let all = of(json!({"drifted": [{"object": "Secret shop/key"}], "held": ["Secret shop/old"]}), &[]);
        let part = part(json!({"data": {"password": "aHVudGVyMg=="}}), json!({"data": {"password": "c3dvcmRmaXNo"}}));
        for one in &all {
            assert!(one.is_secret());
            let mut left = ALL;
            let text = format!("{:?}", shown(one, &Ok(Some(json!({}))), Some(&part), &mut left));
            assert!(!text.contains("aHVudGVyMg") && !text.contains("c3dvcmRmaXNo"), "{text}");
        }
    }
}
