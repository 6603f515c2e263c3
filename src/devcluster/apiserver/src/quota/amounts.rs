//! Amounts of resources, by their names.

use std::collections::BTreeMap;

use crate::kinds::hooks::Quantity;

/// Names of resources and amounts of them.
pub(super) type Amounts = BTreeMap<String, Quantity>;
