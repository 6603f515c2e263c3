//! `mainstay uninstall`: removes the agent from a cluster; the objects that it has applied stay.
//!
//! Invariant: no object that came from a repository is deleted, and nothing waits for an agent that is gone: finalizers are
//! removed with the GitSyncs, and a namespace or definition that is still in use is kept and named.
//!
//! The order matters: GitSyncs are deleted while an agent can still remove label and ownership from their objects; then
//! the agent is stopped; then its roles, its definitions and its namespace are deleted.
//!
//! Deliberately absent: Functions. They serve without an agent, and their definition stays for as long as there are any.

mod namespace;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use futures::TryStreamExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::{Error, Exit, connection::HomeConnection, identity::confirm, output};
use crate::{
    api::{self, Span, names},
    cluster::{Cluster, Guard, Kind, Part, Propagation, Scope, Selection},
};

/// How often a deletion is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Label on everything that `mainstay install` prints.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "mainstay");
/// Kinds and names of the installed cluster-wide objects.
const CLUSTER_OBJECTS: &[(&str, &str, &str)] = &[
    ("ClusterRoleBinding", "clusterrolebindings", "mainstay-agent"),
    ("ClusterRoleBinding", "clusterrolebindings", "mainstay-applies"),
    ("ClusterRole", "clusterroles", "mainstay-agent"),
    ("ClusterRole", "clusterroles", "mainstay-view"),
];
const RBAC: &str = "rbac.authorization.k8s.io/v1";
/// Kinds and names of the objects in the namespace that are installed or created by the agent for itself.
const NAMESPACED_OBJECTS: &[(&str, &str, &str, &str)] = &[
    (RBAC, "RoleBinding", "rolebindings", "mainstay-lease"),
    (RBAC, "Role", "roles", "mainstay-lease"),
    ("v1", "ServiceAccount", "serviceaccounts", "mainstay"),
    ("v1", "Service", "services", "mainstay-receivers"),
    ("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", "mainstay"),
    ("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", "mainstay"),
    ("v1", "ConfigMap", "configmaps", names::BOOTSTRAP),
    ("v1", "ConfigMap", "configmaps", names::KNOWN_HOSTS),
    ("coordination.k8s.io/v1", "Lease", "leases", names::LEASE),
];

/// Arguments of `uninstall`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Print the plan, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    /// How long to wait until the agent has released its objects, and then until it has stopped
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    wait: Span,
    #[command(flatten)]
    connection: HomeConnection,
}

/// The relevant part of the cluster.
struct Installed {
    syncs: Vec<ObjectMeta>,
    /// Whether an agent holds its Lease.
    is_led: bool,
}

/// The work, one step after the other.
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
    output::print(&work.plan(&installed))?;
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
    /// Errors when the agent is installed, but in another namespace: it would go on there without its roles.
    async fn check_namespace(&self) -> Result<(), Error> {
        let deployments = Arc::new(Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced));
        let ours = Selection::labelled(LABEL.0, LABEL.1);
        let found: Vec<ObjectMeta> = self.cluster.list_metadata(&deployments, ours).try_collect().await?;
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
        let leases = Kind::fixed("coordination.k8s.io/v1", "Lease", "leases", Scope::Namespaced);
        let lease = self.cluster.get(&leases, Some(self.namespace), names::LEASE).await?;
        let is_led = lease.is_some_and(|lease| is_held(&lease["spec"], Timestamp::now()));
        Ok(Installed { syncs: self.syncs().await?, is_led })
    }

    fn plan(&self, installed: &Installed) -> String {
        let mut text = String::new();
        for sync in &installed.syncs {
            text.push_str(&format!("GitSync {} will be deleted, its objects stay\n", namespaced_name(sync)));
        }
        if !installed.is_led && !installed.syncs.is_empty() {
            text.push_str("no agent is running, so the objects keep a label of Mainstay, which has no effect\n");
        }
        text.push_str(&format!(
            "the agent in the namespace {} will be deleted with its roles, its key and the definitions that are not in use\n",
            self.namespace
        ));
        text
    }

    async fn perform(&self, installed: &Installed) -> Result<(), Error> {
        self.delete_syncs(installed.is_led).await?;
        self.stop_agent().await?;
        // From here on, no agent removes finalizers.
        self.delete_syncs(false).await?;
        self.delete_keys_and_repositories().await?;
        for (api_version, kind, plural, name) in NAMESPACED_OBJECTS {
            let kind = Kind::fixed(api_version, kind, plural, Scope::Namespaced);
            let meta = self.cluster.get_metadata(&kind, Some(self.namespace), name).await?;
            // The agent makes its Lease without our label.
            if meta.is_some_and(|meta| is_ours(&meta) || *name == names::LEASE) {
                self.delete(&kind, Some(self.namespace), name).await?;
            }
        }
        for (kind, plural, name) in CLUSTER_OBJECTS {
            let kind = Kind::fixed(RBAC, kind, plural, Scope::Cluster);
            let meta = self.cluster.get_metadata(&kind, None, name).await?;
            if meta.is_some_and(|meta| is_ours(&meta)) {
                self.delete(&kind, None, name).await?;
            }
        }
        self.delete_definitions().await?;
        self.delete_namespace().await
    }

    /// The GitSyncs of all namespaces; none if the kind is not served.
    async fn syncs(&self) -> Result<Vec<ObjectMeta>, Error> {
        let Some(kind) = self.cluster.kind("mainstay.dev/v1alpha1", "GitSync").await? else { return Ok(Vec::new()) };
        Ok(self.cluster.list_metadata(&kind, Selection::default()).try_collect().await?)
    }

    /// Deletes all GitSyncs, whose objects stay. With an agent, waits until it has released them.
    async fn delete_syncs(&self, is_led: bool) -> Result<(), Error> {
        let Some(kind) = self.cluster.kind("mainstay.dev/v1alpha1", "GitSync").await? else { return Ok(()) };
        let labels: BTreeSet<Arc<str>> = self.syncs().await?.iter().map(label).collect();
        let held = if is_led { self.kinds_held(&labels).await? } else { Vec::new() };
        let began = Instant::now();
        loop {
            // A GitSync that another GitSync applies is created again until that one is deleted.
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
                self.delete(&maps, map.namespace.as_deref(), map.name.as_deref().unwrap_or_default()).await?;
            }
        }
        Ok(())
    }

    async fn delete_sync(&self, kind: &Kind, sync: &ObjectMeta, without_agent: bool) -> Result<(), Error> {
        let (namespace, name) = (sync.namespace.as_deref(), sync.name.as_deref().unwrap_or_default());
        let prunes = sync.annotations.iter().flatten().any(|(key, _)| key == names::ON_DELETE);
        let finalizers: Vec<&String> = sync.finalizers.iter().flatten().collect();
        let held = finalizers.iter().any(|finalizer| *finalizer == names::FINALIZER);
        let mut metadata = json!({});
        if prunes {
            // With this annotation, its objects would be deleted, too.
            metadata["annotations"] = json!({names::ON_DELETE: null});
        }
        if held && without_agent {
            let others: Vec<_> = finalizers.into_iter().filter(|finalizer| *finalizer != names::FINALIZER).collect();
            metadata["finalizers"] = json!(others);
        }
        if metadata != json!({}) {
            let patched =
                self.cluster.patch_merge(kind, namespace, name, Part::Main, &json!({"metadata": metadata})).await;
            match patched {
                Err(error) if error.is_not_found() => return Ok(()),
                patched => patched.map(drop)?,
            }
        }
        if sync.deletion_timestamp.is_none() {
            self.delete(kind, namespace, name).await?;
        }
        Ok(())
    }

    /// The kinds that have objects with one of these labels.
    async fn kinds_held(&self, labels: &BTreeSet<Arc<str>>) -> Result<Vec<Arc<Kind>>, Error> {
        let mut held = Vec::new();
        for kind in self.cluster.kinds().await? {
            if kind.listable && kind.patchable && self.holds_any(std::slice::from_ref(&kind), labels).await? {
                held.push(kind);
            }
        }
        Ok(held)
    }

    /// Whether an object of these kinds has one of these labels. Objects with a controller do not count: controllers copy
    /// labels.
    async fn holds_any(&self, kinds: &[Arc<Kind>], labels: &BTreeSet<Arc<str>>) -> Result<bool, Error> {
        for kind in kinds {
            let all = self.cluster.list_metadata(kind, Selection::with_label(names::SYNC_LABEL));
            let all: Vec<ObjectMeta> = match all.try_collect().await {
                // The kind was deleted meanwhile.
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
        Ok(self.cluster.list_metadata(&maps, selection).try_collect().await?)
    }

    /// Deletes the Deployment and waits until its pods are gone.
    async fn stop_agent(&self) -> Result<(), Error> {
        let deployments = Kind::fixed("apps/v1", "Deployment", "deployments", Scope::Namespaced);
        let meta = self.cluster.get_metadata(&deployments, Some(self.namespace), "mainstay").await?;
        if meta.is_some_and(|meta| is_ours(&meta)) {
            self.delete(&deployments, Some(self.namespace), "mainstay").await?;
        }
        let pods = Arc::new(Kind::fixed("v1", "Pod", "pods", Scope::Namespaced));
        let began = Instant::now();
        while began.elapsed() < self.wait {
            let selection = Selection::labelled(LABEL.0, LABEL.1).within(self.namespace);
            let left: Vec<ObjectMeta> = self.cluster.list_metadata(&pods, selection).try_collect().await?;
            if left.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        output::note("the agent's pods are still terminating\n");
        Ok(())
    }

    /// Deletes the keys that the agent has made, and the GitRepositories of `mainstay install`. Keeps both while there are
    /// Functions in the namespace, which may be built from them.
    async fn delete_keys_and_repositories(&self) -> Result<(), Error> {
        let group = "serverless.kyma-project.io/v1alpha1";
        if let Some(functions) = self.cluster.kind(group, "Function").await? {
            let here = Selection::default().within(self.namespace);
            let here: Vec<ObjectMeta> = self.cluster.list_metadata(&functions, here).try_collect().await?;
            if !here.is_empty() {
                return Ok(());
            }
        }
        let secrets = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
        let made = Selection::labelled(names::GENERATE, names::SSH_KEY).within(self.namespace);
        let made: Vec<ObjectMeta> = self.cluster.list_metadata(&secrets, made).try_collect().await?;
        for secret in made {
            self.delete(&secrets, Some(self.namespace), secret.name.as_deref().unwrap_or_default()).await?;
            output::note("remove the deploy key at the Git host, too\n");
        }
        let Some(kind) = self.cluster.kind(group, "GitRepository").await? else { return Ok(()) };
        let here = Selection::default().within(self.namespace);
        let here: Vec<ObjectMeta> = self.cluster.list_metadata(&kind, here).try_collect().await?;
        for repository in here {
            let mut managers = repository.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref());
            if managers.any(|manager| manager == names::INSTALL_MANAGER) {
                self.delete(&kind, Some(self.namespace), repository.name.as_deref().unwrap_or_default()).await?;
            }
        }
        Ok(())
    }

    /// Deletes our definitions that have no objects.
    async fn delete_definitions(&self) -> Result<(), Error> {
        let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        let definitions = Kind::fixed(version, kind, "customresourcedefinitions", Scope::Cluster);
        for definition in api::definitions() {
            let (name, own) = (definition.metadata.name.clone().unwrap_or_default(), &definition.spec.names.kind);
            let version = format!("{}/v1alpha1", definition.spec.group);
            if self.cluster.get_metadata(&definitions, None, &name).await?.is_none() {
                continue;
            }
            let served = match self.cluster.kind(&version, own).await? {
                Some(served) => Some(served),
                None => self.cluster.preferred_kind(&definition.spec.group, own).await?,
            };
            if let Some(served) = served {
                let left: Vec<ObjectMeta> =
                    self.cluster.list_metadata(&served, Selection::default()).try_collect().await?;
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
            self.delete(&definitions, None, &name).await?;
        }
        self.cluster.kinds_changed();
        Ok(())
    }

    /// Deletes an object if it exists, and prints that.
    async fn delete(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<(), Error> {
        let removed = self.cluster.delete(kind, namespace, name, Guard::default(), Propagation::Background).await?;
        if removed != crate::cluster::Removal::Absent {
            output::print(&format!("{} deleted\n", kind.key(namespace, name)))?;
        }
        Ok(())
    }
}

/// The label of the objects of a GitSync.
fn label(sync: &ObjectMeta) -> Arc<str> {
    crate::gitsync::label(sync.namespace.as_deref().unwrap_or_default(), sync.name.as_deref().unwrap_or_default())
}

fn namespaced_name(meta: &ObjectMeta) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", part(&meta.namespace), part(&meta.name))
}

fn is_ours(meta: &ObjectMeta) -> bool {
    meta.labels.iter().flatten().any(|(key, value)| (key.as_str(), value.as_str()) == LABEL)
}

/// Whether the `spec` of a Lease has a holder and has not expired.
pub(super) fn is_held(lease: &Value, now: Timestamp) -> bool {
    let holder = lease["holderIdentity"].as_str().unwrap_or_default();
    let renewed = lease["renewTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
    let length = lease["leaseDurationSeconds"].as_i64().unwrap_or_default();
    let Some(renewed) = renewed.filter(|_| !holder.is_empty()) else { return false };
    now.as_second().saturating_sub(renewed.as_second()) <= length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_held_until_it_expires() {
        let now: Timestamp = "2026-01-02T03:04:20Z".parse().unwrap();
        let held = |holder: &str, renewed: &str| {
            is_held(&json!({"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}), now)
        };
        assert!(held("a", "2026-01-02T03:04:05.000000Z"));
        assert!(!held("a", "2026-01-02T03:04:04.000000Z"));
        assert!(!held("", "2026-01-02T03:04:19.000000Z"), "released");
        assert!(!held("a", "never") && !is_held(&Value::Null, now));
    }
}
