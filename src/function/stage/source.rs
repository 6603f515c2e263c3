//! The source: a ConfigMap for an inline Function, a tree of a Git repository for the others.

use jiff::Timestamp;

use super::{Decision, Observed, Said, Step, Wanted, one_of, put};
use crate::api::function_conditions::{Reason, Status, Type};
use crate::function::children;
use crate::function::family::What;
use crate::function::git::{self, Tree};

const SUBJECT: Type = Type::ConfigurationReady;

/// The first stage.
pub(super) fn look(wanted: &Wanted<'_>, observed: &Observed<'_>, _: Timestamp, decision: &mut Decision) {
    let there = observed.family.config_maps.iter().collect::<Vec<_>>();
    if let Some((tree, _)) = wanted.git {
        for identity in &there {
            decision.delete(What::ConfigMap, identity);
        }
        let told = git::remembered(&wanted.function.namespace, observed.status);
        let same = |told: &Tree| told.wanted == tree.wanted && told.commit == tree.commit && told.tree == tree.tree;
        let message = format!("Sources {} updated", wanted.function.name);
        match told {
            Some(told) if same(&told) && observed.holds(SUBJECT) => decision.steps.push(Step::Affirm(SUBJECT)),
            Some(told) if same(&told) => decision.say(SUBJECT, Status::True, Reason::SourceUpdated, message),
            _ => decision.done(SUBJECT, Status::True, Reason::SourceUpdated, message),
        }
        return;
    }
    let name = one_of(decision, What::ConfigMap, &there, children::name(wanted.function));
    let Some(document) = children::config_map::build(wanted.function, &name) else { return };
    let said = (SUBJECT, [Reason::ConfigMapCreated, Reason::ConfigMapUpdated]);
    put(decision, observed, wanted, What::ConfigMap, &document, &there, said);
    if observed.holds(SUBJECT) {
        decision.steps.push(Step::Affirm(SUBJECT));
    } else {
        // What was wrong with the specification is right again, or it is a new agent's first look.
        let message = format!("ConfigMap {name} updated");
        let said = Said::new(SUBJECT, Status::True, Reason::ConfigMapUpdated, message);
        decision.steps.push(Step::SayUnlessChanged(said));
    }
}
