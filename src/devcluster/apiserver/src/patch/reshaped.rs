//! Adapts ownership recorded under an older schema to the current one.
//!
//! If a field became atomic, an owner of a part owns the whole field. The reverse needs no change: the whole field
//! stays owned, its parts do not.

use super::fields::{Element, FieldSet};
use super::managed::Entry;
use crate::schema::node::{List, Shape, View};

/// Returns the entries with every path below an atomic value shortened to that value. `view` is the schema of
/// `api_version`. Entries of other versions stay unchanged.
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
