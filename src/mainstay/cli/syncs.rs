//! Functions for GitSyncs that several commands use.

use std::sync::Arc;

use futures::TryStreamExt as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Error, exit, ids};
use mainstay_api::{GitRepository, GitSync, GitSyncStatus};
use mainstay_cluster::{Cluster, Kind, Selection};
use mainstay_engine::managed::health_rules::HealthRules;
use mainstay_git::RemoteUrl;
use mainstay_object::Key;

/// Reads the GitSyncs of a selection.
///
/// # Errors
/// Fails if there are no such GitSyncs.
pub(super) async fn select(cluster: &Cluster, kind: &Arc<Kind>, selection: &Selection) -> Result<Vec<GitSync>, Error> {
    let values: Vec<Value> = cluster.list(kind, selection.clone()).try_collect().await?;
    if values.is_empty() {
        return Err(none(selection));
    }
    values.into_iter().map(understand).collect()
}

/// Returns the health rules of a GitSync, or none if they are invalid. In that case the agent continues with its last
/// valid rules.
pub(super) fn health_rules(sync: &GitSync) -> HealthRules {
    HealthRules::parse(&sync.spec.health_check_exprs).unwrap_or_default()
}

/// Returns the error for a selection without GitSyncs.
fn none(selection: &Selection) -> Error {
    match (selection.namespace(), selection.name()) {
        (Some(namespace), Some(name)) => Error::Missing { what: format!("GitSync {namespace}/{name}") },
        (namespace, _) => Error::NoSync { namespace: namespace.map(str::to_owned) },
    }
}

/// Reads the GitSync with this name.
pub(super) async fn read(cluster: &Cluster, kind: &Arc<Kind>, namespace: &str, name: &str) -> Result<GitSync, Error> {
    let found = cluster.get(kind, Some(namespace), name).await?;
    understand(found.ok_or_else(|| Error::Missing { what: format!("GitSync {namespace}/{name}") })?)
}

/// Whether a commit waits for a window.
pub(super) fn waits_for_window(status: &GitSyncStatus, commit: &str) -> bool {
    status.frozen.as_ref().is_some_and(|frozen| frozen.commit == commit)
}

/// Returns a condition's message without the commit and the failures, which are shown on their own lines, and with
/// short IDs. Returns `None` if nothing else remains.
pub(super) fn rest(message: &str, status: &GitSyncStatus) -> Option<String> {
    let first = status.failures.iter().filter_map(|failure| message.find(&failure.object)).min();
    let said = match first.map(|first| &message[..first]) {
        None => message,
        Some(before) if before.trim_end().ends_with(':') => before,
        // The lines of the objects contain the messages about them.
        Some(before) => before.rfind(';').map_or("", |end| &before[..end]),
    };
    let said = said.trim_end_matches([' ', ':', ';']);
    let commit = status.applied_commit.as_deref();
    let said = ids::shortened(&commit.map_or_else(|| said.to_owned(), |commit| ids::without(said, commit)));
    (!said.is_empty() && said != "applied").then_some(said)
}

/// Deserializes an object from the API server.
pub(super) fn understand<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    let what = format!("{} {}", value["kind"], value["metadata"]["name"]).replace('"', "");
    serde_json::from_value(value).map_err(|cause| Error::Understand { what, cause })
}

/// Returns the key of a GitSync.
pub(super) fn key(sync: &GitSync) -> Key {
    let name = sync.metadata.name.as_deref().unwrap_or_default();
    Key::new("mainstay.dev", "GitSync", sync.metadata.namespace.as_deref(), name)
}

/// Returns `GitSync namespace/name`.
pub(super) fn name(sync: &GitSync) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("GitSync {}/{}", part(&sync.metadata.namespace), part(&sync.metadata.name))
}

/// Returns the URL of a repository. A URL may contain a password, which a parsed URL omits.
pub(super) fn address(repository: &GitRepository) -> Option<String> {
    RemoteUrl::parse(&repository.spec.url).ok().map(|url| url.to_string())
}

/// Formats a duration for people.
pub(super) fn ago(seconds: i64) -> String {
    match seconds.max(0) {
        s @ 0..=119 => format!("{s} s"),
        s @ 120..=7199 => format!("{} min", s / 60),
        s @ 7200..=172_799 => format!("{} h", s / 3600),
        s => format!("{} days", s / 86_400),
    }
}

/// Maximum number of GitSyncs that are named with one failure.
const MOST_NAMES: usize = 5;

/// Returns each message once, after the GitSyncs that failed with it.
pub(super) fn failures(failed: &[(String, Error)]) -> String {
    let mut grouped: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, error) in failed {
        let text = exit::text(error);
        match grouped.iter_mut().find(|(known, _)| *known == text) {
            Some((_, names)) => names.push(name),
            None => grouped.push((text, vec![name])),
        }
    }
    let lines = grouped.iter().map(|(text, names)| {
        let more = names.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        format!("{}{more}:\n{text}", names[..names.len().min(MOST_NAMES)].join(", "))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::git_sync::Failure;

    #[test]
    fn a_message_says_nothing_that_has_a_line_of_its_own() {
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let failure = Failure {
            object: "Service shop/api".to_owned(),
            reason: "Invalid".to_owned(),
            message: "spec.ports: Required value".to_owned(),
        };
        let status =
            GitSyncStatus { applied_commit: Some(commit.to_owned()), failures: vec![failure], ..Default::default() };
        for (message, expected) in [
            (format!("applied commit {commit}"), None),
            (
                format!("applied commit {commit}, but pods cannot be watched"),
                Some("applied, but pods cannot be watched"),
            ),
            (
                "1 of the objects failed: Service shop/api: spec.ports: Required value".to_owned(),
                Some("1 of the objects failed"),
            ),
            ("Service shop/api: 0 of 3 replicas".to_owned(), None),
            (format!("applied commit {commit}; waiting for Service shop/api: 0 of 3 replicas"), None),
            (
                format!("applied commit {commit}; 2 objects are kept; waiting for Service shop/api"),
                Some("applied; 2 objects are kept"),
            ),
            (format!("commit {} waits", commit.replace('0', "9")), Some("commit 9123456789ab waits")),
        ] {
            assert_eq!(rest(&message, &status).as_deref(), expected, "{message}");
        }
    }

    #[test]
    fn a_failure_of_several_git_syncs_is_one_message_with_their_names() {
        let silent = |name: &str| (format!("GitSync apps/{name}"), Error::NotAnswered { seconds: 5 });
        let gone = ("GitSync apps/x".to_owned(), Error::Missing { what: "GitSync apps/x".to_owned() });
        let failed = [silent("a"), gone, silent("b")];
        let (one, other) = (exit::text(&failed[0].1), exit::text(&failed[1].1));
        assert_eq!(failures(&failed), format!("GitSync apps/a, GitSync apps/b:\n{one}GitSync apps/x:\n{other}"));
        let many: Vec<_> = (0..7).map(|number| silent(&number.to_string())).collect();
        assert!(failures(&many).starts_with("GitSync apps/0, ") && failures(&many).contains("/4, and 2 more:\n"));
        assert_eq!(failures(&[]), "");
    }
}
