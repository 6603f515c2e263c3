//! What reads an expression: its words, how far it is, and which names mean something.

use super::error::Fault;
use super::limits::DEEPEST;
use super::token::{Placed, Token};
use super::tree::{Kind, Node};

/// Reads an expression, one word after the other.
pub(super) struct Parser<'s> {
    tokens: Vec<Placed<'s>>,
    next: usize,
    nesting: u16,
    /// The names that may be used; `None`: all.
    variables: Option<&'s [&'s str]>,
    /// Names that macros give to elements, the innermost last.
    pub(super) bound: Vec<&'s str>,
}

impl<'s> Parser<'s> {
    /// Of words that end with the end.
    pub(super) fn new(tokens: Vec<Placed<'s>>, variables: Option<&'s [&'s str]>) -> Self {
        Self { tokens, next: 0, nesting: 0, variables, bound: Vec::new() }
    }

    fn placed(&self) -> &Placed<'s> {
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    /// The next word.
    pub(super) fn peek(&self) -> &Token<'s> {
        &self.placed().token
    }

    /// Where it begins.
    pub(super) fn at(&self) -> usize {
        self.placed().at
    }

    /// Takes the next word. The end stays.
    pub(super) fn take(&mut self) -> Token<'s> {
        let token = self.placed().token.clone();
        self.next = (self.next + 1).min(self.tokens.len() - 1);
        token
    }

    /// Whether the next word is this sign. It is taken.
    pub(super) fn takes(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Sign(next) if *next == sign);
        if is_next {
            self.take();
        }
        is_next
    }

    /// Takes a sign that has to come.
    pub(super) fn expect(&mut self, sign: &str) -> Result<(), Fault> {
        if self.takes(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{sign}`")))
    }

    /// What is said of a next word that cannot stand here.
    pub(super) fn unexpected(&self, wanted: &str) -> Fault {
        Fault::new(self.at(), format!("expected {wanted}, found {}", self.peek().shown()))
    }

    /// Begins something inside of something; [`leave`](Self::leave) ends it.
    pub(super) fn enter(&mut self) -> Result<(), Fault> {
        self.nesting += 1;
        if self.nesting > DEEPEST { Err(too_deep(self.at())) } else { Ok(()) }
    }

    pub(super) fn leave(&mut self) {
        self.nesting -= 1;
    }

    /// Whether a name is an element of a macro.
    pub(super) fn is_bound(&self, name: &str) -> bool {
        self.bound.contains(&name)
    }

    /// Refuses a name that no value has.
    pub(super) fn check_variable(&self, at: usize, name: &str) -> Result<(), Fault> {
        match self.variables {
            Some(known) if !known.contains(&name) && !self.is_bound(name) => {
                Err(Fault::new(at, format!("there is no variable `{name}`; there is `{}`", known.join("` and `"))))
            }
            _ => Ok(()),
        }
    }
}

/// A part that is not nested too deep.
pub(super) fn node(at: usize, kind: Kind) -> Result<Node, Fault> {
    let depth = kind.depth();
    if depth > DEEPEST { Err(too_deep(at)) } else { Ok(Node { at, depth, kind }) }
}

fn too_deep(at: usize) -> Fault {
    Fault::new(at, format!("the expression is nested deeper than {DEEPEST} levels"))
}
