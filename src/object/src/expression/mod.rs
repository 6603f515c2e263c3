//! Expressions of the Common Expression Language (CEL): parses a string into an [`Expression`], which evaluates JSON to
//! true or false, or to JSON.
//!
//! - [`Expression`]: parsed once, evaluated often
//! - [`ExpressionError`]: an error with its position
//! - [`Budget`]: a limit for several evaluations together
//! - [`LONGEST`], [`STEPS`]: limits
//!
//! Users with access to a GitSync write both expressions and objects, so both are untrusted. No general CEL engine is
//! used, because such engines do not bound the time of an evaluation.
//!
//! Invariant: parsing is linear in the length, and recursion is at most [`DEEPEST`](limits::DEEPEST) deep.
//! Invariant: an evaluation takes at most [`STEPS`] small steps for any expression and object. This bounds its
//! memory, too.
//! Invariant: an error contains types and names of fields, never a value.
//!
//! Not here: times and durations, bytes, `type()`, and non-literal regular expressions. The parser rejects them with
//! a message.

mod budget;
mod error;
mod evaluate;
mod functions;
mod limits;
mod operators;
mod parse;
mod parser;
mod postfix;
mod scanner;
mod steps;
mod text;
mod token;
mod tree;
mod value;

#[cfg(test)]
mod tests;

use serde_json::Value as Json;

use steps::Steps;

pub use budget::Budget;
pub use error::ExpressionError;
pub use limits::{LONGEST, STEPS};

/// A parsed expression.
#[derive(Debug)]
pub struct Expression {
    source: Box<str>,
    root: tree::Node,
}

impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

impl Expression {
    /// Parses an expression. With `variables`, other variables are refused; without, every name is allowed.
    ///
    /// # Errors
    /// The first invalid position, and the problem.
    pub fn parse(source: &str, variables: Option<&[&str]>) -> Result<Self, ExpressionError> {
        let root = parse::parse(source, variables).map_err(|fault| fault.located(source))?;
        Ok(Self { source: source.into(), root })
    }

    /// Evaluates the expression with the values of its variables.
    ///
    /// # Errors
    /// The result is neither true nor false, because of a missing field, a wrong type, or too many steps.
    pub fn holds<'v>(&'v self, variable: &dyn Fn(&str) -> Option<&'v Json>) -> Result<bool, ExpressionError> {
        evaluate::holds(&self.root, variable, &mut Steps::all()).map_err(|fault| fault.located(&self.source))
    }

    /// Evaluates the expression to JSON with the values of its variables. This takes at most [`STEPS`] steps, too.
    ///
    /// # Errors
    /// There is no result, because of a missing field, a wrong type, or too many steps; or the result is not JSON: an
    /// optional value, a number that is not finite, or a map whose keys are not strings.
    pub fn result<'v>(&'v self, variable: &dyn Fn(&str) -> Option<&'v Json>) -> Result<Json, ExpressionError> {
        evaluate::result(&self.root, variable, &mut Steps::all()).map_err(|fault| fault.located(&self.source))
    }

    /// The same as [`holds`](Self::holds), with steps of a budget.
    ///
    /// # Errors
    /// As [`holds`](Self::holds), or the budget is exhausted.
    pub fn holds_within<'v>(
        &'v self,
        budget: &mut Budget,
        variable: &dyn Fn(&str) -> Option<&'v Json>,
    ) -> Result<bool, ExpressionError> {
        let evaluated = budget.evaluate(|steps| evaluate::holds(&self.root, variable, steps));
        evaluated.map_err(|fault| fault.located(&self.source))
    }

    /// The same as [`result`](Self::result), with steps of a budget.
    ///
    /// # Errors
    /// As [`result`](Self::result), or the budget is exhausted.
    pub fn result_within<'v>(
        &'v self,
        budget: &mut Budget,
        variable: &dyn Fn(&str) -> Option<&'v Json>,
    ) -> Result<Json, ExpressionError> {
        let evaluated = budget.evaluate(|steps| evaluate::result(&self.root, variable, steps));
        evaluated.map_err(|fault| fault.located(&self.source))
    }
}
