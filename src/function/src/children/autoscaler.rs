//! The HorizontalPodAutoscaler of a Function whose number of pods is not fixed.

use serde_json::{Value, json};

use super::metadata;
use crate::ResolvedFunction;

/// The autoscaler of this Deployment, with the target `target_cpu_percentage` of the CPU request; `None` if the number
/// of pods is fixed.
pub fn build(function: &ResolvedFunction, name: &str, deployment: &str, target_cpu_percentage: i64) -> Option<Value> {
    function.replicas.are_scaled().then(|| {
        json!({
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata(function, name),
            "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment },
                // It scales nothing to 0; whoever does may do so, too.
                "minReplicas": function.replicas.min.max(1),
                "maxReplicas": function.replicas.max,
                "targetCPUUtilizationPercentage": target_cpu_percentage
            }
        })
    })
}
