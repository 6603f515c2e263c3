//! Kinds: the type table, and the behaviour of the built-in kinds.

pub mod disruption;
pub mod hooks;
pub(crate) mod scale;
pub mod table;
