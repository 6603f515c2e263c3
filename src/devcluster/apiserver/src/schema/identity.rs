//! Finds the old state of a list item by its keys.

use std::collections::BTreeMap;

use serde_json::Value;

use super::list::List;
use crate::patch::{Element, element};

/// The items of an old map list by their keys.
pub(super) struct Before<'a>(BTreeMap<Element, &'a Value>);

impl<'a> Before<'a> {
    /// Indexes an old list. Empty if its items have no keys.
    pub(super) fn of(list: &List, old: Option<&'a Value>) -> Self {
        let items = old.and_then(Value::as_array).filter(|_| matches!(list, List::Map(_))).into_iter().flatten();
        Self(items.filter_map(|item| Some((element(list, item).ok()?, item))).collect())
    }

    /// Returns the old item with the keys of `item`.
    pub(super) fn get(&self, list: &List, item: &Value) -> Option<&'a Value> {
        if self.0.is_empty() { None } else { self.0.get(&element(list, item).ok()?).copied() }
    }
}
