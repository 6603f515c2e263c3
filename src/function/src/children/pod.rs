//! Fields that all pods of Functions and builds share.
//!
//! The security fields satisfy Pod Security `restricted`, and add a read-only root file system.

use serde_json::{Value, json};

/// User and group of every process.
const USER: i64 = 1000;

/// Returns the pod's security context: non-root, one user, the default seccomp profile.
pub(super) fn security() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": { "type": "RuntimeDefault" }
    })
}

/// Returns the container's security context: no privileges, no capabilities, only volumes are writable.
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

/// Returns the security context of Kaniko's executor: root with the capabilities that it needs, within Pod Security
/// `baseline`. Kaniko unpacks the base image into its own root file system and changes users and file owners.
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

/// Escapes a string for `command` and `args`, so that the API does not expand `$(NAME)`.
pub(super) fn literal(text: &str) -> String {
    text.replace("$(", "$$(")
}
