//! Amounts of resources, by name.

use std::collections::BTreeMap;

use crate::kinds::hooks::Quantity;

/// Amounts by resource name.
pub(super) type Amounts = BTreeMap<String, Quantity>;
