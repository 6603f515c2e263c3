//! Errors of expressions, with their position.

use std::fmt;

/// An expression cannot be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionError {
    /// Line, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    what: String,
}

impl fmt::Display for ExpressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.what)
    }
}

/// An error at a byte offset of the expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) what: String,
    /// Whether the step limit was exceeded. In that case, no other part of the expression can determine the result.
    pub(super) is_final: bool,
}

impl Fault {
    pub(super) fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into(), is_final: false }
    }

    pub(super) fn located(self, source: &str) -> ExpressionError {
        let before = source.get(..self.at).unwrap_or(source);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        ExpressionError { line, column, what: self.what }
    }
}
