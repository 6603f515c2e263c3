//! Kinds: the table of types, and the behaviour of the built-in ones.

pub mod disruption;
pub mod hooks;
pub(crate) mod scale;
pub mod table;
