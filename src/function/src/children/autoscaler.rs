//! The HorizontalPodAutoscaler of a Function without a fixed number of replicas.

use serde_json::{Value, json};

use super::metadata;
use crate::ResolvedFunction;

/// Returns the autoscaler of this Deployment, with the target `target_cpu_percentage` of the CPU request; `None` if the
/// number of replicas is fixed.
pub fn build(function: &ResolvedFunction, name: &str, deployment: &str, target_cpu_percentage: i64) -> Option<Value> {
    function.replicas.are_scaled().then(|| {
        json!({
            "apiVersion": "autoscaling/v1",
            "kind": "HorizontalPodAutoscaler",
            "metadata": metadata(function, name),
            "spec": {
                "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": deployment },
                // This autoscaler never scales to zero. Other autoscalers may.
                "minReplicas": function.replicas.min.max(1),
                "maxReplicas": function.replicas.max,
                "targetCPUUtilizationPercentage": target_cpu_percentage
            }
        })
    })
}
