//! The identity of list items.

use serde_json::Value;

/// Identity of list items under server-side apply.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum List {
    /// The list is one value.
    Atomic,
    /// Scalars, each its own identity.
    Set,
    /// Maps, identified by these fields, which are sorted by name; with the default of each.
    Map(Vec<(String, Option<Value>)>),
}
