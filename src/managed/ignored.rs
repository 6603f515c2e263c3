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

use std::borrow::Cow;

use serde_json::Value;

use super::collision::{is_item, keys_of};
use super::desired::Desired;
use super::fields::{Fields, add, applied_by, entries};
use super::ignore_rules::{IgnoreRules, Which};
use super::projection;
use crate::api::names::MANAGER;
use crate::object::pointer::{child, child_mut, find, follow, index, take};
use crate::object::{Digest, Object, Pointer};

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
    /// By these rules, for an object.
    pub(super) fn of(rules: IgnoreRules, which: Which, object: &Object) -> Self {
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
        Self { rules, which, source }
    }

    /// The fields, from the back of the manifest to its front, so that none moves what another one names.
    fn pointers(&self) -> Vec<&Pointer> {
        self.rules.pointers(self.which)
    }

    /// Whether something is ignored, itself or with what is around it.
    pub fn covers(&self, pointer: &Pointer) -> bool {
        let tokens = pointer.tokens().iter().map(|token| &**token).collect::<Vec<_>>();
        self.pointers().iter().any(|ignored| ignored.covers(&tokens))
    }

    /// Digest of what is applied to an object that is there.
    pub(super) fn source(&self) -> Digest {
        self.source
    }

    /// Takes them out of a document.
    pub(super) fn strip(&self, document: &mut Value) {
        strip(&self.pointers(), document);
    }
}

fn strip(pointers: &[&Pointer], document: &mut Value) {
    let annotations = |document: &Value| document.pointer("/metadata/annotations").and_then(Value::as_object).cloned();
    let had_annotations = annotations(document).is_some_and(|all| !all.is_empty());
    for pointer in pointers {
        take(document, pointer.tokens());
    }
    if had_annotations && annotations(document).is_some_and(|all| all.is_empty()) {
        document["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
    }
}

impl Desired {
    /// Whether the count of a workload is left to others.
    pub(crate) fn ignores_replicas(&self) -> bool {
        let mut ignored = self.ignored.iter().flat_map(|ignored| ignored.pointers());
        ignored.any(|pointer| pointer.covers(&["spec", "replicas"]))
    }

    /// Whether something of what is applied to this live object is what it is in it.
    pub(crate) fn follows(&self, live: &Value) -> bool {
        let Some(ignored) = &self.ignored else { return false };
        let (document, all) = (self.object.value(), everybodys(live));
        ignored.pointers().iter().any(|pointer| match locate(pointer.tokens(), &document, &all) {
            Place::Within(_, depth) => is_sent(&document, &pointer.tokens()[..depth]),
            _ => false,
        })
    }

    /// What was sent, without the ignored fields.
    pub(crate) fn without_ignored<'v>(&self, sent: &'v Value) -> Cow<'v, Value> {
        let Some(ignored) = &self.ignored else { return Cow::Borrowed(sent) };
        let mut sent = sent.clone();
        ignored.strip(&mut sent);
        Cow::Owned(sent)
    }

    /// What is applied to this live object.
    pub(crate) fn body_over(&self, live: &Value) -> Value {
        self.body_with(live, |body, _, tokens| _ = take(body, tokens))
    }

    /// What replaces this live object: the ignored fields are as they are in it.
    pub(crate) fn body_in_place_of(&self, live: &Value) -> Value {
        self.body_with(live, |body, at, tokens| match at {
            Some(value) => {
                if let Some(field) = tokens.iter().try_fold(body, |v, token| child_mut(v, token)) {
                    *field = value.clone();
                }
            }
            None => _ = take(body, tokens),
        })
    }

    /// The document for this live object; `leave` is called for each ignored field that can be left out, with its value there.
    fn body_with(&self, live: &Value, leave: impl Fn(&mut Value, Option<&Value>, &[Box<str>])) -> Value {
        let Some(ignored) = &self.ignored else { return self.body() };
        let all = everybodys(live);
        if all.is_empty() {
            return self.body();
        }
        let mut body = self.whole_body();
        let document = self.object.value();
        for pointer in ignored.pointers() {
            let tokens = pointer.tokens();
            match locate(tokens, &document, &all) {
                Place::InNewItem => {}
                Place::Within(path, depth) if is_sent(&document, &tokens[..depth]) => {
                    if let Some(live) = at(live, &path)
                        && let Some(value) = tokens[..depth].iter().try_fold(&mut body, |v, t| child_mut(v, t))
                    {
                        follow(value, live, &tokens[depth..]);
                    }
                }
                Place::Field(path) => leave(&mut body, at(live, &path), tokens),
                Place::Within(..) | Place::Nowhere => leave(&mut body, None, tokens),
            }
        }
        let annotations = body.pointer("/metadata/annotations").and_then(Value::as_object);
        let had_some =
            document.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(|a| !a.is_empty());
        if had_some && annotations.is_some_and(serde_json::Map::is_empty) {
            body["metadata"].as_object_mut().map(|metadata| metadata.remove("annotations"));
        }
        body
    }

    /// A live object as far as it matters here: without the ignored fields, and without our ownership of them.
    pub(crate) fn view<'v>(&self, live: &'v Value) -> Cow<'v, Value> {
        let Some(ignored) = &self.ignored else { return Cow::Borrowed(live) };
        let (document, all) = (self.object.value(), everybodys(live));
        let mut view = live.clone();
        for pointer in ignored.pointers() {
            let tokens = pointer.tokens();
            match locate(tokens, &document, &all) {
                Place::Field(path) => _ = ours_mut(&mut view).map(|ours| remove(ours, &path)),
                Place::Within(path, depth) if is_sent(&document, &tokens[..depth]) => {
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
        Cow::Owned(view)
    }

    /// `managedFields` in which the ignored fields are not ours any more; `None` if none is.
    pub(crate) fn given_up(&self, live: &Value) -> Option<Value> {
        let ignored = self.ignored.as_ref()?;
        let (ours, document) = (applied_by(live, MANAGER)?, self.object.value());
        let mut left = ours.clone();
        for pointer in ignored.pointers() {
            if let Place::Field(path) = locate(pointer.tokens(), &document, ours) {
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
    pub fn leave_ignored(&self, fields: &mut Fields) {
        let Some(ignored) = &self.ignored else { return };
        let document = self.object.value();
        for pointer in ignored.pointers() {
            if let Place::Field(path) = locate(pointer.tokens(), &document, fields) {
                remove(fields, &path);
            }
        }
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
