//! RBAC: the roles and bindings in the store decide.
//!
//! Not here: caching. A role applies as soon as it is written.

use super::{
    rules::{Place, Request, Rule, rules_of},
    user::{MASTERS, User, service_account_of},
};
use crate::{
    server::Server,
    status::{GroupResource, Status},
    store::Key,
};
use serde_json::Value;

/// An authorization decision and its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason in access reviews; often empty for a denial.
    pub reason: String,
}

/// The rules that apply to a user, with their bindings, and resolution errors.
#[derive(Debug, Default)]
pub struct Granted {
    /// Rules, each with a description of its binding.
    pub rules: Vec<(String, Rule)>,
    /// Bindings that could not be resolved.
    pub errors: Vec<String>,
}

/// Decides about a request. Without RBAC everything is allowed.
pub fn decide(server: &Server, user: &User, request: &Request) -> Decision {
    if !server.options().rbac {
        return Decision { allowed: true, reason: "everything is allowed on a development cluster".to_owned() };
    }
    if user.is_in(MASTERS) {
        return Decision { allowed: true, reason: String::new() };
    }
    let granted = granted(server, user, request.namespace());
    if let Some((source, _)) = granted.rules.iter().find(|(_, rule)| rule.allows(request)) {
        return Decision { allowed: true, reason: format!("RBAC: allowed by {source}") };
    }
    let mut errors = granted.errors;
    errors.dedup();
    let reason = match errors.as_slice() {
        [] => String::new(),
        [one] => format!("RBAC: {one}"),
        many => format!("RBAC: [{}]", many.join(", ")),
    };
    Decision { allowed: false, reason }
}

/// Fails with the 403 of a real server if a request is not allowed.
pub fn authorize(server: &Server, user: &User, request: &Request) -> Result<(), Status> {
    let decision = decide(server, user, request);
    if decision.allowed { Ok(()) } else { Err(forbidden(user, request, &decision.reason)) }
}

/// Returns the 403 of a request.
pub fn forbidden(user: &User, request: &Request, reason: &str) -> Status {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let end = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    let head = format!("User {:?} cannot {}", user.name, request.verb);
    match &request.place {
        Place::Path(path) => {
            let mut status =
                Status::new(403, "Forbidden", format!("forbidden: {}{end}", escape(&format!("{head} path {path:?}"))));
            status.details = Some(serde_json::Map::new());
            status
        }
        Place::Resource { group, resource, subresource, namespace, name } => {
            let slash = if subresource.is_empty() { "" } else { "/" };
            let place = if namespace.is_empty() {
                "at the cluster scope".to_owned()
            } else {
                format!("in the namespace {namespace:?}")
            };
            let why =
                escape(&format!("{head} resource \"{resource}{slash}{subresource}\" in API group {group:?} {place}"));
            let gr = GroupResource { group: group.clone(), resource: resource.clone() };
            Status::forbidden(&gr, name, &format!("{why}{end}"))
        }
    }
}

/// Returns the rules that apply to a user in a namespace. With an empty namespace, only cluster-wide rules.
pub fn granted(server: &Server, user: &User, namespace: &str) -> Granted {
    let mut found = Granted::default();
    for binding in server.objects(API_VERSION, "clusterrolebindings", None) {
        collect(server, user, &binding, "", &mut found);
    }
    if !namespace.is_empty() {
        for binding in server.objects(API_VERSION, "rolebindings", Some(namespace)) {
            collect(server, user, &binding, namespace, &mut found);
        }
    }
    found
}

const API_VERSION: &str = "rbac.authorization.k8s.io/v1";

fn collect(server: &Server, user: &User, binding: &Value, namespace: &str, found: &mut Granted) {
    let text = crate::verbs::text;
    let subjects = binding["subjects"].as_array().into_iter().flatten();
    let Some(subject) = subjects.into_iter().find(|subject| applies(user, subject, namespace)) else { return };
    let (kind, role) = (text(binding, "/roleRef/kind"), text(binding, "/roleRef/name"));
    match role_rules(server, kind, role, namespace) {
        Err(error) => found.errors.push(error),
        Ok(rules) => {
            let name = text(binding, "/metadata/name");
            let source = if namespace.is_empty() {
                format!("ClusterRoleBinding {name:?}")
            } else {
                format!("RoleBinding \"{name}/{namespace}\"")
            };
            let source = format!("{source} of {kind} {role:?} to {}", described(subject, namespace));
            found.rules.extend(rules.into_iter().map(|rule| (source.clone(), rule)));
        }
    }
}

/// Returns the rules of a role.
pub fn role_rules(server: &Server, kind: &str, name: &str, namespace: &str) -> Result<Vec<Rule>, String> {
    let plural = match kind {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        other => return Err(format!("unsupported role reference kind: {other:?}")),
    };
    let namespace = if kind == "Role" { namespace } else { "" };
    let storage = format!("{plural}.rbac.authorization.k8s.io");
    let role = server.store().get(&storage, &Key::new(namespace, name));
    role.map(|role| rules_of(&role.value()))
        .ok_or_else(|| format!("{}.rbac.authorization.k8s.io {name:?} not found", kind.to_lowercase()))
}

fn applies(user: &User, subject: &Value, namespace: &str) -> bool {
    let text = crate::verbs::text;
    let name = text(subject, "/name");
    match text(subject, "/kind") {
        "User" => user.name == name,
        "Group" => user.is_in(name),
        "ServiceAccount" => {
            let given = text(subject, "/namespace");
            let namespace = if given.is_empty() { namespace } else { given };
            service_account_of(&user.name) == Some((namespace, name))
        }
        _ => false,
    }
}

fn described(subject: &Value, namespace: &str) -> String {
    let text = crate::verbs::text;
    let (kind, name) = (text(subject, "/kind"), text(subject, "/name"));
    if kind != "ServiceAccount" {
        return format!("{kind} {name:?}");
    }
    let given = text(subject, "/namespace");
    format!("{kind} \"{name}/{}\"", if given.is_empty() { namespace } else { given })
}
