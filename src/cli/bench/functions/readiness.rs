//! When a Function is ready, and for which source.

use super::observer::Seen;
use crate::api::{
    Function,
    function_conditions::{self, Type},
};

/// A Function whose three conditions are True and speak of what its spec says now, and whose rollout is over; its state is the Git tree that it
/// was built from, or, where the source stands in the spec, the generation of that.
pub(super) fn ready(function: Function) -> Option<Seen> {
    let status = function.status.as_ref()?;
    let current = status.observed_generation == function.metadata.generation;
    let find = |kind| function_conditions::find(&status.conditions, kind);
    let is_true = |kind| find(kind).is_some_and(|condition| condition.status == "True");
    // While a version is rolled out, it is the one before that runs.
    let current = current && find(Type::Running).is_some_and(|running| running.reason == "DeploymentReady");
    let all = [Type::ConfigurationReady, Type::BuildReady, Type::Running].into_iter().all(is_true);
    (current && all).then_some(())?;
    let state = status.tree.clone().or_else(|| wanted(&function))?;
    Some(Seen { name: function.metadata.name?, state })
}

/// The state in which an inline Function is as its spec says now.
pub(super) fn wanted(function: &Function) -> Option<String> {
    function.metadata.generation.map(|generation| format!("generation {generation}"))
}
