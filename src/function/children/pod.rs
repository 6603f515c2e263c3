//! Fields that all pods of Functions and builds have in common.
//!
//! The security fields are those of Pod Security `restricted`, and a read-only root file system.

use serde_json::{Value, json};

/// User and group of every process.
const USER: i64 = 1000;

/// Pod security context: non-root, one user, the default seccomp profile.
pub(super) fn security() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": { "type": "RuntimeDefault" }
    })
}

/// Container security context: no privileges, no capabilities, only volumes are writable.
pub(super) fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "privileged": false,
        "readOnlyRootFilesystem": true,
        "runAsGroup": USER,
        "runAsNonRoot": true,
        "runAsUser": USER
    })
}

/// Text for `command` and `args`, escaped so that the API does not expand `$(NAME)`.
pub(super) fn literal(text: &str) -> String {
    text.replace("$(", "$$(")
}
