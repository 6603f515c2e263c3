//! Deletes the namespace of the agent if `mainstay install` created it and if it contains no other objects.
//!
//! Invariant: Mainstay's objects are recognized by kind and name. A label alone is not enough, because other clients
//! may set it. Invariant: the namespace stays while an API group is unavailable, because the objects of that group
//! cannot be listed.

use std::collections::BTreeSet;

use futures::TryStreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::registry::is_made_for_registry;
use super::shard_leases::is_shard_lease;
use super::{NAMESPACED_OBJECTS, Uninstall, is_ours};
use crate::cli::{Error, output};
use mainstay_api::names;
use mainstay_cluster::{Kind, Scope, Selection};

/// Maximum number of remaining objects that the message lists.
const SHOWN: usize = 5;

impl Uninstall<'_> {
    /// Deletes the namespace if `mainstay install` created it and if it contains no other objects.
    pub(super) async fn delete_namespace(&self) -> Result<(), Error> {
        let namespaces = Kind::fixed("v1", "Namespace", "namespaces", Scope::Cluster);
        let meta = self.cluster.get_metadata(&namespaces, None, self.namespace).await?;
        if !meta.is_some_and(|meta| is_ours(&meta)) {
            return Ok(());
        }
        match reason_to_keep(self.namespace, &self.foreign_objects().await?, &self.cluster.silent_groups().await?) {
            None => self.delete(&namespaces, None, self.namespace, is_ours).await,
            Some(why) => output::print(&why),
        }
    }

    /// Returns the objects in the namespace that are not Mainstay's.
    async fn foreign_objects(&self) -> Result<BTreeSet<String>, Error> {
        let mut left = BTreeSet::new();
        for kind in self.cluster.kinds().await? {
            if !kind.namespaced || !kind.listable || !kind.deletable || &*kind.kind == "Event" {
                continue;
            }
            let here = Selection::default().within(self.namespace);
            let found: Vec<ObjectMeta> = match self.cluster.list_metadata(&kind, here).try_collect().await {
                // The CRD of the kind was deleted just now.
                Err(error) if error.is_not_found() => continue,
                found => found?,
            };
            let others =
                found.iter().filter(|meta| meta.deletion_timestamp.is_none() && !is_installed(&kind.kind, meta));
            left.extend(others.map(|meta| format!("{} {}", kind.kind, meta.name.as_deref().unwrap_or_default())));
        }
        Ok(left)
    }
}

/// Returns the message if the namespace must stay.
fn reason_to_keep(namespace: &str, left: &BTreeSet<String>, unavailable: &[String]) -> Option<String> {
    if !left.is_empty() {
        let some: Vec<&str> = left.iter().take(SHOWN).map(String::as_str).collect();
        let more = if left.len() > some.len() { ", …" } else { "" };
        return Some(format!("Namespace {namespace} stays: it holds {}{more}\n", some.join(", ")));
    }
    (!unavailable.is_empty()).then(|| {
        format!(
            "Namespace {namespace} stays: the API server cannot reach {}, so objects of these groups cannot be listed; if \
             there are none: kubectl delete namespace {namespace}\n",
            unavailable.join(", ")
        )
    })
}

/// Returns whether an object belongs to the installation, exists in every namespace, or was created by a controller for
/// an object of the installation.
fn is_installed(kind: &str, meta: &ObjectMeta) -> bool {
    let name = meta.name.as_deref().unwrap_or_default();
    let is_default = matches!((kind, name), ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default"));
    let is_named = |kind: &str, name: &str| {
        let listed = NAMESPACED_OBJECTS.iter().any(|(_, own, _, called)| (*own, *called) == (kind, name));
        // A ReplicaSet has the name of its Deployment and a hash.
        listed || (kind, name) == ("Deployment", "mainstay") || kind == "ReplicaSet" && name.starts_with("mainstay-")
    };
    // The Endpoints of a Service have the name and the labels of the Service.
    let is_of_service = |name: &str| is_named("Service", name) || name == names::INTERNAL_REGISTRY;
    let is_own = is_named(kind, name) || kind == "Endpoints" && is_of_service(name);
    let mut makers = meta.owner_references.iter().flatten().filter(|owner| owner.controller == Some(true));
    let is_made_for_ours = makers.any(|owner| is_named(&owner.kind, &owner.name));
    let is_made = is_made_for_registry(meta) || is_ours(meta) && (is_own || is_made_for_ours);
    let is_lease = kind == "Lease" && (name == names::LEASE || is_shard_lease(name));
    is_default || is_lease || is_made
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http_body_util::Full;
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::super::LABEL;
    use super::*;
    use mainstay_cluster::Cluster;

    #[test]
    fn a_label_alone_is_not_enough() {
        let check = |kind: &str, name: &str, owner: Option<(&str, &str)>, expected: bool| {
            let owners = owner.map(|(kind, name)| {
                json!([{"apiVersion": "v1", "kind": kind, "name": name, "uid": "1", "controller": true}])
            });
            let labels = json!({LABEL.0: LABEL.1});
            let meta = json!({"name": name, "labels": labels, "ownerReferences": owners});
            let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
            assert_eq!(is_installed(kind, &meta), expected, "{kind} {name} {owner:?}");
        };
        check("ConfigMap", "mainstay-known-hosts", None, true);
        check("ConfigMap", "theirs", None, false);
        check("Lease", "mainstay", None, true);
        check("Lease", "mainstay-shard-12", None, true);
        check("Lease", "mainstay-shard-x", None, false);
        check("Deployment", "mainstay", None, true);
        check("Deployment", "theirs", None, false);
        check("ReplicaSet", "mainstay-6c9f", Some(("Deployment", "mainstay")), true);
        check("Pod", "mainstay-6c9f-x", Some(("ReplicaSet", "mainstay-6c9f")), true);
        check("Pod", "theirs-x", Some(("ReplicaSet", "theirs")), false);
        check("Pod", "mainstay-x", None, false);
        check("Endpoints", "mainstay-receivers", None, true);
        check("EndpointSlice", "mainstay-receivers-x", Some(("Service", "mainstay-receivers")), true);
        check("Secret", "mainstay", None, false);
        let console = json!({"name": "mainstay-console", "labels": {LABEL.0: "mainstay-console"}});
        assert!(is_installed("Deployment", &serde_json::from_value(console).unwrap()));
        check("Pod", "mainstay-console-6c9f-x", Some(("ReplicaSet", "mainstay-console-6c9f")), true);
        let registry = "serverless-docker-registry";
        check("ReplicaSet", "serverless-docker-registry-6c9f", Some(("Deployment", registry)), true);
        check(
            "Pod",
            "serverless-docker-registry-6c9f-x",
            Some(("ReplicaSet", "serverless-docker-registry-6c9f")),
            true,
        );
        check("Pod", "theirs-x", Some(("ReplicaSet", "serverless-docker-registry-of-theirs")), false);
        check("Endpoints", registry, None, true);
        // The registry's Deployment is deleted before the namespace, or stays together with it.
        check("Deployment", registry, None, false);
    }

    /// A cluster with a fake server, and the requests that the server received.
    fn cluster(answer: fn(&str) -> Value) -> (Cluster, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let received = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            received.lock().push(format!("{} {}", request.method(), request.uri().path()));
            let body = Full::new(Bytes::from(answer(request.uri().path()).to_string()));
            std::future::ready(Ok::<_, Infallible>(http::Response::new(body)))
        });
        let client = kube::Client::new(service, "default");
        (Cluster::from_clients(client.clone(), client), asked)
    }

    #[tokio::test]
    async fn a_namespace_stays_while_an_api_group_is_unavailable() {
        let (cluster, asked) = cluster(|path| {
            let resource = json!({
                "resource": "configmaps", "responseKind": {"group": "", "version": "", "kind": "ConfigMap"},
                "scope": "Namespaced", "singularResource": "configmap", "verbs": ["delete", "list"],
            });
            let groups = |group: &str, freshness: &str, resources: Value| {
                let versions = json!([{"version": "v1", "freshness": freshness, "resources": resources}]);
                json!({
                    "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                    "items": [{"metadata": {"name": group}, "versions": versions}],
                })
            };
            match path {
                "/api" => groups("", "Current", json!([resource])),
                "/apis" => groups("shop.example.org", "Stale", json!([])),
                "/api/v1/namespaces/home" => {
                    json!({"metadata": {"name": "home", "uid": "1", "labels": {LABEL.0: LABEL.1}}})
                }
                _ => json!({"metadata": {"resourceVersion": "1"}, "items": []}),
            }
        });
        let work = Uninstall { cluster, namespace: "home", wait: Duration::ZERO };
        work.delete_namespace().await.unwrap();
        let asked = asked.lock();
        assert!(asked.iter().any(|line| line.ends_with("/configmaps")), "{asked:?}");
        assert!(!asked.iter().any(|line| line.starts_with("DELETE")), "{asked:?}");
    }
}
