//! The type table: every served kind at every version, with its verbs.
//!
//! Built-in kinds come from recorded discovery data, custom kinds from CustomResourceDefinitions. A [`Table`] is a
//! value: registering a definition creates a new table, which replaces the old one atomically.
//!
//! Invariant: every kind in the table has a schema. Objects of all its versions share one storage.
//!
//! Not here: the behaviour of kinds (`hooks`) and their Table columns (`columns`).

use crate::{
    schema::{self, Schema},
    status::GroupResource,
    store::Stored,
};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock},
};

/// Part of an object with its own path, such as `status` or `scale`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subresource {
    /// `status`, `scale`, ….
    pub name: String,
    /// Kind of its bodies.
    pub kind: String,
    /// Group of its bodies; empty: the group of the parent.
    pub group: String,
    /// Version of its bodies; empty: the version of the parent.
    pub version: String,
    /// Verbs, in alphabetical order.
    pub verbs: Vec<String>,
}

/// The locations of the parts of a `Scale` in a custom object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// JSON pointer to the desired replicas.
    pub spec: String,
    /// JSON pointer to the current replicas.
    pub status: String,
    /// JSON pointer to the label selector in text form.
    pub selector: Option<String>,
}

/// Properties of a kind from a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq)]
pub struct Custom {
    /// Name of the definition.
    pub definition: String,
    /// Generation of the definition.
    pub generation: Option<i64>,
    /// `additionalPrinterColumns` of the version; `None` if it declares none.
    pub columns: Option<Vec<Value>>,
    /// Field paths (without the leading dot) that field selectors support.
    pub selectable: Vec<String>,
    /// The scale subresource, if it has one.
    pub scale: Option<ScalePaths>,
    /// Whether the definition is terminating, so that no object can be created.
    pub terminating: bool,
    /// `openAPIV3Schema` of the version; null if it has none.
    pub published: Value,
    /// The `Warning` header of every request, for a deprecated version.
    pub deprecation: Option<String>,
}

/// Converts a custom object to an `apiVersion`.
pub type Converter = fn(&mut Value, &str);

/// One served kind at one version.
#[derive(Debug)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// API version, such as `v1` or `apps/v1`.
    pub api_version: String,
    /// Plural name, as in paths.
    pub plural: String,
    /// Singular name.
    pub singular: String,
    /// Kind, such as `ConfigMap`.
    pub kind: String,
    /// Kind of its lists.
    pub list_kind: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Short names for kubectl.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Verbs, in alphabetical order.
    pub verbs: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Name of the storage, the same for all versions of a kind.
    pub storage: Arc<str>,
    /// API version in which objects are stored.
    pub storage_api_version: String,
    /// Schema of the version.
    pub schema: Schema,
    /// Present for kinds from a CustomResourceDefinition.
    pub custom: Option<Custom>,
    /// The schema for objects stored under an older definition; `None` for built-in kinds.
    pub at_rest: Option<AtRest>,
    /// Converts objects to another version. `None` if only `apiVersion` changes.
    pub converter: Option<Converter>,
}

/// The schema for reading stored objects of a custom kind.
#[derive(Clone, Debug)]
pub struct AtRest {
    /// Schema of the storage version.
    pub schema: Schema,
    /// Objects written after this resource version match the schema.
    pub since: u64,
}

impl Kind {
    /// Returns the plural and the group as they appear in error messages, such as `deployments.apps`.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }

    /// Returns the path of the collection, such as `/api/v1/configmaps`: the key of recorded columns.
    pub fn columns_path(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/{}", self.api_version, self.plural)
    }

    /// Returns the Go package of a built-in kind's type in a real server, which some errors name.
    pub fn package(&self) -> &str {
        match self.group.as_str() {
            "" | "events.k8s.io" => "core",
            group => group.split('.').next().unwrap_or_default(),
        }
    }

    /// Returns whether the kind supports a verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// Returns a subresource by name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Returns whether the kind has a `status` subresource.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Converts an object to another version of this kind.
    pub fn converted(&self, object: &Value, from: &str, to: &str) -> Value {
        match self.converter.filter(|_| from != to) {
            Some(convert) => {
                let mut object = object.clone();
                convert(&mut object, to);
                object["apiVersion"] = to.into();
                object
            }
            None => super::hooks::convert(object, from, to),
        }
    }

    /// Returns whether objects are stored in a different version.
    pub fn converts(&self) -> bool {
        self.api_version != self.storage_api_version
    }

    /// Returns the schema for reading an object from an older definition; `None` if the object is current.
    pub fn outdated(&self, stored: &Stored) -> Option<&Schema> {
        self.at_rest.as_ref().filter(|rest| stored.written <= rest.since).map(|rest| &rest.schema)
    }

    /// Returns whether an object is served exactly as stored.
    pub fn shows_as_stored(&self, stored: &Stored) -> bool {
        !self.converts() && self.outdated(stored).is_none()
    }
}

/// Group, version, plural.
type Address = (String, String, String);

/// All served kinds.
#[derive(Clone, Debug, Default)]
pub struct Table {
    kinds: HashMap<Address, Arc<Kind>>,
    order: Vec<Address>,
}

impl Table {
    /// Creates a table of the built-in kinds, followed by the given custom ones.
    pub fn with(custom: impl IntoIterator<Item = Arc<Kind>>) -> Self {
        let mut table = Self::default();
        for kind in builtin().iter().cloned().chain(custom) {
            let address = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
            if table.kinds.insert(address.clone(), kind).is_none() {
                table.order.push(address);
            }
        }
        table
    }

    /// Returns a kind by group, version and plural name.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Returns a kind by `apiVersion` and plural name.
    pub fn find_resource(&self, api_version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.find(group, version, plural)
    }

    /// Returns a kind by `apiVersion` and `kind`.
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.iter().find(|k| k.api_version == api_version && k.kind == kind)
    }

    /// Returns whether a group and version has any kinds.
    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.order.iter().any(|(g, v, _)| g == group && v == version)
    }

    /// Returns all kinds, in the order of registration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.order.iter().map(|address| &self.kinds[address])
    }

    /// Returns one kind per storage, in its storage version if that is served.
    pub fn storages(&self) -> Vec<Arc<Kind>> {
        let mut found: BTreeMap<Arc<str>, Arc<Kind>> = BTreeMap::new();
        for kind in self.iter().filter(|k| k.allows("list")) {
            let entry = found.entry(kind.storage.clone()).or_insert_with(|| kind.clone());
            if !kind.converts() {
                *entry = kind.clone();
            }
        }
        found.into_values().collect()
    }

    /// Returns the groups with their versions in order of preference. The core group has an empty name.
    pub fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        for (group, version, _) in &self.order {
            let at = groups.iter().position(|(name, _)| name == group).unwrap_or_else(|| {
                groups.push((group.clone(), Vec::new()));
                groups.len() - 1
            });
            if !groups[at].1.contains(version) {
                groups[at].1.push(version.clone());
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by(|a, b| preference(b).cmp(&preference(a)).then_with(|| a.cmp(b)));
        }
        groups
    }

    /// Returns the kinds of one group and version, ordered by plural name.
    pub fn resources(&self, group: &str, version: &str) -> Vec<Arc<Kind>> {
        let mut found: Vec<_> = self.iter().filter(|k| k.group == group && k.version == version).cloned().collect();
        found.sort_by(|a, b| a.plural.cmp(&b.plural));
        found
    }
}

/// Returns the rank of a version: stable before beta before alpha, higher numbers first, other names last.
pub fn preference(version: &str) -> (u8, u32, u32) {
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    let digits = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        (text[..end].parse::<u32>().ok(), text[end..].to_owned())
    };
    let (Some(major), rest) = digits(rest) else { return (0, 0, 0) };
    if rest.is_empty() {
        return (3, major, 0);
    }
    for (name, rank) in [("beta", 2), ("alpha", 1)] {
        if let Some(minor) = rest.strip_prefix(name).and_then(|m| m.parse().ok()) {
            return (rank, major, minor);
        }
    }
    (0, 0, 0)
}

#[derive(Deserialize)]
struct Recorded {
    api: Groups,
    apis: Groups,
}

#[derive(Deserialize)]
struct Groups {
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    metadata: Named,
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    #[serde(rename = "resource")]
    plural: String,
    response_kind: ResponseKind,
    scope: String,
    #[serde(default, rename = "singularResource")]
    singular: String,
    verbs: Vec<String>,
    #[serde(default)]
    short_names: Vec<String>,
    #[serde(default)]
    categories: Vec<String>,
    #[serde(default)]
    subresources: Vec<Sub>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sub {
    subresource: String,
    response_kind: ResponseKind,
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

/// The served subresources. The others in the recording need a node or controller that does not exist here.
const SERVED_SUBRESOURCES: [&str; 13] = [
    "status",
    "scale",
    "finalize",
    "log",
    "eviction",
    "exec",
    "attach",
    "portforward",
    "token",
    "binding",
    "ephemeralcontainers",
    "resize",
    "proxy",
];

/// Kinds whose requests are answered, but whose objects are never stored.
const REVIEWS: [&str; 6] = [
    "selfsubjectreviews",
    "tokenreviews",
    "localsubjectaccessreviews",
    "selfsubjectaccessreviews",
    "selfsubjectrulesreviews",
    "subjectaccessreviews",
];

fn builtin() -> &'static [Arc<Kind>] {
    static KINDS: OnceLock<Vec<Arc<Kind>>> = OnceLock::new();
    KINDS.get_or_init(|| {
        let recorded: Recorded = serde_json::from_str(include_str!("../data/discovery.json"))
            .expect("the recorded discovery data is part of the program and parses");
        let mut kinds = Vec::new();
        for group in recorded.api.items.into_iter().chain(recorded.apis.items) {
            for version in group.versions {
                for resource in version.resources {
                    kinds.extend(kind_of(&group.metadata.name, &version.version, resource).map(Arc::new));
                }
            }
        }
        kinds
    })
}

fn kind_of(group: &str, version: &str, resource: Resource) -> Option<Kind> {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let kind = resource.response_kind.kind;
    let schema = match schema::builtin(&api_version, &kind) {
        Some(schema) => schema,
        None if REVIEWS.contains(&resource.plural.as_str()) => schema::metadata(),
        None => return None,
    };
    let subresources = resource.subresources.into_iter().filter(|s| SERVED_SUBRESOURCES.contains(&&*s.subresource));
    let subresources = subresources.map(|s| Subresource {
        name: s.subresource,
        kind: s.response_kind.kind,
        group: s.response_kind.group,
        version: s.response_kind.version,
        verbs: s.verbs,
    });
    let (storage, storage_api_version) = storage_of(group, &resource.plural, &api_version);
    Some(Kind {
        group: group.to_owned(),
        version: version.to_owned(),
        singular: resource.singular,
        list_kind: format!("{kind}List"),
        namespaced: resource.scope == "Namespaced",
        short_names: resource.short_names,
        categories: resource.categories,
        verbs: resource.verbs,
        subresources: subresources.collect(),
        storage,
        storage_api_version,
        schema,
        custom: None,
        at_rest: None,
        converter: None,
        plural: resource.plural,
        api_version,
        kind,
    })
}

/// Returns the storage and the storage version of a kind. Two kinds are served in two groups or versions.
fn storage_of(group: &str, plural: &str, api_version: &str) -> (Arc<str>, String) {
    match (group, plural) {
        ("events.k8s.io", "events") => ("events".into(), "v1".to_owned()),
        ("autoscaling", "horizontalpodautoscalers") => {
            ("horizontalpodautoscalers.autoscaling".into(), "autoscaling/v2".to_owned())
        }
        ("", _) => (plural.into(), api_version.to_owned()),
        _ => (format!("{plural}.{group}").into(), api_version.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_stable_versions_and_higher_numbers() {
        let mut versions = vec!["v1alpha1", "foo1", "v2", "v10", "v1beta2", "v1beta1", "v1"];
        versions.sort_by_key(|v| std::cmp::Reverse(preference(v)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "foo1"]);
    }

    #[test]
    fn events_of_both_groups_share_a_storage() {
        let table = Table::with([]);
        let core = table.find("", "v1", "events").unwrap();
        let newer = table.find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.storage, newer.storage);
        assert!(newer.converts() && !core.converts());
    }
}
