//! Formats a trace as lines or as JSON.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    decisions::{Decision, decisions},
    next::Next,
    origin::{Manager, Trace},
    timeline::{self, Moment},
};
use crate::cli::{
    drift, ids, object_name,
    syncs::{self, address, ago},
};
use mainstay_api::names;
use mainstay_engine::managed::fields::paths;
use mainstay_object::{Health, health, hide_logins, hide_logins_in, printable};

/// Maximum number of other managers to print, and of fields of each manager.
const NAMED: usize = 5;
/// The text that is shown if the inventory does not contain the file.
const NO_PLACE: &str = "unknown: the inventory was written by an older agent, or has no space for it";

/// Formats a trace for people.
pub(super) fn text(trace: &Trace, next: &Next, moments: &[Moment], now: Timestamp) -> String {
    let mut text = format!("{}\n", printable(&trace.asked.to_string()));
    let mut row = |label: &str, value: &str| {
        text.push_str(&format!("  {label:<11} {}\n", printable(value)));
    };
    for owner in &trace.owners {
        row("child of", &owner.to_string());
    }
    if let Some(manager) = &trace.manager {
        let status = manager.sync.status.clone().unwrap_or_default();
        row("managed by", &syncs::name(&manager.sync));
        row("repository", &repository(manager));
        row("commit", status.applied_commit.as_deref().unwrap_or("none yet"));
        row("file", &file(manager));
        let applied = trace.live.as_ref().and_then(applied);
        let applied = applied.map_or_else(
            || "never, or by another client since".to_owned(),
            |at| format!("{} ago, at {at}", ago(now.duration_since(at).as_secs())),
        );
        row("applied", &applied);
        let name = trace.object().to_string();
        for drifted in status.drifted.iter().filter(|drifted| drifted.object == name) {
            row("drift", &drift::row(drifted, now).replace("\n      ", "; "));
        }
        for decision in decisions(trace.object(), &status) {
            row("decided", &decision.row(now));
        }
    }
    row("health", &words(trace));
    for other in trace.live.as_ref().map(others).unwrap_or_default() {
        row("others", &other.text());
    }
    for note in &trace.notes {
        row("note", note);
    }
    row("next", &next.text);
    text.push_str(&timeline::lines(moments));
    hide_logins(&text).into_owned()
}

/// Returns the repository with its reference and directory.
pub(super) fn repository(manager: &Manager) -> String {
    let spec = &manager.sync.spec;
    let repository = manager.repository.as_ref().and_then(address);
    let repository = repository.unwrap_or_else(|| format!("{} {}", spec.source().0, spec.source().1));
    format!("{repository}, {}, {}", spec.followed_reference(), spec.base_dir)
}

/// Returns the file and the line, with the commit if the file comes from an earlier commit.
pub(super) fn file(manager: &Manager) -> String {
    let applied = manager.sync.status.as_ref().and_then(|status| status.applied_commit.as_deref());
    match &manager.place {
        Some((commit, place)) if Some(&**commit) == applied => place.to_string(),
        Some((commit, place)) => format!("{place}, as of commit {}", ids::short(commit)),
        None => NO_PLACE.to_owned(),
    }
}

/// Returns the path of the file if no tool built the object from it, and if the object is not behind another one in the file.
pub(super) fn path(manager: &Manager) -> Option<String> {
    let (_, place) = manager.place.as_ref()?;
    let is_first = place.built_by.is_none() && place.known_document().is_none_or(|number| number == 1);
    is_first.then(|| place.file.to_string())
}

/// Returns a trace for programs.
pub(super) fn facts(trace: &Trace, next: &Next, moments: &[Moment], now: Timestamp) -> Value {
    let manager = trace.manager.as_ref().map(|manager| {
        let (spec, status) = (&manager.sync.spec, manager.sync.status.clone().unwrap_or_default());
        json!({
            "gitSync": object_name::facts(&syncs::key(&manager.sync)),
            "repository": {
                "name": spec.source().1, "url": manager.repository.as_ref().and_then(address),
                "reference": spec.followed_reference(), "baseDir": spec.base_dir,
            },
            "appliedCommit": status.applied_commit, "attemptedCommit": status.attempted_commit,
            "place": manager.place.as_ref().map(|(commit, place)| json!({
                "commit": &**commit, "file": &*place.file, "document": place.known_document(), "line": place.known_line(),
            })),
            "suspended": spec.suspended(now).is_some(),
            "decisions": decisions(trace.object(), &status).iter().map(Decision::facts).collect::<Vec<_>>(),
            "drift": status.drifted.iter().find(|one| one.object == trace.object().to_string()),
            "replacements": status.last_replacements.iter().filter(|r| r.object == trace.object().to_string()).collect::<Vec<_>>(),
            "reverts": status.last_reverts.iter().filter(|r| r.object == trace.object().to_string()).collect::<Vec<_>>(),
        })
    });
    let others = trace.live.as_ref().map(others).unwrap_or_default();
    let mut facts = json!({
        "object": object_name::facts(&trace.asked), "childOf": trace.owners.iter().map(object_name::facts).collect::<Vec<_>>(),
        "managedBy": manager, "exists": trace.live.is_some(), "health": words(trace),
        "applied": trace.live.as_ref().and_then(applied),
        "otherManagers": others.iter().map(|other| &other.manager).collect::<BTreeSet<_>>(),
        "otherFields": others.iter().map(Other::facts).collect::<Vec<_>>(),
        "notes": trace.notes, "timeline": timeline::facts(moments), "next": { "action": next.action, "text": next.text },
    });
    hide_logins_in(&mut facts);
    facts
}

fn words(trace: &Trace) -> String {
    match health_of(trace) {
        None => "not in the cluster".to_owned(),
        Some(Health::Healthy) => "Healthy".to_owned(),
        Some(Health::Progressing(why)) => format!("Progressing: {why}"),
        Some(Health::Failed(why)) => format!("Failed: {why}"),
    }
}

/// Returns the health of the object by the rules of the GitSync; `None` if the object does not exist.
pub(super) fn health_of(trace: &Trace) -> Option<Health> {
    let live = trace.live.as_ref()?;
    let rules = trace.manager.as_ref().map(|manager| syncs::health_rules(&manager.sync)).unwrap_or_default();
    Some(rules.health(trace.object(), live).unwrap_or_else(|| health(trace.object(), live)))
}

fn entries(live: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let entries = live.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(|entry| Some((entry.get("manager")?.as_str()?, entry)))
}

/// Returns when the agent last wrote its fields of the object.
pub(super) fn applied(live: &Value) -> Option<Timestamp> {
    let times = entries(live).filter(|(manager, _)| *manager == names::MANAGER);
    times.filter_map(|(_, entry)| entry.get("time")?.as_str()?.parse().ok()).max()
}

/// Another field manager, and the fields that it owns.
struct Other {
    manager: String,
    subresource: String,
    /// The paths of the first fields.
    fields: Vec<String>,
    more: usize,
}

impl Other {
    fn text(&self) -> String {
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        let through = match &*self.subresource {
            "" => String::new(),
            subresource => format!(" (subresource {subresource})"),
        };
        format!("{}{through} owns {}{more}", self.manager, drift::fields(&self.fields))
    }

    fn facts(&self) -> Value {
        json!({"manager": self.manager, "subresource": self.subresource, "fields": self.fields, "more": self.more})
    }
}

/// Returns the other field managers. The whole status of an object counts as one field.
fn others(live: &Value) -> Vec<Other> {
    let of = |(manager, entry): (&str, &Value)| {
        let fields = entry.get("fieldsV1").and_then(Value::as_object).map(paths).unwrap_or_default();
        let mut fields: Vec<String> = fields
            .into_iter()
            .map(|field| if field.starts_with("status.") { "status".to_owned() } else { field })
            .collect();
        fields.dedup();
        let more = fields.len().saturating_sub(NAMED);
        fields.truncate(NAMED);
        let subresource = entry.get("subresource").and_then(Value::as_str).unwrap_or_default().to_owned();
        (!fields.is_empty()).then(|| Other { manager: manager.to_owned(), subresource, fields, more })
    };
    let foreign = entries(live).filter(|(manager, _)| !manager.starts_with(names::MANAGER));
    let mut others: Vec<Other> = foreign.filter_map(of).collect();
    others.sort_by(|one, other| (&one.manager, &one.subresource).cmp(&(&other.manager, &other.subresource)));
    others.truncate(NAMED);
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::trace::next::next;

    #[test]
    fn a_status_of_an_earlier_agent_shows_no_login_of_a_url() {
        let (field, at) = (r#"spec.urls[="https://u:pa hunter2@h"]"#, "2030-01-01T00:00:00Z");
        let object = "ConfigMap shop/a";
        let sync = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": { "name": "demo", "namespace": "apps" },
            "spec": { "gitRepository": "shop" },
            "status": {
                "drifted": [{ "object": object, "fields": [field], "who": "kubectl", "reason": "Backoff", "since": at }],
                "lastReverts": [{ "object": object, "fields": [field], "who": "kubectl", "when": at, "latencyMs": 1 }],
                "lastReplacements": [{ "object": object, "fields": [field], "uid": "u", "allowedBy": "Spec", "when": at }],
                "lastDecisions": [{ "object": object, "decided": "SlowedDown", "who": "https://u:hunter2@h", "times": 1, "when": at }],
            },
        });
        let manager = Manager {
            sync: serde_json::from_value(sync).unwrap(),
            repository: None,
            entry: mainstay_engine::managed::inventory::Entry::default(),
            place: None,
        };
        let owned = json!({ "f:spec": { "f:urls": { "v:\"https://u:pa hunter2@h\"": {} } } });
        let entry = json!({ "manager": "kubectl", "operation": "Update", "fieldsV1": owned });
        let trace = Trace {
            asked: mainstay_object::Key::new("", "ConfigMap", Some("shop"), "a"),
            owners: vec![],
            live: Some(json!({ "metadata": { "name": "a", "managedFields": [entry] } })),
            manager: Some(manager),
            notes: vec!["no https://u:hunter2@h".to_owned()],
        };
        let now = at.parse().unwrap();
        let next = next(&trace, now);
        for shown in [text(&trace, &next, &[], now), facts(&trace, &next, &[], now).to_string()] {
            assert!(shown.contains("https://(hidden)@h") && !shown.contains("hunter2"), "{shown}");
        }
    }
}
