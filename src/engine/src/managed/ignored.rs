//! The fields of one object that are left to others (`spec.ignore`): what is applied without them, what they are in a live
//! object, and how they are given up.
//!
//! A pointer names a place in the manifest. Where that is in a live object `managedFields` say, for they hold the keys of
//! lists: the first container of the manifest is the one with that name. What the API server knows as one value (an atomic
//! list, such as the rules of an Ingress) can have one owner only. A field in it is sent with the value that it has in the live
//! object, and not looked at; the rest of it is ours as ever.
//!
//! Invariant: leaving a field out of what is applied never removes it from the object. What we own of it is taken out of our
//! entry of `managedFields` before; then it is nobody's, until somebody writes it.
//! Invariant: what is new has the values of the manifest: an object, and an item of a list.
//! Invariant: where no pointer leads into the manifest, what is applied is the same, and so is its digest.

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
    /// They are the same for many objects, and kept once.
    rules: IgnoreRules,
    /// Which of the rules are for this object.
    which: Which,
    /// Digest of the manifest without the fields.
    source: Digest,
}

/// Where an ignored field is in `managedFields`.
#[derive(Debug, PartialEq)]
enum Place {
    /// Nobody owns anything there.
    Nowhere,
    /// It is in an item of a list that is not there.
    InNewItem,
    /// It is at this path.
    Field(Vec<String>),
    /// It is in what is known as one value, which is at this path and at this depth of the pointer.
    Within(Vec<String>, usize),
}

impl Ignored {
    /// What is ignored by these rules of an object that goes to this place.
    pub fn of(rules: &IgnoreRules, key: &Key, object: &Object) -> Option<Self> {
        let which = rules.which(key, object)?;
        let mut document = object.value();
        let pointers = rules.pointers(which);
        let is_in_it = pointers.iter().any(|pointer| find(&document, pointer.tokens()).is_some());
        let source = if is_in_it {
            strip(&pointers, &mut document);
            // Objects of JSON are written in the order of their names.
            Digest::of(document.to_string().as_bytes())
        } else {
            object.digest
        };
        Some(Self { rules: rules.clone(), which, source })
    }

    /// The fields, from the back of the manifest to its front, so that none moves what another one names.
    fn pointers(&self) -> Vec<&Pointer> {
        self.rules.pointers(self.which)
    }

    /// Whether something is ignored, itself or with what is around it.
    pub fn covers(&self, path: &[&str]) -> bool {
        self.pointers().iter().any(|ignored| ignored.covers(path))
    }

    /// Digest of what is applied to an object that is there.
    pub(super) fn source(&self) -> Digest {
        self.source
    }

    /// Takes them out of a document.
    pub(super) fn strip(&self, document: &mut Value) {
        strip(&self.pointers(), document);
    }

    /// Whether something of what is applied to this live object is what it is in it.
    pub(super) fn follows(&self, document: &Value, live: &Value) -> bool {
        let all = everybodys(live);
        self.pointers().iter().any(|pointer| match locate(pointer.tokens(), document, &all) {
            Place::Within(_, depth) => is_sent(document, &pointer.tokens()[..depth]),
            _ => false,
        })
    }

    /// Makes the whole body of a document what is applied to this live object.
    pub(super) fn leave_out(&self, document: &Value, live: &Value, body: &mut Value) {
        self.settle(document, live, body, |body, _, tokens| _ = take(body, tokens));
    }

    /// Makes the whole body of a document what replaces this live object: the ignored fields are as they are in it.
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

    /// `leave` is called for each ignored field that can be left out, with its value in the live object.
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

    /// A live object without the ignored fields, and without our ownership of them.
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
                    // Whoever wrote there has taken the whole value from us.
                    if let Some(ours) = ours_mut(&mut view) {
                        insert(ours, &path);
                    }
                }
                Place::Within(..) | Place::Nowhere | Place::InNewItem => {}
            }
        }
        view
    }

    /// `managedFields` in which the ignored fields are not ours any more; `None` if none is.
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

    /// Takes the ignored fields out of a field set.
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

/// Annotations of which none is left are not set to nothing.
fn drop_annotations_if_none(document: &mut Value, had_annotations: bool) {
    if had_annotations && !has_annotations(document) {
        document["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
    }
}

/// Whether something stands at this place of a manifest that is not empty: what is applied there is ours as a whole.
fn is_sent(document: &Value, tokens: &[Box<str>]) -> bool {
    match find(document, tokens) {
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        _ => false,
    }
}

/// What everybody together owns of an object.
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

/// Whether these tokens lead into an item of a list, beyond the item itself.
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

/// How `managedFields` name an item of a list of the manifest.
fn item_key(items: &[Value], token: &str, node: &Fields) -> Option<String> {
    let item = items.get(index(token, items.len())?)?;
    let is_its = |key: &&String| match key.strip_prefix("v:") {
        Some(value) => serde_json::from_str::<Value>(value).is_ok_and(|value| value == *item),
        None => keys_of(key).is_some_and(|keys| is_item(item, &keys)),
    };
    node.keys().find(is_its).cloned()
}

/// What is at a path of `managedFields`.
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

/// What is ours, to be changed.
fn ours_mut(object: &mut Value) -> Option<&mut Fields> {
    let all = object.pointer_mut("/metadata/managedFields")?.as_array_mut()?;
    let is_of_object = |entry: &Value| entry.get("subresource").is_none_or(|subresource| subresource == "");
    let is_ours =
        |entry: &&mut Value| entry["manager"] == MANAGER && entry["operation"] == "Apply" && is_of_object(entry);
    all.iter_mut().find(is_ours)?.get_mut("fieldsV1")?.as_object_mut()
}

/// Removes a path; what holds nothing else any more goes with it, for an empty node stands for its whole value.
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

/// Adds a path as one value.
fn insert(fields: &mut Fields, path: &[String]) {
    let Some((first, rest)) = path.split_first() else { return };
    let inside = fields.entry(first.clone()).or_insert_with(|| Value::Object(Fields::new()));
    if let Some(inside) = inside.as_object_mut().filter(|_| !rest.is_empty()) {
        insert(inside, rest);
    }
}

#[cfg(test)]
mod tests;
