//! Computes changes of objects and their field ownership: server-side apply and the three other patches.
//!
//! ```text
//! apply       typed::check → merged → without(abandoned) → difference → conflicts → managedFields
//! other write                                   track: difference → managedFields
//! patches     strategic, merge, json: live + patch → new object (then track)
//! ```
//!
//! Invariant: pure functions of their arguments; times are arguments, too.

mod apply;
mod conflict;
mod context;
mod difference;
mod element;
mod fields;
mod json;
mod managed;
mod merged;
mod owned;
mod reshaped;
mod scaled;
mod strategic;
#[cfg(test)]
mod tests;
mod track;
mod typed;

pub use apply::{apply, check_typed};
pub use context::ApplyContext;
pub(crate) use element::element;
pub(crate) use fields::Element;
pub(crate) use json::depth;
pub use json::{json, merge};
pub use scaled::{apply_scale, track_scale};
pub use strategic::strategic;
pub use track::{equal_but_times, track};
