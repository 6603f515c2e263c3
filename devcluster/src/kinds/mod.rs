//! What the server knows of kinds: the table of types, and the behaviour of the built-in ones.

pub mod hooks;
pub mod table;
