//! What an expression may cost.

/// The longest expression, in bytes.
pub const LONGEST: usize = 4096;
/// Steps of one answer. A step visits a part of the expression, an element of a list, or 16 bytes of text.
pub const STEPS: u32 = 20_000;
/// How deep the parts of an expression are nested. Alternatives (`||`) and conjunctions (`&&`) of any number are one level.
pub(super) const DEEPEST: u16 = 60;
/// The largest compiled pattern, in bytes.
pub(super) const PATTERN_BYTES: usize = 128 * 1024;
/// Bytes of text that are one step.
pub(super) const TEXT_STEP: usize = 16;
/// Steps for each byte of text that a pattern is matched with.
pub(super) const PATTERN_STEPS: usize = 8;
