//! The type tree of all generic operations: types of fields, and how they are merged and owned.
//!
//! All types of one document share an arena. Recursive types are plain indices, and cloning a [`Schema`] costs one
//! `Arc`. Built-in kinds and custom resources share this form and differ only in their loaders.
//!
//! Invariant: every index in a node is inside its arena (the loaders allocate before they refer).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::facets::Facets;
pub(crate) use super::facets::Id;
pub(crate) use super::list::List;

/// A type and its nested types. Cheap to clone.
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
    /// Default of the field or type.
    pub default: Option<Value>,
    /// Whether `null` is a valid value (custom resources).
    pub nullable: bool,
    /// Whether the field of a built-in kind exists (zero) even if JSON omits it, because it is a plain struct or lacks
    /// `omitempty`. Such a parent is never added in a difference.
    pub always_present: bool,
    /// The handling of the field by strategic merge patches.
    pub strategy: Strategy,
    /// Constraints on values of custom resources.
    pub facets: Option<Box<Facets>>,
}

/// The structure of a type.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// Any value, structured as found: maps are merged by key, lists are atomic.
    Any,
    /// Any value, indivisible.
    Opaque,
    /// A single value.
    Scalar(Scalar),
    /// Named fields, free keys, or both.
    Object(Object),
    /// A list.
    Array(Array),
}

/// Types of single values.
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
    /// Name of the Go type for decoding errors, such as `DeploymentSpec`.
    pub name: Option<Box<str>>,
    /// Named fields.
    pub properties: BTreeMap<String, Id>,
    /// Type of the values of other keys.
    pub additional: Option<Id>,
    /// Whether the object is owned and replaced as a whole.
    pub atomic: bool,
    /// Required fields.
    pub required: Vec<String>,
}

/// A list and the identity of its items.
#[derive(Clone, Debug)]
pub(crate) struct Array {
    /// Type of the items.
    pub items: Id,
    /// Identity of the items.
    pub list: List,
}

/// The handling of a field by strategic merge patches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strategy {
    /// Lists: merge instead of replace.
    pub merge: bool,
    /// Maps: `$retainKeys` is supported.
    pub retain_keys: bool,
    /// Maps: replace instead of merge.
    pub replace: bool,
    /// Lists of maps: the field that identifies an item.
    pub merge_key: Option<String>,
}

impl Node {
    /// Creates a node of a shape without other properties.
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
    /// Creates a schema from the node `id` of `arena`.
    pub(crate) fn new(arena: Arc<Vec<Node>>, id: Id) -> Self {
        Self { arena, id }
    }

    /// Returns a borrowed view, which walks without reference counting.
    pub(crate) fn view(&self) -> View<'_> {
        View { arena: &self.arena, node: &self.arena[self.id as usize] }
    }

    fn at(&self, id: Id) -> Self {
        Self { arena: Arc::clone(&self.arena), id }
    }

    /// Returns the type of a named field, or of the values of a free map.
    pub fn field(&self, name: &str) -> Option<Self> {
        match &self.view().node.shape {
            Shape::Any => Some(self.clone()),
            Shape::Object(object) => object.properties.get(name).copied().or(object.additional).map(|id| self.at(id)),
            _ => None,
        }
    }

    /// Returns the type of a list's items.
    pub fn items(&self) -> Option<Self> {
        match &self.view().node.shape {
            Shape::Array(array) => Some(self.at(array.items)),
            _ => None,
        }
    }
}

/// A borrowed position in a schema.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    arena: &'a [Node],
    pub(crate) node: &'a Node,
}

/// The node of values without a schema: the structure comes from the value.
static ANY: Node = Node {
    shape: Shape::Any,
    default: None,
    nullable: true,
    always_present: false,
    strategy: Strategy { merge: false, retain_keys: false, replace: false, merge_key: None },
    facets: None,
};

impl<'a> View<'a> {
    /// Returns the view of a value without a schema.
    pub(crate) fn any() -> View<'static> {
        View { arena: &[], node: &ANY }
    }

    /// Creates a view of a node in this arena.
    pub(crate) fn new(arena: &'a [Node], node: &'a Node) -> Self {
        Self { arena, node }
    }

    /// Returns the view of another node in the same arena.
    pub(crate) fn at(self, id: Id) -> Self {
        View { arena: self.arena, node: &self.arena[id as usize] }
    }

    /// Returns the type of a key, and whether the key is a declared field; `None` if the key is unknown.
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

    /// Returns the declared fields and free keys; `None` if this is not an object.
    pub(crate) fn object(self) -> Option<&'a Object> {
        match &self.node.shape {
            Shape::Object(object) => Some(object),
            _ => None,
        }
    }

    /// Returns the type of list items; any type if this is not a list.
    pub(crate) fn item(self) -> View<'a> {
        match &self.node.shape {
            Shape::Array(array) => self.at(array.items),
            _ => View::any(),
        }
    }
}
