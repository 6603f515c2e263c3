//! Whether a live object is healthy, in kstatus' sense.

use serde_json::Value;

use super::Key;

/// How an object is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Healthy,
    /// On its way; says what is awaited.
    Progressing(String),
    /// It says itself that it failed.
    Failed(String),
}

/// How an object is doing.
pub fn health(_key: &Key, _live: &Value) -> Health {
    Health::Healthy
}
