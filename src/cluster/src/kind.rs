//! A served kind: group, version, kind and capabilities from discovery, and its paths.
//!
//! Invariant: a path stays within its kind. Namespace and name are percent-encoded segments, and
//! [`request`](super::request) refuses `.` and `..`.

use std::fmt::Write as _;
use std::sync::Arc;

use kube::Resource;
use kube::core::NamespaceResourceScope;
use serde_json::Value;

use mainstay_object::{Identity, Key};

/// A group, version and kind that the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// Version within the group, such as `v1`.
    pub version: Arc<str>,
    /// Kind, such as `Deployment`.
    pub kind: Arc<str>,
    /// Name in paths, such as `deployments`.
    pub plural: Arc<str>,
    /// Singular name, such as `deployment`.
    pub singular: Arc<str>,
    /// Short names, such as `deploy`.
    pub short_names: Arc<[Arc<str>]>,
    /// Plural and group as in RBAC messages and metrics: `deployments.apps`, `configmaps`.
    pub resource: Arc<str>,
    /// Whether objects of the kind are namespaced.
    pub namespaced: bool,
    /// Whether the kind has a status subresource, so that writes to the object ignore `status`.
    pub has_status: bool,
    /// Whether the kind supports `list`.
    pub listable: bool,
    /// Whether the kind supports `watch`.
    pub watchable: bool,
    /// Whether the kind supports `patch`, and thus apply.
    pub patchable: bool,
    /// Whether the kind supports `delete`.
    pub deletable: bool,
    /// Whether this is the server's preferred version of the kind.
    pub preferred: bool,
}

/// Identity of a kind: group, version and kind.
pub type KindId = (Arc<str>, Arc<str>, Arc<str>);

/// The scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Namespaced.
    Namespaced,
    /// Cluster-scoped.
    Cluster,
}

impl Kind {
    /// A kind that needs no discovery: the preferred version, with a status subresource and all verbs.
    pub fn fixed(api_version: &str, kind: &str, plural: &str, scope: Scope) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            singular: kind.to_lowercase().into(),
            short_names: Arc::default(),
            resource: if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() },
            namespaced: scope == Scope::Namespaced,
            has_status: true,
            listable: true,
            watchable: true,
            patchable: true,
            deletable: true,
            preferred: true,
        }
    }

    /// Returns the kind of a type with a CRD of Mainstay. All of them are namespaced and have a status subresource.
    pub fn of<T: Resource<DynamicType = (), Scope = NamespaceResourceScope>>() -> Self {
        Self::fixed(&T::api_version(&()), &T::kind(&()), &T::plural(&()), Scope::Namespaced)
    }

    /// A namespaced kind that is defined by a CustomResourceDefinition. The cluster may not serve it yet.
    pub fn custom(group: &str, version: &str, kind: &str, plural: &str, has_status: bool) -> Self {
        Self { has_status, ..Self::fixed(&format!("{group}/{version}"), kind, plural, Scope::Namespaced) }
    }

    /// `apiVersion`: `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether this is the kind with this group, version and kind.
    pub fn is(&self, group: &str, version: &str, kind: &str) -> bool {
        &*self.group == group && &*self.version == version && &*self.kind == kind
    }

    /// The group, version and kind.
    pub fn id(&self) -> KindId {
        (Arc::clone(&self.group), Arc::clone(&self.version), Arc::clone(&self.kind))
    }

    /// Returns the identity of an object of this kind. The namespace of a cluster-scoped kind is omitted.
    pub fn key(&self, namespace: Option<&str>, name: &str) -> Key {
        let namespace = namespace.filter(|_| self.namespaced).map(Arc::from);
        Identity { group: Arc::clone(&self.group), kind: Arc::clone(&self.kind), namespace, name: name.into() }.into()
    }

    /// Returns the identity of a live object of this kind; `None` without a name.
    pub fn key_of(&self, live: &Value) -> Option<Key> {
        let text = |path: &str| live.pointer(path).and_then(Value::as_str);
        Some(self.key(text("/metadata/namespace"), text("/metadata/name")?))
    }

    /// Returns the path of the collection, of an object or of its subresource. A cluster-scoped kind ignores the
    /// namespace, as `kubectl -n` does.
    pub(super) fn path(&self, namespace: Option<&str>, name: Option<&str>, subresource: Option<&str>) -> String {
        let mut path = String::with_capacity(96);
        if self.group.is_empty() {
            path.push_str("/api/");
        } else {
            path.push_str("/apis/");
            encode(&mut path, &self.group);
            path.push('/');
        }
        encode(&mut path, &self.version);
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str("/namespaces/");
            encode(&mut path, namespace);
        }
        path.push('/');
        encode(&mut path, &self.plural);
        for segment in [name, subresource].into_iter().flatten() {
            path.push('/');
            encode(&mut path, segment);
        }
        path
    }
}

/// Appends `text` percent-encoded for use as a path segment or a query value.
pub(super) fn encode(into: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => into.push(char::from(byte)),
            _ => {
                // Writing to a String cannot fail.
                let _ = write!(into, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use mainstay_api::{
        Alert, Function, GitRepository, GitSync, HelmChart, ImagePolicy, ImageRepository, ImageUpdateAutomation,
        OciRepository, Provider, Receiver,
    };

    use super::*;

    /// A kind with all verbs.
    pub(crate) fn kind(api_version: &str, kind: &str, plural: &str, namespaced: bool) -> Kind {
        let scope = if namespaced { Scope::Namespaced } else { Scope::Cluster };
        Kind::fixed(api_version, kind, plural, scope)
    }

    #[test]
    fn kinds_of_types_are_those_of_their_definitions() {
        let kinds = [
            Kind::of::<GitRepository>(),
            Kind::of::<OciRepository>(),
            Kind::of::<HelmChart>(),
            Kind::of::<GitSync>(),
            Kind::of::<Receiver>(),
            Kind::of::<Provider>(),
            Kind::of::<Alert>(),
            Kind::of::<ImageRepository>(),
            Kind::of::<ImagePolicy>(),
            Kind::of::<ImageUpdateAutomation>(),
            Kind::of::<Function>(),
        ];
        let definitions = mainstay_api::definitions();
        assert_eq!(kinds.len(), definitions.len());
        for (kind, definition) in kinds.iter().zip(definitions) {
            let (spec, name) = (definition.spec, definition.metadata.name);
            let version = spec.versions.iter().find(|version| version.storage).expect("a version is stored");
            let expected = Kind::fixed(
                &format!("{}/{}", spec.group, version.name),
                &spec.names.kind,
                &spec.names.plural,
                Scope::Namespaced,
            );
            assert_eq!((kind, Some(kind.resource.to_string())), (&expected, name));
            let status = version.subresources.as_ref().and_then(|subresources| subresources.status.as_ref());
            assert_eq!((&*spec.scope, status.is_some()), ("Namespaced", true), "{}", kind.kind);
        }
    }

    #[test]
    fn spells_paths_of_core_and_grouped_kinds() {
        let config_map = kind("v1", "ConfigMap", "configmaps", true);
        assert_eq!(config_map.path(None, None, None), "/api/v1/configmaps");
        assert_eq!(config_map.path(Some("a"), Some("b"), None), "/api/v1/namespaces/a/configmaps/b");
        let deployment = kind("apps/v1", "Deployment", "deployments", true);
        assert_eq!(
            deployment.path(Some("a"), Some("b"), Some("status")),
            "/apis/apps/v1/namespaces/a/deployments/b/status"
        );
    }

    #[test]
    fn passes_over_the_namespace_of_a_cluster_scoped_kind() {
        let role = kind("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false);
        let path = role.path(Some("a"), Some("system:x"), None);
        assert_eq!(path, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Ax");
        assert_eq!(role.key(Some("a"), "x").namespace, None);
    }

    #[test]
    fn keeps_a_hostile_name_inside_its_segment() {
        let config_map = kind("v1", "ConfigMap", "configmaps", true);
        let path = config_map.path(Some("a"), Some("../secrets/b?dryRun=All#"), None);
        assert_eq!(path, "/api/v1/namespaces/a/configmaps/..%2Fsecrets%2Fb%3FdryRun%3DAll%23");
    }
}
