//! The ignored fields of one object (`spec.ignore`): the body of an apply without them, their paths in a live object,
//! and the release of their ownership.
//!
//! A pointer is a path in the manifest. `managedFields` show the corresponding path in a live object, because they
//! contain the keys of lists: the first container of the manifest is the one with its name. A value that is atomic for
//! the API server, such as the rules of an Ingress, has only one owner. An ignored field in it is sent with its live
//! value and is not compared; Mainstay owns the rest.
//!
//! Invariant: omitting a field from an apply never removes the field from the object. Mainstay's ownership is released
//! before the apply. Then the field has no owner until another manager writes it.
//! Invariant: new objects and new items of lists have the values of the manifest.
//! Invariant: pointers to paths that the manifest lacks change neither the body nor its digest.

use serde_json::Value;

use super::collision::{is_item, keys_of};
use super::fields::{Fields, add, applied_by, entries};
use super::ignore_rules::{IgnoreRules, Which};
use super::projection;
use mainstay_api::names::MANAGER;
use mainstay_object::pointer::{child, child_mut, find, follow, index, take};
use mainstay_object::{Digest, Key, Object, Pointer};

/// The ignored fields of an object.
#[derive(Clone, Debug)]
pub struct Ignored {
    /// All rules, shared by many objects.
    rules: IgnoreRules,
    /// The rules that apply to this object.
    which: Which,
    /// Digest of the manifest without the fields.
    source: Digest,
}

/// The location of an ignored field in `managedFields`.
#[derive(Debug, PartialEq)]
enum Place {
    /// No manager owns the field.
    Nowhere,
    /// The field is in a list item that does not exist yet.
    InNewItem,
    /// The field is at this path.
    Field(Vec<String>),
    /// The field is in an atomic value, given by the path of the value and its depth in the pointer.
    Within(Vec<String>, usize),
}

impl Ignored {
    /// Returns the fields that the rules ignore in an object with this target key, if any.
    pub fn of(rules: &IgnoreRules, key: &Key, object: &Object) -> Option<Self> {
        let which = rules.which(key, object)?;
        let mut document = object.value();
        let pointers = rules.pointers(which);
        let is_in_it = pointers.iter().any(|pointer| find(&document, pointer.tokens()).is_some());
        let source = if is_in_it {
            strip(&pointers, &mut document);
            // JSON objects are serialized in the order of their names.
            Digest::of(document.to_string().as_bytes())
        } else {
            object.digest
        };
        Some(Self { rules: rules.clone(), which, source })
    }

    /// Returns the fields in reverse document order, so that removing one does not move the others.
    fn pointers(&self) -> Vec<&Pointer> {
        self.rules.pointers(self.which)
    }

    /// Whether the field at this path, or one that contains it, is ignored.
    pub fn covers(&self, path: &[&str]) -> bool {
        self.pointers().iter().any(|ignored| ignored.covers(path))
    }

    /// Returns the digest of the body that is applied to an existing object.
    pub(super) fn source(&self) -> Digest {
        self.source
    }

    /// Removes the fields from a document.
    pub(super) fn strip(&self, document: &mut Value) {
        strip(&self.pointers(), document);
    }

    /// Whether the apply to this live object sends some of its live values.
    pub(super) fn follows(&self, document: &Value, live: &Value) -> bool {
        let all = everybodys(live);
        self.pointers().iter().any(|pointer| match locate(pointer.tokens(), document, &all) {
            Place::Within(_, depth) => is_sent(document, &pointer.tokens()[..depth]),
            _ => false,
        })
    }

    /// Turns the whole body into that of an apply to this live object. Ignored fields are omitted.
    pub(super) fn leave_out(&self, document: &Value, live: &Value, body: &mut Value) {
        self.settle(document, live, body, |body, _, tokens| _ = take(body, tokens));
    }

    /// Turns the whole body into that of a replacement of this live object: ignored fields keep their live values.
    pub(super) fn follow_all(&self, document: &Value, live: &Value, body: &mut Value) {
        self.settle(document, live, body, |body, at, tokens| match at {
            Some(value) => {
                if let Some(field) = tokens.iter().try_fold(body, |v, token| child_mut(v, token)) {
                    *field = value.clone();
                }
            }
            None => _ = take(body, tokens),
        });
    }

    /// Calls `leave` for each ignored field that can be omitted, with its location in the live object.
    fn settle(
        &self,
        document: &Value,
        live: &Value,
        body: &mut Value,
        leave: impl Fn(&mut Value, Option<&Value>, &[Box<str>]),
    ) {
        let all = everybodys(live);
        if all.is_empty() {
            return self.strip(body);
        }
        for pointer in self.pointers() {
            let tokens = pointer.tokens();
            match locate(tokens, document, &all) {
                Place::InNewItem => {}
                Place::Within(path, depth) if is_sent(document, &tokens[..depth]) => {
                    if let Some(live) = at(live, &path)
                        && let Some(value) = tokens[..depth].iter().try_fold(&mut *body, |v, t| child_mut(v, t))
                    {
                        follow(value, live, &tokens[depth..]);
                    }
                }
                Place::Field(path) => leave(body, at(live, &path), tokens),
                Place::Within(..) | Place::Nowhere => leave(body, None, tokens),
            }
        }
        drop_annotations_if_none(body, has_annotations(document));
    }

    /// Returns a live object without the ignored fields and without Mainstay's ownership of them.
    pub(super) fn view(&self, document: &Value, live: &Value) -> Value {
        let all = everybodys(live);
        let mut view = live.clone();
        for pointer in self.pointers() {
            let tokens = pointer.tokens();
            match locate(tokens, document, &all) {
                Place::Field(path) => _ = ours_mut(&mut view).map(|ours| remove(ours, &path)),
                Place::Within(path, depth) if is_sent(document, &tokens[..depth]) => {
                    if let Some(value) = at_mut(&mut view, &path) {
                        take(value, &tokens[depth..]);
                    }
                    // A manager that wrote in the atomic value took ownership of the whole value from Mainstay.
                    if let Some(ours) = ours_mut(&mut view) {
                        insert(ours, &path);
                    }
                }
                Place::Within(..) | Place::Nowhere | Place::InNewItem => {}
            }
        }
        view
    }

    /// Returns `managedFields` without Mainstay's ownership of the ignored fields; `None` if Mainstay owns none.
    pub(super) fn given_up(&self, document: &Value, live: &Value) -> Option<Value> {
        let ours = applied_by(live, MANAGER)?;
        let mut left = ours.clone();
        for pointer in self.pointers() {
            if let Place::Field(path) = locate(pointer.tokens(), document, ours) {
                remove(&mut left, &path);
            }
        }
        if left == *ours {
            return None;
        }
        let mut object = live.clone();
        *ours_mut(&mut object)? = left;
        object.pointer_mut("/metadata/managedFields").map(Value::take)
    }

    /// Removes the ignored fields from a field set.
    pub(super) fn leave(&self, document: &Value, fields: &mut Fields) {
        for pointer in self.pointers() {
            if let Place::Field(path) = locate(pointer.tokens(), document, fields) {
                remove(fields, &path);
            }
        }
    }
}

fn strip(pointers: &[&Pointer], document: &mut Value) {
    let had_annotations = has_annotations(document);
    for pointer in pointers {
        take(document, pointer.tokens());
    }
    drop_annotations_if_none(document, had_annotations);
}

fn has_annotations(document: &Value) -> bool {
    document.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(|all| !all.is_empty())
}

/// Removes the annotations if they became empty, so that they are not set to an empty map.
fn drop_annotations_if_none(document: &mut Value, had_annotations: bool) {
    if had_annotations && !has_annotations(document) {
        document["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
    }
}

/// Whether the manifest has a non-empty container at this path, which Mainstay applies as a whole.
fn is_sent(document: &Value, tokens: &[Box<str>]) -> bool {
    match find(document, tokens) {
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    }
}

/// Returns all fields that have an owner.
fn everybodys(live: &Value) -> Fields {
    let mut all = Fields::new();
    for entry in entries(live) {
        add(&mut all, entry.fields);
    }
    all
}

fn locate(tokens: &[Box<str>], document: &Value, fields: &Fields) -> Place {
    let (mut document, mut node, mut path) = (Some(document), fields, Vec::new());
    for (depth, token) in tokens.iter().enumerate() {
        if depth > 0 && node.is_empty() {
            return Place::Within(path, depth);
        }
        let key = match document {
            Some(Value::Array(items)) => item_key(items, token, node),
            _ => Some(format!("f:{token}")),
        };
        let inside = key.as_ref().and_then(|key| node.get(key)).and_then(Value::as_object);
        let (Some(key), Some(inside)) = (key, inside) else {
            let is_in_item = is_in_item(document, &tokens[depth..]);
            return if is_in_item { Place::InNewItem } else { Place::Nowhere };
        };
        document = document.and_then(|value| child(value, token));
        path.push(key);
        node = inside;
    }
    Place::Field(path)
}

/// Whether these tokens point into an item of a list, not only to the item.
fn is_in_item(document: Option<&Value>, tokens: &[Box<str>]) -> bool {
    let Some(mut value) = document else { return false };
    for token in &tokens[..tokens.len().saturating_sub(1)] {
        let Some(inside) = child(value, token) else { return false };
        if value.is_array() {
            return true;
        }
        value = inside;
    }
    false
}

/// Returns the key that `managedFields` use for an item of a manifest's list.
fn item_key(items: &[Value], token: &str, node: &Fields) -> Option<String> {
    let item = items.get(index(token, items.len())?)?;
    let is_its = |key: &&String| match key.strip_prefix("v:") {
        Some(value) => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item),
        None => keys_of(key).is_some_and(|keys| is_item(item, &keys)),
    };
    node.keys().find(is_its).cloned()
}

/// Returns the value at a path of `managedFields`.
fn at<'v>(live: &'v Value, path: &[String]) -> Option<&'v Value> {
    path.iter().try_fold(live, |value, key| projection::child(Some(value), key).0)
}

fn at_mut<'v>(live: &'v mut Value, path: &[String]) -> Option<&'v mut Value> {
    path.iter().try_fold(live, |value, key| {
        if let Some(name) = key.strip_prefix("f:") {
            return value.get_mut(name);
        }
        let (_, index) = projection::child(Some(value), key);
        value.as_array_mut()?.get_mut(index?)
    })
}

/// Returns Mainstay's fields, mutable.
fn ours_mut(object: &mut Value) -> Option<&mut Fields> {
    let all = object.pointer_mut("/metadata/managedFields")?.as_array_mut()?;
    let is_of_object = |entry: &Value| entry.get("subresource").is_none_or(|subresource| subresource == "");
    let is_ours =
        |entry: &&mut Value| entry["manager"] == MANAGER && entry["operation"] == "Apply" && is_of_object(entry);
    all.iter_mut().find(is_ours)?.get_mut("fieldsV1")?.as_object_mut()
}

/// Removes a path, with outer nodes that become empty: an empty node would mean ownership of the whole value.
fn remove(fields: &mut Fields, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    if rest.is_empty() {
        fields.remove(first);
    } else if let Some(inside) = fields.get_mut(first).and_then(Value::as_object_mut) {
        remove(inside, rest);
        if inside.is_empty() {
            fields.remove(first);
        }
    }
}

/// Adds a path as the owner of its whole value.
fn insert(fields: &mut Fields, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    let inside = fields.entry(first.clone()).or_insert_with(|| Value::Object(Fields::new()));
    if let Some(inside) = inside.as_object_mut().filter(|_| !rest.is_empty()) {
        insert(inside, rest);
    }
}

#[cfg(test)]
mod tests;
