//! The page that asks before a sync: the deviations of the GitSync now, the commit that a window holds back, and the fields
//! that permit a replacement.
//!
//! Invariant: the number of objects is limited, and no value of an object is part of it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::address::key_of;
use crate::command::is_revision;
use crate::deviation::{Deviation, Why, deviations, not_checked, unlisted};
use crate::field::{message_at, text_at};
use crate::row::{FleetKind, State, row};
use crate::text::{SHORT, plain};
use crate::tree::Node;
use mainstay_api::names;
use mainstay_object::Key;

/// Maximum number of deviations, and of objects with a field to set.
const LISTED: usize = 20;

/// The deviations of a GitSync before a sync.
#[derive(Clone, Debug)]
pub(crate) struct SyncPreview {
    pub(crate) is_suspended: bool,
    /// `spec.drift`; empty for its default.
    pub(crate) drift: String,
    /// Number of objects for each reason. An object may have several.
    pub(crate) counts: BTreeMap<Why, usize>,
    /// The worst deviations; `more` is the number of further ones.
    pub(crate) listed: Vec<Deviation>,
    pub(crate) more: usize,
    /// Number of objects that the status counts and does not list.
    pub(crate) unlisted: u64,
    /// Number of objects that were not checked.
    pub(crate) not_checked: usize,
    /// Notes about data that could not be read.
    pub(crate) notes: Vec<String>,
    pub(crate) frozen: Option<Frozen>,
    pub(crate) immutable: Vec<Immutable>,
}

/// A commit that a window holds back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frozen {
    pub(crate) commit: String,
    /// The window.
    pub(crate) by: String,
    /// The end of the hold; empty if it is unknown.
    pub(crate) until: String,
}

/// An object that the API server refuses to change, because a field is immutable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Immutable {
    pub(crate) object: String,
    /// Fields that permit its replacement, with the value and the place.
    pub(crate) fields: Vec<(String, &'static str)>,
}

impl SyncPreview {
    /// Returns the preview of a GitSync with these objects.
    pub(crate) fn of(live: &Value, objects: &[Node], notes: Vec<String>) -> Self {
        let mut listed = deviations(live, objects);
        let mut counts = BTreeMap::new();
        for why in listed.iter().flat_map(|one| &one.why) {
            *counts.entry(*why).or_insert(0) += 1;
        }
        let more = listed.len().saturating_sub(LISTED);
        listed.truncate(LISTED);
        for one in &mut listed {
            // The page of differences has the values.
            one.changes = Vec::new();
            one.texts.truncate(1);
        }
        Self {
            is_suspended: row(FleetKind::GitSync, live).state == State::Suspended,
            drift: text_at(live, "/spec/drift", SHORT),
            counts,
            listed,
            more,
            unlisted: unlisted(live),
            not_checked: not_checked(objects).iter().map(|one| one.objects.len() + one.more).sum(),
            notes,
            frozen: frozen(live),
            immutable: immutable(live),
        }
    }
}

/// Returns the commit that a window holds back, if its ID is a full one.
fn frozen(live: &Value) -> Option<Frozen> {
    let frozen = live.pointer("/status/frozen")?;
    let text = |pointer: &str| text_at(frozen, pointer, SHORT);
    let commit = text("/commit");
    is_revision(&commit).then(|| Frozen { commit, by: text("/by"), until: text("/until") })
}

/// Returns the objects that failed for an immutable field, with the fields that the message of the agent permits to set.
fn immutable(live: &Value) -> Vec<Immutable> {
    let failures = live.pointer("/status/failures").and_then(Value::as_array).into_iter().flatten();
    let refused = failures.filter(|one| text_at(one, "/reason", SHORT) == "Immutable");
    let with_fields = |one: &Value| {
        let (object, message) = (text_at(one, "/object", SHORT), message_at(one, "/message"));
        let annotation = format!("{}: {}", names::REPLACE, names::ENABLED);
        let kind = key_of(&object).map(|key| kind_of(&key));
        let mut fields = Vec::new();
        if message.contains(&format!("{{{annotation}}}")) {
            fields.push((format!("annotations: {{{annotation}}}"), "the metadata of its manifest"));
        }
        if let Some(kind) = kind.filter(|_| message.contains("`replace: [")) {
            fields.push((format!("replace: [{kind}]"), "the spec of this GitSync"));
        }
        Immutable { object, fields }
    };
    refused.map(with_fields).take(LISTED).collect()
}

/// Returns a kind as `spec.replace` names it.
fn kind_of(key: &Key) -> String {
    let kind = if key.group.is_empty() { key.kind.to_string() } else { format!("{}.{}", key.kind, key.group) };
    plain(&kind, SHORT)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(status: Value) -> SyncPreview {
        SyncPreview::of(&json!({ "status": status }), &[], Vec::new())
    }

    #[test]
    fn deviations_are_counted_by_reason_and_the_worst_are_listed() {
        let paused: Vec<Value> = (0..30).map(|at| json!({"object": format!("ConfigMap shop/a{at}")})).collect();
        let change = json!({"field": "data.a", "found": "1", "restored": "2"});
        let preview = of(json!({
            "paused": paused, "pausedObjects": 33, "held": ["ConfigMap shop/old: a guard keeps it"],
            "drifted": [{"object": "ConfigMap shop/a1", "changes": [change]}],
            "failures": [{"object": "Service shop/web", "reason": "ApplyFailed", "message": "refused"}],
        }));
        let counts: Vec<_> = preview.counts.iter().map(|(why, count)| (why.word(), *count)).collect();
        assert_eq!(counts, [("failed", 1), ("drifted", 1), ("held", 1), ("paused", 30)]);
        assert_eq!((preview.listed.len(), preview.more, preview.unlisted), (LISTED, 12, 3));
        assert_eq!(preview.listed[0].texts, ["ApplyFailed: refused"]);
        assert!(preview.listed.iter().all(|one| one.changes.is_empty()));
    }

    #[test]
    fn only_a_full_commit_that_a_window_holds_is_offered() {
        let frozen = |commit: &str| of(json!({"frozen": {"commit": commit, "by": "the window is active"}})).frozen;
        let digest = format!("sha256:{}", "a".repeat(64));
        for commit in [&"b".repeat(40), &digest] {
            assert_eq!(frozen(commit).unwrap().commit, *commit);
        }
        for commit in ["", "main", "abc"] {
            assert_eq!(frozen(commit), None, "{commit}");
        }
        assert_eq!(of(json!({})).frozen, None);
    }

    #[test]
    fn an_immutable_object_has_the_fields_that_its_message_permits() {
        let fields = |object: &str, message: &str| {
            let failure = json!({"object": object, "reason": "Immutable", "message": message});
            let all = of(json!({"failures": [failure]})).immutable;
            all[0].fields.iter().map(|(field, _)| field.clone()).collect::<Vec<_>>()
        };
        let both = "delete the object to have it recreated, or allow its replacement: `annotations: \
                    {mainstay.dev/replace: enabled}` in the metadata of its manifest, or `replace: [Job.batch]` in the \
                    spec of the GitSync";
        let annotation = "annotations: {mainstay.dev/replace: enabled}";
        assert_eq!(fields("Job.batch shop/migrate", both), [annotation, "replace: [Job.batch]"]);
        assert_eq!(fields("Service shop/web", both), [annotation, "replace: [Service]"]);
        let holds_data = "allow its replacement: `annotations: {mainstay.dev/replace: enabled}` in the metadata";
        assert_eq!(fields("PersistentVolumeClaim shop/data", holds_data), [annotation]);
        let never = "its deletion deletes other objects, so Mainstay never replaces it";
        assert_eq!(fields("Namespace shop", never), Vec::<String>::new());
        let other = json!({"object": "Service shop/web", "reason": "ApplyFailed", "message": both});
        assert_eq!(of(json!({"failures": [other]})).immutable, Vec::new());
    }
}
