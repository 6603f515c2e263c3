//! The typed tree that everything generic walks: what a field may hold and how its parts are merged and owned.
//!
//! All types of one document lie in one arena, so that recursive types are plain indices and a [`Schema`] costs one
//! `Arc` to clone. Built-in kinds and custom resources share this form; only the two loaders differ.
//!
//! Invariant: every index in a node is inside its arena (the loaders allocate before they refer).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::facets::Facets;
pub(crate) use super::facets::Id;
pub(crate) use super::list::List;

/// A type and everything below it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    arena: Arc<Vec<Node>>,
    id: Id,
}

/// One type in the arena.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    /// The type of values.
    pub shape: Shape,
    /// Default of the field, or of the type where it stands.
    pub default: Option<Value>,
    /// Whether `null` is a value of its own (custom resources).
    pub nullable: bool,
    /// Built-in kinds: the field exists (zero) even where JSON leaves it out, because it is a plain struct or lacks
    /// `omitempty`. It decides whether a parent shows up as new in a difference.
    pub always_present: bool,
    /// Strategic merge: how the field is patched.
    pub strategy: Strategy,
    /// Limits on values, for custom resources.
    pub facets: Option<Box<Facets>>,
}

/// The structure of a type.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Anything, with structure taken from the value: maps are merged by key, lists are atomic.
    Any,
    /// Anything, as one indivisible value.
    Opaque,
    /// A single value.
    Scalar(Scalar),
    /// Named fields, free keys, or both.
    Object(Object),
    /// A list.
    Array(Array),
}

/// Kinds of single values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    String,
    /// Base64 text.
    Bytes,
    /// RFC 3339 with seconds.
    Time,
    /// RFC 3339 with exactly six fractional digits.
    MicroTime,
    Int32,
    Int64,
    Number,
    Boolean,
    IntOrString,
    Quantity,
}

/// A struct, a free map, or both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object {
    /// Name of the Go type, for decoding errors: `DeploymentSpec`.
    pub name: Option<Box<str>>,
    /// Named fields.
    pub properties: BTreeMap<String, Id>,
    /// Type of the values under other keys.
    pub additional: Option<Id>,
    /// Owned and replaced as a whole.
    pub atomic: bool,
    /// Names that must be there.
    pub required: Vec<String>,
}

/// A list and how its items are told apart.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    /// Type of the items.
    pub items: Id,
    /// Identity of the items.
    pub list: List,
}

/// How strategic merge patch treats a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strategy {
    /// Lists: merge instead of replace.
    pub merge: bool,
    /// Maps: `$retainKeys` is understood.
    pub retain_keys: bool,
    /// Maps: replace instead of merge.
    pub replace: bool,
    /// Lists of maps: the field that identifies an item.
    pub merge_key: Option<String>,
}

impl Node {
    /// A node of a shape, with nothing else known.
    pub(crate) fn of(shape: Shape) -> Self {
        Self {
            shape,
            default: None,
            nullable: false,
            always_present: false,
            strategy: Strategy::default(),
            facets: None,
        }
    }
}

impl Schema {
    /// The node `id` of `arena`.
    pub(crate) fn new(arena: Arc<Vec<Node>>, id: Id) -> Self {
        Self { arena, id }
    }

    /// A borrowed view that walks without counting references.
    pub(crate) fn view(&self) -> View<'_> {
        View { arena: &self.arena, node: &self.arena[self.id as usize] }
    }

    fn at(&self, id: Id) -> Self {
        Self { arena: Arc::clone(&self.arena), id }
    }

    /// The type of a named field, or of the values of a free map.
    pub fn field(&self, name: &str) -> Option<Self> {
        match &self.view().node.shape {
            Shape::Any => Some(self.clone()),
            Shape::Object(object) => object.properties.get(name).copied().or(object.additional).map(|id| self.at(id)),
            _ => None,
        }
    }

    /// The type of a list's items.
    pub fn items(&self) -> Option<Self> {
        match &self.view().node.shape {
            Shape::Array(array) => Some(self.at(array.items)),
            _ => None,
        }
    }
}

/// A borrowed place in a schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    arena: &'a [Node],
    pub(crate) node: &'a Node,
}

/// The node of everything that is not described: structure comes from the value.
static ANY: Node = Node {
    shape: Shape::Any,
    default: None,
    nullable: true,
    always_present: false,
    strategy: Strategy { merge: false, retain_keys: false, replace: false, merge_key: None },
    facets: None,
};

impl<'a> View<'a> {
    /// The place where nothing is described.
    pub(crate) fn any() -> View<'static> {
        View { arena: &[], node: &ANY }
    }

    /// A node of this arena.
    pub(crate) fn new(arena: &'a [Node], node: &'a Node) -> Self {
        Self { arena, node }
    }

    /// Another node of the same arena.
    pub(crate) fn at(self, id: Id) -> Self {
        View { arena: self.arena, node: &self.arena[id as usize] }
    }

    /// The type under a key and whether the key is a declared field; `None` when the key is unknown.
    pub(crate) fn key(self, name: &str) -> Option<(View<'a>, bool)> {
        match &self.node.shape {
            Shape::Any | Shape::Opaque => Some((View::any(), false)),
            Shape::Object(object) => match object.properties.get(name) {
                Some(id) => Some((self.at(*id), true)),
                None => object.additional.map(|id| (self.at(id), false)),
            },
            _ => None,
        }
    }

    /// The declared fields and free keys, when this is an object with a description.
    pub(crate) fn object(self) -> Option<&'a Object> {
        match &self.node.shape {
            Shape::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Type of list items; undescribed where this is no list.
    pub(crate) fn item(self) -> View<'a> {
        match &self.node.shape {
            Shape::Array(array) => self.at(array.items),
            _ => View::any(),
        }
    }
}
