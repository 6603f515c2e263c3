//! Validates that a custom resource's schema is structural: every level declares its type exactly once.
//!
//! Invariant: a valid schema has a type at every level. Pruning, defaulting and merging are then defined everywhere.

use serde_json::{Map, Value};

use super::node::{Schema, Shape, View};
use super::{unknown, validate};
use crate::status::Cause;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
/// Schema combinators. Inside them, schemas may only validate, not describe.
const COMBINED: [&str; 3] = ["allOf", "anyOf", "oneOf"];
/// Keywords that describe, but do not validate.
const DESCRIBING: [&str; 6] = ["type", "default", "additionalProperties", "nullable", "description", "title"];

/// Validates a version's schema.
pub(super) fn check(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(fields) = schema.as_object() else { return };
    match fields.get("type").and_then(Value::as_str).unwrap_or_default() {
        "object" => {}
        "" => causes.push(Cause::required(format!("{path}.type"), "must not be empty at the root")),
        other => causes.push(Cause::invalid(format!("{path}.type"), &other.into(), "must be object at the root")),
    }
    if let Some(metadata) = schema.pointer("/properties/metadata/properties").and_then(Value::as_object)
        && metadata.keys().any(|key| key != "name" && key != "generateName")
    {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(Cause::forbidden(format!("{path}.properties[metadata]"), why));
    }
    let mut level = Level { path: path.to_owned(), what: "", causes };
    level.visit(fields);
}

/// A nested schema.
struct Level<'a> {
    path: String,
    /// The message about a missing type at this level; empty at the root, which is already checked.
    what: &'static str,
    causes: &'a mut Vec<Cause>,
}

impl Level<'_> {
    fn at(&self, step: &str) -> String {
        format!("{}.{step}", self.path)
    }

    fn below(&mut self, step: &str, what: &'static str, schema: &Value) {
        let Some(fields) = schema.as_object() else { return };
        Level { path: self.at(step), what, causes: self.causes }.visit(fields);
    }

    fn visit(&mut self, fields: &Map<String, Value>) {
        self.kind(fields);
        self.forbidden(fields);
        self.list(fields);
        for (name, schema) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.below(&format!("properties[{name}]"), "must not be empty for specified object fields", schema);
        }
        if let Some(schema @ Value::Object(_)) = fields.get("additionalProperties") {
            self.below("additionalProperties", "must not be empty for specified object fields", schema);
        }
        if let Some(schema) = fields.get("items") {
            self.below("items", "must not be empty for specified array items", schema);
        }
        let int_or_string = flag(fields, "x-kubernetes-int-or-string");
        for key in COMBINED {
            for (i, schema) in fields.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
                self.judging(&format!("{key}[{i}]"), schema, int_or_string);
            }
        }
        if let Some(schema) = fields.get("not") {
            self.judging("not", schema, false);
        }
    }

    fn kind(&mut self, fields: &Map<String, Value>) {
        let free = flag(fields, "x-kubernetes-preserve-unknown-fields") || flag(fields, "x-kubernetes-int-or-string");
        match fields.get("type").and_then(Value::as_str).unwrap_or_default() {
            "" if !free && !self.what.is_empty() => self.causes.push(Cause::required(self.at("type"), self.what)),
            "" => {}
            given if flag(fields, "x-kubernetes-int-or-string") => {
                let why = "must be empty if x-kubernetes-int-or-string is true";
                self.causes.push(Cause::invalid(self.at("type"), &given.into(), why));
            }
            given if !TYPES.contains(&given) => {
                self.causes.push(Cause::not_supported(self.at("type"), &given.into(), &TYPES));
            }
            "array" if !fields.contains_key("items") => {
                self.causes.push(Cause::required(self.at("items"), "must be specified"));
            }
            given if flag(fields, "x-kubernetes-embedded-resource") && given != "object" => {
                let why = "must be object if x-kubernetes-embedded-resource is true";
                self.causes.push(Cause::invalid(self.at("type"), &given.into(), why));
            }
            _ => {}
        }
    }

    fn forbidden(&mut self, fields: &Map<String, Value>) {
        for key in ["$ref", "definitions", "dependencies", "patternProperties", "additionalItems"] {
            if fields.contains_key(key) {
                self.causes.push(Cause::forbidden(self.at(key), &format!("{key} is not supported")));
            }
        }
        if flag(fields, "uniqueItems") {
            let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.causes.push(Cause::forbidden(self.at("uniqueItems"), why));
        }
        let at = self.at("additionalProperties");
        match fields.get("additionalProperties") {
            Some(Value::Bool(false)) => {
                self.causes.push(Cause::forbidden(at, "additionalProperties cannot be set to false"));
            }
            Some(_) if fields.get("properties").and_then(Value::as_object).is_some_and(|p| !p.is_empty()) => {
                self.causes.push(Cause::forbidden(at, "additionalProperties and properties are mutual exclusive"));
            }
            _ => {}
        }
        if let Some(kind) = fields.get("x-kubernetes-map-type").and_then(Value::as_str)
            && !["atomic", "granular"].contains(&kind)
        {
            let at = self.at("x-kubernetes-map-type");
            self.causes.push(Cause::not_supported(at, &kind.into(), &["atomic", "granular"]));
        }
    }

    fn list(&mut self, fields: &Map<String, Value>) {
        let keys: Vec<&str> = fields
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let Some(kind) = fields.get("x-kubernetes-list-type").and_then(Value::as_str) else { return };
        if !["atomic", "set", "map"].contains(&kind) {
            let at = self.at("x-kubernetes-list-type");
            self.causes.push(Cause::not_supported(at, &kind.into(), &["atomic", "set", "map"]));
        }
        if fields.get("type").and_then(Value::as_str) != Some("array") {
            let given = fields.get("type").cloned().unwrap_or_default();
            let why = "must be array if x-kubernetes-list-type is specified";
            self.causes.push(Cause::invalid(self.at("type"), &given, why));
        }
        if kind != "map" {
            return;
        }
        if keys.is_empty() {
            let why = "must not be empty if x-kubernetes-list-type is map";
            self.causes.push(Cause::required(self.at("x-kubernetes-list-map-keys"), why));
        }
        let Some(items) = fields.get("items") else { return };
        for (i, key) in keys.iter().enumerate() {
            let Some(property) = items.get("properties").and_then(|p| p.get(key)) else {
                let why = "entries must all be names of item properties";
                let at = self.at(&format!("x-kubernetes-list-map-keys[{i}]"));
                self.causes.push(Cause::invalid(at, &(*key).into(), why));
                continue;
            };
            let required = items.get("required").and_then(Value::as_array).is_some_and(|r| r.iter().any(|n| n == key));
            if !required && property.get("default").is_none() {
                let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                           property";
                self.causes.push(Cause::required(self.at(&format!("items.properties[{key}].default")), why));
            }
        }
    }

    /// Validates a schema inside a combinator. Integer-or-string fields may list their two types.
    fn judging(&mut self, step: &str, schema: &Value, may_name_type: bool) {
        let Some(fields) = schema.as_object() else { return };
        for key in DESCRIBING.iter().filter(|key| fields.contains_key(**key)) {
            if !(may_name_type && *key == "type") {
                let at = self.at(&format!("{step}.{key}"));
                self.causes.push(Cause::forbidden(at, "must be empty to be structural"));
            }
        }
        let mut inner = Level { path: self.at(step), what: "", causes: self.causes };
        for (name, below) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            inner.judging(&format!("properties[{name}]"), below, false);
        }
        if let Some(items) = fields.get("items") {
            inner.judging("items", items, false);
        }
        for key in COMBINED {
            for (i, below) in fields.get(key).and_then(Value::as_array).into_iter().flatten().enumerate() {
                inner.judging(&format!("{key}[{i}]"), below, may_name_type);
            }
        }
        if let Some(not) = fields.get("not") {
            inner.judging("not", not, false);
        }
    }
}

fn flag(fields: &Map<String, Value>, key: &str) -> bool {
    fields.get(key).and_then(Value::as_bool) == Some(true)
}

/// Validates every default against its schema.
pub(super) fn check_defaults(schema: &Schema, declared: &Value, path: &str, causes: &mut Vec<Cause>) {
    defaults(schema.view(), schema, declared, path, causes);
}

fn defaults(view: View<'_>, schema: &Schema, declared: &Value, path: &str, causes: &mut Vec<Cause>) {
    if let Some(default) = declared.get("default") {
        let at = format!("{path}.default");
        let mut pruned = default.clone();
        if !unknown::drop_unknown(schema, &mut pruned).is_empty() {
            causes.push(Cause::invalid(&at, default, "must not have unknown fields"));
        }
        causes.extend(validate::validate_at(view, &pruned, None, &at));
    }
    let below = |step: String, child: Option<Schema>, declared: Option<&Value>, causes: &mut Vec<Cause>| {
        if let (Some(child), Some(declared)) = (child, declared) {
            defaults(child.view(), &child, declared, &format!("{path}.{step}"), causes);
        }
    };
    match &view.node.shape {
        Shape::Object(_) => {
            for (name, property) in declared.get("properties").and_then(Value::as_object).into_iter().flatten() {
                below(format!("properties[{name}]"), schema.field(name), Some(property), causes);
            }
            if let Some(additional @ Value::Object(_)) = declared.get("additionalProperties") {
                below("additionalProperties".into(), schema.field(""), Some(additional), causes);
            }
        }
        Shape::Array(_) => below("items".into(), schema.items(), declared.get("items"), causes),
        _ => {}
    }
}
