//! Ownership that was recorded under an older schema, as it reads under the present one.
//!
//! A field that became atomic is owned as a whole by whoever owned a part of it. The other direction needs nothing: the
//! whole stays owned, its parts are not.

use super::fields::{Element, FieldSet};
use super::managed::Entry;
use crate::schema::node::{List, Shape, View};

/// The entries with every path below an atomic value shortened to that value. `view` is the schema of this version, and of no
/// other one.
pub(super) fn reshaped(view: View<'_>, api_version: &str, mut entries: Vec<Entry>) -> Vec<Entry> {
    for entry in entries.iter_mut().filter(|entry| entry.api_version == api_version) {
        shorten(view, &mut entry.fields);
    }
    entries
}

fn shorten(view: View<'_>, set: &mut FieldSet) {
    if set.children.is_empty() {
        return;
    }
    let atomic = match &view.node.shape {
        Shape::Object(object) => object.atomic,
        Shape::Array(array) => array.list == List::Atomic,
        Shape::Opaque | Shape::Scalar(_) => true,
        Shape::Any => false,
    };
    if atomic {
        *set = FieldSet::leaf();
        return;
    }
    for (element, below) in &mut set.children {
        let child = match element {
            Element::Field(name) => view.key(name).map_or(View::any(), |(child, _)| child),
            _ => view.item(),
        };
        shorten(child, below);
    }
}
