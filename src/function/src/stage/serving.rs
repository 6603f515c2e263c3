//! The serving stages: Deployment, Service, autoscaler, and the Running condition.
//!
//! Invariant: Running stays True while the Deployment has the minimum number of pods, of any version. Only a failed
//! rollout changes that.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::address;
use super::apply::put;
use super::decision::{Decision, one_of};
use super::observed::{Observed, Resolved};
use super::rollout::{deployments, goes_on, name_of_deployment};
use super::step::{ConditionUpdate, Step};
use crate::child_kind::ChildKind;
use crate::child_state::{Condition, Deployment};
use crate::children;
use mainstay_api::function_conditions::{Reason, Status, Type};
use mainstay_api::function_failure::NO_PODS;

const SUBJECT: Type = Type::Running;

/// Returns the number of pods, and the labels that select them.
pub(super) fn pods(resolved: &Resolved<'_>, observed: &Observed<'_>) -> (i64, String) {
    let name = name_of_deployment(resolved, observed);
    let live = observed.children.deployments.iter().find(|deployment| deployment.identity.name == name);
    (live.map_or(0, |live| live.pods), resolved.function.pod_selector_text())
}

/// Applies the Deployment once there is an image.
pub(super) fn deployment(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let there = deployments(observed);
    let name = one_of(decision, ChildKind::Deployment, &there, children::name(resolved.function));
    let Some(image) = decision.image.clone() else { return };
    let secret = &resolved.repository.secret;
    let document = children::deployment::build(resolved.function, &name, &image.name, secret, resolved.settings);
    let live = observed.children.deployments.iter().find(|deployment| deployment.identity.name == name);
    let before = decision.steps.len();
    let update = (SUBJECT, [Reason::DeploymentCreated, Reason::DeploymentUpdated]);
    if put(decision, observed, resolved, ChildKind::Deployment, &document, &there, update)
        && resolved.function.replicas.are_scaled()
        && let Some(live) = live.filter(|live| live.owns_replicas_alone)
    {
        // A field without an owner is reset to its default, which would scale the Function to one pod.
        let step = Step::HandOver { deployment: name, replicas: live.replicas };
        decision.steps.insert(before, step);
    }
}

/// Applies the Service once there is a Deployment.
pub(super) fn service(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let there = observed.children.services.iter().collect::<Vec<_>>();
    // The Service's name is the Function's address, so a Service with a different name is useless.
    for other in there.iter().filter(|identity| identity.name != resolved.function.name) {
        decision.delete(ChildKind::Service, other);
    }
    if observed.children.deployments.is_empty() && !decision.puts(ChildKind::Deployment) {
        return;
    }
    let is_ours = there.iter().any(|identity| identity.name == resolved.function.name);
    if address::may_have_address(observed) && !is_ours {
        return;
    }
    let document = children::service::build(resolved.function);
    let update = (SUBJECT, [Reason::ServiceCreated, Reason::ServiceUpdated]);
    put(decision, observed, resolved, ChildKind::Service, &document, &there, update);
}

/// Applies the autoscaler, unless the number of pods is fixed.
pub(super) fn autoscaler(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let there = observed.children.autoscalers.iter().collect::<Vec<_>>();
    if !resolved.function.replicas.are_scaled() {
        if !decision.puts(ChildKind::Deployment)
            && decision.image.is_none()
            && !observed.children.deployments.is_empty()
        {
            // The Deployment gets its fixed number together with the new image. Until then, the autoscaler stays.
            return;
        }
        for identity in &there {
            decision.delete(ChildKind::Autoscaler, identity);
        }
        return;
    }
    if observed.children.deployments.is_empty() && !decision.puts(ChildKind::Deployment) {
        return;
    }
    let name = one_of(decision, ChildKind::Autoscaler, &there, children::name(resolved.function));
    let target = resolved.settings.target_cpu_percentage;
    let deployment = name_of_deployment(resolved, observed);
    let Some(document) = children::autoscaler::build(resolved.function, &name, &deployment, target) else { return };
    let update = (SUBJECT, [Reason::HorizontalPodAutoscalerCreated, Reason::HorizontalPodAutoscalerUpdated]);
    put(decision, observed, resolved, ChildKind::Autoscaler, &document, &there, update);
}

/// Whether the Deployment is ready at its current generation, with at least the minimum number of pods.
pub(super) fn is_rolled_out(resolved: &Resolved<'_>, observed: &Observed<'_>) -> bool {
    let name = name_of_deployment(resolved, observed);
    let replicas = resolved.function.replicas;
    let least = if replicas.are_scaled() { replicas.min } else { 0 };
    let is_ready = |live: &&Deployment| state(live, None, false).reason == Reason::DeploymentReady;
    let mut there = observed.children.deployments.iter().filter(is_ready);
    there.any(|live| live.identity.name == name && live.replicas >= least)
}

/// Sets the Running condition.
pub(super) fn running(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let name = name_of_deployment(resolved, observed);
    let Some(live) = observed.children.deployments.iter().find(|deployment| deployment.identity.name == name) else {
        decision.record.image = None;
        return;
    };
    let problem = observed.children.problem_of(live.version()).map(|problem| resolved.repository.explain(problem));
    let problem = problem.or_else(|| missing_mount(resolved, observed).filter(|_| live.replicas > 0));
    let may_rest = resolved.function.replicas.fixed() == Some(0) || (observed.may_rest)(&name);
    let mut update = state(live, problem.as_deref(), may_rest);
    if update.status == Status::True {
        decision.record.image = Some(live.image.clone());
        decision.record.serves_current = decision.image.is_some() && !decision.puts(ChildKind::Deployment);
    }
    // Without a new image, the old image keeps serving requests.
    update.outdated = decision.image.is_none();
    if update.reason == Reason::DeploymentWaiting && goes_on(resolved, observed) {
        (update.status, update.outdated) = (Status::True, true);
        update.message.push_str("; the previous version serves");
    }
    decision.steps.push(Step::SetConditionUnlessWritten(update));
}

/// Returns why pods wait for the Secret of a mount. Apart from this, only Events of the pods report that.
fn missing_mount(resolved: &Resolved<'_>, observed: &Observed<'_>) -> Option<String> {
    let missing = &observed.state.missing_secrets;
    let mount = resolved.function.secret_mounts.iter().find(|mount| missing.contains(&mount.secret_name))?;
    Some(format!(
        "Secret \"{}\" of spec.secretMounts does not exist; the pods start when it is created",
        mount.secret_name
    ))
}

/// Returns the condition update from the Deployment's status. With `may_rest`, zero pods are not a failure.
fn state(live: &Deployment, problem: Option<&str>, may_rest: bool) -> ConditionUpdate {
    let name = &live.identity.name;
    let find = |kind: &str| live.conditions.iter().find(|condition| condition.kind == kind);
    let is = |kind: &str, reason: &str| find(kind).is_some_and(|c| c.status == "True" && c.reason == reason);
    let with = |text: String| problem.map_or(text.clone(), |problem| format!("{text}: {problem}"));
    let waiting = || with(format!("Deployment {name} is not ready yet"));
    if live.observed < live.generation || live.conditions.is_empty() {
        return ConditionUpdate::new(SUBJECT, Status::Unknown, Reason::DeploymentWaiting, waiting());
    }
    if live.replicas == 0 {
        let message = with(format!("Deployment {name} is scaled to 0"));
        if may_rest {
            return ConditionUpdate::new(SUBJECT, Status::True, Reason::DeploymentReady, message);
        }
        return ConditionUpdate::new(SUBJECT, Status::False, Reason::MinReplicasNotAvailable, message);
    }
    let refused = find("ReplicaFailure").filter(|condition| condition.status == "True");
    let progressing = find("Progressing").is_some_and(|condition| condition.status == "True");
    let rolled_out = is("Progressing", "NewReplicaSetAvailable");
    if live.is_available() && rolled_out {
        return ConditionUpdate::new(
            SUBJECT,
            Status::True,
            Reason::DeploymentReady,
            format!("Deployment {name} is ready"),
        );
    }
    if let Some(refused) = refused {
        let message = format!("Deployment {name} {NO_PODS}{}: {}", refused.reason, refused.message);
        // The rollout may continue until its deadline, as soon as pods can be created.
        let (status, reason) = if progressing && live.is_available() {
            (Status::Unknown, Reason::DeploymentWaiting)
        } else {
            (Status::False, Reason::DeploymentFailed)
        };
        return ConditionUpdate::new(SUBJECT, status, reason, message);
    }
    if !progressing {
        // The cause comes first, because some clients cut the end of a message.
        let cause = problem.map_or_else(String::new, |problem| format!(": {problem};"));
        let message = format!("Deployment {name} failed{cause} with condition: \n{}", dump(&live.conditions));
        return ConditionUpdate::new(SUBJECT, Status::False, Reason::DeploymentFailed, message);
    }
    if rolled_out {
        let message = with(format!("Minimum replicas not available for deployment {name}"));
        return ConditionUpdate::new(SUBJECT, Status::Unknown, Reason::MinReplicasNotAvailable, message);
    }
    ConditionUpdate::new(SUBJECT, Status::Unknown, Reason::DeploymentWaiting, waiting())
}

/// Returns the conditions as YAML, in the format of Kyma's Functions.
fn dump(conditions: &[Condition]) -> String {
    let mut text = String::new();
    for condition in conditions {
        for (prefix, field, value) in [
            ("- ", "type", &condition.kind),
            ("  ", "status", &condition.status),
            ("  ", "lastupdatetime", &condition.updated),
            ("  ", "lasttransitiontime", &condition.moved),
            ("  ", "reason", &condition.reason),
            ("  ", "message", &condition.message),
        ] {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{prefix}{field}: {value:?}");
        }
    }
    text
}
