//! Completes requests and limits from a preset, and validates given requests and limits.

use super::presets::ResourcesPreset;
use super::quantity::{Quantity, RULE};
use super::settings::MinResources;
use super::violation::{Violation, shown};
use mainstay_api::function::Resources;
use mainstay_api::{Amount, Amounts};

/// Completes CPU and memory. A missing request never exceeds the given limit, and a missing limit is never below the
/// request. For other resources, a missing request equals the limit.
pub(super) fn complete(
    given: Option<&Resources>,
    preset: &ResourcesPreset,
    least: &MinResources,
    path: &str,
    violations: &mut Vec<Violation>,
) -> Resources {
    let part = |part: fn(&Resources) -> Option<&Amounts>| given.and_then(part).cloned();
    let mut requests = part(|r| r.requests.as_ref()).unwrap_or_default();
    let mut limits = part(|r| r.limits.as_ref()).unwrap_or_default();
    let (request, limit) = (preset.request_memory.as_ref(), preset.limit_memory.as_ref());
    fill(&mut requests, &mut limits, "memory", request, limit);
    let (request, limit) = (preset.request_cpu.as_ref(), preset.limit_cpu.as_ref());
    fill(&mut requests, &mut limits, "cpu", request, limit);
    check(&requests, &limits, least, path, violations);
    // The API server would set the same default in every pod. Setting the request here makes the agent the owner of the
    // field, so that a manual request cannot contradict the limit.
    for (name, limit) in limits.iter() {
        if requests.get(name).is_none() {
            requests.insert(name, limit.clone());
        }
    }
    Resources { limits: Some(limits), requests: Some(requests) }
}

fn fill(requests: &mut Amounts, limits: &mut Amounts, name: &str, request: Option<&Amount>, limit: Option<&Amount>) {
    if is_unset(requests.get(name)) {
        let given = limits.get(name).filter(|limit| !is_unset(Some(limit)));
        if let Some(lower) = lower(request, given) {
            requests.insert(name, lower.clone());
        }
    }
    if is_unset(limits.get(name))
        && let Some(higher) = higher(limit, requests.get(name))
    {
        limits.insert(name, higher.clone());
    }
}

/// Returns the given limit of a resource if it is less than `least`.
pub(super) fn limit_below<'a>(given: Option<&'a Resources>, name: &str, least: &Amount) -> Option<&'a Amount> {
    let limit = given?.limits.as_ref()?.get(name).filter(|limit| !is_unset(Some(limit)))?;
    (size(limit)? < size(least)?).then_some(limit)
}

/// Whether an amount is missing or zero. Such an amount is replaced with the preset's.
fn is_unset(amount: Option<&Amount>) -> bool {
    amount.is_none_or(|amount| Quantity::parse(&amount.0).is_some_and(Quantity::is_zero))
}

fn lower<'a>(preset: Option<&'a Amount>, given: Option<&'a Amount>) -> Option<&'a Amount> {
    match (preset, given) {
        (Some(preset), Some(given)) => Some(if size(given) < size(preset) { given } else { preset }),
        (preset, given) => preset.or(given),
    }
}

fn higher<'a>(preset: Option<&'a Amount>, given: Option<&'a Amount>) -> Option<&'a Amount> {
    match (preset, given) {
        (Some(preset), Some(given)) => Some(if size(given) > size(preset) { given } else { preset }),
        (preset, given) => preset.or(given),
    }
}

fn size(amount: &Amount) -> Option<Quantity> {
    Quantity::parse(&amount.0)
}

fn check(requests: &Amounts, limits: &Amounts, least: &MinResources, path: &str, violations: &mut Vec<Violation>) {
    for (word, amounts) in [("requests", requests), ("limits", limits)] {
        for (name, amount) in amounts.iter() {
            let field = format!("{path}.{word}.{}", shown(name));
            let Some(found) = size(amount) else {
                let mut violation = Violation::invalid(RULE, &field);
                violation.details = format!("it is \"{}\"", shown(&amount.0));
                violations.push(violation);
                continue;
            };
            let minimum = match name {
                "cpu" => Some(&least.cpu),
                "memory" => Some(&least.memory),
                _ => None,
            };
            if let Some(minimum) = minimum.filter(|minimum| Some(found) < size(minimum)) {
                let what = format!("{word} {name}({amount}) should be higher than minimal value ({minimum})");
                violations.push(Violation::invalid(what, &field));
            } else if found.is_negative() {
                violations.push(Violation::invalid(format!("{word} {}({amount}) is negative", shown(name)), &field));
            }
        }
    }
    for (name, limit) in limits.iter() {
        let Some(request) = requests.get(name) else { continue };
        if let (Some(most), Some(least)) = (size(limit), size(request))
            && least > most
        {
            let name = shown(name);
            let what = format!("limits {name}({limit}) should be higher than requests {name}({request})");
            violations.push(Violation::invalid(what, &format!("{path}.limits.{name}")));
        }
    }
}
