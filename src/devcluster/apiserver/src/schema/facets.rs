//! Constraints of a custom resource's schema on values, beyond their type.
//!
//! Not here: checking the constraints (`validate`) and evaluating rules (`rules`).

use serde_json::Value;

use super::rule::Rule;

/// Index of a node in its arena.
pub(crate) type Id = u32;

/// Constraints on the values of one node. Patterns are compiled once, when the definition is loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facets {
    pub enumeration: Vec<Value>,
    pub minimum: Option<(f64, Bound)>,
    pub maximum: Option<(f64, Bound)>,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<regex::Regex>,
    pub format: Option<String>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub unique_items: bool,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    /// Whether the value is an embedded object, which needs apiVersion and kind.
    pub embedded: bool,
    /// Whether the type is `integer`, not `number`.
    pub integer: bool,
    pub all_of: Vec<Id>,
    pub any_of: Vec<Id>,
    pub one_of: Vec<Id>,
    pub not: Option<Id>,
    pub rules: Vec<Rule>,
}

/// Whether a limit is inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Inclusive,
    Exclusive,
}

impl Facets {
    /// Returns whether there are any constraints. Nodes without constraints have no facets.
    pub(crate) fn demands_anything(&self) -> bool {
        let lengths = [self.min_length, self.max_length, self.min_items, self.max_items];
        let counts = [self.min_properties, self.max_properties];
        !self.enumeration.is_empty()
            || self.minimum.is_some()
            || self.maximum.is_some()
            || self.multiple_of.is_some()
            || lengths.iter().chain(&counts).any(Option::is_some)
            || self.pattern.is_some()
            || self.format.is_some()
            || self.unique_items
            || self.embedded
            || self.integer
            || self.not.is_some()
            || ![&self.all_of, &self.any_of, &self.one_of].iter().all(|l| l.is_empty())
            || !self.rules.is_empty()
    }
}
