//! Loads the recorded types of the built-in kinds, once per process.
//!
//! The recording (`data/schema.json`) is a real API server's OpenAPI without descriptions. `kinds` maps
//! `group/version/Kind` to a named type. `schemas` holds the named types, which refer to each other by `ref`.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::node::{Array, Id, List, Node, Object, Scalar, Schema, Shape, Strategy};

const RECORDED: &str = include_str!("../data/schema.json");
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The parsed recording.
struct Catalogue {
    arena: Arc<Vec<Node>>,
    kinds: HashMap<String, Id>,
    named: HashMap<String, Id>,
}

fn catalogue() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| {
        let recorded: Value = serde_json::from_str(RECORDED).expect("the recorded schema is JSON");
        Loader::read(&recorded)
    })
}

/// Returns the schema of a built-in kind; `None` for other kinds.
pub fn builtin(api_version: &str, kind: &str) -> Option<Schema> {
    let catalogue = catalogue();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let id = *catalogue.kinds.get(&format!("{group}/{version}/{kind}"))?;
    Some(Schema::new(Arc::clone(&catalogue.arena), id))
}

/// Returns the schema of `metadata`, the same for every kind.
pub fn metadata() -> Schema {
    let catalogue = catalogue();
    Schema::new(Arc::clone(&catalogue.arena), catalogue.named[META])
}

/// Returns a new arena with the types of `metadata`, and the node of `metadata` in it. Arenas of custom kinds start as
/// a copy of this arena.
pub(crate) fn metadata_arena() -> (Vec<Node>, Id) {
    let catalogue = catalogue();
    let mut copy = Vec::new();
    let mut moved = HashMap::new();
    let id = transplant(&catalogue.arena, catalogue.named[META], &mut copy, &mut moved);
    (copy, id)
}

/// Copies the node `id` and the nodes that it refers to.
fn transplant(from: &[Node], id: Id, to: &mut Vec<Node>, moved: &mut HashMap<Id, Id>) -> Id {
    if let Some(done) = moved.get(&id) {
        return *done;
    }
    let mut node = from[id as usize].clone();
    let new = index(to.len());
    moved.insert(id, new);
    to.push(node.clone());
    match &mut node.shape {
        Shape::Object(object) => {
            for child in object.properties.values_mut() {
                *child = transplant(from, *child, to, moved);
            }
            object.additional = object.additional.map(|child| transplant(from, child, to, moved));
        }
        Shape::Array(array) => array.items = transplant(from, array.items, to, moved),
        Shape::Any | Shape::Opaque | Shape::Scalar(_) => {}
    }
    to[new as usize] = node;
    new
}

/// Returns an arena index. Arenas hold thousands of nodes, not billions.
pub(crate) fn index(length: usize) -> Id {
    Id::try_from(length).expect("an arena holds fewer nodes than an index can count")
}

/// Parses the recording. Named types get their indices first, so that references can precede their targets. A reference
/// with additions (a default, a patch strategy) becomes a copy after all types are parsed.
struct Loader {
    arena: Vec<Node>,
    named: HashMap<String, Id>,
    /// Pending copies: target node, source node, additions.
    overlays: Vec<(Id, Id, Map<String, Value>)>,
}

impl Loader {
    fn read(recorded: &Value) -> Catalogue {
        let empty = Map::new();
        let schemas = recorded["schemas"].as_object().unwrap_or(&empty);
        let mut loader = Self { arena: Vec::new(), named: HashMap::new(), overlays: Vec::new() };
        for name in schemas.keys() {
            let id = loader.push(Node::of(Shape::Opaque));
            loader.named.insert(name.clone(), id);
        }
        for (name, schema) in schemas {
            let node = loader.node(schema, Some(name));
            let id = loader.named[name];
            loader.arena[id as usize] = node;
        }
        for (id, target, additions) in std::mem::take(&mut loader.overlays) {
            let mut node = loader.arena[target as usize].clone();
            decorate(&mut node, &additions);
            loader.arena[id as usize] = node;
        }
        loader.fill_key_defaults();
        let kinds = recorded["kinds"].as_object().unwrap_or(&empty).iter();
        let kinds = kinds.filter_map(|(k, v)| Some((k.clone(), *loader.named.get(v.as_str()?)?))).collect();
        Catalogue { arena: Arc::new(loader.arena), kinds, named: loader.named }
    }

    fn push(&mut self, node: Node) -> Id {
        self.arena.push(node);
        index(self.arena.len() - 1)
    }

    /// Returns the index of a nested schema: the named type itself, a decorated copy of it, or a new node.
    fn id(&mut self, schema: &Value, required: bool) -> Id {
        let Some(fields) = schema.as_object() else { return self.push(Node::of(Shape::Opaque)) };
        let target = fields.get("ref").and_then(Value::as_str).and_then(|name| self.named.get(name).copied());
        if let Some(target) = target {
            if fields.len() == 1 && !required {
                return target;
            }
            let id = self.push(Node::of(Shape::Opaque));
            let mut additions = fields.clone();
            if required {
                additions.insert("required".into(), true.into());
            }
            self.overlays.push((id, target, additions));
            return id;
        }
        let mut node = self.node(schema, None);
        node.always_present |= required;
        self.push(node)
    }

    fn node(&mut self, schema: &Value, name: Option<&str>) -> Node {
        let short = name.and_then(|n| n.rsplit('.').next());
        let empty = Map::new();
        let fields = schema.as_object().unwrap_or(&empty);
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let shape = match (text("type"), text("format"), short) {
            (_, _, Some("Quantity")) => Shape::Scalar(Scalar::Quantity),
            (_, "int-or-string", _) => Shape::Scalar(Scalar::IntOrString),
            ("string", _, Some("MicroTime")) => Shape::Scalar(Scalar::MicroTime),
            ("string", "date-time", _) => Shape::Scalar(Scalar::Time),
            ("string", "byte", _) => Shape::Scalar(Scalar::Bytes),
            ("string", _, _) => Shape::Scalar(Scalar::String),
            ("integer", "int64", _) => Shape::Scalar(Scalar::Int64),
            ("integer", _, _) => Shape::Scalar(Scalar::Int32),
            ("number", _, _) => Shape::Scalar(Scalar::Number),
            ("boolean", _, _) => Shape::Scalar(Scalar::Boolean),
            ("array", _, _) => self.array(fields),
            ("object", _, _) => self.object(fields, short),
            _ => Shape::Opaque,
        };
        let mut node = Node::of(shape);
        decorate(&mut node, fields);
        node
    }

    fn array(&mut self, fields: &Map<String, Value>) -> Shape {
        let items = self.id(fields.get("items").unwrap_or(&Value::Null), false);
        let list = match fields.get("listType").and_then(Value::as_str) {
            Some("map") => {
                let keys = fields.get("listKeys").and_then(Value::as_array).into_iter().flatten();
                let mut keys: Vec<_> = keys.filter_map(|k| Some((k.as_str()?.to_owned(), None))).collect();
                keys.sort_by(|a, b| a.0.cmp(&b.0));
                List::Map(keys)
            }
            Some("set") => List::Set,
            _ => List::Atomic,
        };
        Shape::Array(Array { items, list })
    }

    fn object(&mut self, fields: &Map<String, Value>, name: Option<&str>) -> Shape {
        let properties = fields.get("properties").and_then(Value::as_object);
        let additional = fields.get("additionalProperties");
        if properties.is_none() && additional.is_none() {
            return Shape::Opaque;
        }
        let required: Vec<String> = fields
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|r| r.as_str().map(str::to_owned))
            .collect();
        let mut typed = BTreeMap::new();
        for (key, schema) in properties.into_iter().flatten() {
            let id = self.id(schema, required.contains(key));
            typed.insert(key.clone(), id);
        }
        let additional = additional.map(|schema| self.id(schema, false));
        Shape::Object(Object { name: name.map(Into::into), properties: typed, additional, atomic: false, required })
    }

    /// Sets the key defaults of map lists, after all item types are parsed.
    fn fill_key_defaults(&mut self) {
        for at in 0..self.arena.len() {
            let Shape::Array(Array { items, list: List::Map(keys) }) = &self.arena[at].shape else { continue };
            let Shape::Object(item) = &self.arena[*items as usize].shape else { continue };
            let filled = keys
                .iter()
                .map(|(key, _)| {
                    let default = item.properties.get(key).and_then(|id| self.arena[*id as usize].default.clone());
                    (key.clone(), default)
                })
                .collect();
            if let Shape::Array(array) = &mut self.arena[at].shape {
                array.list = List::Map(filled);
            }
        }
    }
}

/// Sets the properties of a node that are declared beside its type.
fn decorate(node: &mut Node, fields: &Map<String, Value>) {
    if let Some(default) = fields.get("default") {
        node.default = Some(default.clone());
        node.always_present = true;
    }
    if fields.get("required") == Some(&Value::Bool(true)) {
        node.always_present = true;
    }
    if fields.get("mapType").and_then(Value::as_str) == Some("atomic")
        && let Shape::Object(object) = &mut node.shape
    {
        object.atomic = true;
    }
    if let Some(strategy) = fields.get("patchStrategy").and_then(Value::as_str) {
        let has = |word| strategy.split(',').any(|w| w == word);
        node.strategy =
            Strategy { merge: has("merge"), retain_keys: has("retainKeys"), replace: has("replace"), merge_key: None };
    }
    if let Some(key) = fields.get("patchMergeKey").and_then(Value::as_str) {
        node.strategy.merge_key = Some(key.to_owned());
    }
}
