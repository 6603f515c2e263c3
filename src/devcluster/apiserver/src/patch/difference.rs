//! The paths that a write added, changed and removed.
//!
//! In Go, a built-in object always has its plain struct fields, even if JSON omits them. A write that fills such a
//! struct does not add the struct itself. A struct behind a pointer, a free map or a list counts as added
//! ([`Side::Zero`]).

use std::cell::LazyCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::elements;
use super::fields::{Element, FieldSet};
use crate::schema::node::{Array, List, Object, Shape, View};

/// The outcome of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

impl Difference {
    /// Returns the added and modified paths.
    pub(crate) fn taken(&self) -> FieldSet {
        let mut taken = self.added.clone();
        taken.unite(&self.modified);
        taken
    }

    /// Changes all three sets.
    pub(crate) fn each(&mut self, change: impl Fn(&mut FieldSet)) {
        for set in [&mut self.added, &mut self.modified, &mut self.removed] {
            change(set);
        }
    }
}

/// One side of a comparison.
#[derive(Clone, Copy)]
pub(crate) enum Side<'a> {
    /// The value is missing.
    Missing,
    /// The value exists in Go with its zero value, and JSON omits it.
    Zero,
    /// The value exists.
    Is(&'a Value),
}

impl<'a> Side<'a> {
    fn is_missing(self) -> bool {
        matches!(self, Self::Missing)
    }

    /// Returns whether the side has no items: missing, null or an empty collection.
    fn is_hollow(self) -> bool {
        match self {
            Self::Missing | Self::Zero | Self::Is(Value::Null) => true,
            Self::Is(Value::Object(map)) => map.is_empty(),
            Self::Is(Value::Array(items)) => items.is_empty(),
            Self::Is(_) => false,
        }
    }

    fn map(self) -> Option<&'a Map<String, Value>> {
        match self {
            Self::Is(Value::Object(map)) => Some(map),
            _ => None,
        }
    }

    fn list(self) -> Option<&'a [Value]> {
        match self {
            Self::Is(Value::Array(items)) => Some(items),
            _ => None,
        }
    }

    /// Returns whether the side has no value, or one that `get` can read as a collection.
    fn fits<T>(self, get: impl Fn(Self) -> Option<T>) -> bool {
        !matches!(self, Self::Is(value) if !value.is_null()) || get(self).is_some()
    }

    fn child(self, key: &str, always_present: bool) -> Self {
        match (self, self.map().and_then(|map| map.get(key))) {
            (_, Some(value)) => Self::Is(value),
            (Self::Missing, None) => Self::Missing,
            (_, None) if always_present => Self::Zero,
            (_, None) => Self::Missing,
        }
    }
}

/// Compares two states of one object.
pub(crate) fn difference(view: View<'_>, old: Side<'_>, new: Side<'_>) -> Difference {
    let mut walk = Walk { path: Vec::with_capacity(12), found: Difference::default() };
    walk.compare(view, old, new);
    walk.found
}

enum Kind {
    Added,
    Modified,
    Removed,
}

/// A walk through maps. Path elements stay borrowed until a difference is found. Each list item starts a new walk.
struct Walk<'a> {
    path: Vec<&'a str>,
    found: Difference,
}

impl<'a> Walk<'a> {
    fn note(&mut self, kind: &Kind) {
        let set = match kind {
            Kind::Added => &mut self.found.added,
            Kind::Modified => &mut self.found.modified,
            Kind::Removed => &mut self.found.removed,
        };
        set.entry(self.path.iter().map(|name| Element::Field((*name).to_owned()))).member = true;
    }

    fn compare(&mut self, view: View<'_>, old: Side<'a>, new: Side<'a>) {
        if let (Side::Is(old), Side::Is(new)) = (old, new)
            && old == new
        {
            return;
        }
        let collection = match &view.node.shape {
            Shape::Object(object) => !object.atomic && old.fits(Side::map) && new.fits(Side::map),
            Shape::Array(array) => array.list != List::Atomic && old.fits(Side::list) && new.fits(Side::list),
            Shape::Any => [old, new].iter().any(|s| s.map().is_some()) && old.fits(Side::map) && new.fits(Side::map),
            Shape::Opaque | Shape::Scalar(_) => false,
        };
        if !collection || (old.is_hollow() && new.is_hollow()) {
            self.leaf(view, old, new);
            return;
        }
        match &view.node.shape {
            Shape::Array(array) => self.lists(view, array, old, new),
            shape => {
                let object = if let Shape::Object(object) = shape { Some(object) } else { None };
                self.maps(view, object, old, new);
            }
        }
        self.ends(old, new);
    }

    /// Records an added or removed container as a path.
    fn ends(&mut self, old: Side<'a>, new: Side<'a>) {
        if old.is_missing() {
            self.note(&Kind::Added);
        } else if new.is_missing() {
            self.note(&Kind::Removed);
        }
    }

    fn leaf(&mut self, view: View<'_>, old: Side<'a>, new: Side<'a>) {
        match (old, new) {
            (Side::Missing, Side::Is(_)) => self.note(&Kind::Added),
            (Side::Is(_), Side::Missing) => self.note(&Kind::Removed),
            (Side::Is(value), Side::Zero) if !is_zero(view, value) => self.note(&Kind::Removed),
            (Side::Zero, Side::Is(value)) if !is_zero(view, value) => self.note(&Kind::Modified),
            (Side::Is(old), Side::Is(new)) if !same(old, new) => self.note(&Kind::Modified),
            _ => {}
        }
    }

    fn maps(&mut self, view: View<'_>, object: Option<&Object>, old: Side<'a>, new: Side<'a>) {
        let before = old.map().into_iter().flat_map(Map::keys);
        let after = new.map().into_iter().flat_map(Map::keys);
        let after = after.filter(|key| !old.map().is_some_and(|map| map.contains_key(*key)));
        for key in before.chain(after) {
            let declared = object.and_then(|o| o.properties.get(key)).map(|id| view.at(*id));
            let child = declared.or_else(|| view.key(key).map(|(child, _)| child)).unwrap_or(View::any());
            let always = declared.is_some() && child.node.always_present;
            self.path.push(key);
            self.compare(child, old.child(key, always), new.child(key, always));
            self.path.pop();
        }
    }

    fn lists(&mut self, view: View<'_>, array: &Array, old: Side<'a>, new: Side<'a>) {
        let before = elements(&array.list, old.list().unwrap_or_default());
        let after = elements(&array.list, new.list().unwrap_or_default());
        let (by_old, by_new) = (LazyCell::new(|| index(&before)), LazyCell::new(|| index(&after)));
        let mut pairs = Vec::with_capacity(before.len().max(after.len()));
        for (at, (element, value)) in before.iter().enumerate() {
            // Usually the item has not moved.
            let same_place = after.get(at).filter(|(e, _)| e == element).map(|(_, value)| *value);
            let found = same_place.or_else(|| by_new.get(element).copied());
            pairs.push((element, Side::Is(value), found.map_or(Side::Missing, Side::Is)));
        }
        for (at, (element, value)) in after.iter().enumerate() {
            let known = before.get(at).is_some_and(|(e, _)| e == element) || by_old.contains_key(element);
            if !known {
                pairs.push((element, Side::Missing, Side::Is(value)));
            }
        }
        for (element, old, new) in pairs {
            let mut inner = Walk { path: Vec::new(), found: Difference::default() };
            inner.compare(view.at(array.items), old, new);
            self.graft(element, inner.found);
        }
    }

    /// Adds the differences inside a list item, below the item's element.
    fn graft(&mut self, element: &Element, found: Difference) {
        let Difference { added, modified, removed } = found;
        for (kind, set) in [(Kind::Added, added), (Kind::Modified, modified), (Kind::Removed, removed)] {
            if set.is_empty() {
                continue;
            }
            let target = match kind {
                Kind::Added => &mut self.found.added,
                Kind::Modified => &mut self.found.modified,
                Kind::Removed => &mut self.found.removed,
            };
            let steps = self.path.iter().map(|name| Element::Field((*name).to_owned()));
            target.entry(steps).put(element.clone(), set);
        }
    }
}

fn index<'a, 'v>(items: &'a [(Element, &'v Value)]) -> BTreeMap<&'a Element, &'v Value> {
    items.iter().map(|(element, value)| (element, *value)).collect()
}

/// Returns whether a value is the zero value of its field.
fn is_zero(view: View<'_>, value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(items) => items.is_empty(),
        scalar => view.node.default.as_ref() == Some(scalar),
    }
}

/// Compares values; numbers by value, so that `1` equals `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => x == y || x.as_f64() == y.as_f64() && (x.is_f64() || y.is_f64()),
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same(x, y)),
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same(x, y)))
        }
        _ => a == b,
    }
}
