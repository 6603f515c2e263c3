//! An impersonated ServiceAccount, and the messages about its missing permissions.
//!
//! Requests contain only the user of the account. The API server adds the groups of the account
//! (`system:serviceaccounts`, `system:serviceaccounts:<namespace>`, `system:authenticated`). The agent therefore needs
//! only the verb `impersonate` on that ServiceAccount. Explicit groups would each need an additional permission.
//!
//! Invariant: if the account lacks a permission, the server's message is dropped, because it may contain Roles of other
//! namespaces.
//!
//! Not here: the existence of the account. API servers do not check it either.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;

use super::count::Verb;
use mainstay_object::{Key, syntax};

/// An impersonated ServiceAccount. Clones share their names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount(Arc<Names>);

#[derive(Debug, PartialEq, Eq)]
struct Names {
    namespace: String,
    name: String,
    user: HeaderValue,
}

/// Verbs in a refusal that may differ from the verb of the request: an apply of a missing object needs `create`.
const NAMED: [&str; 4] = ["create", "update", "patch", "delete"];

impl ServiceAccount {
    /// Returns the account with this name; `None` if the name is invalid.
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        if syntax::subdomain(namespace).or(syntax::subdomain(name)).is_some() {
            return None;
        }
        let user = HeaderValue::try_from(format!("system:serviceaccount:{namespace}:{name}")).ok()?;
        Some(Self(Arc::new(Names { namespace: namespace.to_owned(), name: name.to_owned(), user })))
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        &self.0.namespace
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The value of `Impersonate-User`.
    pub(super) fn user(&self) -> HeaderValue {
        self.0.user.clone()
    }

    /// Returns the message about a missing permission. At most the verb is taken from the server's message (`said`).
    pub(super) fn lacks(&self, verb: Verb, resource: &str, key: &Key, said: &str) -> String {
        // Servers from version 1.36 on report the narrower `impersonate-on:serviceaccount:…`, which they check first.
        if said.contains(" cannot impersonate") {
            return format!(
                "the agent may not act as {self}: it needs the ClusterRole mainstay-impersonates of manifests/rbac.yaml, or the \
                 verb impersonate on this one in namespace {}",
                self.namespace()
            );
        }
        let named = said.split_once(" cannot ").and_then(|(_, rest)| rest.split_once(" resource "));
        let named = named.and_then(|(named, _)| NAMED.into_iter().find(|verb| *verb == named));
        let verb = named.unwrap_or(match verb {
            Verb::Apply => Verb::Patch.as_str(),
            verb => verb.as_str(),
        });
        let group = &key.group;
        let plural = resource.strip_suffix(&format!(".{group}")).unwrap_or(resource);
        let (place, role, binding) = match &key.namespace {
            Some(namespace) => (format!("in namespace {namespace}"), "Role", "RoleBinding"),
            None => ("in the whole cluster".to_owned(), "ClusterRole", "ClusterRoleBinding"),
        };
        format!(
            "{self} may not {verb} {resource} {place}: it needs a {binding} there to a {role} with {{apiGroups: [{group:?}], \
             resources: [{plural}], verbs: [get, list, create, patch, delete]}}"
        )
    }
}

impl fmt::Display for ServiceAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServiceAccount {}/{}", self.0.namespace, self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::error::Attempt;
    use super::super::kind::tests::kind;
    use super::super::request::Call;
    use super::*;

    #[test]
    fn names_that_no_account_can_have_are_none() {
        for name in ["deployer", "a.b-c.d", "0"] {
            assert!(ServiceAccount::new("shop", name).is_some(), "{name}");
        }
        for name in ["", "a:b", "-a", "a-", "a..b", "A", "a/b", "a b", "a\nb", "ä", &"a".repeat(254)] {
            assert!(ServiceAccount::new("shop", name).is_none(), "{name}");
        }
    }

    #[test]
    fn says_which_right_is_missing_and_nothing_of_what_the_server_says() {
        let account = ServiceAccount::new("shop", "deployer").unwrap();
        let check = |kind: super::super::kind::Kind, namespace, verb, said: &str, expected: &str| {
            let call = Call::object(Attempt::Apply, verb, &kind, namespace, "web", None).unwrap();
            assert_eq!(account.lacks(call.verb, &call.resource, &call.key, said), expected);
        };
        let said = "deployments.apps \"web\" is forbidden: User \"system:serviceaccount:shop:deployer\" cannot patch resource \
                    \"deployments\" in API group \"apps\" in the namespace \"other\": RBAC: role \"secret\" not found";
        check(
            kind("apps/v1", "Deployment", "deployments", true),
            Some("other"),
            Verb::Apply,
            said,
            "ServiceAccount shop/deployer may not patch deployments.apps in namespace other: it needs a RoleBinding there to a \
             Role with {apiGroups: [\"apps\"], resources: [deployments], verbs: [get, list, create, patch, delete]}",
        );
        check(
            kind("v1", "Namespace", "namespaces", false),
            None,
            Verb::Apply,
            &said.replace("cannot patch", "cannot create"),
            "ServiceAccount shop/deployer may not create namespaces in the whole cluster: it needs a ClusterRoleBinding there \
             to a ClusterRole with {apiGroups: [\"\"], resources: [namespaces], verbs: [get, list, create, patch, delete]}",
        );
        check(
            kind("v1", "Secret", "secrets", true),
            Some("other"),
            Verb::Get,
            "User \"mainstay\" cannot impersonate-on:serviceaccount:get resource \"secrets\" in API group \"\"",
            "the agent may not act as ServiceAccount shop/deployer: it needs the ClusterRole mainstay-impersonates of \
             manifests/rbac.yaml, or the verb impersonate on this one in namespace shop",
        );
    }
}
