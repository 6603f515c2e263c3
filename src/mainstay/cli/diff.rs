//! `mainstay diff`: prints unreverted drift field by field; or the changes that a work tree or a revision would make
//! (`preview`).
//!
//! Not here: a comparison with the cluster. The command prints the drift in the status, as found by the agent: the
//! first objects of each GitSync, the first fields of each object, and no value of a Secret.

use jiff::Timestamp;
use serde_json::{Value, json};

use clap_complete::engine::ArgValueCompleter;

use super::{
    Error, Exit, completion,
    connection::{WideConnection, own_kind},
    drift, ids,
    preview::{self, PreviewOutput, Wanted},
    suspend::git_sync_name,
    syncs,
};
use mainstay_api::{GitSync, GitSyncStatus, conditions, git_sync::Drifted};
use mainstay_object::{hide_changed_logins, hide_logins, hide_logins_in, printable};

/// Arguments of `diff`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitSync; by default all in the namespace
    #[arg(value_parser = git_sync_name, add = ArgValueCompleter::new(completion::git_syncs))]
    name: Option<String>,
    #[command(flatten)]
    wanted: Wanted,
    /// Output format: text, wide (text without truncation), json, yaml, or markdown (the body of a comment on a pull
    /// request)
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "text", hide_possible_values = true)]
    output: PreviewOutput,
    #[command(flatten)]
    connection: WideConnection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    if let Some(name) = arguments.name.as_ref().filter(|_| arguments.wanted.is_any()) {
        return preview::diff(&arguments.wanted, name, &arguments.connection.connection, arguments.output).await;
    }
    let output = arguments.output.plain().ok_or(Error::NoComment)?;
    let cluster = arguments.connection.connection.connect().await?;
    let kind = own_kind::<GitSync>(&cluster).await?;
    let selection = arguments.connection.selection(&cluster, arguments.name.as_deref());
    let all = syncs::select(&cluster, &kind, &selection).await?;
    let now = Timestamp::now();
    let facts = json!({ "items": all.iter().map(facts).collect::<Vec<_>>() });
    output.print(&facts, || all.iter().map(|sync| text(sync, now)).collect())?;
    Ok(if all.iter().all(is_known_to_be_equal) { Exit::Fine } else { Exit::Differs })
}

fn is_known_to_be_equal(sync: &GitSync) -> bool {
    sync.status.as_ref().is_some_and(|status| unknown(status).is_none() && status.drifted_objects == 0)
}

/// Returns why the drift is unknown, if it is.
fn unknown(status: &GitSyncStatus) -> Option<&str> {
    match conditions::status(&status.conditions, conditions::Type::Drifted) {
        Some(condition) if condition.status == "Unknown" => Some(&condition.message),
        Some(_) => None,
        None => Some("the agent has not said yet whether anything differs"),
    }
}

fn facts(sync: &GitSync) -> Value {
    let status = sync.status.clone().unwrap_or_default();
    let mut facts = json!({
        "namespace": sync.metadata.namespace, "name": sync.metadata.name, "commit": status.applied_commit,
        "unknown": unknown(&status), "driftedObjects": status.drifted_objects, "drifted": status.drifted,
    });
    hide_logins_in(&mut facts);
    facts
}

fn text(sync: &GitSync, now: Timestamp) -> String {
    let name = syncs::name(sync);
    let status = sync.status.clone().unwrap_or_default();
    let commit = status
        .applied_commit
        .as_deref()
        .map_or_else(|| "no commit".to_owned(), |id| format!("commit {}", ids::short(id)));
    if let Some(why) = unknown(&status) {
        return format!("{name}: {}\n", printable(&hide_logins(why)));
    }
    let shown = status.drifted.len();
    let mut text = match usize::try_from(status.drifted_objects).unwrap_or_default() {
        0 => return format!("{name}: nothing differs from {commit}\n"),
        1 => format!("{name}: 1 object differs from {commit}\n"),
        all if all > shown => format!("{name}: {all} objects differ from {commit}; the first {shown} of them:\n"),
        all => format!("{name}: {all} objects differ from {commit}\n"),
    };
    text.extend(status.drifted.iter().map(|drifted| hunk(drifted, now)));
    text
}

/// Returns the lines for one object: `-` is the value in the cluster and `+` the value in the repository, as in
/// `kubectl diff`.
fn hunk(drifted: &Drifted, now: Timestamp) -> String {
    let mut lines = vec![format!("{}, {}", drifted.object, drift::circumstances(drifted, now))];
    if drifted.is_absent() {
        lines.push("+ the whole object".to_owned());
    }
    for change in &drifted.changes {
        let (found, restored) = hide_changed_logins(&change.found, &change.restored);
        lines.extend([format!("  {}", hide_logins(&change.field)), format!("-   {found}"), format!("+   {restored}")]);
    }
    let is_listed = |field: &&String| drifted.changes.iter().any(|change| change.field == **field);
    let without_values = drifted.fields.iter().filter(|field| !drifted.is_absent() && !is_listed(field));
    lines.extend(without_values.map(|field| format!("  {} (values are not shown)", hide_logins(field))));
    // Names of fields and values may contain line breaks.
    lines.iter().map(|line| format!("  {}\n", printable(line))).collect::<Vec<_>>().concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sync(status: Value) -> GitSync {
        let object = json!({
            "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync", "metadata": { "name": "shop", "namespace": "apps" },
            "spec": { "gitRepository": "shop" }, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    fn drifted(status: &str, message: &str) -> Value {
        let at = "2030-01-01T00:00:00Z";
        json!([{ "type": "Drifted", "status": status, "reason": "Drifted", "message": message, "lastTransitionTime": at }])
    }

    fn check(status: Value, expected: &str, is_equal: bool) {
        let sync = sync(status);
        let now = "2030-01-01T00:05:00Z".parse().unwrap();
        assert_eq!((text(&sync, now).as_str(), is_known_to_be_equal(&sync)), (expected, is_equal));
    }

    #[test]
    fn shows_no_login_of_a_url() {
        let fields = [r#"spec.mirrors[url="https://a:hunter2@h"].url"#, r#"spec.urls[="https://a:hunter2@h"]"#];
        let change =
            json!({ "field": fields[0], "found": "\"https://a:hunter2@h\"", "restored": "\"https://b:hunter2@h\"" });
        let sync = sync(json!({
            "driftedObjects": 1, "conditions": drifted("True", ""),
            "drifted": [{ "object": "ConfigMap shop/a", "fields": fields, "who": "kubectl", "since": "2030-01-01T00:00:00Z",
                          "reason": "Report", "changes": [change] }],
        }));
        let text = text(&sync, "2030-01-01T00:05:00Z".parse().unwrap());
        assert!(text.contains("-   \"https://(hidden-before)@h\""), "{text}");
        assert!(text.contains("spec.urls[=\"https://(hidden)@h\"] (values are not shown)"), "{text}");
        assert!(!text.contains("hunter2") && !facts(&sync).to_string().contains("hunter2"), "{text}");
    }

    #[test]
    fn shows_the_fields_of_each_object_and_what_is_not_known() {
        let commit = "1111111111111111111111111111111111111111";
        let none = json!({ "appliedCommit": commit, "conditions": drifted("False", "") });
        check(none, "GitSync apps/shop: nothing differs from commit 111111111111\n", true);
        let ignored =
            json!({ "driftedObjects": 0, "conditions": drifted("Unknown", "spec.drift is Ignore: nobody looks") });
        check(ignored, "GitSync apps/shop: spec.drift is Ignore: nobody looks\n", false);
        check(json!({}), "GitSync apps/shop: the agent has not said yet whether anything differs\n", false);
        let at = "2030-01-01T00:00:00Z";
        let some = json!({
            "appliedCommit": commit, "driftedObjects": 30, "conditions": drifted("True", ""),
            "drifted": [
                { "object": "Deployment.apps shop/web", "fields": ["spec.replicas", "spec.a\nb"], "who": "kubectl", "since": at,
                  "reason": "Report", "changes": [{ "field": "spec.replicas", "found": "5", "restored": "2" }] },
                { "object": "Service shop/api", "fields": ["(object)"], "who": "unknown", "since": at, "reason": "Backoff",
                  "nextAttempt": "2030-01-01T00:05:30Z" },
            ],
        });
        let expected = "GitSync apps/shop: 30 objects differ from commit 111111111111; the first 2 of them:
  Deployment.apps shop/web, for 5 min, by kubectl: spec.drift is Report
    spec.replicas
  -   5
  +   2
    spec.a\\nb (values are not shown)
  Service shop/api, for 5 min: it keeps being changed; next attempt in 30 s
  + the whole object
";
        check(some, expected, false);
    }
}
