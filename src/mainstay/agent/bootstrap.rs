//! Creates the GitRepository and the GitSyncs that `mainstay install` specifies.
//!
//! `kubectl apply` refuses objects of kinds that it has just created. So the objects are in a ConfigMap of the
//! agent's namespace, and the agent applies them once their kinds are served.
//!
//! Invariant: each object is applied once per content of the ConfigMap, even if other objects are refused and retried.
//! Later deletions and changes are kept. Invariant: only GitRepositories and GitSyncs are applied, in the agent's own
//! namespace, and no field is taken from another field manager.
//!
//! Not here: SSH keys (`ssh_keys`).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use mainstay_api::names::{BOOTSTRAP, BOOTSTRAP_KEY, BOOTSTRAPPED, BOOTSTRAPPING, INSTALL_MANAGER};
use mainstay_api::{GitRepository, GitSync};
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{Apply, Cluster, Error, Kind, Part, Scope, Selection};
use mainstay_object::failure::{Backoff, Class, chain};

/// Delay after objects could not be created. Early failures are caused by kinds that are not served yet, later ones
/// need the user.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(120));
/// Maximum number of objects in the ConfigMap.
const MAX_OBJECTS: usize = 1000;

/// Watches the ConfigMap until `stop`, and creates its objects.
pub(super) async fn create(cluster: Cluster, namespace: String, stop: CancellationToken) {
    let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
    // Consecutive failures.
    let mut failures = 0;
    let mut progress = Progress::default();
    loop {
        let mut reflector = cluster.states(&kind, Selection::named(Some(&namespace), BOOTSTRAP));
        while let Some(change) = stop.run_until_cancelled(reflector.next()).await {
            let Change::Changed { live: map, .. } = change else { continue };
            match carry_out(&cluster, &kind, &namespace, &map, &mut progress).await {
                Ok(()) => failures = 0,
                Err(error) if is_final(&error) => {
                    tracing::warn!(why = chain(&error), "{BOOTSTRAP} is not applied; correct it");
                }
                Err(error) => {
                    tracing::warn!(why = chain(&error), "{BOOTSTRAP} is not applied yet");
                    failures += 1;
                    break;
                }
            }
        }
        if stop.run_until_cancelled(tokio::time::sleep(AGAIN.delay(failures))).await.is_none() {
            return;
        }
    }
}

/// Returns whether a retry is useless. A kind that is not served yet results in "not found", which may be retried.
fn is_final(error: &Error) -> bool {
    error.class() == Class::Invalid && !error.is_not_found()
}

/// The objects of one content of the ConfigMap that were applied.
#[derive(Debug, Default)]
struct Progress {
    /// Digest of the content.
    content: String,
    /// Digests of the names of these objects.
    applied: BTreeSet<String>,
}

impl Progress {
    /// Loads the progress for the content with this digest, including that of earlier agents.
    fn read(&mut self, content: &str, annotation: Option<&str>) {
        if self.content != content {
            *self = Self { content: content.to_owned(), applied: BTreeSet::new() };
        }
        let known = annotation.and_then(|text| text.strip_prefix(content)?.strip_prefix(':'));
        self.applied.extend(known.into_iter().flat_map(|known| known.split(',')).map(str::to_owned));
    }

    /// Returns the value of the annotation.
    fn write(&self) -> String {
        let applied: Vec<_> = self.applied.iter().map(String::as_str).collect();
        format!("{}:{}", self.content, applied.join(","))
    }
}

/// Applies all objects that were not applied yet. Returns the first error that a retry may fix, or else the first
/// error.
async fn carry_out(
    cluster: &Cluster,
    maps: &Kind,
    namespace: &str,
    map: &Value,
    progress: &mut Progress,
) -> Result<(), Error> {
    let Some(text) = map["data"][BOOTSTRAP_KEY].as_str() else { return Ok(()) };
    let digest = hex::encode(Sha256::digest(text))[..32].to_owned();
    let annotations = &map["metadata"]["annotations"];
    if annotations[BOOTSTRAPPED] == *digest || !map["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    progress.read(&digest, annotations[BOOTSTRAPPING].as_str());
    let before = progress.applied.len();
    let mut refused: Option<Error> = None;
    match objects(text, namespace) {
        Err(why) => tracing::warn!("{BOOTSTRAP} is not applied: {why}"),
        Ok(objects) => {
            for (kind, name, object) in objects {
                let short = hex::encode(Sha256::digest(format!("{}/{name}", kind.kind)))[..16].to_owned();
                if progress.applied.contains(&short) {
                    continue;
                }
                match cluster.apply(&kind, Some(namespace), &name, &object, Apply::unforced(INSTALL_MANAGER)).await {
                    Ok(_) => tracing::info!("{} {namespace}/{name} is as `mainstay install` asks", kind.kind),
                    Err(error) if error.is_conflict() => {
                        tracing::warn!(why = chain(&error), "{} {namespace}/{name} stays as it is", kind.kind);
                    }
                    Err(error) => {
                        tracing::warn!(why = chain(&error), "{} {namespace}/{name} is refused", kind.kind);
                        if refused.as_ref().is_none_or(|first| is_final(first) && !is_final(&error)) {
                            refused = Some(error);
                        }
                        continue;
                    }
                }
                progress.applied.insert(short);
            }
        }
    }
    let annotations = match &refused {
        None => json!({BOOTSTRAPPED: digest, BOOTSTRAPPING: null}),
        Some(_) if progress.applied.len() > before => json!({BOOTSTRAPPING: progress.write()}),
        Some(_) => Value::Null,
    };
    if !annotations.is_null() {
        let patch = json!({"metadata": {"annotations": annotations}});
        let written = cluster.patch_merge(maps, Some(namespace), BOOTSTRAP, Part::Main, &patch).await;
        // If an object was refused, that error is reported rather than a failed write of the progress.
        refused = refused.or(written.err());
    }
    refused.map_or(Ok(()), Err)
}

/// Parses the objects, each with its kind and name. An error in one object refuses all objects.
fn objects(text: &str, namespace: &str) -> Result<Vec<(Kind, String, Value)>, String> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let mut object = Value::deserialize(document).map_err(|error| error.to_string())?;
        if object.is_null() {
            continue;
        }
        let is_of = |kind: &Kind| object["kind"] == *kind.kind && object["apiVersion"] == *kind.api_version();
        let kind = [Kind::of::<GitRepository>(), Kind::of::<GitSync>()].into_iter().find(is_of);
        let kind = kind.ok_or("it must contain only GitRepositories and GitSyncs")?;
        let name = object["metadata"]["name"].as_str().ok_or("an object has no name")?.to_owned();
        match object["metadata"]["namespace"].as_str() {
            Some(other) if other != namespace => {
                return Err(format!("{} {name} is not in the namespace {namespace}", kind.kind));
            }
            _ => object["metadata"]["namespace"] = json!(namespace),
        }
        objects.push((kind, name, object));
        if objects.len() > MAX_OBJECTS {
            return Err(format!("it contains more than {MAX_OBJECTS} objects"));
        }
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&[&str], &str>) {
        let found = objects(text, "flux");
        let found = found.map(|all| {
            let name = |(kind, name, object): &(Kind, String, Value)| {
                format!("{} {}/{name}", kind.kind, object["metadata"]["namespace"].as_str().unwrap())
            };
            all.iter().map(name).collect::<Vec<_>>()
        });
        assert_eq!(found, expected.map(|all| all.iter().map(ToString::to_string).collect()).map_err(str::to_owned));
    }

    #[test]
    fn progress_counts_for_the_same_content_and_for_later_agents() {
        let mut progress = Progress::default();
        progress.read("c1", None);
        progress.applied.insert("a".to_owned());
        let written = progress.write();
        progress.read("c1", None);
        assert_eq!(progress.applied.len(), 1);
        progress.read("c2", Some(&written));
        assert!(progress.applied.is_empty(), "of another content");
        let mut later = Progress::default();
        later.read("c1", Some(&written));
        assert!(later.applied.contains("a"));
    }

    #[test]
    fn holds_git_repositories_and_git_syncs_of_its_own_namespace_and_nothing_else() {
        let sync = "apiVersion: mainstay.dev/v1alpha1\nkind: GitSync\nmetadata: {name: a}\n";
        let repository = "apiVersion: serverless.kyma-project.io/v1alpha1\nkind: GitRepository\nmetadata: {name: r, namespace: flux}\n";
        check(&format!("---\n{repository}---\n{sync}"), Ok(&["GitRepository flux/r", "GitSync flux/a"]));
        check("", Ok(&[]));
        let elsewhere = sync.replace("a}", "a, namespace: shop}");
        check(&format!("{repository}---\n{elsewhere}"), Err("GitSync a is not in the namespace flux"));
        let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\n";
        check(&format!("{sync}---\n{binding}"), Err("it must contain only GitRepositories and GitSyncs"));
        check("apiVersion: mainstay.dev/v1alpha1\nkind: GitSync\nmetadata: {}\n", Err("an object has no name"));
        check("just text", Err("it must contain only GitRepositories and GitSyncs"));
    }
}
