//! The origin of variable values.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A ConfigMap or Secret with values of variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubstituteSource {
    /// `ConfigMap` or `Secret`. An object with a value of a Secret is treated like a Secret: none of its values is shown.
    pub kind: SubstituteSourceKind,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Whether it may be missing: then it has no values.
    #[serde(default)]
    pub optional: bool,
}

impl SubstituteSource {
    /// Whether the source is a Secret.
    pub fn is_secret(&self) -> bool {
        self.kind == SubstituteSourceKind::Secret
    }
}

/// The kind of a source of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum SubstituteSourceKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

/// When variables are substituted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SubstituteStrategy {
    /// If there is at least one value.
    #[default]
    WithVariables,
    /// In any case.
    Always,
}

/// Handling of a variable without a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UndefinedVariables {
    /// Refuse the commit, and name the variable.
    #[default]
    Refuse,
    /// Put nothing in its place.
    Empty,
}
