//! Converts the value of a document into objects. Lists are unpacked, ignored objects are skipped, and the other
//! objects are normalised and validated.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::Form;
use super::decryption::Decryption;
use super::encrypted::{self, State};
use super::normalise::normalise;
use super::recognise;
use super::render::Origins;
use super::render::origins;
use super::tokens::Mark;
use mainstay_api::names;
use mainstay_object::{Flaw, Names, Object, Place, Step, path_text};

const NOT_A_MANIFEST: Option<&str> = Some("if it is not a manifest, list it in .mainstayignore");

/// The position of the document.
pub(super) struct At<'d> {
    pub(super) file: &'d Arc<str>,
    pub(super) document: u32,
    /// The start of the document's value.
    pub(super) mark: Mark,
    /// The starts of a list's items.
    pub(super) items: &'d [Mark],
    pub(super) form: Form,
    pub(super) decryption: &'d Decryption,
    /// The origins of objects in a tool's output. The lines of the output are not those of a file.
    pub(super) origins: Option<&'d Origins>,
}

/// Maximum number of errors of one document. A list can have a million items.
const MAX_FLAWS: usize = 1000;

/// The content of a document.
#[derive(Default)]
pub(super) struct DocumentContent {
    pub(super) objects: Vec<Arc<Object>>,
    /// The errors, by path in the document.
    pub(super) flaws: Vec<Flaw>,
    /// For a tool's output, the location and name of the object with the errors.
    pub(super) printed: Option<(Place, Option<String>)>,
}

impl DocumentContent {
    fn flaw(&mut self, flaw: Flaw) {
        if self.flaws.len() < MAX_FLAWS {
            self.flaws.push(flaw);
        }
    }
}

/// Returns the objects of a document.
pub(super) fn objects(value: Value, at: &At<'_>, names: &mut Names) -> DocumentContent {
    let mut found = DocumentContent::default();
    match value {
        Value::Null => {}
        Value::Object(mut map) => {
            found.printed = at.origins.map(|origins| (origins.take(&mut map), origins::name(&map)));
            add(map, at, at.mark, &mut Vec::new(), names, &mut found);
        }
        _ => found.flaw(Flaw::new(vec![], "the document is not an object", NOT_A_MANIFEST)),
    }
    found
}

fn add(
    mut map: Map<String, Value>,
    at: &At<'_>,
    mark: Mark,
    path: &mut Vec<Step>,
    names: &mut Names,
    found: &mut DocumentContent,
) {
    if left_out(&map) || asks_for_contents(&map) {
        return;
    }
    if path.is_empty() {
        match encrypted::state(&map, at.decryption) {
            Err(flaw) => return found.flaw(flaw),
            Ok(State::Encrypted) => return object(map, at, mark, Reading::AsItStands, path, names, found),
            Ok(State::Plain) => {}
        }
        if let Some(flaw) = recognise::document(&map) {
            return found.flaw(flaw);
        }
    }
    if !map.contains_key("apiVersion") && !map.contains_key("kind") {
        let what = match path_text(path) {
            path if path.is_empty() => recognise::NEITHER.to_owned(),
            path => format!("{path} has neither apiVersion nor kind"),
        };
        return found.flaw(Flaw::new(path.clone(), what, NOT_A_MANIFEST));
    }
    if let Some(items) = take_items(&mut map) {
        return unpack(&map, items, at, mark, path, names, found);
    }
    object(map, at, mark, Reading::Normalised, path, names, found);
}

/// Whether an object is normalised.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    Normalised,
    /// The object is encrypted and stays unchanged. Folding `stringData` would hide the encrypted values.
    AsItStands,
}

fn object(
    mut map: Map<String, Value>,
    at: &At<'_>,
    mark: Mark,
    reading: Reading,
    path: &[Step],
    names: &mut Names,
    found: &mut DocumentContent,
) {
    let place = match &found.printed {
        Some((place, _)) => place.clone(),
        None => Place {
            file: Arc::clone(at.file),
            document: at.document,
            line: mark.line,
            column: mark.column,
            built_by: None,
        },
    };
    // Folding `stringData` would hide the expressions in it.
    let is_final = at.form == Form::Final || !map.iter().any(|(_, value)| holds_expressions(value));
    let mut flaws = if is_final && reading == Reading::Normalised { normalise(&mut map) } else { Vec::new() };
    let value = Value::Object(map);
    let object = if is_final {
        Object::sharing_names(&value, place, names)
    } else {
        Object::with_expressions(&value, place, names)
    };
    match object {
        Ok(object) if flaws.is_empty() => found.objects.push(Arc::new(object)),
        Ok(_) => {}
        Err(more) => flaws.extend(more),
    }
    for flaw in flaws {
        found.flaw(Flaw { path: [path, &flaw.path].concat(), ..flaw });
    }
}

/// Returns whether any string or key in the value contains a `$`.
pub(super) fn holds_expressions(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('$'),
        Value::Array(items) => items.iter().any(holds_expressions),
        Value::Object(map) => map.iter().any(|(key, value)| key.contains('$') || holds_expressions(value)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns whether Flux's annotation excludes the object.
fn left_out(map: &Map<String, Value>) -> bool {
    let annotations = map.get("metadata").and_then(|metadata| metadata.get("annotations"));
    annotations.and_then(|annotations| annotations.get(names::FLUX_IGNORE)).and_then(Value::as_str) == Some("true")
}

/// Returns whether the object is a Secret in the output of `mainstay install`, whose content the agent generates. The
/// agent owns the live Secret, which is exempt from reconciliation even if a repository contains the manifest.
fn asks_for_contents(map: &Map<String, Value>) -> bool {
    let inside = |field: &str, name: &str| map.get("metadata")?.get(field)?.get(name)?.as_str();
    let is_secret =
        map.get("kind").is_some_and(|kind| kind == "Secret") && map.get("apiVersion").is_some_and(|v| v == "v1");
    let holds_nothing = !map.contains_key("data") && !map.contains_key("stringData");
    let is_kept = inside("annotations", names::RECONCILE) == Some(names::DISABLED);
    is_secret && holds_nothing && is_kept && inside("labels", names::GENERATE).is_some()
}

/// Returns the items of a list. The kind of a list ends in `List`, and a list has `items` and no name.
fn take_items(map: &mut Map<String, Value>) -> Option<Vec<Value>> {
    let kind = map.get("kind")?.as_str()?;
    if !kind.ends_with("List") || map.get("metadata").is_some_and(|metadata| metadata.get("name").is_some()) {
        return None;
    }
    let plain = kind == "List";
    match map.get_mut("items") {
        Some(Value::Array(items)) => Some(std::mem::take(items)),
        Some(Value::Null) => Some(Vec::new()),
        None if plain => Some(Vec::new()),
        _ => None,
    }
}

fn unpack(
    list: &Map<String, Value>,
    items: Vec<Value>,
    at: &At<'_>,
    mark: Mark,
    path: &mut Vec<Step>,
    names: &mut Names,
    found: &mut DocumentContent,
) {
    // The items of a `ConfigMapList` are ConfigMaps and need no kind.
    let implied =
        list.get("kind").and_then(Value::as_str).and_then(|kind| kind.strip_suffix("List")).unwrap_or_default();
    let outermost = path.is_empty();
    path.push(Step::Key("items".into()));
    for (index, item) in items.into_iter().enumerate() {
        let mark = if outermost { at.items.get(index).copied().unwrap_or(mark) } else { mark };
        path.push(Step::Item(index));
        match item {
            Value::Object(mut item) => {
                if !implied.is_empty() && !item.contains_key("kind") && !item.contains_key("apiVersion") {
                    item.insert("kind".into(), implied.into());
                    item.insert("apiVersion".into(), list.get("apiVersion").cloned().unwrap_or_default());
                }
                add(item, at, mark, path, names, found);
            }
            _ => found.flaw(Flaw::new(path.clone(), format!("{} is not an object", path_text(path)), None)),
        }
        path.pop();
    }
    path.pop();
}
