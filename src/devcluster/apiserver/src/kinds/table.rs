//! The type table: every kind that is served, at every version, with what clients may do with it.
//!
//! Built-in kinds come from recorded discovery data, custom kinds from CustomResourceDefinitions. A [`Table`] is a
//! value: registering a definition makes a new one, which the server swaps in at once.
//!
//! Invariant: a kind that is in the table has a schema, and objects of all its versions share one storage.
//!
//! Deliberately absent: what a kind's objects must look like (`hooks`) and how they are shown (`columns`).

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

/// Part of an object with an address of its own, such as `status` or `scale`.
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

/// Where the parts of a `Scale` lie in a custom object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// JSON pointer of the wanted replicas.
    pub spec: String,
    /// JSON pointer of the counted replicas.
    pub status: String,
    /// JSON pointer of the label selector in its text form.
    pub selector: Option<String>,
}

/// Properties of kinds from a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq)]
pub struct Custom {
    /// Name of the definition.
    pub definition: String,
    /// Generation of the definition.
    pub generation: Option<i64>,
    /// `additionalPrinterColumns` of the version, absent when it declares none.
    pub columns: Option<Vec<Value>>,
    /// Field paths (without the leading dot) that field selectors may name.
    pub selectable: Vec<String>,
    /// The scale subresource, if it has one.
    pub scale: Option<ScalePaths>,
    /// Whether the definition is being deleted: nothing new may be created.
    pub terminating: bool,
    /// `openAPIV3Schema` of the version, null when it has none.
    pub published: Value,
    /// Text of the `Warning` header of every request, for deprecated versions.
    pub deprecation: Option<String>,
}

/// How custom objects are converted: an object, and the `apiVersion` that is wanted of it.
pub type Converter = fn(&mut Value, &str);

/// One served kind at one version.
#[derive(Debug)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: String,
    /// Version, such as `v1`.
    pub version: String,
    /// `v1`, `apps/v1`.
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
    /// Short names for command lines.
    pub short_names: Vec<String>,
    /// Categories such as `all`.
    pub categories: Vec<String>,
    /// Verbs, in alphabetical order.
    pub verbs: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Name of the storage: the same for all versions of a kind.
    pub storage: Arc<str>,
    /// The version in which its objects are stored.
    pub storage_api_version: String,
    /// Schema of the version.
    pub schema: Schema,
    /// Present for kinds from a CustomResourceDefinition.
    pub custom: Option<Custom>,
    /// How objects are read that were stored before the definition became what it is; absent for built-in kinds.
    pub at_rest: Option<AtRest>,
    /// How its objects become those of another version, besides their `apiVersion`; absent where that is all.
    pub converter: Option<Converter>,
}

/// The schema that stored objects of a custom kind are read with.
#[derive(Clone, Debug)]
pub struct AtRest {
    /// Schema of the version in which objects are stored.
    pub schema: Schema,
    /// Objects written after this resource version are known to fit it.
    pub since: u64,
}

impl Kind {
    /// Group and plural, as error texts spell it.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }

    /// Path of the version's collection, `/api/v1/configmaps`: the key of recorded columns.
    pub fn columns_path(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}/{}", self.api_version, self.plural)
    }

    /// The Go package of the type that a real server decodes a built-in kind into, which some of its errors tell.
    pub fn package(&self) -> &str {
        match self.group.as_str() {
            "" | "events.k8s.io" => "core",
            group => group.split('.').next().unwrap_or_default(),
        }
    }

    /// Whether clients may do this with its objects.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }

    /// A subresource by its name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|s| s.name == name)
    }

    /// Whether status is written apart from the rest.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// An object in another version of this kind.
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

    /// Whether objects are stored under another version than this one.
    pub fn converts(&self) -> bool {
        self.api_version != self.storage_api_version
    }

    /// The schema to read an object with that was stored under an older definition; absent where it is good as it is.
    pub fn outdated(&self, stored: &Stored) -> Option<&Schema> {
        self.at_rest.as_ref().filter(|rest| stored.written <= rest.since).map(|rest| &rest.schema)
    }

    /// Whether an object is shown exactly as it is stored.
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
    /// The built-in kinds, and the given custom ones after them.
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

    /// The kind at an address.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// The kind with this `apiVersion` and plural name.
    pub fn find_resource(&self, api_version: &str, plural: &str) -> Option<&Arc<Kind>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.find(group, version, plural)
    }

    /// The kind with this `apiVersion` and `kind`.
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Kind>> {
        self.iter().find(|k| k.api_version == api_version && k.kind == kind)
    }

    /// Whether anything is served under a group and version.
    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.order.iter().any(|(g, v, _)| g == group && v == version)
    }

    /// All kinds, in the order of registration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.order.iter().map(|address| &self.kinds[address])
    }

    /// One kind per storage, in its stored version if that is served.
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

    /// Groups with their versions in order of preference; the core group is the empty name.
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

    /// The kinds of one group and version, ordered by plural name.
    pub fn resources(&self, group: &str, version: &str) -> Vec<Arc<Kind>> {
        let mut found: Vec<_> = self.iter().filter(|k| k.group == group && k.version == version).cloned().collect();
        found.sort_by(|a, b| a.plural.cmp(&b.plural));
        found
    }
}

/// Rank of a version: stable before beta before alpha, higher numbers first; other names last.
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

/// Subresources that are served; the others of the recording need a node or a controller that does not exist here.
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

/// Kinds that only answer and are never stored.
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

/// Storage name and stored version: two kinds are served in two groups or versions.
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
