//! The children of an APIRule: kinds, names and metadata.

use std::collections::HashSet;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::resolve::Identity;
use mainstay_api::names::{API_RULE_LABEL, NEWER_API_RULE_LABEL};

/// `apiVersion` of an APIRule in owner references.
pub(super) const API_VERSION: &str = "gateway.kyma-project.io/v1alpha1";
/// Maximum length of a name, and of the value of a label.
const NAME: usize = 253;
const LABEL: usize = 63;

/// The kind, namespace and name of an object.
pub(super) type Place = (ChildKind, String, String);

/// A kind of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ChildKind {
    /// Istio's `VirtualService`.
    VirtualService,
    /// Oathkeeper's `Rule`.
    AccessRule,
    /// The Gateway API's `HTTPRoute`.
    HttpRoute,
    /// Istio's `RequestAuthentication`.
    RequestAuthentication,
    /// Istio's `AuthorizationPolicy`.
    AuthorizationPolicy,
}

impl ChildKind {
    /// All kinds, in the order in which unwanted objects are deleted: routes before their guards.
    pub(super) const ALL: [Self; 5] = [
        Self::VirtualService,
        Self::AccessRule,
        Self::HttpRoute,
        Self::RequestAuthentication,
        Self::AuthorizationPolicy,
    ];

    /// Returns group, kind and plural.
    pub(super) const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::VirtualService => ("networking.istio.io", "VirtualService", "virtualservices"),
            Self::AccessRule => ("oathkeeper.ory.sh", "Rule", "rules"),
            Self::HttpRoute => ("gateway.networking.k8s.io", "HTTPRoute", "httproutes"),
            Self::RequestAuthentication => ("security.istio.io", "RequestAuthentication", "requestauthentications"),
            Self::AuthorizationPolicy => ("security.istio.io", "AuthorizationPolicy", "authorizationpolicies"),
        }
    }

    /// Returns the name of the kind's CRD.
    pub(super) fn definition(self) -> String {
        let (group, _, plural) = self.names();
        format!("{plural}.{group}")
    }

    /// Whether objects of this kind guard routes. Routes must not exist without their guards.
    pub(super) const fn guards(self) -> bool {
        matches!(self, Self::RequestAuthentication | Self::AuthorizationPolicy)
    }
}

/// A desired object without its `apiVersion`, because that depends on the cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Child {
    pub(super) kind: ChildKind,
    pub(super) name: String,
    pub(super) body: Value,
}

impl Child {
    pub(super) fn new(kind: ChildKind, name: String, identity: &Identity, spec: Value) -> Self {
        let body = json!({"kind": kind.names().1, "metadata": metadata(identity, &name), "spec": spec});
        Self { kind, name, body }
    }

    /// Adds another owner. The garbage collector deletes the object only after all of its owners are deleted.
    pub(super) fn also_of(&mut self, api_version: &str, kind: ChildKind, name: &str, uid: &str) {
        let owner = json!({"apiVersion": api_version, "kind": kind.names().1, "name": name, "uid": uid});
        if let Some(owners) = self.body["metadata"]["ownerReferences"].as_array_mut() {
            owners.push(owner);
        }
    }
}

fn metadata(identity: &Identity, name: &str) -> Value {
    let label = label(&identity.namespace, &identity.name);
    let mut labels = json!({API_RULE_LABEL: label});
    if identity.is_newer {
        labels[NEWER_API_RULE_LABEL] = label.into();
    }
    let owner = json!({
        "apiVersion": API_VERSION, "kind": "APIRule", "name": identity.name, "uid": identity.uid, "controller": true,
    });
    json!({"name": name, "namespace": identity.namespace, "labels": labels, "ownerReferences": [owner]})
}

/// Returns the label value of the children of an APIRule.
pub(super) fn label(namespace: &str, name: &str) -> String {
    let whole = format!("{name}.{namespace}");
    if whole.len() <= LABEL {
        return whole;
    }
    let digest = hex::encode(Sha256::digest(whole.as_bytes()));
    format!("{}-{}", &whole[..LABEL - 11].trim_end_matches(['.', '-', '_']), &digest[..10])
}

/// Names for the children of one kind: the APIRule's name with five digits of a digest, or more digits if the name is
/// taken.
pub(super) struct Names<'i> {
    identity: &'i Identity,
    taken: HashSet<String>,
}

impl<'i> Names<'i> {
    pub(super) fn new(identity: &'i Identity) -> Self {
        Self { identity, taken: HashSet::new() }
    }

    /// Returns the name of the only child of a kind, from the digits of the UID.
    pub(super) fn of_uid(&self) -> String {
        let digits: String = self.identity.uid.chars().filter(char::is_ascii_hexdigit).take(5).collect();
        self.with(&digits)
    }

    /// Returns the name of a child that the string `by` identifies.
    pub(super) fn next(&mut self, by: &str) -> String {
        let digest = hex::encode(Sha256::digest(by.as_bytes()));
        let name = [5, 10, 20].into_iter().map(|digits| self.with(&digest[..digits]));
        let name = name.into_iter().find(|name| !self.taken.contains(name)).unwrap_or_else(|| self.with(&digest));
        self.taken.insert(name.clone());
        name
    }

    fn with(&self, digits: &str) -> String {
        let name = &self.identity.name;
        let most = NAME - 1 - digits.len();
        format!("{}-{digits}", &name[..name.len().min(most)].trim_end_matches(['.', '-']))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_have_room() {
        assert_eq!(label("shop", "web"), "web.shop");
        let (long, other) = (label("shop", &"a".repeat(253)), label("prod", &"a".repeat(253)));
        assert!(long.len() <= 63 && long != other, "{long}");
        assert_eq!(mainstay_object::syntax::label(API_RULE_LABEL, &long), Vec::<String>::new());
        let name = "a".repeat(253);
        let uid = "0a1b2c3d-0000-4000-8000-000000000000".to_owned();
        let identity = Identity { namespace: "shop".into(), name, uid, created: None, is_newer: false };
        let mut names = Names::new(&identity);
        let all = [names.of_uid(), names.next("a"), names.next("a"), names.next("b")];
        assert!(all.iter().all(|name| name.len() <= 253), "{all:?}");
        assert!(all[0].ends_with("a-0a1b2"));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 4, "what has the same digits has other names");
    }
}
