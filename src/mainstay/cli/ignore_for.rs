//! `mainstay ignore-for`: prints the rule of `spec.ignore` that exempts changes of other clients to an object from
//! reverts.
//!
//! The changes are read from the status of the GitSync: remaining drift, and the last reverts. Existing rules precede
//! the new one, so the output can be passed to `kubectl patch --type merge` unchanged.
//!
//! Invariant: no value of the object is printed, because the object may be a Secret.

mod field;

use serde_json::{Value, json};

use super::{Error, Exit, object_name::ObjectArguments, output, syncs, trace::origin};
use mainstay_api::{GitSync, git_sync::UNKNOWN, ignore::IgnoreRule, overlay::PatchTarget};
use mainstay_engine::managed::{IgnoreRules, Ignored};
use mainstay_object::{Key, Object, Place, Pointer, has_login, hide_logins, printable};

/// A changed field.
#[derive(Debug)]
struct Change {
    field: String,
    /// Who changed the field, and whether the change was reverted.
    how: String,
}

/// The output of the command.
#[derive(Debug, Default)]
struct Suggestion {
    /// The new rule; `None` if there is nothing to ignore.
    rule: Option<IgnoreRule>,
    /// Observed changes, and fields that cannot be ignored, one per line.
    notes: Vec<String>,
}

pub(super) async fn run(arguments: &ObjectArguments) -> Result<Exit, Error> {
    let (_, trace) = origin::find(arguments).await?;
    let key = trace.object();
    let Some(manager) = &trace.manager else {
        return Err(Error::NotManaged { what: key.to_string(), notes: trace.notes.clone() });
    };
    let (sync, name) = (&manager.sync, syncs::name(&manager.sync));
    let changes = changes(sync, key);
    let suggestion = suggest(sync, key, trace.live.as_ref(), &changes);
    let rules = sync.spec.ignore.iter().chain(&suggestion.rule).collect::<Vec<_>>();
    let patch = json!({ "spec": { "ignore": rules } });
    let body = if suggestion.rule.is_some() { output::yaml(&patch)? } else { String::new() };
    let facts = if suggestion.rule.is_some() { patch } else { json!({}) };
    arguments.output.print(&facts, || {
        let begin = match changes.as_slice() {
            [] => format!("no drift of {key} was seen by {name}, so there is nothing to ignore"),
            _ => format!("for {name}: what others changed in {key}"),
        };
        let lines = std::iter::once(&begin).chain(&suggestion.notes);
        lines.map(|line| format!("# {}\n", printable(line))).collect::<Vec<_>>().concat() + &body
    })?;
    Ok(if changes.is_empty() { Exit::Fine } else { Exit::Differs })
}

/// Returns the observed changes of an object, each field once, the latest first. Fields with a hidden login may differ
/// although their paths are equal, so each of them stays.
fn changes(sync: &GitSync, key: &Key) -> Vec<Change> {
    let (status, object) = (sync.status.clone().unwrap_or_default(), key.to_string());
    let by = |who: &str| if who == UNKNOWN { String::new() } else { format!("changed by {who}, ") };
    let drifted = status.drifted.iter().filter(|drifted| drifted.object == object);
    let drifted = drifted.flat_map(|drifted| {
        let how = format!("{}not reverted", by(&drifted.who));
        drifted.fields.iter().map(move |field| Change { field: field.clone(), how: how.clone() })
    });
    let reverts = status.last_reverts.iter().filter(|revert| revert.object == object);
    let reverts = reverts.flat_map(|revert| {
        let how = format!("{}reverted at {}", by(&revert.who), revert.when.0);
        revert.fields.iter().map(move |field| Change { field: field.clone(), how: how.clone() })
    });
    let mut all: Vec<Change> = Vec::new();
    for change in drifted.chain(reverts) {
        if has_login(&change.field) || all.iter().all(|known| known.field != change.field) {
            all.push(change);
        }
    }
    all
}

/// Returns the rule that ignores these changes, and notes about it.
fn suggest(sync: &GitSync, key: &Key, live: Option<&Value>, changes: &[Change]) -> Suggestion {
    let mut suggestion = Suggestion::default();
    let known = live.and_then(|live| Object::from_value(live, Place::file("")).ok());
    let rules = IgnoreRules::parse(&sync.spec.ignore).unwrap_or_default();
    let ignored = known.and_then(|known| Ignored::of(&rules, key, &known));
    let mut paths = Vec::new();
    for Change { field, how } in changes {
        let note = match field::pointer(field, live).and_then(|pointer| allowed(&pointer).map(|()| pointer)) {
            Err(why) => format!("{field}: {how}; {why}"),
            Ok(pointer) if ignored.as_ref().is_some_and(|ignored| covers(ignored, &pointer)) => {
                format!("{field}: {how}; it is ignored already")
            }
            Ok(pointer) => {
                paths.push(pointer.to_string());
                format!("{field}: {how}")
            }
        };
        suggestion.notes.push(hide_logins(&note).into_owned());
    }
    if !paths.is_empty() {
        suggestion.rule = Some(IgnoreRule { paths, target: Some(target(key)) });
    }
    suggestion
}

fn covers(ignored: &Ignored, pointer: &Pointer) -> bool {
    ignored.covers(&pointer.tokens().iter().map(|token| &**token).collect::<Vec<_>>())
}

fn allowed(pointer: &Pointer) -> Result<(), String> {
    let rule = IgnoreRule { paths: vec![pointer.to_string()], target: None };
    // The message omits the location, because this rule is in no file yet.
    let why = |wrong: String| wrong.split_once("): ").map_or(wrong.clone(), |(_, why)| why.to_owned());
    IgnoreRules::parse(&[rule]).map(drop).map_err(|wrong| format!("it cannot be ignored: {}", why(wrong)))
}

/// Returns a target that selects only the object.
fn target(key: &Key) -> PatchTarget {
    PatchTarget {
        group: Some(exactly(&key.group)).filter(|group| !group.is_empty()),
        kind: Some(exactly(&key.kind)),
        name: Some(exactly(&key.name)),
        namespace: key.namespace.as_deref().map(exactly),
        ..PatchTarget::default()
    }
}

/// Returns a regular expression that matches exactly this string. Most names need no escaping.
fn exactly(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
    text.chars().map(|c| if is_plain(c) || !c.is_ascii() { c.to_string() } else { format!("\\{c}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sync: Value, live: Value, rule: Value, notes: &[&str]) {
        let mut whole = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": { "name": "demo", "namespace": "shop" },
            "spec": { "gitRepository": "shop" },
        });
        json_patch::merge(&mut whole, &sync);
        let sync = serde_json::from_value(whole).unwrap();
        let key = Key::new("apps", "Deployment", Some("shop"), "web.v1");
        let changes = changes(&sync, &key);
        let suggestion = suggest(&sync, &key, Some(&live), &changes);
        assert_eq!(json!(suggestion.rule), rule);
        assert_eq!(suggestion.notes, notes);
    }

    fn status() -> Value {
        let at = "2030-01-01T00:00:00Z";
        let revert = |fields: &[&str], who: &str| json!({ "object": "Deployment.apps shop/web.v1", "fields": fields, "who": who, "when": at, "latencyMs": 1 });
        json!({
            "drifted": [{ "object": "Deployment.apps shop/web.v1", "fields": ["spec.replicas"], "who": "hpa", "since": at, "reason": "Report" }],
            "lastReverts": [
                revert(&["spec.replicas", "metadata.annotations[a.b/c]", "spec.c (order)"], "kubectl"),
                revert(&["metadata.labels[mainstay.dev/sync]", "(object)"], "unknown"),
                { "object": "Deployment.apps shop/api", "fields": ["spec.x"], "who": "kubectl", "when": at, "latencyMs": 1 },
            ],
        })
    }

    fn live() -> Value {
        let metadata = json!({ "name": "web.v1", "namespace": "shop", "annotations": { "a.b/c": "d" } });
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": { "replicas": 3 } })
    }

    #[test]
    fn names_the_fields_that_were_changed_and_what_cannot_be_ignored() {
        let target = json!({ "group": "apps", "kind": "Deployment", "name": "web\\.v1", "namespace": "shop" });
        let notes = [
            "spec.replicas: changed by hpa, not reverted",
            "metadata.annotations[a.b/c]: changed by kubectl, reverted at 2030-01-01T00:00:00Z",
            "spec.c (order): changed by kubectl, reverted at 2030-01-01T00:00:00Z; the order of a list cannot be ignored, but the \
             whole list can",
            "metadata.labels[mainstay.dev/sync]: reverted at 2030-01-01T00:00:00Z; it cannot be ignored: it is Mainstay's own",
            "(object): reverted at 2030-01-01T00:00:00Z; it is not a field",
        ];
        let paths = json!(["/spec/replicas", "/metadata/annotations/a.b~1c"]);
        check(json!({ "status": status() }), live(), json!({ "paths": paths, "target": target }), &notes);
        check(json!({}), live(), Value::Null, &[]);
    }

    #[test]
    fn fields_whose_logins_are_hidden_are_not_merged_and_get_no_rule() {
        let field = r#"spec.mirrors[url="https://(hidden)@h"].name"#;
        let mut status = status();
        status["drifted"] = json!([]);
        status["lastReverts"][0]["fields"] = json!([field, field]);
        status["lastReverts"].as_array_mut().unwrap().truncate(1);
        let note = format!(
            "{field}: changed by kubectl, reverted at 2030-01-01T00:00:00Z; its name is not shown, because it contains a login"
        );
        check(json!({ "status": status }), live(), Value::Null, &[note.as_str(), note.as_str()]);
    }

    #[test]
    fn ignored_fields_are_not_added_again() {
        let rules = json!([{ "paths": ["/spec", "/metadata/annotations/a.b~1c"], "target": { "name": "web.*" } }]);
        let mut status = status();
        status["lastReverts"] = json!([]);
        let notes = ["spec.replicas: changed by hpa, not reverted; it is ignored already"];
        check(json!({ "spec": { "ignore": rules }, "status": status }), live(), Value::Null, &notes);
    }
}
