//! Schemas of objects: the recorded types of the built-in kinds and the structural schemas of custom resources.
//! Decoding, defaults, validation and patches use the same form.
//!
//! ```text
//! data/schema.json ──┐                ┌─ drop_unknown, check_types, normalise   (decoding)
//!                    ├─► Schema ──────┼─ apply_defaults, validate              (custom resources)
//! openAPIV3Schema ───┘                └─ crate::patch                           (merging and ownership)
//! ```
//!
//! Invariant: this module uses no clock, store or request.

mod builtin;
mod convert;
mod defaults;
mod definition;
mod facets;
mod format;
mod identity;
mod list;
pub(crate) mod node;
mod path;
mod rule;
mod rules;
mod structural;
mod structure;
#[cfg(test)]
mod tests;
mod types;
mod unknown;
mod validate;

pub use builtin::{builtin, metadata};
pub use convert::convert;
pub use defaults::{apply_defaults, normalise};
pub use definition::validate_definition;
pub use node::Schema;
pub use structural::structural;
pub use types::check_types;
pub use unknown::drop_unknown;
pub use validate::validate;
