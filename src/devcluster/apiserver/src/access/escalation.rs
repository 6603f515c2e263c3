//! Prevents privilege escalation: a role or binding must not grant more than its writer has.
//!
//! Not here: the permission to write roles and bindings (`rbac`).

use super::{
    rbac::{decide, granted, role_rules},
    rules::{Place, Request, Rule, missing, rules_of},
    user::{MASTERS, User},
};
use crate::{server::Server, status::Status, verbs::Target};
use serde_json::Value;

/// Fails with 403 if a role or binding grants more than its writer has, unless its writer may `escalate` or `bind`.
pub fn check(server: &Server, user: &User, target: &Target, old: Option<&Value>, new: &Value) -> Result<(), Status> {
    let kind = &target.kind;
    if !server.options().rbac || kind.group != "rbac.authorization.k8s.io" || user.is_in(MASTERS) {
        return Ok(());
    }
    if old.is_some_and(|old| bare(old) == bare(new)) {
        return Ok(());
    }
    let namespace = target.namespace.as_str();
    let refuse = |why: String| Err(Status::forbidden(&kind.group_resource(), &target.name, &why));
    if matches!(kind.kind.as_str(), "Role" | "ClusterRole") {
        if may(server, user, "escalate", &kind.plural, namespace, &target.name) {
            return Ok(());
        }
        confirm(server, user, namespace, &rules_of(new)).or_else(refuse)?;
        if aggregates(new) || old.is_some_and(aggregates) {
            let why = "must have cluster-admin privileges to use the aggregationRule";
            return confirm(server, user, namespace, &Rule::everything()).or_else(|_| refuse(why.to_owned()));
        }
        return Ok(());
    }
    let text = crate::verbs::text;
    let (role_kind, role) = (text(new, "/roleRef/kind"), text(new, "/roleRef/name"));
    let plural = if role_kind == "Role" { "roles" } else { "clusterroles" };
    if may(server, user, "bind", plural, namespace, role) {
        return Ok(());
    }
    match role_rules(server, role_kind, role, namespace) {
        Ok(rules) => confirm(server, user, namespace, &rules).or_else(refuse),
        Err(why) => Err(Status::new(404, "NotFound", why)),
    }
}

/// Returns a role or binding without the metadata that the garbage collector changes.
fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["ownerReferences", "finalizers", "managedFields", "selfLink"] {
            metadata.remove(field);
        }
    }
    object
}

fn aggregates(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
}

fn may(server: &Server, user: &User, verb: &str, resource: &str, namespace: &str, name: &str) -> bool {
    let place = Place::Resource {
        group: "rbac.authorization.k8s.io".to_owned(),
        resource: resource.to_owned(),
        subresource: String::new(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    decide(server, user, &Request { verb: verb.to_owned(), place }).allowed
}

fn confirm(server: &Server, user: &User, namespace: &str, wanted: &[Rule]) -> Result<(), String> {
    let held: Vec<Rule> = granted(server, user, namespace).rules.into_iter().map(|(_, rule)| rule).collect();
    let missing = missing(&held, wanted);
    if missing.is_empty() {
        return Ok(());
    }
    let mut texts: Vec<String> = missing.iter().map(Rule::text).collect();
    texts.sort();
    texts.dedup();
    let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
    Err(format!(
        "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        groups.join(" "),
        texts.join("\n")
    ))
}
