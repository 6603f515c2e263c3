//! Checks a write against the quotas of its namespace and charges them.

use std::sync::Arc;

use serde_json::Value;

use super::{
    STORAGE,
    amounts::Amounts,
    pods, scopes,
    usage::{named, usage},
};
use crate::{
    kinds::hooks::Quantity,
    server::Server,
    status::Status,
    store::Stored,
    verbs::{Settings, Target, write},
};

/// Maximum attempts to write a quota despite conflicts.
const ATTEMPTS: usize = 20;

/// The usage that a write adds to one quota.
#[derive(Debug)]
pub(crate) struct Charge {
    quota: String,
    amounts: Amounts,
}

/// Returns whether a write can use quota: creations always, updates for kinds whose usage can grow.
fn concerns(target: &Target, old: Option<&Value>) -> bool {
    let grows =
        matches!(target.kind.plural.as_str(), "services" | "persistentvolumeclaims") && target.kind.group.is_empty();
    target.kind.namespaced && target.subresource.is_empty() && (old.is_none() || grows)
}

/// Returns the charge of a write to each quota; 403 if one is exceeded.
pub(crate) fn decide(
    server: &Server,
    target: &Target,
    old: Option<&Value>,
    new: &Value,
) -> Result<Vec<Charge>, Status> {
    if !concerns(target, old) {
        return Ok(Vec::new());
    }
    let snapshot = server.store().snapshot(STORAGE);
    let mut charges = Vec::new();
    for (_, stored) in snapshot.from(Some(&target.namespace), None) {
        charges.extend(of_quota(server, target, old, new, &stored.value())?);
    }
    Ok(charges)
}

fn of_quota(
    server: &Server,
    target: &Target,
    old: Option<&Value>,
    new: &Value,
    quota: &Value,
) -> Result<Option<Charge>, Status> {
    let (group, plural) = (target.kind.group.as_str(), target.kind.plural.as_str());
    let (hard, used) = (&quota["status"]["hard"], &quota["status"]["used"]);
    let mut resources = named(hard, group, plural);
    resources.sort_unstable();
    if resources.is_empty() || !scopes::fit(&quota["spec"], plural, new) {
        return Ok(None);
    }
    let name = quota["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |why: String| Err(Status::forbidden(&target.kind.group_resource(), &target.name, &why));
    if plural == "pods"
        && let Some(missing) = pods::missing(new, &resources)
    {
        return refuse(format!("failed quota: {name}: {missing}"));
    }
    if resources.iter().any(|resource| used[*resource].is_null()) {
        return refuse(format!("status unknown for quota: {name}, resources: {}", resources.join(",")));
    }
    let now = server.now();
    let before = old.filter(|old| scopes::fit(&quota["spec"], plural, old));
    let before = before.map(|old| usage(group, plural, old, now)).unwrap_or_default();
    let mut amounts = Amounts::new();
    for (resource, amount) in usage(group, plural, new, now) {
        let more = before.get(&resource).map_or(amount, |before| amount.minus(*before));
        if more.is_positive() && resources.contains(&resource.as_str()) {
            amounts.insert(resource, more);
        }
    }
    let of = |list: &Value, resource: &str| Quantity::read(&list[resource]).unwrap_or(Quantity::whole(0));
    let exceeded: Vec<&String> =
        amounts.iter().filter(|(r, more)| of(used, r).plus(**more).exceeds(of(hard, r))).map(|(r, _)| r).collect();
    if !exceeded.is_empty() {
        let list = |amount: &dyn Fn(&str) -> Quantity| {
            exceeded.iter().map(|r| format!("{r}={}", amount(r).text())).collect::<Vec<_>>().join(",")
        };
        let requested = list(&|r| amounts[r]);
        let (in_use, limited) = (list(&|r| of(used, r)), list(&|r| of(hard, r)));
        return refuse(format!("exceeded quota: {name}, requested: {requested}, used: {in_use}, limited: {limited}"));
    }
    Ok((!amounts.is_empty()).then(|| Charge { quota: name.to_owned(), amounts }))
}

/// Charges the quotas; 403 if concurrent writes have used them up.
pub(crate) fn charge(
    server: &Server,
    target: &Target,
    old: Option<&Value>,
    new: &Value,
    settings: &Settings,
    charges: &[Charge],
) -> Result<(), Status> {
    let table = server.table();
    let Some(kind) = table.find_resource("v1", STORAGE).filter(|_| !charges.is_empty()) else { return Ok(()) };
    for charge in charges {
        let quota = Target {
            kind: kind.clone(),
            namespace: target.namespace.clone(),
            name: charge.quota.clone(),
            subresource: "status".to_owned(),
        };
        let mut amounts = charge.amounts.clone();
        for _ in 0..ATTEMPTS {
            let Some(stored) = server.store().get(STORAGE, &quota.key()) else { break };
            if take(server, &quota, settings, &stored, &amounts) {
                break;
            }
            let Some(stored) = server.store().get(STORAGE, &quota.key()) else { break };
            match of_quota(server, target, old, new, &stored.value())? {
                Some(again) => amounts = again.amounts,
                None => break,
            }
        }
    }
    Ok(())
}

/// Adds the amounts to a quota's used status. Returns false on a conflicting write.
fn take(server: &Server, quota: &Target, settings: &Settings, stored: &Arc<Stored>, amounts: &Amounts) -> bool {
    let live = stored.value();
    let mut next = (*live).clone();
    for (resource, amount) in amounts {
        let used = Quantity::read(&next["status"]["used"][resource]).unwrap_or(Quantity::whole(0));
        next["status"]["used"][resource] = used.plus(*amount).text().into();
    }
    write::stored_by_server(server, quota, &settings.now, stored, next)
}
