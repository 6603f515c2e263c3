//! Creates the GitRepository and the GitSyncs that `mainstay install` asks for.
//!
//! `kubectl apply` refuses objects of kinds that it has just been told of, so they come in a ConfigMap of the agent's
//! namespace, and the agent applies them once their kinds are served.
//!
//! Invariant: each content of the ConfigMap is applied once; what was deleted or changed afterwards stays so.
//! Invariant: only GitRepositories and GitSyncs are applied, in the agent's own namespace, and no field is taken from
//! another manager.
//!
//! Deliberately absent: SSH keys (`ssh_keys`).

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use crate::api::names::{BOOTSTRAP, BOOTSTRAP_KEY, BOOTSTRAPPED, INSTALL_MANAGER};
use crate::cluster::{Apply, Cluster, Error, Kind, Part, Scope, Selection, WatchEvent};
use crate::failure::{Backoff, Class, chain};

/// Wait after objects could not be created: at first they only wait for their kinds, later for a person.
const AGAIN: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(120));
/// Maximum number of objects in the ConfigMap.
const MAX_OBJECTS: usize = 1000;

/// Watches the ConfigMap until `stop`, and creates what it holds.
pub(super) async fn create(cluster: Cluster, namespace: String, stop: CancellationToken) {
    let kind = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
    // In a row.
    let mut failures = 0;
    loop {
        let mut events = cluster.watch(&kind, Selection::named(Some(&namespace), BOOTSTRAP));
        while let Some(Some(event)) = stop.run_until_cancelled(events.next()).await {
            let (WatchEvent::Initial(map) | WatchEvent::Applied(map)) = event else { continue };
            match carry_out(&cluster, &kind, &namespace, &map).await {
                Ok(()) => failures = 0,
                Err(error) if error.class() == Class::Invalid && !error.is_not_found() => {
                    tracing::warn!(why = chain(&error), "{BOOTSTRAP} is not carried out; correct it");
                }
                // A kind that is not served yet is not found.
                Err(error) => {
                    tracing::warn!(why = chain(&error), "{BOOTSTRAP} is not carried out yet");
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

async fn carry_out(cluster: &Cluster, maps: &Kind, namespace: &str, map: &Value) -> Result<(), Error> {
    let Some(text) = map["data"][BOOTSTRAP_KEY].as_str() else { return Ok(()) };
    let digest = hex::encode(Sha256::digest(text))[..32].to_owned();
    if map["metadata"]["annotations"][BOOTSTRAPPED] == *digest || !map["metadata"]["deletionTimestamp"].is_null() {
        return Ok(());
    }
    match objects(text, namespace) {
        Err(why) => tracing::warn!("{BOOTSTRAP} is not carried out: {why}"),
        Ok(objects) => {
            for (kind, name, object) in objects {
                match cluster.apply(&kind, Some(namespace), &name, &object, Apply::unforced(INSTALL_MANAGER)).await {
                    Ok(_) => tracing::info!("{} {namespace}/{name} is as `mainstay install` asks", kind.kind),
                    Err(error) if error.is_conflict() => {
                        tracing::warn!(why = chain(&error), "{} {namespace}/{name} stays as it is", kind.kind);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
    let patch = json!({"metadata": {"annotations": {BOOTSTRAPPED: digest}}});
    cluster.patch_merge(maps, Some(namespace), BOOTSTRAP, Part::Main, &patch).await.map(drop)
}

/// The objects, each with its kind and name; all of them, or why none.
fn objects(text: &str, namespace: &str) -> Result<Vec<(Kind, String, Value)>, String> {
    let mut objects = Vec::new();
    for document in serde_yaml::Deserializer::from_str(text) {
        let mut object = Value::deserialize(document).map_err(|error| error.to_string())?;
        if object.is_null() {
            continue;
        }
        let kind = match (object["apiVersion"].as_str(), object["kind"].as_str()) {
            (Some("serverless.kyma-project.io/v1alpha1"), Some("GitRepository")) => {
                Kind::custom("serverless.kyma-project.io", "v1alpha1", "GitRepository", "gitrepositories", true, false)
            }
            (Some("mainstay.dev/v1alpha1"), Some("GitSync")) => {
                Kind::custom("mainstay.dev", "v1alpha1", "GitSync", "gitsyncs", true, true)
            }
            _ => return Err("it may hold GitRepositories and GitSyncs only".to_owned()),
        };
        let name = object["metadata"]["name"].as_str().ok_or("an object has no name")?.to_owned();
        match object["metadata"]["namespace"].as_str() {
            Some(other) if other != namespace => {
                return Err(format!("{} {name} is not in the namespace {namespace}", kind.kind));
            }
            _ => object["metadata"]["namespace"] = json!(namespace),
        }
        objects.push((kind, name, object));
        if objects.len() > MAX_OBJECTS {
            return Err(format!("it holds more than {MAX_OBJECTS} objects"));
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
    fn holds_git_repositories_and_git_syncs_of_its_own_namespace_and_nothing_else() {
        let sync = "apiVersion: mainstay.dev/v1alpha1\nkind: GitSync\nmetadata: {name: a}\n";
        let repository = "apiVersion: serverless.kyma-project.io/v1alpha1\nkind: GitRepository\nmetadata: {name: r, namespace: flux}\n";
        check(&format!("---\n{repository}---\n{sync}"), Ok(&["GitRepository flux/r", "GitSync flux/a"]));
        check("", Ok(&[]));
        let elsewhere = sync.replace("a}", "a, namespace: shop}");
        check(&format!("{repository}---\n{elsewhere}"), Err("GitSync a is not in the namespace flux"));
        let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: x}\n";
        check(&format!("{sync}---\n{binding}"), Err("it may hold GitRepositories and GitSyncs only"));
        check("apiVersion: mainstay.dev/v1alpha1\nkind: GitSync\nmetadata: {}\n", Err("an object has no name"));
        check("just text", Err("it may hold GitRepositories and GitSyncs only"));
    }
}
