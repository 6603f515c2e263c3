//! Limits of expressions.

/// Maximum length of an expression, in bytes.
pub const LONGEST: usize = 4096;
/// Maximum steps of one evaluation. A step visits a node, an element of a list, or 16 bytes of text.
pub const STEPS: u32 = 20_000;
/// Maximum nesting depth. A chain of `||` or `&&` is one level, regardless of its length.
pub(super) const DEEPEST: u16 = 60;
/// Maximum size of a compiled regular expression, in bytes.
pub(super) const PATTERN_BYTES: usize = 128 * 1024;
/// Bytes of text per step.
pub(super) const TEXT_STEP: usize = 16;
/// Steps per byte of text that a regular expression is matched against.
pub(super) const PATTERN_STEPS: usize = 8;
