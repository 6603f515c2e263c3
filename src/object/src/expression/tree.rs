//! The syntax tree of an expression.

use regex::Regex;

use super::functions::Function;

/// A node of the tree.
#[derive(Debug)]
pub(super) struct Node {
    /// Byte offset in the text.
    pub(super) at: usize,
    /// Nesting depth of the node's parts.
    pub(super) depth: u16,
    pub(super) kind: Kind,
}

/// The kind of a node.
#[derive(Debug)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    Variable(Box<str>),
    Field {
        of: Box<Node>,
        name: Box<str>,
        optional: bool,
    },
    Has {
        of: Box<Node>,
        name: Box<str>,
    },
    Index {
        of: Box<Node>,
        index: Box<Node>,
        optional: bool,
    },
    /// Elements. The flag marks optional elements, which are omitted without a value.
    List(Vec<(Node, bool)>),
    Map(Vec<(Node, Node, bool)>),
    Not(Box<Node>),
    Negate(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Binary(Operator, Box<Node>, Box<Node>),
    Conditional(Box<Node>, Box<Node>, Box<Node>),
    Call(Function, Vec<Node>),
    Matches(Box<Node>, Box<Regex>),
    Fold(Box<Fold>),
}

/// An operator with two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

/// A macro over the elements of a list, or the keys of a map.
#[derive(Debug)]
pub(super) struct Fold {
    pub(super) how: How,
    pub(super) of: Node,
    pub(super) variable: Box<str>,
    /// The condition for an element.
    pub(super) condition: Option<Node>,
    /// The result for an element.
    pub(super) result: Option<Node>,
}

/// How a macro combines the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    All,
    Exists,
    ExistsOne,
    /// Into a list.
    Collect,
}

impl Kind {
    /// Returns the nesting depth of the parts.
    pub(super) fn depth(&self) -> u16 {
        let deepest = |nodes: &mut dyn Iterator<Item = &Node>| nodes.map(|node| node.depth).max().unwrap_or(0);
        let parts = match self {
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Double(_)
            | Self::Text(_)
            | Self::Variable(_) => 0,
            Self::Field { of, .. } | Self::Has { of, .. } | Self::Not(of) | Self::Negate(of) | Self::Matches(of, _) => {
                of.depth
            }
            Self::Index { of, index, .. } => of.depth.max(index.depth),
            Self::List(items) => deepest(&mut items.iter().map(|(item, _)| item)),
            Self::Map(entries) => deepest(&mut entries.iter().flat_map(|(key, value, _)| [key, value])),
            Self::All(parts) | Self::Any(parts) | Self::Call(_, parts) => deepest(&mut parts.iter()),
            Self::Binary(_, left, right) => left.depth.max(right.depth),
            Self::Conditional(condition, then, other) => condition.depth.max(then.depth).max(other.depth),
            Self::Fold(fold) => {
                deepest(&mut [Some(&fold.of), fold.condition.as_ref(), fold.result.as_ref()].into_iter().flatten())
            }
        };
        parts.saturating_add(1)
    }
}
