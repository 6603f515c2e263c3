//! What serves: the Deployment, the Service and the autoscaler, and whether the Function runs.
//!
//! Invariant: a Function that runs goes on running, also in its condition, for as long as its Deployment has the pods
//! that it wants at least, of whichever version: only a rollout that has failed ends that.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::{Decision, Observed, Said, Step, Wanted, one_of, put};
use crate::api::function_conditions::{Reason, Status, Type};
use crate::function::children;
use crate::function::facts::{Condition, Deployment, Identity, Role};
use crate::function::family::What;

const SUBJECT: Type = Type::Running;

fn deployments<'a>(observed: &Observed<'a>) -> Vec<&'a Identity> {
    observed.family.deployments.iter().map(|deployment| &deployment.identity).collect()
}

fn name_of_deployment(wanted: &Wanted<'_>, observed: &Observed<'_>) -> String {
    one_of(&mut Decision::default(), What::Deployment, &deployments(observed), children::name(wanted.function))
}

/// The Deployment, once there is an image for it.
pub(super) fn deployment(wanted: &Wanted<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let there = deployments(observed);
    let name = one_of(decision, What::Deployment, &there, children::name(wanted.function));
    let Some(image) = decision.image.clone() else { return };
    let secret = &wanted.repository.secret;
    let document = children::deployment::build(wanted.function, &name, &image.name, secret, wanted.settings);
    let live = observed.family.deployments.iter().find(|deployment| deployment.identity.name == name);
    let before = decision.steps.len();
    let said = (SUBJECT, [Reason::DeploymentCreated, Reason::DeploymentUpdated]);
    if put(decision, observed, wanted, What::Deployment, &document, &there, said)
        && wanted.function.replicas.are_scaled()
        && let Some(live) = live.filter(|live| live.owns_replicas_alone)
    {
        // A field that nobody owns any more gets its default: the Function would fall to one pod.
        let step = Step::HandOver { deployment: name, replicas: live.replicas };
        decision.steps.insert(before, step);
    }
}

/// The Service, as soon as there is something behind it.
pub(super) fn service(wanted: &Wanted<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let there = observed.family.services.iter().collect::<Vec<_>>();
    // Its name is the address: another one is of no use.
    for other in there.iter().filter(|identity| identity.name != wanted.function.name) {
        decision.delete(What::Service, other);
    }
    if observed.family.deployments.is_empty() && !decision.puts(What::Deployment) {
        return;
    }
    let document = children::service::build(wanted.function);
    let said = (SUBJECT, [Reason::ServiceCreated, Reason::ServiceUpdated]);
    put(decision, observed, wanted, What::Service, &document, &there, said);
}

/// The autoscaler, where the number of pods is not fixed.
pub(super) fn autoscaler(wanted: &Wanted<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let there = observed.family.autoscalers.iter().collect::<Vec<_>>();
    if !wanted.function.replicas.are_scaled() {
        for identity in &there {
            decision.delete(What::Autoscaler, identity);
        }
        return;
    }
    if observed.family.deployments.is_empty() && !decision.puts(What::Deployment) {
        return;
    }
    let name = one_of(decision, What::Autoscaler, &there, children::name(wanted.function));
    let target = wanted.settings.target_cpu_percentage;
    let deployment = name_of_deployment(wanted, observed);
    let Some(document) = children::autoscaler::build(wanted.function, &name, &deployment, target) else { return };
    let said = (SUBJECT, [Reason::HorizontalPodAutoscalerCreated, Reason::HorizontalPodAutoscalerUpdated]);
    put(decision, observed, wanted, What::Autoscaler, &document, &there, said);
}

/// Whether what ran before serves, whatever is rolled out meanwhile.
pub(super) fn goes_on(wanted: &Wanted<'_>, observed: &Observed<'_>) -> bool {
    let name = name_of_deployment(wanted, observed);
    let mut there = observed.family.deployments.iter().filter(|live| !live.identity.terminating);
    observed.holds(SUBJECT) && there.any(|live| live.identity.name == name && live.is_available())
}

/// Whether the Function runs.
pub(super) fn running(wanted: &Wanted<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let name = name_of_deployment(wanted, observed);
    let Some(live) = observed.family.deployments.iter().find(|deployment| deployment.identity.name == name) else {
        decision.record.image = None;
        return;
    };
    let trouble = observed
        .family
        .pods
        .iter()
        .filter(|pod| pod.role == Role::Serving && !pod.identity.terminating)
        .find_map(|pod| pod.trouble.as_ref())
        .map(|(reason, text)| format!("{reason}: {text}"));
    let mut said = state(live, trouble.as_deref());
    if said.status == Status::True {
        decision.record.image = Some(live.image.clone());
    }
    // Without an image it is the old one that serves.
    said.outdated = decision.image.is_none();
    if said.reason == Reason::DeploymentWaiting && goes_on(wanted, observed) {
        (said.status, said.outdated) = (Status::True, true);
        said.message.push_str("; the version before serves");
    }
    decision.steps.push(Step::SayUnlessChanged(said));
}

/// What the Deployment says of itself.
fn state(live: &Deployment, trouble: Option<&str>) -> Said {
    let name = &live.identity.name;
    let find = |kind: &str| live.conditions.iter().find(|condition| condition.kind == kind);
    let is = |kind: &str, reason: &str| find(kind).is_some_and(|c| c.status == "True" && c.reason == reason);
    let with = |text: String| trouble.map_or(text.clone(), |trouble| format!("{text}: {trouble}"));
    let waiting = || with(format!("Deployment {name} is not ready yet"));
    if live.observed < live.generation || live.conditions.is_empty() {
        return Said::new(SUBJECT, Status::Unknown, Reason::DeploymentWaiting, waiting());
    }
    if live.replicas == 0 {
        let message = with(format!("Deployment {name} is scaled to 0"));
        return Said::new(SUBJECT, Status::False, Reason::MinReplicasNotAvailable, message);
    }
    let refused = find("ReplicaFailure").filter(|condition| condition.status == "True");
    let progressing = find("Progressing").is_some_and(|condition| condition.status == "True");
    let rolled_out = is("Progressing", "NewReplicaSetAvailable");
    if live.is_available() && rolled_out {
        return Said::new(SUBJECT, Status::True, Reason::DeploymentReady, format!("Deployment {name} is ready"));
    }
    if let Some(refused) = refused {
        let message = format!("Deployment {name} cannot create pods: {}: {}", refused.reason, refused.message);
        // Until its deadline is over the rollout may go on as soon as there is room.
        let (status, reason) = if progressing && live.is_available() {
            (Status::Unknown, Reason::DeploymentWaiting)
        } else {
            (Status::False, Reason::DeploymentFailed)
        };
        return Said::new(SUBJECT, status, reason, message);
    }
    if !progressing {
        let message = format!("Deployment {name} failed with condition: \n{}", dump(&live.conditions));
        return Said::new(SUBJECT, Status::False, Reason::DeploymentFailed, with(message));
    }
    if rolled_out {
        let message = with(format!("Minimum replicas not available for deployment {name}"));
        return Said::new(SUBJECT, Status::Unknown, Reason::MinReplicasNotAvailable, message);
    }
    Said::new(SUBJECT, Status::Unknown, Reason::DeploymentWaiting, waiting())
}

/// The conditions as YAML, as the first system of Functions showed them.
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
