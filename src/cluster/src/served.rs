//! Parses both forms of discovery documents into a table of kinds.
//!
//! Invariant: unknown fields and incomplete kinds are ignored.
//!
//! Not here: requests ([`discover`](super::discover)).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;

use super::kind::Kind;

/// Group, version and kind.
type Name = (Arc<str>, Arc<str>, Arc<str>);

/// All kinds that the cluster serves.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Kinds by group, version and kind.
    pub(super) kinds: BTreeMap<Name, Arc<Kind>>,
    /// Groups and versions whose aggregated server did not respond.
    pub(super) broken: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl Table {
    pub(super) fn find(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Kind>> {
        self.kinds.get(&(Arc::from(group), Arc::from(version), Arc::from(kind))).cloned()
    }
}

#[derive(Deserialize)]
pub(super) struct Head {
    #[serde(default)]
    pub(super) kind: String,
}

#[derive(Deserialize)]
pub(super) struct Aggregated {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: GroupName,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Default, Deserialize)]
struct GroupName {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "version")]
    number: String,
    #[serde(default)]
    resources: Vec<Resource>,
    #[serde(default)]
    freshness: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Resource {
    #[serde(rename = "resource")]
    plural: String,
    response_kind: Option<ResponseKind>,
    scope: String,
    #[serde(rename = "singularResource")]
    singular: String,
    verbs: Vec<String>,
    short_names: Vec<String>,
    subresources: Vec<Subresource>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Subresource {
    #[serde(rename = "subresource")]
    name: String,
}

impl Aggregated {
    pub(super) fn add_to(self, table: &mut Table) {
        for group in self.items {
            let name: Arc<str> = Arc::from(group.metadata.name);
            let mut preferred = BTreeSet::new();
            for version in group.versions {
                let number: Arc<str> = Arc::from(version.number);
                if version.freshness == "Stale" {
                    table.broken.insert((Arc::clone(&name), Arc::clone(&number)));
                }
                for resource in version.resources {
                    let Some(response) = resource.response_kind.filter(|response| !response.kind.is_empty()) else {
                        continue;
                    };
                    // An empty value means the enclosing group or version. A different value means that the kind
                    // belongs to a different group or version.
                    let same = |given: &str, own: &str| given.is_empty() || given == own;
                    if !same(&response.group, &name) || !same(&response.version, &number) {
                        continue;
                    }
                    let row = Row {
                        plural: resource.plural,
                        singular: resource.singular,
                        kind: response.kind,
                        namespaced: resource.scope == "Namespaced",
                        has_status: resource.subresources.iter().any(|sub| sub.name == "status"),
                        verbs: resource.verbs,
                        short_names: resource.short_names,
                    };
                    let first = preferred.insert(row.kind.clone());
                    row.add_to(table, &name, &number, first);
                }
            }
        }
    }
}

/// The document at `/api` (`versions: ["v1"]`) or `/apis` (`groups: [...]`) in the old form.
#[derive(Deserialize)]
pub(super) struct Legacy {
    #[serde(default)]
    versions: Vec<String>,
    #[serde(default)]
    groups: Vec<LegacyGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LegacyGroup {
    name: String,
    #[serde(default)]
    versions: Vec<LegacyVersion>,
}

#[derive(Deserialize)]
struct LegacyVersion {
    version: String,
}

#[derive(Deserialize)]
pub(super) struct LegacyList {
    #[serde(default)]
    resources: Vec<LegacyResource>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LegacyResource {
    name: String,
    singular_name: String,
    namespaced: bool,
    kind: String,
    group: String,
    version: String,
    verbs: Vec<String>,
    short_names: Vec<String>,
}

impl Legacy {
    pub(super) fn group_versions(self) -> Vec<(String, Vec<String>)> {
        let core = (!self.versions.is_empty()).then(|| (String::new(), self.versions));
        let groups = self
            .groups
            .into_iter()
            .map(|group| (group.name, group.versions.into_iter().map(|version| version.version).collect::<Vec<_>>()));
        core.into_iter().chain(groups).collect()
    }
}

impl LegacyList {
    pub(super) fn add_to(self, table: &mut Table, group: &str, version: &str, preferred: bool) {
        let (group, version): (Arc<str>, Arc<str>) = (Arc::from(group), Arc::from(version));
        let with_status: BTreeSet<String> = self
            .resources
            .iter()
            .filter_map(|resource| resource.name.strip_suffix("/status").map(str::to_owned))
            .collect();
        for resource in self.resources {
            let foreign = |given: &str, own: &str| !given.is_empty() && given != own;
            if resource.name.contains('/') || foreign(&resource.group, &group) || foreign(&resource.version, &version) {
                continue;
            }
            let row = Row {
                has_status: with_status.contains(&resource.name),
                plural: resource.name,
                singular: resource.singular_name,
                kind: resource.kind,
                namespaced: resource.namespaced,
                verbs: resource.verbs,
                short_names: resource.short_names,
            };
            row.add_to(table, &group, &version, preferred);
        }
    }
}

/// A kind, with the fields that both forms of discovery have.
struct Row {
    plural: String,
    singular: String,
    kind: String,
    namespaced: bool,
    has_status: bool,
    verbs: Vec<String>,
    short_names: Vec<String>,
}

impl Row {
    fn add_to(self, table: &mut Table, group: &Arc<str>, version: &Arc<str>, preferred: bool) {
        let can = |verb: &str| self.verbs.iter().any(|served| served == verb);
        let resource = if group.is_empty() { self.plural.clone() } else { format!("{}.{group}", self.plural) };
        let singular = if self.singular.is_empty() { self.kind.to_lowercase() } else { self.singular.clone() };
        let kind = Kind {
            group: Arc::clone(group),
            version: Arc::clone(version),
            kind: Arc::from(&*self.kind),
            plural: Arc::from(&*self.plural),
            singular: Arc::from(singular),
            short_names: self.short_names.iter().map(|short| Arc::from(&**short)).collect(),
            resource: Arc::from(resource),
            namespaced: self.namespaced,
            has_status: self.has_status,
            listable: can("list"),
            watchable: can("watch"),
            patchable: can("patch"),
            deletable: can("delete"),
            preferred,
        };
        let name = (Arc::clone(group), Arc::clone(version), Arc::clone(&kind.kind));
        // Some kinds have two paths, as a review and as an object. The path of the object is used, because it can be
        // listed.
        match table.kinds.get(&name) {
            Some(known) if known.listable && !kind.listable => {}
            _ => {
                table.kinds.insert(name, Arc::new(kind));
            }
        }
    }
}
