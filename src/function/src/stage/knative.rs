//! The serving stages on Knative: the Knative Service, the Running condition, and moves from and to a Deployment.
//!
//! The address of a Function is the Service with its name. With a Deployment, the Function owns this Service;
//! otherwise, Knative owns it. The Service is transferred as soon as the new flavour can serve requests. The old
//! flavour is removed afterwards.
//!
//! Invariant: unless Knative is known to be present, no Knative object is written or deleted. Invariant: the old
//! flavour is not touched before the new flavour can serve requests. Invariant: `status.serving` is written before a
//! Knative Service is created, so a restarted agent knows of it.

use std::time::Duration;

use jiff::Timestamp;

use super::address::may_have_address;
use super::apply::put;
use super::decision::Decision;
use super::observed::{Observed, Resolved};
use super::rollout::goes_on;
use super::serving;
use super::step::{ConditionUpdate, Step};
use crate::child_kind::ChildKind;
use crate::children;
use crate::knative_presence::Presence;
use crate::knative_state::{KnativeService, Word};
use mainstay_api::function_conditions::{Reason, Status, Type};

const SUBJECT: Type = Type::Running;
/// How long the Deployment stays after Knative begins to serve requests, for clients with a cached address.
const STAYS: Duration = Duration::from_secs(30);
/// When to check the recorded status again. A watch event usually arrives earlier.
const RECORDED: Duration = Duration::from_secs(1);

fn live<'a>(resolved: &Resolved<'_>, observed: &Observed<'a>) -> Option<&'a KnativeService> {
    observed.children.knative_services.iter().find(|service| service.identity.name == resolved.function.name)
}

/// Applies the Knative Service once there is an image.
pub(super) fn service(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    decision.record.has_knative_service = may_have_address(observed);
    if *observed.knative != Presence::Present {
        return;
    }
    let there = observed.children.identities(ChildKind::KnativeService).collect::<Vec<_>>();
    for other in there.iter().filter(|identity| identity.name != resolved.function.name) {
        decision.delete(ChildKind::KnativeService, other);
    }
    let Some(image) = decision.image.clone() else { return };
    decision.record.has_knative_service = true;
    if there.is_empty() && observed.status.serving.is_none() {
        return decision.requeue_within(RECORDED);
    }
    let (secret, has_address) = (&resolved.repository.secret, observed.children.services.is_empty());
    let document =
        children::knative_service::build(resolved.function, &image.name, secret, has_address, resolved.settings);
    let update = (SUBJECT, [Reason::ServiceCreated, Reason::ServiceUpdated]);
    put(decision, observed, resolved, ChildKind::KnativeService, &document, &there, update);
}

/// Removes the Deployment once Knative serves requests.
pub(super) fn leave_deployment(
    resolved: &Resolved<'_>,
    observed: &Observed<'_>,
    now: Timestamp,
    decision: &mut Decision,
) {
    let Some(live) = live(resolved, observed).filter(|_| decision.image.is_some()) else { return };
    if *observed.knative != Presence::Present || decision.puts(ChildKind::KnativeService) {
        return;
    }
    if live.has_ready_revision() {
        for identity in &observed.children.services {
            if identity.name == resolved.function.name {
                let (knative, serves) = (live.identity.clone(), goes_on(resolved, observed));
                decision.steps.push(Step::GiveAddress { knative, serves });
            } else {
                decision.delete(ChildKind::Service, identity);
            }
        }
    }
    let children = observed.children;
    if live.is_ready() && !(children.deployments.is_empty() && children.autoscalers.is_empty()) {
        if let Some(wait) = live.since.and_then(|since| left_of(STAYS, since, now)) {
            return decision.requeue_within(wait);
        }
        for child_kind in [ChildKind::Autoscaler, ChildKind::Deployment] {
            for identity in observed.children.identities(child_kind) {
                decision.delete(child_kind, identity);
            }
        }
    }
}

/// Removes the Knative Service once the Deployment serves requests.
pub(super) fn leave(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    // The record stays until the Function owns the address again.
    let is_on_its_way = observed.status.serving.is_some() && observed.children.services.is_empty();
    decision.record.has_knative_service = is_on_its_way || may_have_address(observed);
    if *observed.knative != Presence::Present
        || decision.puts(ChildKind::Deployment)
        || !serving::is_rolled_out(resolved, observed)
    {
        return;
    }
    let knative = &observed.children.knative_services;
    if knative.is_empty() || decision.puts(ChildKind::Service) {
        return;
    }
    let name = &resolved.function.name;
    if observed.children.services.iter().any(|identity| identity.name == *name) {
        for service in knative {
            decision.delete(ChildKind::KnativeService, &service.identity);
        }
    } else {
        let knative = knative.iter().map(|service| service.identity.clone()).collect();
        let document = Box::new(children::service::build(resolved.function));
        let (name, serves) = (name.clone(), goes_on(resolved, observed));
        decision.steps.push(Step::TakeAddress { name, document, knative, serves });
    }
}

/// Deletes unused Revisions once the newest Revision serves requests.
pub(super) fn clean_up(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let live = live(resolved, observed).filter(|_| *observed.knative == Presence::Present);
    let Some((live, settled)) = live.and_then(|live| Some((live, live.settled()?))) else { return };
    if decision.puts(ChildKind::KnativeService) || decision.state.cleaned_up.as_ref() == Some(&settled) {
        return;
    }
    if !live.is_at_first() {
        decision.steps.push(Step::CleanUp { knative: live.identity.clone() });
    }
    decision.state.cleaned_up = Some(settled);
}

/// Returns the remaining part of a duration that began at `began`, at most the whole duration.
fn left_of(time: Duration, began: Timestamp, now: Timestamp) -> Option<Duration> {
    let passed = Duration::try_from(now.duration_since(began)).unwrap_or_default();
    time.checked_sub(passed).filter(|left| !left.is_zero())
}

/// Sets the Running condition.
pub(super) fn running(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    match observed.knative {
        Presence::Present => {}
        Presence::Unknown => return,
        Presence::Absent => {
            let message = "Knative Serving is not installed: the cluster does not serve serving.knative.dev/v1; install it, or set \
                           the label mainstay.dev/serving to deployment";
            return decision.set_condition(SUBJECT, Status::False, Reason::KnativeNotInstalled, message);
        }
        Presence::Unreadable(why) => {
            let message = format!("Knative Services cannot be watched: {why}");
            return decision.set_condition(SUBJECT, Status::False, Reason::ServiceFailed, message);
        }
    }
    let Some(live) = live(resolved, observed) else {
        decision.record.image = None;
        return;
    };
    let mut update = state(live, resolved, observed);
    if update.status == Status::True {
        decision.record.image = Some(live.image.clone());
        decision.record.serves_current = decision.image.is_some() && !decision.puts(ChildKind::KnativeService);
    }
    // Without a new image, the old image keeps serving requests.
    update.outdated = decision.image.is_none();
    if update.reason == Reason::ServiceWaiting && goes_on(resolved, observed) {
        (update.status, update.outdated) = (Status::True, true);
        update.message.push_str("; the previous version serves");
    }
    decision.steps.push(Step::SetConditionUnlessWritten(update));
}

/// Returns the condition update from the Knative Service's status.
fn state(live: &KnativeService, resolved: &Resolved<'_>, observed: &Observed<'_>) -> ConditionUpdate {
    let (name, namespace) = (&resolved.function.name, &resolved.function.namespace);
    let version = live.is_current.then_some(&*live.latest_created);
    let problem = observed.children.problem_of(version).map(|problem| resolved.repository.explain(problem));
    // The Route reports the conflict about the address until its next reconcile.
    let is_on_its_way = !observed.children.services.is_empty() || !observed.children.deployments.is_empty();
    let word = match live.word() {
        Word::Failed(_) if is_on_its_way && live.has_ready_revision() => Word::Waiting(None),
        word => word,
    };
    let (status, reason, message) = match word {
        Word::Ready if !is_private(&live.url, name, namespace) => {
            let message = format!(
                "Service {name} is published at {}: Knative ignores the labels that keep it inside the cluster",
                live.url
            );
            return ConditionUpdate::new(SUBJECT, Status::False, Reason::ServiceFailed, message);
        }
        Word::Ready => {
            let message = format!("Function {name} is ready");
            return ConditionUpdate::new(SUBJECT, Status::True, Reason::ServiceReady, message);
        }
        Word::Waiting(cause) => {
            let message = format!("Service {name} is not ready yet");
            (Status::Unknown, Reason::ServiceWaiting, [Some(message), cause])
        }
        Word::Failed(cause) => {
            (Status::False, Reason::ServiceFailed, [Some(format!("Service {name} failed")), Some(cause)])
        }
    };
    let message = message.into_iter().flatten().chain(problem).collect::<Vec<_>>().join(": ");
    ConditionUpdate::new(SUBJECT, status, reason, message)
}

/// Whether a URL is cluster-local, for any cluster domain.
fn is_private(url: &str, name: &str, namespace: &str) -> bool {
    url.split_once("://").is_some_and(|(_, host)| host.starts_with(&format!("{name}.{namespace}.svc.")))
}
