//! The paths that an applied configuration owns.

use serde_json::Value;

use super::element::elements;
use super::fields::{Element, FieldSet};
use crate::schema::node::{List, Shape, View};

/// Returns the paths that an applier owns: scalars, atomic and empty values, list items, and keys of free maps.
/// Declared fields that only contain other fields are not owned.
pub(crate) fn owned(view: View<'_>, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    match (&view.node.shape, value) {
        (Shape::Object(object), Value::Object(map)) if !object.atomic => {
            for (key, child) in map {
                let Some((child_view, declared)) = view.key(key) else { continue };
                set.put(Element::Field(key.clone()), under_key(child_view, declared, child));
            }
        }
        (Shape::Any, Value::Object(map)) => {
            for (key, child) in map {
                set.put(Element::Field(key.clone()), under_key(View::any(), false, child));
            }
        }
        (Shape::Array(array), Value::Array(items)) if array.list != List::Atomic => {
            for (element, item) in elements(&array.list, items) {
                let mut child = owned(view.at(array.items), item);
                child.member = true;
                set.put(element, child);
            }
        }
        (Shape::Object(object), Value::Null) if !object.atomic => {}
        (Shape::Array(array), Value::Null) if array.list != List::Atomic => {}
        _ => set.member = true,
    }
    set
}

fn under_key(view: View<'_>, declared: bool, value: &Value) -> FieldSet {
    let mut set = owned(view, value);
    let hollow = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
    set.member |= hollow || !declared;
    set
}
