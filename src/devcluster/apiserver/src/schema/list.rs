//! The identity of list items.

use serde_json::Value;

/// The identity of list items in server-side apply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum List {
    /// The list is a single value.
    Atomic,
    /// Scalars, identified by their value.
    Set,
    /// Maps, identified by these fields. Fields are sorted by name and have their defaults.
    Map(Vec<(String, Option<Value>)>),
}
