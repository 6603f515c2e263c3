//! Schemas of the Kubernetes types in Mainstay's CRDs.
//!
//! `k8s-openapi` has schemas of all its types behind one feature, but that feature would dominate the compile time.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// The schema of a `Time`.
pub(super) struct TimeSchema;

impl JsonSchema for TimeSchema {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// The schema of a `Condition`, with the descriptions that Kubernetes has for it.
pub(super) struct ConditionSchema;

impl JsonSchema for ConditionSchema {
    fn schema_name() -> Cow<'static, str> {
        "Condition".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Condition contains details for one aspect of the current state of this API Resource.",
            "type": "object",
            "properties": {
                "lastTransitionTime": {
                    "description": "lastTransitionTime is the last time the condition transitioned from one status to another. \
                                    This should be when the underlying condition changed.  If that is not known, then using \
                                    the time when the API field changed is acceptable.",
                    "type": "string",
                    "format": "date-time",
                },
                "message": {
                    "description": "message is a human readable message indicating details about the transition. This may be \
                                    an empty string.",
                    "type": "string",
                },
                "observedGeneration": {
                    "description": "observedGeneration represents the .metadata.generation that the condition was set based \
                                    upon. For instance, if .metadata.generation is currently 12, but the \
                                    .status.conditions[x].observedGeneration is 9, the condition is out of date with respect \
                                    to the current state of the instance.",
                    "type": "integer",
                    "format": "int64",
                },
                "reason": {
                    "description": "reason contains a programmatic identifier indicating the reason for the condition's last \
                                    transition. Producers of specific condition types may define expected values and meanings \
                                    for this field, and whether the values are considered a guaranteed API. The value should \
                                    be a CamelCase string. This field may not be empty.",
                    "type": "string",
                },
                "status": {
                    "description": "status of the condition, one of True, False, Unknown.",
                    "type": "string",
                },
                "type": {
                    "description": "type of condition in CamelCase or in foo.example.com/CamelCase.",
                    "type": "string",
                },
            },
            "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        })
    }
}

/// The schema of a map with any content.
pub(super) struct AnyObject;

impl JsonSchema for AnyObject {
    fn schema_name() -> Cow<'static, str> {
        "Object".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
    }
}
