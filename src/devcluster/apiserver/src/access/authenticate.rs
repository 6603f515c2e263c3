//! Authenticates requests and applies impersonation.
//!
//! A client without credentials is the administrator: the listener admits only clients with that right. A
//! ServiceAccount token authenticates as that account. A setting adds an authenticator for tokens of another issuer.
//!
//! Not here: client certificates.

use super::{
    rbac,
    rules::{Place, Request},
    tokens::{self, ISSUER, Rejected},
    user::{AUTHENTICATED, User, service_account_groups, service_account_of},
};
use crate::{server::Server, status::Status};
use http::{HeaderMap, header};
use std::collections::BTreeMap;

/// Returns the user of a request, after impersonation. 401 for an invalid token, 403 for a forbidden impersonation.
pub fn authenticate(server: &Server, headers: &HeaderMap) -> Result<User, Status> {
    let user = bearer(server, headers)?;
    impersonate(server, user, headers)
}

fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

fn bearer(server: &Server, headers: &HeaderMap) -> Result<User, Status> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(token) = given.strip_prefix("Bearer ").map(str::trim) else { return Ok(User::default()) };
    if server.knows_token(token) {
        return Ok(User::default());
    }
    match tokens::check(server, token, server.now()) {
        Ok(accepted) if accepted.audiences.iter().any(|audience| audience == ISSUER) => Ok(accepted.user),
        Err(Rejected::Unknown) => match of_other_issuer(server, token) {
            Some(user) => Ok(user),
            // Without RBAC, every client may do everything.
            None if !server.options().rbac => Ok(User::default()),
            None => Err(unauthorized()),
        },
        Ok(_) | Err(Rejected::Invalid(_)) => Err(unauthorized()),
    }
}

/// Returns the user of a token of another issuer, in the group of all authenticated users.
pub fn of_other_issuer(server: &Server, token: &str) -> Option<User> {
    let mut user = server.options().authenticator?(token)?;
    if !user.is_in(AUTHENTICATED) {
        user.groups.push(AUTHENTICATED.to_owned());
    }
    Some(user)
}

/// Applies the `Impersonate-*` headers.
fn impersonate(server: &Server, user: User, headers: &HeaderMap) -> Result<User, Status> {
    let texts = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|v| v.to_str().ok()).map(ToOwned::to_owned).collect()
    };
    let name = texts("impersonate-user").into_iter().next().unwrap_or_default();
    let uid = texts("impersonate-uid").into_iter().next().unwrap_or_default();
    let mut groups = texts("impersonate-group");
    let extra = extras(headers);
    if name.is_empty() {
        if uid.is_empty() && groups.is_empty() && extra.is_empty() {
            return Ok(user);
        }
        let quoted: Vec<String> = groups.iter().map(|group| format!("{group:?}")).collect();
        let groups = if quoted.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", quoted.join(", ")) };
        let shown = if extra.is_empty() { "map[string][]string(nil)".to_owned() } else { format!("{extra:?}") };
        return Err(Status::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{uid:?}, Groups:[]string{groups}, Extra:{shown}}} without \
             impersonating a user name"
        )));
    }
    let ask = |group: &str, resource: &str, namespace: &str, name: &str| {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let place = Place::Resource {
            group: group.to_owned(),
            resource: resource.to_owned(),
            subresource: subresource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        rbac::authorize(server, &user, &Request { verb: "impersonate".to_owned(), place })
    };
    let account = service_account_of(&name);
    match account {
        Some((namespace, account)) => ask("", "serviceaccounts", namespace, account)?,
        None => ask("", "users", "", &name)?,
    }
    for group in &groups {
        ask("", "groups", "", group)?;
    }
    if !uid.is_empty() {
        ask("authentication.k8s.io", "uids", "", &uid)?;
    }
    for (key, values) in &extra {
        for value in values {
            ask("authentication.k8s.io", &format!("userextras/{key}"), "", value)?;
        }
    }
    if let (Some((namespace, _)), true) = (account, groups.is_empty()) {
        groups = service_account_groups(namespace);
    }
    let known = |group: &String| group == AUTHENTICATED || group == "system:unauthenticated";
    if name != "system:anonymous" && !groups.iter().any(known) {
        groups.push(AUTHENTICATED.to_owned());
    }
    Ok(User { name, uid, groups, extra })
}

fn extras(headers: &HeaderMap) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        if let (Some(key), Ok(value)) = (name.as_str().strip_prefix("impersonate-extra-"), value.to_str()) {
            found.entry(key.replace("%2f", "/")).or_default().push(value.to_owned());
        }
    }
    found
}
