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

/// Container security context of Kaniko's executor: root, which unpacks the base image into its own root file system and hands
/// files and programs to others; what Pod Security `baseline` allows, and nothing more than it needs.
pub(super) fn root_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID"] },
        "privileged": false,
        "readOnlyRootFilesystem": false,
        "runAsGroup": 0,
        "runAsNonRoot": false,
        "runAsUser": 0
    })
}

/// Text for `command` and `args`, escaped so that the API does not expand `$(NAME)`.
pub(super) fn literal(text: &str) -> String {
    text.replace("$(", "$$(")
}
