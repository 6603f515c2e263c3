//! Expressions of the Common Expression Language (CEL): a text becomes an [`Expression`], and that answers yes or no of JSON.
//!
//! - [`Expression`]: read once, asked often
//! - [`ExpressionError`]: what is wrong with one, and where
//! - [`LONGEST`], [`STEPS`]: what an expression may cost
//!
//! Expressions are written by whoever may write a GitSync, and so are the objects that they are asked of: both are hostile. That
//! is why they are not given to a general engine, which has no bound for the time that an answer takes.
//!
//! Invariant: reading is linear in the length, and no text makes it recurse deeper than [`DEEPEST`](limits::DEEPEST).
//! Invariant: an answer takes at most [`STEPS`] steps, each of them small, whatever the expression and the object are; so
//! what it allocates is bounded, too.
//! Invariant: an error names types and fields, and never a value.
//!
//! Deliberately absent: times and durations, bytes, `type()`, patterns that are no literals. Whoever writes them is told so.

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

pub use error::ExpressionError;
pub use limits::{LONGEST, STEPS};

/// An expression that was read.
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

impl Expression {
    /// Reads an expression. With `variables`, a name that is none of them is refused; without, every name may be one.
    ///
    /// # Errors
    /// The first place that cannot be read, and what is wrong there.
    pub fn parse(source: &str, variables: Option<&[&str]>) -> Result<Self, ExpressionError> {
        let root = parse::parse(source, variables).map_err(|fault| fault.located(source))?;
        Ok(Self { source: source.into(), root })
    }

    /// Whether it is true of the values of its variables.
    ///
    /// # Errors
    /// Why it is neither true nor false: a field is missing, a type is not what it takes, or it takes too many steps.
    pub fn holds<'v>(&'v self, variable: &dyn Fn(&str) -> Option<&'v Json>) -> Result<bool, ExpressionError> {
        evaluate::holds(&self.root, variable).map_err(|fault| fault.located(&self.source))
    }
}
