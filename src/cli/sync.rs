//! `mainstay sync`: requests a sync, waits until the agent has performed it, and prints the result.
//!
//! Deliberately absent: any syncing. The annotation requests it, the status shows the result.

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};

use super::{
    Error, Exit,
    connection::{Connection, own_kind},
    output,
    syncs::{self, short},
};
use crate::{
    api::{GitSync, Span, conditions, names},
    cluster::{Cluster, Kind, Part, Persistence, Scope, Selection, WatchEvent},
};

/// Arguments of `sync`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Name of the GitSync; by default all of the namespace
    name: Option<String>,
    /// How long to wait for each GitSync, such as 90s or 10m
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    timeout: Span,
    /// Apply the newest commit even if a window holds it back; the status records it
    #[arg(long)]
    override_window: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connect().await?;
    let namespace = arguments.connection.namespace(&cluster);
    let kind = own_kind::<GitSync>(&cluster).await?;
    let mut exit = Exit::Fine;
    for before in syncs::read(&cluster, &kind, &namespace, arguments.name.as_deref()).await? {
        let answer = async {
            let first = request(&cluster, &kind, &before, None).await?;
            match first.status.as_ref().and_then(|status| status.frozen.as_ref()) {
                Some(frozen) if arguments.override_window => {
                    let by = override_by(&frozen.commit, user(&cluster).await);
                    request(&cluster, &kind, &before, Some((&frozen.commit, by))).await
                }
                _ => Ok(first),
            }
        };
        let after = tokio::time::timeout(arguments.timeout.0, answer)
            .await
            .map_err(|_| Error::NotAnswered { seconds: arguments.timeout.0.as_secs() })??;
        let (text, outcome) = outcome(&before, &after);
        output::print(&text)?;
        exit = exit.max(outcome);
    }
    Ok(exit)
}

/// Whom the API server takes us for; `None` if it does not say so.
async fn user(cluster: &Cluster) -> Option<String> {
    let kind = Kind::fixed("authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", Scope::Cluster);
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = cluster.create(&kind, None, "user", &review, Persistence::Kept).await.ok()?;
    answer["status"]["userInfo"]["username"].as_str().map(str::to_owned)
}

/// Who overrides a window for a commit. Without a name, what was said of an earlier override goes.
fn override_by(commit: &str, user: Option<String>) -> Value {
    user.map_or(Value::Null, |user| json!(format!("{commit} {user}")))
}

/// Sets the annotation and waits until the status names it. The commit in `overridden` is applied even if a window holds it back.
async fn request(
    cluster: &Cluster,
    kind: &std::sync::Arc<Kind>,
    before: &GitSync,
    overridden: Option<(&str, Value)>,
) -> Result<GitSync, Error> {
    let name = before.metadata.name.as_deref().unwrap_or_default();
    let namespace = before.metadata.namespace.as_deref();
    let token = jiff::Timestamp::now().to_string();
    let mut annotations = json!({ names::REQUESTED_AT: token });
    if let Some((commit, by)) = overridden {
        annotations[names::OVERRIDE_WINDOW] = json!(commit);
        annotations[names::OVERRIDE_WINDOW_BY] = by;
    }
    let patch = json!({ "metadata": { "annotations": annotations } });
    cluster.patch_merge(kind, namespace, name, Part::Main, &patch).await?;
    let mut events = std::pin::pin!(cluster.watch(kind, Selection::named(namespace, name)));
    while let Some(event) = events.next().await {
        match event {
            WatchEvent::Initial(value) | WatchEvent::Applied(value) => {
                let sync = syncs::understand::<GitSync>(value)?;
                let handled = sync.status.as_ref().and_then(|status| status.last_handled_request.as_deref());
                if handled == Some(token.as_str()) || sync.spec.suspended(jiff::Timestamp::now()).is_some() {
                    return Ok(sync);
                }
            }
            WatchEvent::Deleted(_) => return Err(Error::Missing { what: syncs::name(before) }),
            // The watch retries by itself; the caller sets a deadline.
            WatchEvent::Unreadable(_, error) => return Err(error.into()),
            WatchEvent::Begin | WatchEvent::Synced(_) | WatchEvent::Failed(_) | WatchEvent::Resumed => {}
        }
    }
    Err(Error::NotAnswered { seconds: Duration::ZERO.as_secs() })
}

/// The result of the sync as text and exit code.
fn outcome(before: &GitSync, after: &GitSync) -> (String, Exit) {
    let name = syncs::name(after);
    if after.spec.suspended(jiff::Timestamp::now()).is_some() {
        return (format!("{name}: suspended, nothing was done\n"), Exit::Differs);
    }
    let status = after.status.clone().unwrap_or_default();
    let old = before.status.as_ref().and_then(|status| status.applied_commit.as_deref());
    let new = status.applied_commit.as_deref();
    let mut text = match (old, new) {
        (Some(old), Some(new)) if old == new => format!("{name}: commit {}, as before", short(new)),
        (Some(old), Some(new)) => format!("{name}: commit {} (was {})", short(new), short(old)),
        (None, Some(new)) => format!("{name}: commit {}", short(new)),
        (_, None) => format!("{name}: nothing applied yet"),
    };
    text.push_str(&format!(", {} objects, {} failed\n", status.objects, status.failed));
    let ready = conditions::status(&status.conditions, conditions::Type::Ready);
    if let Some(ready) = ready {
        text.push_str(&format!("  {}: {}\n", ready.reason, ready.message));
    }
    for failure in &status.failures {
        text.push_str(&format!("  {}: {}: {}\n", failure.object, failure.reason, failure.message));
    }
    // The status names a few of them; `failed` counts all.
    let unnamed = status.failed - i64::try_from(status.failures.len()).unwrap_or(i64::MAX);
    if unnamed > 0 {
        text.push_str(&format!("  and {unnamed} more\n"));
    }
    let current = new.is_some() && status.applied_commit == status.attempted_commit;
    let refused = ready.is_some_and(|ready| ready.status == "False");
    (text, if current && !refused { Exit::Fine } else { Exit::Differs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_objects_and_names_the_failed_ones() {
        let sync = |status: serde_json::Value| -> GitSync {
            serde_json::from_value(json!({
                "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
                "metadata": { "name": "shop", "namespace": "apps" },
                "spec": { "gitRepository": "shop" }, "status": status,
            }))
            .unwrap()
        };
        let (old, new) = ("1111111111111111111111111111111111111111", "2222222222222222222222222222222222222222");
        let before = sync(json!({ "appliedCommit": old }));
        let after = sync(json!({
            "appliedCommit": old, "attemptedCommit": new, "objects": 9, "failed": 3,
            "failures": [{ "object": "Service shop/api", "reason": "Invalid", "message": "spec.ports: Required value" }],
        }));
        let expected = "\
GitSync apps/shop: commit 11111111, as before, 9 objects, 3 failed
  Service shop/api: Invalid: spec.ports: Required value
  and 2 more
";
        assert_eq!(outcome(&before, &after), (expected.to_owned(), Exit::Differs));
    }
}
