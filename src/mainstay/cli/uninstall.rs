//! `mainstay uninstall`: removes the agent from a cluster; the objects that it has applied stay.
//!
//! Invariant: no object from a repository is deleted. Invariant: no object waits for the deleted agent. Finalizers are
//! removed with the GitSyncs, and no policy keeps refusing changes. Invariant: a namespace or a CRD that is still in
//! use stays, and a message reports it.
//!
//! The order matters. GitSyncs are deleted while an agent can still remove labels and ownership from their objects.
//! Then the agent is stopped. The agent's roles, the CRDs and the namespace are deleted last.
//!
//! Not here: Functions. Functions serve requests without an agent, and their CRD stays as long as there are Functions.

mod conversion;
mod events;
mod namespace;
mod registry;
mod restricted;
mod shard_leases;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::{Error, Exit, check, connection::HomeConnection, identity::confirm, lease, output};
use mainstay_api::{Span, names};
use mainstay_cluster::{Cluster, Guard, Kind, Part, Propagation, Removal, Scope, Selection};

/// Interval at which a deletion is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Maximum number of requests to a busy server for one list.
const TRIES: usize = 20;
/// Maximum number of further reads of an object that changes between a read and its deletion.
const LOOKS_AGAIN: usize = 5;
/// The label on all objects that `mainstay install` prints.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "mainstay");
/// The value of this label on the objects of the console.
const CONSOLE: &str = "mainstay-console";
/// Kinds and names of the installed cluster-wide objects. The webhooks come first, because the webhooks no longer have
/// an endpoint.
const CLUSTER_OBJECTS: &[(&str, &str, &str, &str)] = &[
    (WEBHOOKS, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", names::ADMISSION),
    (WEBHOOKS, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", names::ADMISSION),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", "mainstay-agent"),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", "mainstay-applies"),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", "mainstay-converts"),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", "mainstay-exposes"),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", "mainstay-functions"),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", "mainstay-impersonates"),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", "mainstay-propagates"),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", "mainstay-restricted"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-agent"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-converts"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-exposes"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-functions"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-impersonates"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-propagates"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-restricted"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-view"),
    (RBAC, "ClusterRole", "clusterroles", "mainstay-view-functions"),
];
const WEBHOOKS: &str = "admissionregistration.k8s.io/v1";
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// Kinds and names of the namespaced objects that `mainstay install` or the agent created.
const NAMESPACED_OBJECTS: &[(&str, &str, &str, &str)] = &[
    ("apps/v1", "Deployment", "deployments", CONSOLE),
    ("v1", "Service", "services", CONSOLE),
    ("v1", "ServiceAccount", "serviceaccounts", CONSOLE),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", CONSOLE),
    (RBAC, "RoleBinding", "rolebindings", "mainstay-lease"),
    (RBAC, "Role", "roles", "mainstay-lease"),
    ("v1", "ServiceAccount", "serviceaccounts", "mainstay"),
    ("v1", "Service", "services", "mainstay-receivers"),
    ("v1", "Service", "services", names::ADMISSION),
    ("v1", "Secret", "secrets", names::ADMISSION),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "mainstay"),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "mainstay-egress"),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "mainstay"),
    ("v1", "ConfigMap", "configmaps", names::BOOTSTRAP),
    ("v1", "ConfigMap", "configmaps", names::KNOWN_HOSTS),
    ("coordination.k8s.io/v1", "Lease", "leases", names::LEASE),
];

/// Arguments of `uninstall`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Print the plan without changing anything
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation
    #[arg(long)]
    yes: bool,
    /// Timeout for the agent to release its objects, and again for it to stop
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    wait: Span,
    #[command(flatten)]
    connection: HomeConnection,
}

/// The relevant state of the cluster.
struct Installed {
    syncs: Vec<ObjectMeta>,
    /// Whether an agent holds its Lease.
    is_led: bool,
    /// The number of Functions.
    functions: usize,
    /// Whether the agent was installed with the component for Functions, and so with their CRD.
    has_functions: bool,
    /// Whether there is the NATS of `mainstay install --nats embedded`.
    has_nats: bool,
}

/// Describes what an uninstallation deletes and keeps.
fn plan(namespace: &str, installed: &Installed) -> String {
    let mut text = String::new();
    for sync in &installed.syncs {
        text.push_str(&format!("GitSync {} will be deleted, its objects stay\n", namespaced_name(sync)));
    }
    if !installed.is_led && !installed.syncs.is_empty() {
        text.push_str("no agent is running, so the objects keep a label of Mainstay, which has no effect\n");
    }
    let registry = if installed.functions == 0 { ", its registry" } else { "" };
    text.push_str(&format!(
        "the agent in the namespace {namespace} will be deleted with its roles, its key, its console{registry} and the definitions that are not \
         in use\n"
    ));
    if installed.functions > 0 {
        text.push_str(&stays(installed.functions));
    }
    if installed.has_nats {
        text.push_str(&nats_stays());
    }
    text
}

/// Returns the message that the registry stays, because this many Functions use it.
fn stays(functions: usize) -> String {
    format!(
        "logins of registries, and the registry {} if there is one, stay: Functions exist ({functions}) whose images may be in it\n",
        names::INTERNAL_REGISTRY
    )
}

/// Returns the message that the installed NATS and its events stay.
fn nats_stays() -> String {
    let (namespace, name) = (names::EVENTING_NAMESPACE, names::NATS);
    format!(
        "NATS {namespace}/{name} stays with its events. To delete them: kubectl -n {namespace} delete \
         statefulset,service,configmap,secret,pdb,networkpolicy,pvc -l app.kubernetes.io/name={name}\n"
    )
}

/// The steps of an uninstallation.
struct Uninstall<'a> {
    cluster: Cluster,
    namespace: &'a str,
    wait: Duration,
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let cluster = arguments.connection.connect().await?;
    let work = Uninstall { cluster, namespace: &arguments.connection.namespace, wait: arguments.wait.0 };
    work.check_namespace().await?;
    let installed = work.observe().await?;
    output::print(&plan(work.namespace, &installed))?;
    if arguments.dry_run {
        return Ok(Exit::Fine);
    }
    if !arguments.yes && !confirm("Do this?") {
        return Err(Error::NotConfirmed);
    }
    work.perform(&installed).await?;
    Ok(Exit::Fine)
}

impl Uninstall<'_> {
    /// Checks that the agent is installed in this namespace.
    ///
    /// # Errors
    /// Fails if the agent is installed in a different namespace, where it would continue without its roles.
    async fn check_namespace(&self) -> Result<(), Error> {
        let deployments = Arc::new(Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced));
        let ours = Selection::labelled(LABEL.0, LABEL.1);
        let found: Vec<ObjectMeta> = self.list(&deployments, ours).await?;
        let named = found.iter().filter(|meta| meta.name.as_deref() == Some("mainstay"));
        let mut namespaces: BTreeSet<&str> = named.filter_map(|meta| meta.namespace.as_deref()).collect();
        if namespaces.contains(self.namespace) {
            return Ok(());
        }
        match namespaces.pop_first() {
            Some(there) => Err(Error::InstalledElsewhere { here: self.namespace.to_owned(), there: there.to_owned() }),
            None => Ok(()),
        }
    }

    async fn observe(&self) -> Result<Installed, Error> {
        let lease = self.cluster.get(&lease::kind(), Some(self.namespace), names::LEASE).await?;
        let is_led = lease.is_some_and(|found| lease::is_held(&found["spec"], Timestamp::now()));
        Ok(Installed {
            syncs: self.syncs().await?,
            is_led,
            functions: self.count_functions().await?,
            has_functions: check::Installed::find(&self.cluster, self.namespace).await?.functions,
            has_nats: self.has_nats().await?,
        })
    }

    async fn perform(&self, installed: &Installed) -> Result<(), Error> {
        self.delete_syncs(installed.is_led).await?;
        self.end_conversion().await?;
        self.stop_agent().await?;
        // From now on, no agent removes finalizers or creates policies.
        self.delete_policies().await?;
        self.delete_syncs(false).await?;
        self.delete_keys_and_repositories().await?;
        self.delete_registry(installed.functions).await?;
        for (api_version, kind, plural, name) in NAMESPACED_OBJECTS {
            let kind = Kind::fixed(api_version, kind, plural, Scope::Namespaced);
            // The agent creates its Lease without Mainstay's label.
            let may_go = |meta: &ObjectMeta| is_ours(meta) || *name == names::LEASE;
            self.delete(&kind, Some(self.namespace), name, may_go).await?;
        }
        self.delete_shard_leases().await?;
        self.delete_restricted().await?;
        self.delete_nats_rights().await?;
        for (api_version, kind, plural, name) in CLUSTER_OBJECTS {
            let kind = Kind::fixed(api_version, kind, plural, Scope::Cluster);
            self.delete(&kind, None, name, is_ours).await?;
        }
        self.delete_definitions(installed.has_functions).await?;
        self.delete_namespace().await
    }

    /// Lists the metadata of the selected objects. Retries if the server is busy. A server returns 429 also after a
    /// change of a CRD.
    async fn list(&self, kind: &Arc<Kind>, selection: Selection) -> Result<Vec<ObjectMeta>, Error> {
        let mut left = TRIES;
        loop {
            let error = match self.cluster.list_metadata(kind, selection.clone()).try_collect().await {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            left -= 1;
            if left == 0 || error.refusal().is_none_or(|refusal| refusal.code != 429) {
                return Err(error.into());
            }
            let wait = error.retry_after().unwrap_or_default();
            tokio::time::sleep(wait.clamp(Duration::from_millis(500), Duration::from_secs(5))).await;
        }
    }

    /// Lists the GitSyncs of all namespaces; an empty list if the kind is not served.
    async fn syncs(&self) -> Result<Vec<ObjectMeta>, Error> {
        let Some(kind) = self.cluster.kind("mainstay.dev/v1alpha1", "GitSync").await? else { return Ok(Vec::new()) };
        self.list(&kind, Selection::default()).await
    }

    /// Deletes all GitSyncs and keeps their objects. If an agent leads, waits until it has released these objects.
    async fn delete_syncs(&self, is_led: bool) -> Result<(), Error> {
        let Some(kind) = self.cluster.kind("mainstay.dev/v1alpha1", "GitSync").await? else { return Ok(()) };
        let labels: BTreeSet<Arc<str>> = self.syncs().await?.iter().map(label).collect();
        let held = if is_led { self.kinds_held(&labels).await? } else { Vec::new() };
        let began = Instant::now();
        loop {
            // A GitSync that another GitSync applies is recreated until the other GitSync is deleted.
            let syncs = self.syncs().await?;
            if syncs.is_empty() && !self.holds_any(&held, &labels).await? {
                break;
            }
            let is_late = !is_led || began.elapsed() > self.wait;
            for sync in &syncs {
                self.delete_sync(&kind, sync, is_late).await?;
            }
            if is_late && began.elapsed() > self.wait {
                break;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        if !is_led {
            let maps = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
            for map in self.inventories().await? {
                let (namespace, name) = (map.namespace.as_deref(), map.name.as_deref().unwrap_or_default());
                self.delete(&maps, namespace, name, is_inventory).await?;
            }
        }
        Ok(())
    }

    async fn delete_sync(&self, kind: &Kind, sync: &ObjectMeta, without_agent: bool) -> Result<(), Error> {
        let (namespace, name) = (sync.namespace.as_deref(), sync.name.as_deref().unwrap_or_default());
        if is_protected(sync) {
            // A managed GitSync may be protected from deletion. A pause lifts the protection.
            let glass = json!({"metadata": {"annotations": {names::RECONCILE: names::DISABLED}}});
            match self.cluster.patch_merge(kind, namespace, name, Part::Main, &glass).await {
                Err(error) if error.is_not_found() => return Ok(()),
                patched => patched.map(drop)?,
            }
        }
        let finalizers: Vec<&String> = sync.finalizers.iter().flatten().collect();
        let held = finalizers.iter().any(|finalizer| *finalizer == names::FINALIZER);
        let mut metadata = json!({});
        if prunes_on_deletion(sync) {
            // With this annotation, the objects of the GitSync would be deleted, too.
            metadata["annotations"] = json!({names::ON_DELETE: null});
        }
        if held && without_agent {
            let others: Vec<_> = finalizers.into_iter().filter(|finalizer| *finalizer != names::FINALIZER).collect();
            metadata["finalizers"] = json!(others);
        }
        let uid = sync.uid.as_deref();
        if metadata != json!({}) {
            // The UID guards against a new GitSync of the same name: it has a different UID, and the API server refuses
            // to change a UID.
            metadata["uid"] = json!(uid);
            let patched =
                self.cluster.patch_merge(kind, namespace, name, Part::Main, &json!({"metadata": metadata})).await;
            match patched {
                Err(error) if error.is_not_found() || error.is_conflict() => return Ok(()),
                patched => patched.map(drop)?,
            }
        }
        if sync.deletion_timestamp.is_none() {
            // A GitSync with this annotation is not deleted, because its objects would be deleted, too.
            let may_go = |meta: &ObjectMeta| meta.uid.as_deref() == uid && !prunes_on_deletion(meta);
            self.delete(kind, namespace, name, may_go).await?;
        }
        Ok(())
    }

    /// Returns the kinds of objects with one of these labels.
    async fn kinds_held(&self, labels: &BTreeSet<Arc<str>>) -> Result<Vec<Arc<Kind>>, Error> {
        let mut held = Vec::new();
        for kind in self.cluster.kinds().await? {
            if kind.listable && kind.patchable && self.holds_any(std::slice::from_ref(&kind), labels).await? {
                held.push(kind);
            }
        }
        Ok(held)
    }

    /// Returns whether an object of these kinds has one of these labels. Objects with a controller do not count,
    /// because controllers copy labels.
    async fn holds_any(&self, kinds: &[Arc<Kind>], labels: &BTreeSet<Arc<str>>) -> Result<bool, Error> {
        for kind in kinds {
            let all = self.cluster.list_metadata(kind, Selection::with_label(names::SYNC_LABEL));
            let all: Vec<ObjectMeta> = match all.try_collect().await {
                // The kind was deleted in the meantime.
                Err(error) if error.is_not_found() => continue,
                all => all?,
            };
            let held = |meta: &ObjectMeta| {
                let value = meta.labels.as_ref().and_then(|labels| labels.get(names::SYNC_LABEL));
                let is_copy = meta.owner_references.iter().flatten().any(|owner| owner.controller == Some(true));
                !is_copy && value.is_some_and(|value| labels.contains(value.as_str()))
            };
            if all.iter().any(held) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn inventories(&self) -> Result<Vec<ObjectMeta>, Error> {
        let maps = Arc::new(Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced));
        let selection = Selection::with_label(names::INVENTORY_LABEL);
        self.list(&maps, selection).await
    }

    /// Deletes the Deployment and waits until the agent's pods are gone.
    async fn stop_agent(&self) -> Result<(), Error> {
        let deployments = Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced);
        self.delete(&deployments, Some(self.namespace), "mainstay", is_ours).await?;
        let pods = Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced));
        let began = Instant::now();
        while began.elapsed() < self.wait {
            let selection = Selection::labelled(LABEL.0, LABEL.1).within(self.namespace);
            let left: Vec<ObjectMeta> = self.list(&pods, selection).await?;
            if left.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        output::note("the agent's pods are still terminating\n");
        Ok(())
    }

    /// Deletes the generated keys, and the GitRepositories of `mainstay install`. Keeps keys and GitRepositories if
    /// there are Functions in the namespace, because the Functions may use them.
    async fn delete_keys_and_repositories(&self) -> Result<(), Error> {
        let group = "serverless.kyma-project.io/v1alpha1";
        if let Some(functions) = self.cluster.kind(group, "Function").await? {
            let here = Selection::default().within(self.namespace);
            let here: Vec<ObjectMeta> = self.list(&functions, here).await?;
            if !here.is_empty() {
                return Ok(());
            }
        }
        let secrets = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
        let made = Selection::labelled(names::GENERATE, names::SSH_KEY).within(self.namespace);
        let made: Vec<ObjectMeta> = self.list(&secrets, made).await?;
        for secret in made {
            let name = secret.name.as_deref().unwrap_or_default();
            self.delete(&secrets, Some(self.namespace), name, is_made_key).await?;
            output::note("remove the deploy key at the Git host, too\n");
        }
        let Some(kind) = self.cluster.kind(group, "GitRepository").await? else { return Ok(()) };
        let here = Selection::default().within(self.namespace);
        let here: Vec<ObjectMeta> = self.list(&kind, here).await?;
        for repository in here {
            let is_installed = |meta: &ObjectMeta| was_written_by(meta, names::INSTALL_MANAGER);
            if is_installed(&repository) {
                let name = repository.name.as_deref().unwrap_or_default();
                self.delete(&kind, Some(self.namespace), name, is_installed).await?;
            }
        }
        Ok(())
    }

    /// Deletes the agent's policies against manual changes. The bindings of the policies are deleted first.
    async fn delete_policies(&self) -> Result<(), Error> {
        for kind in ["ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"] {
            let Some(kind) = self.cluster.kind(WEBHOOKS, kind).await? else { continue };
            for found in self.list(&kind, Selection::with_label(names::PREVENTION_LABEL)).await? {
                let may_go = |meta: &ObjectMeta| was_written_by(meta, names::AGENT_MANAGER);
                self.delete(&kind, None, found.name.as_deref().unwrap_or_default(), may_go).await?;
            }
        }
        Ok(())
    }

    /// Deletes Mainstay's CRDs that have no objects. An installation without Functions has not installed their CRD.
    async fn delete_definitions(&self, has_functions: bool) -> Result<(), Error> {
        let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let definitions = Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster);
        for definition in mainstay_api::definitions() {
            let (name, own) = (definition.metadata.name.clone().unwrap_or_default(), &definition.spec.names.kind);
            let version = format!("{}/v1alpha1", definition.spec.group);
            if name == names::FUNCTION_DEFINITION && !has_functions {
                continue;
            }
            if self.cluster.get_metadata(&definitions, None, &name).await?.is_none() {
                continue;
            }
            let served = match self.cluster.kind(&version, own).await? {
                Some(served) => Some(served),
                None => self.cluster.preferred_kind(&definition.spec.group, own).await?,
            };
            if let Some(served) = served {
                let left: Vec<ObjectMeta> = self.list(&served, Selection::default()).await?;
                if let Some(first) = left.first() {
                    let count = left.len();
                    output::print(&format!(
                        "{kind} {name} stays: objects of it exist ({count}, such as {}); when they are deleted: kubectl delete crd {name}\n",
                        namespaced_name(first)
                    ))?;
                    continue;
                }
            } else {
                output::print(&format!("{kind} {name} stays: it is not served, so its objects cannot be listed\n"))?;
                continue;
            }
            self.delete(&definitions, None, &name, |_| true).await?;
        }
        self.cluster.kinds_changed();
        Ok(())
    }

    /// Deletes an object if it exists and `may_go` accepts it, and prints a message. Reads the object again if it
    /// changes in the meantime.
    async fn delete(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        may_go: impl Fn(&ObjectMeta) -> bool,
    ) -> Result<(), Error> {
        let mut looks_left = LOOKS_AGAIN;
        loop {
            let found = self.cluster.get_metadata(kind, namespace, name).await?;
            let Some(found) = found.filter(|found| may_go(found)) else { return Ok(()) };
            let guard = Guard { uid: found.uid.as_deref(), resource_version: found.resource_version.as_deref() };
            match self.cluster.delete(kind, namespace, name, guard, Propagation::Background).await {
                Err(error) if error.is_conflict() && looks_left > 0 => looks_left -= 1,
                Ok(Removal::Absent) => return Ok(()),
                removed => {
                    removed?;
                    return output::print(&format!("{} deleted\n", kind.key(namespace, name)));
                }
            }
        }
    }
}

/// Returns the label of the objects of a GitSync.
fn label(sync: &ObjectMeta) -> Arc<str> {
    mainstay_gitsync::label(sync.namespace.as_deref().unwrap_or_default(), sync.name.as_deref().unwrap_or_default())
}

fn namespaced_name(meta: &ObjectMeta) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", part(&meta.namespace), part(&meta.name))
}

fn is_ours(meta: &ObjectMeta) -> bool {
    let name = meta.labels.as_ref().and_then(|labels| labels.get(LABEL.0));
    name.is_some_and(|name| name == LABEL.1 || name == CONSOLE)
}

/// Returns whether a GitSync manages the object, and it is not paused.
fn is_protected(meta: &ObjectMeta) -> bool {
    let is_managed = meta.labels.iter().flatten().any(|(key, _)| key == names::SYNC_LABEL);
    let mut annotations = meta.annotations.iter().flatten();
    is_managed && !annotations.any(|(key, value)| key == names::RECONCILE && value == names::DISABLED)
}

fn prunes_on_deletion(meta: &ObjectMeta) -> bool {
    meta.annotations.iter().flatten().any(|(key, _)| key == names::ON_DELETE)
}

fn was_written_by(meta: &ObjectMeta, manager: &str) -> bool {
    meta.managed_fields.iter().flatten().any(|entry| entry.manager.as_deref() == Some(manager))
}

/// Returns whether the agent wrote an inventory. The label alone does not suffice, because labels are easily copied.
fn is_inventory(meta: &ObjectMeta) -> bool {
    let is_labelled = meta.labels.iter().flatten().any(|(key, _)| key == names::INVENTORY_LABEL);
    is_labelled && was_written_by(meta, names::AGENT_MANAGER)
}

fn is_made_key(meta: &ObjectMeta) -> bool {
    meta.labels.iter().flatten().any(|(key, value)| (key.as_str(), value.as_str()) == (names::GENERATE, names::SSH_KEY))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::{BodyExt as _, Full};
    use parking_lot::Mutex;
    use serde_json::Value;

    use super::*;

    #[test]
    fn plans_to_keep_nats_and_the_registry_while_functions_exist() {
        let installed = |functions| Installed {
            syncs: Vec::new(),
            is_led: true,
            functions,
            has_functions: true,
            has_nats: functions > 0,
        };
        let without = "the agent in the namespace n will be deleted with its roles, its key, its console, its registry and the definitions that \
                       are not in use\n";
        assert_eq!(plan("n", &installed(0)), without);
        let with = plan("n", &installed(2));
        assert!(!with.contains("its registry"), "{with}");
        assert!(
            with.contains("the registry serverless-docker-registry if there is one, stay: Functions exist (2)"),
            "{with}"
        );
        assert!(
            with.contains("NATS kyma-system/mainstay-nats stays with its events. To delete them: kubectl"),
            "{with}"
        );
    }

    /// Deletes an object of a fake server. `found` contains the successive states of the object: each deletion except
    /// the last one results in a conflict, and the object then has the next state. Returns whether the object was
    /// deleted, and the preconditions of all deletions.
    async fn deletions(found: &[Value], may_go: fn(&ObjectMeta) -> bool) -> (bool, Vec<Value>) {
        let asked = Arc::new(Mutex::new((0, Vec::new())));
        let (received, found) = (Arc::clone(&asked), found.to_vec());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (received, found) = (Arc::clone(&received), found.clone());
            async move {
                let is_deletion = request.method() == http::Method::DELETE;
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut received = received.lock();
                let (mut status, mut answer) = (200, json!({"metadata": found.get(received.0)}));
                if is_deletion {
                    received.0 += 1;
                    received.1.push(serde_json::from_slice::<Value>(&body).unwrap()["preconditions"].clone());
                    let is_conflict = received.0 < found.len();
                    status = if is_conflict { 409 } else { 200 };
                    answer = json!({"kind": "Status", "status": "Success"});
                    if is_conflict {
                        answer = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409});
                    }
                }
                let answer = Full::new(Bytes::from(answer.to_string()));
                Ok::<_, Infallible>(http::Response::builder().status(status).body(answer).unwrap())
            }
        });
        let client = kube::Client::new(service, "home");
        let cluster = Cluster::from_clients(client.clone(), client);
        let work = Uninstall { cluster, namespace: "home", wait: Duration::ZERO };
        let kind = Kind::fixed("v1", "ConfigMap", "configmaps", Scope::Namespaced);
        let is_done = work.delete(&kind, Some("home"), "a", may_go).await.is_ok();
        let preconditions = asked.lock().1.clone();
        (is_done, preconditions)
    }

    fn found(uid: &str, version: &str, labels: Value) -> Value {
        json!({"name": "a", "namespace": "home", "uid": uid, "resourceVersion": version, "labels": labels})
    }

    #[tokio::test]
    async fn objects_that_change_meanwhile_are_examined_again() {
        let ours = json!({LABEL.0: LABEL.1});
        let preconditions = |uid: &str, version: &str| json!({"uid": uid, "resourceVersion": version});
        let (first, touched) = (found("1", "1", ours.clone()), found("1", "2", ours));
        let both = vec![preconditions("1", "1"), preconditions("1", "2")];
        assert_eq!(deletions(&[first.clone(), touched], is_ours).await, (true, both));
        // Another client deleted and recreated the object.
        let theirs = found("2", "2", json!({}));
        assert_eq!(deletions(&[first.clone(), theirs], is_ours).await, (true, vec![preconditions("1", "1")]));
        // The retries are limited.
        let (is_done, asked) = deletions(&vec![first; 20], is_ours).await;
        assert_eq!((is_done, asked.len()), (false, LOOKS_AGAIN + 1));
    }

    #[test]
    fn a_copied_label_makes_no_inventory() {
        let meta = |manager: &str| -> ObjectMeta {
            let fields = json!([{"manager": manager, "operation": "Apply"}]);
            serde_json::from_value(json!({"labels": {names::INVENTORY_LABEL: "a.b"}, "managedFields": fields})).unwrap()
        };
        assert!(is_inventory(&meta(names::AGENT_MANAGER)) && !is_inventory(&meta("kubectl")));
    }
}
