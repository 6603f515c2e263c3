//! Formats several GitSyncs as a table, and each GitSync as JSON or YAML.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::{
    Error, ids,
    output::{Format, OutputArgument},
    syncs::address,
    table::{self, Table},
};
use mainstay_api::{GitRepository, GitSync, conditions};
use mainstay_object::{hide_logins, hide_logins_in};

/// Returns the facts about a GitSync: whether it is in sync, its source, and its status from the cluster.
pub(super) fn facts(
    sync: &GitSync,
    repository: Option<&GitRepository>,
    is_in_sync: bool,
    now: Timestamp,
) -> Result<Value, Error> {
    let status = serde_json::to_value(&sync.status).map_err(Error::WriteJson)?;
    let suspended = sync.spec.suspended(now);
    let mut facts = json!({
        "namespace": sync.metadata.namespace,
        "name": sync.metadata.name,
        "inSync": is_in_sync,
        "suspended": suspended.is_some(),
        "suspendedUntil": suspended.flatten(),
        "repository": {
            "name": sync.spec.source().1,
            "url": repository.and_then(address),
            "reference": sync.spec.followed_reference(),
            "baseDir": sync.spec.base_dir,
        },
        "status": status,
    });
    hide_logins_in(&mut facts);
    Ok(facts)
}

/// Returns several GitSyncs as a list.
pub(super) fn list(items: Vec<Value>) -> Value {
    json!({ "items": items })
}

/// Returns a table with a row per GitSync.
pub(super) fn table<'a>(
    syncs: &[&GitSync],
    repository: impl Fn(&GitSync) -> Option<&'a GitRepository>,
    output: OutputArgument,
    with_namespaces: bool,
    now: Timestamp,
) -> String {
    let is_wide = output.output == Format::Wide;
    let mut heading =
        vec!["NAME", "READY", "SUSPENDED", "COMMIT", "HEALTHY", "FAILED", "DRIFTED", "PAUSED", "REVERTED"];
    if with_namespaces {
        heading.insert(0, "NAMESPACE");
    }
    if is_wide {
        heading.extend(["REPOSITORY", "REFERENCE", "BASEDIR"]);
    }
    heading.push("MESSAGE");
    let mut table = Table::new(&heading);
    for sync in syncs {
        let status = sync.status.clone().unwrap_or_default();
        let ready = conditions::status(&status.conditions, conditions::Type::Ready);
        let suspended = if sync.spec.suspended(now).is_some() { "True" } else { "False" };
        let commit = status.applied_commit.as_deref().unwrap_or("none");
        let commit = if is_wide { commit.to_owned() } else { ids::short(commit) };
        let mut row = vec![
            sync.metadata.name.clone().unwrap_or_default(),
            ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.clone()),
            suspended.to_owned(),
            commit,
            format!("{}/{}", status.healthy, status.objects),
            status.failed.to_string(),
            status.drifted_objects.to_string(),
            status.paused_objects.to_string(),
            status.reverted.to_string(),
        ];
        if with_namespaces {
            row.insert(0, sync.metadata.namespace.clone().unwrap_or_default());
        }
        if is_wide {
            let url = repository(sync).and_then(address).unwrap_or_else(|| "?".to_owned());
            row.extend([url, sync.spec.followed_reference().into_owned(), sync.spec.base_dir.clone()]);
        }
        row.push(match ready {
            None => "no agent has reconciled it yet".to_owned(),
            Some(ready) if is_wide => hide_logins(&ready.message).into_owned(),
            Some(ready) => message(&hide_logins(&ready.message), status.applied_commit.as_deref()),
        });
        table.row(row);
    }
    table.render(table::width().filter(|_| !is_wide))
}

/// Returns a message without the commit, which has its own column, and with other IDs shortened.
fn message(message: &str, commit: Option<&str>) -> String {
    ids::shortened(&commit.map_or_else(|| message.to_owned(), |commit| ids::without(message, commit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::style::written;

    #[test]
    fn a_table_cuts_nothing_where_no_terminal_is() {
        let message = "waiting for Deployment.apps shop/web: 0 of 3 replicas are available\nDeployment.apps shop/api";
        let sync = |namespace: &str, name: &str| -> GitSync {
            serde_json::from_value(json!({
                "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
                "metadata": { "name": name, "namespace": namespace }, "spec": { "gitRepository": "shop" },
                "status": {
                    "appliedCommit": "1111111111111111111111111111111111111111",
                    "objects": 441, "healthy": 421, "failed": 1, "reverted": 7, "pausedObjects": 21, "driftedObjects": 3,
                    "conditions": [{
                        "type": "Ready", "status": "False", "reason": "X", "message": message.repeat(3),
                        "lastTransitionTime": "2030-01-01T00:00:00Z",
                    }],
                },
            }))
            .unwrap()
        };
        let (one, two) = (sync("apps", "shop"), sync("a-team-with-a-long-name", &"n".repeat(90)));
        let render = |output| {
            let output = OutputArgument { output };
            table(&[&one, &two], |_| None, output, true, Timestamp::UNIX_EPOCH)
        };
        let text = written(&render(Format::Text), false, str::to_owned);
        assert!(text.lines().nth(1).unwrap().starts_with("apps "), "{text}");
        assert!(
            text.contains("   False   False       111111111111   421/441   1        3         21       7  "),
            "{text}"
        );
        assert!(text.contains("replicas are available…\n"), "{text}");
        assert!(render(Format::Wide).contains(&"n".repeat(90)));
    }
}
