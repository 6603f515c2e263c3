//! Objects that another GitOps tool still manages: the tool's object (the keeper), and how to make it release them.
//!
//! Field managers show who applied an object, not whether that tool still manages it. A keeper is a Flux Kustomization,
//! an Argo CD Application or a Helm release that exists and lists the object.
//!
//! Invariant: a Kustomization or an Application of a different namespace counts as keeper only if the object itself
//! references it. Tenants can write any list into their own Kustomizations and Applications.
//!
//! Not here: reading these tools' objects (`former_owners`).

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use mainstay_engine::managed::KNOWN_APPLIERS;
use mainstay_object::{Key, NamespacedName, printable};

/// The object of another GitOps tool that manages an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Keeper {
    /// A Kustomization of Flux.
    Kustomization(NamespacedName),
    /// An Application of Argo CD.
    Application(NamespacedName),
    /// A HelmRelease of Flux.
    HelmRelease(NamespacedName),
    /// A release of Helm.
    Release(NamespacedName),
    /// The keeper is unknown for this reason.
    Unknown(String),
}

impl Keeper {
    /// Whether a watch shows when the keeper releases the object.
    pub(super) fn is_watched(&self) -> bool {
        !matches!(self, Self::Unknown(_))
    }

    /// Returns the keeper, and how to make it release the object without changing the object.
    pub fn text(&self) -> String {
        let named = |kind: &str, name: &NamespacedName| format!("{kind} {name} lists it, too");
        let (who, way_out) = match self {
            Self::Kustomization(name) => (named("the Kustomization", name), without_objects("kustomization", name)),
            Self::HelmRelease(name) => (named("the HelmRelease", name), without_objects("helmrelease", name)),
            Self::Application(name) => (named("the Application", name), orphaned("application", name)),
            Self::Release(name) => (named("the Helm release", name), forgotten(name)),
            Self::Unknown(why) => {
                let who = format!("it is unknown whether Flux, Argo CD or Helm still manages it: {why}");
                (who, "let the agent read it".to_owned())
            }
        };
        format!(
            "contested: {who}, so it is not applied; {way_out}, or list the field managers to take over from in \
             spec.takeOver"
        )
    }
}

/// Returns how to delete an object of Flux without its managed objects: suspend it first.
fn without_objects(kind: &str, name: &NamespacedName) -> String {
    let (namespace, name) = (name.namespace(), name.name());
    format!(
        "let go of it: kubectl patch {kind} {name} -n {namespace} --type merge -p '{{\"spec\":{{\"suspend\":true}}}}' && kubectl \
         delete {kind} {name} -n {namespace}"
    )
}

fn orphaned(kind: &str, name: &NamespacedName) -> String {
    let (namespace, name) = (name.namespace(), name.name());
    format!(
        "let go of it: kubectl patch {kind} {name} -n {namespace} --type merge -p '{{\"metadata\":{{\"finalizers\":null}}}}' && \
         kubectl delete {kind} {name} -n {namespace}"
    )
}

fn forgotten(name: &NamespacedName) -> String {
    let (namespace, name) = (name.namespace(), name.name());
    format!("let go of it: kubectl delete secret -n {namespace} -l owner=helm,name={name}")
}

/// Metadata of an object that suggests that another tool manages it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// One of [`KNOWN_APPLIERS`] owns fields of the object.
    pub applied: bool,
    /// Whether the object has the labels of a Kustomization.
    is_labelled: bool,
    /// The Kustomization in its labels.
    kustomization: Option<NamespacedName>,
    /// The Application in its tracking annotation: `NAME` or `NAMESPACE_NAME`.
    tracked_by: Option<String>,
    /// The Application in the instance label, in any namespace. Every chart sets this label, too.
    instance: Option<String>,
    /// The HelmRelease in its labels.
    pub helm_release: Option<NamespacedName>,
    /// The Helm release in its annotations.
    pub release: Option<NamespacedName>,
}

impl Signs {
    /// Reads the signs from metadata.
    pub fn of(meta: &ObjectMeta) -> Self {
        let label = |name: &str| meta.labels.as_ref()?.get(name).cloned();
        let annotation = |name: &str| meta.annotations.as_ref()?.get(name).cloned();
        let named = |namespace: Option<String>, name: Option<String>| {
            let (namespace, name) = (namespace?, name?);
            // Labels are untrusted: every user who can label an object can write any string.
            (is_name(&namespace) && is_name(&name)).then(|| NamespacedName::new(&namespace, &name))
        };
        let is_known = |manager: &str| KNOWN_APPLIERS.contains(&manager);
        let mut entries = meta.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none());
        Self {
            applied: entries.any(|entry| entry.manager.as_deref().is_some_and(is_known)),
            is_labelled: label("kustomize.toolkit.fluxcd.io/name").is_some(),
            kustomization: named(
                label("kustomize.toolkit.fluxcd.io/namespace"),
                label("kustomize.toolkit.fluxcd.io/name"),
            ),
            tracked_by: annotation("argocd.argoproj.io/tracking-id")
                .map(|id| id.split(':').next().unwrap_or_default().to_owned()),
            instance: label("app.kubernetes.io/instance"),
            helm_release: named(label("helm.toolkit.fluxcd.io/namespace"), label("helm.toolkit.fluxcd.io/name")),
            release: named(annotation("meta.helm.sh/release-namespace"), annotation("meta.helm.sh/release-name")),
        }
    }

    /// Whether a Kustomization may manage the object.
    pub(super) fn may_be_of_kustomization(&self) -> bool {
        self.applied || self.is_labelled
    }

    /// Whether an Application may manage the object.
    pub(super) fn may_be_of_application(&self) -> bool {
        self.applied || self.tracked_by.is_some()
    }

    fn names_kustomization(&self, name: &NamespacedName) -> bool {
        self.kustomization.as_ref() == Some(name)
    }

    /// Whether the object names an Application. Argo CD writes the name alone for an Application in its own namespace,
    /// and `NAMESPACE_NAME` for others. The label is common, so the name alone would let every tenant claim an object.
    fn names_application(&self, name: &NamespacedName, is_central: bool) -> bool {
        let names = |text: &String| {
            (is_central && text == name.name()) || text.split_once('_') == Some((name.namespace(), name.name()))
        };
        self.tracked_by.as_ref().or(self.instance.as_ref()).is_some_and(names)
    }

    /// Whether there is any sign.
    pub fn any(&self) -> bool {
        let is_of_a_tool = self.may_be_of_kustomization() || self.may_be_of_application();
        is_of_a_tool || self.helm_release.is_some() || self.release.is_some()
    }
}

fn is_name(text: &str) -> bool {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    text.len() <= 253 && text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_part)
}

/// Objects, each with the tool's objects that list it.
pub(super) type Lists = HashMap<Key, Vec<NamespacedName>>;

/// The existing Kustomizations, Applications, HelmReleases and Helm releases that may manage objects.
#[derive(Clone, Debug, Default)]
pub(super) struct Keepers {
    /// Objects that Kustomizations list, with the Kustomizations.
    pub kustomizations: Found<Lists>,
    /// Objects that Applications list, with the Applications.
    pub applications: Found<Lists>,
    /// Namespaces whose Applications count for objects of other namespaces that have only the name of the Application.
    pub central: HashSet<String>,
    /// HelmReleases that exist.
    pub helm_releases: Found<HashSet<NamespacedName>>,
    /// Releases that exist.
    pub releases: Found<HashSet<NamespacedName>>,
}

/// A result, or the reason why it could not be read.
#[derive(Clone, Debug)]
pub(super) enum Found<T> {
    /// The result.
    All(T),
    /// The agent may not read the tool's objects, for this reason.
    Unknown(String),
}

impl<T: Default> Default for Found<T> {
    fn default() -> Self {
        Self::All(T::default())
    }
}

impl Keepers {
    /// Returns the keeper of an object; `None` if no tool manages it any more.
    pub(super) fn of(&self, key: &Key, signs: &Signs) -> Option<Keeper> {
        let is_near = |name: &&NamespacedName| key.namespace.as_deref() == Some(name.namespace());
        let listed = |found: &Found<Lists>, is_named: &dyn Fn(&NamespacedName) -> bool| match found {
            Found::All(all) => {
                let mut lists = all.get(key).into_iter().flatten();
                Ok(lists.find(|name| is_near(name) || is_named(name)).cloned())
            }
            Found::Unknown(why) => Err(Keeper::Unknown(why.clone())),
        };
        let keeper = |found: Result<Option<NamespacedName>, Keeper>, of: fn(NamespacedName) -> Keeper| {
            found.map_or_else(Some, |name| name.map(of))
        };
        let exists =
            |found: &Found<HashSet<NamespacedName>>, name: &NamespacedName, keeper: fn(NamespacedName) -> Keeper| {
                match found {
                    Found::All(all) => all.contains(name).then(|| keeper(name.clone())),
                    Found::Unknown(why) => Some(Keeper::Unknown(why.clone())),
                }
            };
        let kustomization = signs.may_be_of_kustomization().then(|| {
            keeper(listed(&self.kustomizations, &|name| signs.names_kustomization(name)), Keeper::Kustomization)
        });
        let application = signs.may_be_of_application().then(|| {
            keeper(
                listed(&self.applications, &|name| {
                    signs.names_application(name, self.central.contains(name.namespace()))
                }),
                Keeper::Application,
            )
        });
        let of_flux = signs.helm_release.iter().map(|name| exists(&self.helm_releases, name, Keeper::HelmRelease));
        let of_helm = signs.release.iter().map(|name| exists(&self.releases, name, Keeper::Release));
        kustomization.into_iter().chain(application).chain(of_flux).chain(of_helm).flatten().next()
    }
}

/// The objects in the inventory of a Kustomization. An id is `namespace_name_group_kind`; in a name, `__` is a colon.
pub(super) fn listed_by_kustomization(kustomization: &Value) -> Vec<Key> {
    let entries = kustomization.pointer("/status/inventory/entries").and_then(Value::as_array);
    let ids = entries.into_iter().flatten().filter_map(|entry| entry["id"].as_str());
    ids.filter_map(|id| {
        let (rest, kind) = id.rsplit_once('_')?;
        let (rest, group) = rest.rsplit_once('_')?;
        let (namespace, name) = rest.split_once('_')?;
        Some(Key::new(group, kind, Some(namespace), name.replace("__", ":")))
    })
    .collect()
}

/// The objects in the status of an Application.
pub(super) fn listed_by_application(application: &Value) -> Vec<Key> {
    let resources = application.pointer("/status/resources").and_then(Value::as_array);
    let key = |resource: &Value| {
        let text = |name: &str| resource[name].as_str().unwrap_or_default();
        Key::new(text("group"), text("kind"), Some(text("namespace")), text("name"))
    };
    resources.into_iter().flatten().map(key).collect()
}

/// Returns the namespace and name of an object, if it has both.
pub(super) fn named(object: &Value) -> Option<NamespacedName> {
    let text = |name: &str| object["metadata"][name].as_str();
    Some(NamespacedName::new(text("namespace")?, text("name")?))
}

/// Lists fields that would be removed; at most a few are named.
pub(super) fn would_go(fields: &[String]) -> String {
    const SHOWN: usize = 5;
    let mut shown = fields.iter().take(SHOWN).map(|field| printable(field).into_owned()).collect::<Vec<_>>();
    match fields.len() {
        0 => return String::new(),
        all if all > SHOWN => shown.push(format!("{} more", all - SHOWN)),
        _ => {}
    }
    format!("; fields that are not in the manifest would be removed, or get their default: {}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn meta(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    fn web() -> Key {
        Key::new("apps", "Deployment", Some("shop"), "web")
    }

    #[test]
    fn reads_the_inventories_of_flux_and_argo_cd() {
        let kustomization = json!({"status": {"inventory": {"entries": [
            {"id": "shop_web_apps_Deployment", "v": "v1"}, {"id": "_shop__Namespace", "v": "v1"},
            {"id": "_system__a_rbac.authorization.k8s.io_ClusterRole", "v": "v1"}, {"id": "hostile", "v": "v1"}]}}});
        let expected = [
            web(),
            Key::new("", "Namespace", None, "shop"),
            Key::new("rbac.authorization.k8s.io", "ClusterRole", None, "system:a"),
        ];
        assert_eq!(listed_by_kustomization(&kustomization), expected);
        let application = json!({"status": {"resources": [
            {"group": "apps", "version": "v1", "kind": "Deployment", "namespace": "shop", "name": "web", "status": "Synced"},
            {"version": "v1", "kind": "Namespace", "name": "shop"}]}});
        assert_eq!(listed_by_application(&application), [web(), Key::new("", "Namespace", None, "shop")]);
        assert_eq!(listed_by_application(&json!({"status": "x"})), []);
    }

    #[test]
    fn an_object_is_kept_by_any_inventory_that_lists_it_and_freed_by_deleted_ones() {
        let applied = meta(json!({"managedFields": [{"manager": "kustomize-controller", "operation": "Apply"}]}));
        let released = meta(json!({"annotations": {
            "meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "shop"}}));
        let labelled = meta(json!({"labels": {
            "helm.toolkit.fluxcd.io/name": "shop", "helm.toolkit.fluxcd.io/namespace": "flux-system"}}));
        let nobody = Keepers::default();
        for meta in [&applied, &released, &labelled] {
            let signs = Signs::of(meta);
            assert!(signs.any());
            assert_eq!(nobody.of(&web(), &signs), None);
        }
        let name = NamespacedName::new("shop", "apps");
        let lists = Found::All(HashMap::from([(web(), vec![name.clone()])]));
        let flux = Keepers { kustomizations: lists.clone(), ..Keepers::default() };
        assert_eq!(flux.of(&web(), &Signs::of(&applied)), Some(Keeper::Kustomization(name.clone())));
        assert_eq!(flux.of(&Key::new("", "Service", Some("shop"), "web"), &Signs::of(&applied)), None);
        let argo = Keepers { applications: lists, ..Keepers::default() };
        assert_eq!(argo.of(&web(), &Signs::of(&applied)), Some(Keeper::Application(name)));
        let release = NamespacedName::new("shop", "shop");
        let helm = Keepers { releases: Found::All(HashSet::from([release.clone()])), ..Keepers::default() };
        assert_eq!(helm.of(&web(), &Signs::of(&released)), Some(Keeper::Release(release)));
        let of_flux = NamespacedName::new("flux-system", "shop");
        let helm = Keepers { helm_releases: Found::All(HashSet::from([of_flux.clone()])), ..Keepers::default() };
        assert_eq!(helm.of(&web(), &Signs::of(&labelled)), Some(Keeper::HelmRelease(of_flux)));
    }

    #[test]
    fn a_list_of_another_namespace_counts_only_if_the_object_names_it() {
        let applied = json!([{"manager": "kustomize-controller", "operation": "Apply"}]);
        let with = |labels: Value, annotations: Value| {
            Signs::of(&meta(json!({"managedFields": applied, "labels": labels, "annotations": annotations})))
        };
        let flux = |namespace: &str| {
            let (name, of) = ("kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace");
            with(json!({name: "apps", of: namespace}), json!({}))
        };
        let argo = |id: &str| with(json!({}), json!({"argocd.argoproj.io/tracking-id": id}));
        let instance = |name: &str| with(json!({"app.kubernetes.io/instance": name}), json!({}));
        let (tenant, platform) = (NamespacedName::new("evil", "apps"), NamespacedName::new("gitops", "apps"));
        let none = with(json!({}), json!({}));
        let cluster_wide = Key::new("rbac.authorization.k8s.io", "ClusterRole", None, "admin");
        for key in [web(), cluster_wide] {
            let lists = Found::All(HashMap::from([(key.clone(), vec![tenant.clone(), platform.clone()])]));
            let all = Keepers { kustomizations: lists.clone(), ..Keepers::default() };
            let keeper = Some(Keeper::Kustomization(platform.clone()));
            assert_eq!(
                (all.of(&key, &none), all.of(&key, &flux("other")), all.of(&key, &flux("gitops"))),
                (None, None, keeper)
            );
            let central = HashSet::from(["gitops".to_owned()]);
            let all = Keepers { applications: lists.clone(), central, ..Keepers::default() };
            assert_eq!((all.of(&key, &none), all.of(&key, &argo("other:apps/Deployment:shop/web"))), (None, None));
            let keeper = Some(Keeper::Application(platform.clone()));
            assert_eq!(all.of(&key, &argo("gitops_apps:apps/Deployment:shop/web")), keeper);
            assert_eq!(all.of(&key, &argo("apps:apps/Deployment:shop/web")), keeper);
            assert_eq!((all.of(&key, &instance("other")), all.of(&key, &instance("apps"))), (None, keeper));
            let all = Keepers { applications: lists, ..Keepers::default() };
            assert_eq!((all.of(&key, &instance("apps")), all.of(&key, &argo("apps:x"))), (None, None));
            let keeper = Some(Keeper::Application(tenant.clone()));
            assert_eq!(all.of(&key, &instance("evil_apps")), keeper);
        }
    }

    #[test]
    fn an_unreadable_git_sync_keeps_an_object_that_carries_its_label() {
        let unseen = Keepers { kustomizations: Found::Unknown("forbidden".to_owned()), ..Keepers::default() };
        let by_helm = meta(json!({"annotations": {
            "meta.helm.sh/release-name": "shop", "meta.helm.sh/release-namespace": "shop"}}));
        assert_eq!(unseen.of(&web(), &Signs::of(&by_helm)), None);
        let by_flux = meta(json!({"labels": {"kustomize.toolkit.fluxcd.io/name": "apps"}}));
        assert_eq!(unseen.of(&web(), &Signs::of(&by_flux)), Some(Keeper::Unknown("forbidden".to_owned())));
    }

    #[test]
    fn a_label_that_is_no_name_is_no_sign() {
        for name in ["", "..", "a/b", "a,b=c", "A", "a b", "$(a)"] {
            let annotations = json!({"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": "shop"});
            assert!(!Signs::of(&meta(json!({"annotations": annotations}))).any(), "{name}");
        }
    }

    #[test]
    fn an_object_that_only_people_and_controllers_wrote_has_no_signs() {
        let meta = meta(json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}, "managedFields": [
            {"manager": "kubectl-edit", "operation": "Update"},
            {"manager": "helm", "operation": "Update", "subresource": "status"}]}));
        assert!(!Signs::of(&meta).any());
    }
}
