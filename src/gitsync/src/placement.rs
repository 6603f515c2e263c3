//! Places decoded documents in the cluster: each object gets its kind, its namespace and the label of its GitSync.
//!
//! Finds all problems that documents alone do not show: unknown kinds, duplicate objects, and objects that this GitSync
//! may not touch.
//!
//! Not here: discovery. The served kinds are an input.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use mainstay_api::conditions::cut;
use mainstay_cluster::Kind;
use mainstay_engine::managed::{Desired, IgnoreRules, Ignored, Mark};
use mainstay_manifest::Problem;
use mainstay_object::{Digest, Key, Object, unserved};

/// Maximum length of a label value.
const LONGEST: usize = 63;

/// Returns the label value of all objects of a GitSync: `<namespace>.<name>`. If that is too long, it is the beginning
/// of the name and a hash, separated by `_`. Names contain no `_`, so no two GitSyncs share a label.
pub fn label(namespace: &str, name: &str) -> Arc<str> {
    let plain = format!("{namespace}.{name}");
    if plain.len() <= LONGEST {
        return plain.into();
    }
    format!("{}_{}", cut(name, 30), Digest::of(plain.as_bytes())).into()
}

/// The served kinds, by `apiVersion` and kind.
pub type Served = BTreeMap<(Arc<str>, Arc<str>), Option<Arc<Kind>>>;

/// The objects that a GitSync may touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All objects: the GitSync is in the agent's namespace or in a trusted one.
    Cluster,
    /// Objects of the GitSync's own namespace, and no cluster-scoped ones.
    OwnNamespace,
    /// Objects in the namespaces that the agent sees, and cluster-scoped ones.
    Namespaces(Arc<[String]>),
}

impl Reach {
    /// Whether a GitSync of this namespace may touch the object.
    pub fn covers(&self, own_namespace: &str, key: &Key) -> bool {
        match (self, key.namespace.as_deref()) {
            (Self::Cluster, _) | (Self::Namespaces(_), None) => true,
            (Self::OwnNamespace, namespace) => namespace == Some(own_namespace),
            (Self::Namespaces(all), Some(namespace)) => all.iter().any(|one| one == namespace),
        }
    }

    /// Returns the message about an object that is out of reach, and the remedy.
    fn refusal(&self, own_namespace: &str, key: &Key) -> (String, &'static str) {
        if let (Self::Namespaces(all), Some(namespace)) = (self, key.namespace.as_deref()) {
            return (
                format!("namespace {namespace} is not among the namespaces of the agent ({})", all.join(", ")),
                "install again with this namespace in --namespaces, or move the object",
            );
        }
        (
            format!("a GitSync in namespace {own_namespace} may touch objects of that namespace only"),
            "name a ServiceAccount that may touch it in spec.serviceAccountName, or move the GitSync to the agent's namespace",
        )
    }
}

/// The parameters of a placement.
#[derive(Clone, Debug)]
pub struct Placing<'a> {
    /// Namespace of the GitSync.
    pub own_namespace: &'a str,
    /// Namespace for objects without a namespace.
    pub target_namespace: &'a str,
    /// Value of the label.
    pub label: &'a Arc<str>,
    /// The objects that the GitSync may touch.
    pub reach: Reach,
    /// The fields that Mainstay leaves to other field managers.
    pub ignore: &'a IgnoreRules,
}

/// The reason why a commit cannot be applied.
#[derive(Clone, Debug)]
pub struct Unplaced {
    /// All problems.
    pub problems: Vec<Problem>,
    /// Whether all problems are kinds that the cluster does not serve, none of them of Flux. Another client may create
    /// their CRDs at any time; those of Flux are missing because it was removed.
    pub lacks_kinds_only: bool,
}

/// Places the objects.
///
/// # Errors
///
/// All reasons why the commit cannot be applied.
pub fn place(objects: &[Arc<Object>], served: &Served, placing: &Placing<'_>) -> Result<Vec<Arc<Desired>>, Unplaced> {
    let defined = defined_by(objects);
    let mut problems = Vec::new();
    let mut lacking = 0;
    let mut first: HashMap<Key, &Arc<Object>> = HashMap::new();
    let mut placed = Vec::with_capacity(objects.len());
    for object in objects {
        let word = (Arc::clone(&object.api_version), Arc::clone(&object.key.kind));
        let Some(kind) = served.get(&word).cloned().flatten().or_else(|| defined.get(&word).cloned()) else {
            let group = &*object.key.group;
            lacking += usize::from(!unserved::is_of_flux(group));
            problems.push(problem(
                object,
                format!("neither the cluster nor a CustomResourceDefinition of this commit has {} {}", word.0, word.1),
                unserved::remedy(group),
            ));
            continue;
        };
        if !kind.patchable {
            problems.push(problem(object, format!("{} {} cannot be applied", word.0, word.1), "leave it out"));
            continue;
        }
        let namespace = kind
            .namespaced
            .then(|| object.key.namespace.clone().unwrap_or_else(|| Arc::from(placing.target_namespace)));
        let key = object.key.in_namespace(namespace);
        if !placing.reach.covers(placing.own_namespace, &key) {
            let (what, hint) = placing.reach.refusal(placing.own_namespace, &key);
            problems.push(problem(object, what, hint));
            continue;
        }
        if let Some(other) = first.insert(key.clone(), object) {
            problems.push(problem(
                object,
                format!("{key} is defined twice; first at {}", other.place),
                "remove one of the two",
            ));
            continue;
        }
        let ignored = Ignored::of(placing.ignore, &key, object).map(Box::new);
        let mark = Mark::Label(Arc::clone(placing.label));
        placed.push(Arc::new(Desired { key, kind, object: Arc::clone(object), mark, ignored }));
    }
    if problems.is_empty() {
        return Ok(placed);
    }
    Err(Unplaced { lacks_kinds_only: lacking == problems.len(), problems })
}

fn problem(object: &Object, what: String, hint: &str) -> Problem {
    Problem { place: object.place.clone(), what, hint: Some(hint.to_owned()) }
}

/// Returns the kinds that CustomResourceDefinitions among the documents define.
fn defined_by(objects: &[Arc<Object>]) -> HashMap<(Arc<str>, Arc<str>), Arc<Kind>> {
    let mut kinds = HashMap::new();
    for object in objects.iter().filter(|o| o.key.is("apiextensions.k8s.io", "CustomResourceDefinition")) {
        let value = object.value();
        for version in value.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten() {
            if let Some(kind) = defined_kind(&value, version) {
                kinds.insert((Arc::from(kind.api_version()), Arc::clone(&kind.kind)), Arc::new(kind));
            }
        }
    }
    kinds
}

fn defined_kind(definition: &Value, version: &Value) -> Option<Kind> {
    let text = |path: &str| definition.pointer(path).and_then(Value::as_str);
    if version.get("served") != Some(&Value::Bool(true)) {
        return None;
    }
    let has_status = version.pointer("/subresources/status").is_some_and(|v| !v.is_null());
    let mut kind = Kind::custom(
        text("/spec/group")?,
        version.get("name")?.as_str()?,
        text("/spec/names/kind")?,
        text("/spec/names/plural")?,
        has_status,
    );
    kind.namespaced = text("/spec/scope")? == "Namespaced";
    Some(kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_git_syncs_have_one_label() {
        assert_eq!(&*label("shop", "web"), "shop.web");
        let long = label("shop", &"a".repeat(60));
        assert!(long.len() <= LONGEST && long.ends_with(char::is_alphanumeric), "{long}");
        let (beginning, hash) = long.split_once('_').unwrap();
        assert_ne!(label(beginning, hash), long, "a name that is made up to be the same");
        assert_ne!(label("other", &"a".repeat(60)), long);
    }
}
