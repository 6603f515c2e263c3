//! The state of the parser: tokens, position, and known names.

use super::error::Fault;
use super::limits::DEEPEST;
use super::token::{Placed, Token};
use super::tree::{Kind, Node};

/// Parses an expression token by token.
pub(super) struct Parser<'s> {
    tokens: Vec<Placed<'s>>,
    next: usize,
    nesting: u16,
    /// The allowed variables; `None` allows every name.
    variables: Option<&'s [&'s str]>,
    /// Variables bound by macros, innermost last.
    pub(super) bound: Vec<&'s str>,
}

impl<'s> Parser<'s> {
    /// Creates a parser. The last token must be the end.
    pub(super) fn new(tokens: Vec<Placed<'s>>, variables: Option<&'s [&'s str]>) -> Self {
        Self { tokens, next: 0, nesting: 0, variables, bound: Vec::new() }
    }

    fn placed(&self) -> &Placed<'s> {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    /// Returns the next token.
    pub(super) fn peek(&self) -> &Token<'s> {
        &self.placed().token
    }

    /// Returns the offset of the next token.
    pub(super) fn at(&self) -> usize {
        self.placed().at
    }

    /// Consumes the next token. The end is never consumed.
    pub(super) fn take(&mut self) -> Token<'s> {
        let token = self.placed().token.clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Consumes the next token if it is this sign. Returns whether it was.
    pub(super) fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Sign(next) if *next == sign);
        if is_next {
            self.take();
        }
        is_next
    }

    /// Consumes a required sign.
    pub(super) fn expect(&mut self, sign: &str) -> Result<(), Fault> {
        if self.takes(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{sign}`")))
    }

    /// Returns the error for an unexpected token.
    pub(super) fn unexpected(&self, wanted: &str) -> Fault {
        Fault::new(self.at(), format!("expected {wanted}, found {}", self.peek().shown()))
    }

    /// Enters a nested part; [`leave`](Self::leave) ends it.
    pub(super) fn enter(&mut self) -> Result<(), Fault> {
        self.nesting += 1;
        if self.nesting > DEEPEST { Err(too_deep(self.at())) } else { Ok(()) }
    }

    pub(super) fn leave(&mut self) {
        self.nesting -= 1;
    }

    /// Returns whether a macro binds the name.
    pub(super) fn is_bound(&self, name: &str) -> bool {
        self.bound.contains(&name)
    }

    /// Refuses an unknown variable.
    pub(super) fn check_variable(&self, at: usize, name: &str) -> Result<(), Fault> {
        match self.variables {
            Some(known) if !known.contains(&name) && !self.is_bound(name) => {
                Err(Fault::new(at, format!("there is no variable `{name}`; there is `{}`", known.join("` and `"))))
            }
            _ => Ok(()),
        }
    }
}

/// Builds a node, and checks its nesting depth.
pub(super) fn node(at: usize, kind: Kind) -> Result<Node, Fault> {
    let depth = kind.depth();
    if depth > DEEPEST { Err(too_deep(at)) } else { Ok(Node { at, depth, kind }) }
}

fn too_deep(at: usize) -> Fault {
    Fault::new(at, format!("the expression is nested deeper than {DEEPEST} levels"))
}
