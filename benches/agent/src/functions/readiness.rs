//! When a Function is ready, and for which source.

use super::observer::Seen;
use crate::api::Function;

/// Reads a Function that is ready in its present generation, with its rollout complete. The state is the Git tree of
/// the source, or the generation for inline source.
pub(super) fn ready(function: Function) -> Option<Seen> {
    let status = function.status.as_ref()?;
    let current = status.observed_generation == function.metadata.generation;
    let find = |kind: &str| status.conditions.iter().find(|condition| condition.kind == kind);
    let is_true = |kind| find(kind).is_some_and(|condition| condition.status == "True");
    // During a rollout the previous version still runs.
    let current = current && find("Running").is_some_and(|running| running.reason == "DeploymentReady");
    let all = ["ConfigurationReady", "BuildReady", "Running"].into_iter().all(is_true);
    (current && all).then_some(())?;
    let state = status.tree.clone().or_else(|| wanted(&function))?;
    Some(Seen { name: function.metadata.name?, state })
}

/// Returns the expected state of an inline Function.
pub(super) fn wanted(function: &Function) -> Option<String> {
    function.metadata.generation.map(|generation| format!("generation {generation}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(tree: Option<&str>, running: &str, observed: i64, expected: Option<&str>) {
        let condition = |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason});
        let function = json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
            "metadata": {"name": "f", "generation": 2}, "spec": {"source": "load", "runtime": "nodejs22"},
            "status": {
                "observedGeneration": observed, "tree": tree,
                "conditions": [
                    condition("ConfigurationReady", "Found"), condition("BuildReady", "JobFinished"),
                    condition("Running", running),
                ],
            },
        });
        let seen = ready(serde_json::from_value(function).unwrap());
        assert_eq!(seen.map(|seen| seen.state).as_deref(), expected, "{running} {observed}");
    }

    #[test]
    fn a_function_is_ready_for_the_tree_or_the_generation_that_serves() {
        check(Some("abc"), "DeploymentReady", 2, Some("abc"));
        check(None, "DeploymentReady", 2, Some("generation 2"));
        check(Some("abc"), "DeploymentReady", 1, None);
        check(Some("abc"), "DeploymentWaiting", 2, None);
    }
}
