//! `pods/eviction`: a deletion that respects disruption budgets.
//!
//! Not here: the counts of budgets, which a controller maintains (`controllers::disruption_budgets`).

use super::{
    Settings, Target,
    delete::{self, DeleteOptions},
    text, update,
};
use crate::{
    admission::Stop,
    kinds::disruption::allowing,
    kinds::hooks,
    route::Query,
    server::Server,
    status::{Cause, Status},
    store::Key,
};
use serde_json::{Value, json};
use std::sync::Arc;

const BUDGETS: &str = "poddisruptionbudgets.policy";
/// Maximum attempts to write a budget or a pod despite conflicts.
const ATTEMPTS: usize = 20;
const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Evicts a pod. `target` is the pod itself.
pub fn evict(server: &Server, target: &Target, settings: &Settings, body: &Value) -> Result<(), Stop> {
    if text(body, "/metadata/name") != target.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object").into());
    }
    let mut options = DeleteOptions::parse(&body["deleteOptions"], &Query::default())?;
    options.dry_run |= settings.dry_run;
    let settings = Settings { dry_run: options.dry_run, ..settings.clone() };
    let pod = server.store().get(&target.kind.storage, &target.key()).ok_or_else(|| target.not_found())?.value();
    let over = matches!(text(&pod, "/status/phase"), "Succeeded" | "Failed" | "Pending");
    if !over && text(&pod, "/metadata/deletionTimestamp").is_empty() {
        ask(server, target, &settings, &pod)?;
    }
    let is_meant = options.version.as_deref().is_none_or(|version| version == text(&pod, "/metadata/resourceVersion"));
    if !settings.dry_run && is_meant {
        mark(server, target, &settings)?;
        // `mark` changed the resource version.
        options.version = None;
    }
    delete::delete(server, target, &settings, &options)?;
    Ok(())
}

/// Adds the reason of the eviction to the pod's status.
fn mark(server: &Server, target: &Target, settings: &Settings) -> Result<(), Stop> {
    let status = Target { subresource: "status".to_owned(), ..target.clone() };
    let settings = Settings { admit: false, ..settings.clone() };
    let mut attempts = 0;
    loop {
        let pod = server.store().get(&target.kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
        let mut pod = Arc::unwrap_or_clone(pod.value());
        let list = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let mut list: Vec<Value> = list.into_iter().filter(|c| c["type"] != "DisruptionTarget").collect();
        list.push(json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": settings.now,
        }));
        pod["status"]["conditions"] = list.into();
        attempts += 1;
        match update::update(server, &status, &settings, pod) {
            Err(Stop::Refused(refused)) if refused.code == 409 && attempts < ATTEMPTS => {}
            done => return done.map(drop),
        }
    }
}

/// Takes one disruption from the pod's budget; 429 if none is left.
fn ask(server: &Server, target: &Target, settings: &Settings, pod: &Arc<Value>) -> Result<(), Status> {
    for _ in 0..ATTEMPTS {
        let snapshot = server.store().snapshot(BUDGETS);
        let mut budgets = snapshot.from(Some(&target.namespace), None).map(|(_, stored)| stored.value());
        let selects = |budget: &Arc<Value>| hooks::selects(&budget["spec"]["selector"], &pod["metadata"]["labels"]);
        let Some(budget) = budgets.find(selects) else { return Ok(()) };
        if budgets.any(|other| selects(&other)) {
            let why =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
            return Err(Status::new(500, "", why));
        }
        if !guards(&budget, pod) {
            return Ok(());
        }
        let next = spend(&budget, &target.name, &settings.now)?;
        if settings.dry_run || write(server, target, settings, next) {
            return Ok(());
        }
    }
    Err(Status::new(504, "Timeout", "couldn't update PodDisruptionBudget due to conflicts"))
}

/// Returns whether a budget restricts the eviction of a pod. A budget always restricts the eviction of a ready pod.
fn guards(budget: &Value, pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    let status = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let enough = status("currentHealthy") >= status("desiredHealthy") && status("desiredHealthy") > 0;
    ready || !(text(budget, "/spec/unhealthyPodEvictionPolicy") == "AlwaysAllow" || enough)
}

/// Returns the budget after one more disruption.
fn spend(budget: &Value, pod: &str, now: &str) -> Result<Value, Status> {
    let (name, status) = (text(budget, "/metadata/name"), &budget["status"]);
    let count = |field: &str| status[field].as_i64().unwrap_or(0);
    let refuse = |why: String, seconds: Option<u32>| {
        let mut refusal = Status::new(429, "TooManyRequests", VIOLATION);
        refusal.retry_after = seconds;
        Err(refusal.because(Cause::new("DisruptionBudget", "", why)))
    };
    if count("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or(0) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return refuse(why, Some(10));
    }
    let allowed = count("disruptionsAllowed");
    if allowed <= 0 {
        let (healthy, wanted) = (count("currentHealthy"), count("desiredHealthy"));
        let condition = &status["conditions"][0];
        let (reason, message) = (text(condition, "/reason"), text(condition, "/message"));
        return refuse(
            if reason == "SyncFailed" {
                format!(
                    "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
                )
            } else if healthy <= wanted {
                format!("The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently")
            } else {
                format!("The disruption budget {name} does not allow evicting pods currently")
            },
            None,
        );
    }
    let mut next = budget.clone();
    next["status"]["disruptionsAllowed"] = (allowed - 1).into();
    next["status"]["disruptedPods"][pod] = now.into();
    if allowed == 1 {
        next["status"]["conditions"] = allowing(budget, 0, &status["observedGeneration"], &now.into());
    }
    Ok(next)
}

/// Writes a budget if its resource version is current. Returns whether it succeeded.
fn write(server: &Server, target: &Target, settings: &Settings, budget: Value) -> bool {
    let table = server.table();
    let Some(kind) = table.find_resource("policy/v1", "poddisruptionbudgets") else { return false };
    let key = Key::new(&target.namespace, text(&budget, "/metadata/name"));
    let status = Target {
        kind: kind.clone(),
        namespace: target.namespace.clone(),
        name: key.name().to_owned(),
        subresource: "status".to_owned(),
    };
    let settings = Settings { manager: "kube-apiserver".to_owned(), now: settings.now.clone(), ..Settings::default() };
    update::update(server, &status, &settings, budget).is_ok()
}
