//! Loads the `openAPIV3Schema` of a CustomResourceDefinition version.
//!
//! Invariant: `apiVersion`, `kind` and `metadata` of the root and of embedded objects have the types of every object,
//! regardless of the definition.
//!
//! Not here: validation of the definition (`definition`). This loader fails only on patterns and rules that do not
//! compile.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::builtin::{index, metadata_arena};
use super::facets::{Bound, Facets};
use super::node::{Array, Id, List, Node, Object, Scalar, Schema, Shape, View};
use super::rule::Rule;
use crate::status::Cause;

/// Loads the schema of one version of a custom resource. `preserve_root` is the deprecated
/// `preserveUnknownFields: true`.
///
/// Fails with one cause for every pattern or rule that does not compile. Field paths are relative to the schema.
pub fn structural(open_api_v3_schema: &Value, preserve_root: bool) -> Result<Schema, Vec<Cause>> {
    load(open_api_v3_schema, preserve_root, "")
}

/// Loads a schema. The fields of causes start with `path`.
pub(crate) fn load(schema: &Value, preserve_root: bool, path: &str) -> Result<Schema, Vec<Cause>> {
    let (arena, metadata) = metadata_arena();
    let mut loader = Loader { arena, metadata, causes: Vec::new() };
    let root = loader.id(schema, path);
    loader.embed(root);
    if preserve_root {
        loader.preserve(root);
    }
    let mut causes = loader.causes;
    for node in &loader.arena {
        for rule in node.facets.iter().flat_map(|f| &f.rules) {
            causes.extend(rule.undefined(View::new(&loader.arena, node)));
        }
    }
    if causes.is_empty() { Ok(Schema::new(Arc::new(loader.arena), root)) } else { Err(causes) }
}

struct Loader {
    arena: Vec<Node>,
    metadata: Id,
    causes: Vec<Cause>,
}

impl Loader {
    fn push(&mut self, node: Node) -> Id {
        self.arena.push(node);
        index(self.arena.len() - 1)
    }

    /// Adds the fields that every object has.
    fn embed(&mut self, id: Id) {
        let string = self.push(Node::of(Shape::Scalar(Scalar::String)));
        let metadata = self.metadata;
        let node = &mut self.arena[id as usize];
        if matches!(node.shape, Shape::Any | Shape::Opaque) {
            node.shape = Shape::Object(Object::default());
            self.preserve(id);
        }
        if let Shape::Object(object) = &mut self.arena[id as usize].shape {
            object.properties.insert("apiVersion".into(), string);
            object.properties.insert("kind".into(), string);
            object.properties.insert("metadata".into(), metadata);
        }
    }

    /// Lets an object keep undeclared fields.
    fn preserve(&mut self, id: Id) {
        let any = self.push(any());
        if let Shape::Object(object) = &mut self.arena[id as usize].shape
            && object.additional.is_none()
        {
            object.additional = Some(any);
        }
    }

    fn id(&mut self, schema: &Value, path: &str) -> Id {
        let node = self.node(schema, path);
        let embedded = node.facets.as_ref().is_some_and(|f| f.embedded);
        let id = self.push(node);
        if embedded {
            self.embed(id);
        }
        id
    }

    fn node(&mut self, schema: &Value, path: &str) -> Node {
        let empty = Map::new();
        let fields = schema.as_object().unwrap_or(&empty);
        let flag = |key: &str| fields.get(key).and_then(Value::as_bool) == Some(true);
        let preserve = flag("x-kubernetes-preserve-unknown-fields");
        let shape = match fields.get("type").and_then(Value::as_str) {
            _ if flag("x-kubernetes-int-or-string") => Shape::Scalar(Scalar::IntOrString),
            Some("string") => Shape::Scalar(Scalar::String),
            Some("integer") => Shape::Scalar(Scalar::Int64),
            Some("number") => Shape::Scalar(Scalar::Number),
            Some("boolean") => Shape::Scalar(Scalar::Boolean),
            Some("array") => self.array(fields, path),
            Some("object") => self.object(fields, preserve, path),
            _ if fields.contains_key("properties") || fields.contains_key("required") => {
                self.object(fields, preserve, path)
            }
            _ => Shape::Any,
        };
        let mut node = Node::of(shape);
        node.default = fields.get("default").cloned();
        node.nullable = flag("nullable");
        node.facets = self.facets(fields, path).map(Box::new);
        node
    }

    fn array(&mut self, fields: &Map<String, Value>, path: &str) -> Shape {
        let item = fields.get("items").unwrap_or(&Value::Null);
        let items = self.id(item, &format!("{path}.items"));
        let list = match fields.get("x-kubernetes-list-type").and_then(Value::as_str) {
            Some("set") => List::Set,
            Some("map") => {
                let mut keys: Vec<_> = texts(fields, "x-kubernetes-list-map-keys")
                    .into_iter()
                    .map(|key| {
                        let default = item.get("properties").and_then(|p| p.get(&key)?.get("default")).cloned();
                        (key, default)
                    })
                    .collect();
                keys.sort_by(|a, b| a.0.cmp(&b.0));
                List::Map(keys)
            }
            _ => List::Atomic,
        };
        Shape::Array(Array { items, list })
    }

    fn object(&mut self, fields: &Map<String, Value>, preserve: bool, path: &str) -> Shape {
        let mut object = Object { required: texts(fields, "required"), ..Object::default() };
        for (name, schema) in fields.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let id = self.id(schema, &format!("{path}.properties[{name}]"));
            object.properties.insert(name.clone(), id);
        }
        object.additional = match fields.get("additionalProperties") {
            Some(schema @ Value::Object(_)) => Some(self.id(schema, &format!("{path}.additionalProperties"))),
            Some(Value::Bool(true)) => Some(self.push(any())),
            _ if preserve => Some(self.push(any())),
            _ => None,
        };
        object.atomic = fields.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic");
        Shape::Object(object)
    }

    fn facets(&mut self, fields: &Map<String, Value>, path: &str) -> Option<Facets> {
        let number = |key: &str| fields.get(key).and_then(Value::as_f64);
        let count = |key: &str| fields.get(key).and_then(Value::as_u64);
        let flag = |key: &str| fields.get(key).and_then(Value::as_bool) == Some(true);
        let bound = |key: &str| if flag(key) { Bound::Exclusive } else { Bound::Inclusive };
        let pattern = fields.get("pattern").and_then(Value::as_str).and_then(|pattern| {
            regex::Regex::new(pattern)
                .map_err(|e| {
                    let why = format!("must be a valid regular expression, but isn't: {e}");
                    self.causes.push(Cause::invalid(format!("{path}.pattern"), &pattern.into(), &why));
                })
                .ok()
        });
        let several = |loader: &mut Self, key: &str| {
            let schemas = fields.get(key).and_then(Value::as_array).into_iter().flatten().enumerate();
            schemas.map(|(i, s)| loader.id(s, &format!("{path}.{key}[{i}]"))).collect::<Vec<_>>()
        };
        let all_of = several(self, "allOf");
        let any_of = several(self, "anyOf");
        let one_of = several(self, "oneOf");
        let not = fields.get("not").map(|schema| self.id(schema, &format!("{path}.not")));
        let rules = self.rules(fields, path);
        let facets = Facets {
            enumeration: fields.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            minimum: number("minimum").map(|n| (n, bound("exclusiveMinimum"))),
            maximum: number("maximum").map(|n| (n, bound("exclusiveMaximum"))),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern,
            format: fields.get("format").and_then(Value::as_str).map(str::to_owned),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            unique_items: flag("uniqueItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            embedded: flag("x-kubernetes-embedded-resource"),
            integer: fields.get("type").and_then(Value::as_str) == Some("integer"),
            all_of,
            any_of,
            one_of,
            not,
            rules,
        };
        Some(facets).filter(Facets::demands_anything)
    }

    fn rules(&mut self, fields: &Map<String, Value>, path: &str) -> Vec<Rule> {
        let declared = fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
        let mut rules = Vec::new();
        for (i, rule) in declared.enumerate() {
            match Rule::compile(rule, &format!("{path}.x-kubernetes-validations[{i}]")) {
                Ok(rule) => rules.push(rule),
                Err(cause) => self.causes.push(cause),
            }
        }
        rules
    }
}

fn any() -> Node {
    let mut node = Node::of(Shape::Any);
    node.nullable = true;
    node
}

fn texts(fields: &Map<String, Value>, key: &str) -> Vec<String> {
    let list = fields.get(key).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|t| t.as_str().map(str::to_owned)).collect()
}
