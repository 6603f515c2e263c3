//! The source stage: a ConfigMap for an inline Function, or a tree of a Git repository.

use jiff::Timestamp;

use super::apply::put;
use super::decision::{Decision, one_of};
use super::observed::{Observed, Resolved};
use super::step::{ConditionUpdate, Step};
use crate::child_kind::ChildKind;
use crate::children;
use crate::git::{self, Tree};
use mainstay_api::function_conditions::{Reason, Status, Type};

const SUBJECT: Type = Type::ConfigurationReady;

/// The first stage: provides the source of a build.
pub(super) fn source(resolved: &Resolved<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let there = observed.children.config_maps.iter().collect::<Vec<_>>();
    if let Some((tree, _)) = resolved.git {
        for identity in &there {
            decision.delete(ChildKind::ConfigMap, identity);
        }
        let reported = git::last_resolved(&resolved.function.namespace, observed.status);
        let same = |reported: &Tree| {
            reported.location == tree.location && reported.commit == tree.commit && reported.tree == tree.tree
        };
        let message = format!("Sources {} updated", resolved.function.name);
        match reported {
            Some(reported) if same(&reported) && observed.holds(SUBJECT) => {
                decision.steps.push(Step::ConfirmCondition(SUBJECT));
            }
            Some(reported) if same(&reported) => {
                decision.set_condition(SUBJECT, Status::True, Reason::SourceUpdated, message);
            }
            _ => decision.report_action(SUBJECT, Status::True, Reason::SourceUpdated, message),
        }
        return;
    }
    let name = one_of(decision, ChildKind::ConfigMap, &there, children::name(resolved.function));
    let Some(document) = children::config_map::build(resolved.function, &name) else { return };
    let update = (SUBJECT, [Reason::ConfigMapCreated, Reason::ConfigMapUpdated]);
    put(decision, observed, resolved, ChildKind::ConfigMap, &document, &there, update);
    if observed.holds(SUBJECT) {
        decision.steps.push(Step::ConfirmCondition(SUBJECT));
    } else {
        // An invalid spec was fixed, or this is the first reconcile of a new agent.
        let message = format!("ConfigMap {name} updated");
        let update = ConditionUpdate::new(SUBJECT, Status::True, Reason::ConfigMapUpdated, message);
        decision.steps.push(Step::SetConditionUnlessWritten(update));
    }
}
