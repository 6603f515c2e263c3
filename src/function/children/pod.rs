//! What all pods of Functions and builds have in common.
//!
//! The security fields are those that Pod Security `restricted` asks for, and a read-only root besides.

use serde_json::{Value, json};

/// User and group of every process.
const USER: i64 = 1000;

/// Pod-level security: not root, one user, the runtime's default system call filter.
pub(super) fn security() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": { "type": "RuntimeDefault" }
    })
}

/// Container-level security: no privileges, no capabilities, nothing to write to but the volumes.
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

/// Text for `command` and `args`, where the API would replace `$(NAME)` by a variable: it stays what it is.
pub(super) fn literal(text: &str) -> String {
    text.replace("$(", "$$(")
}
