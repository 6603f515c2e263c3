//! Reads the text of an object after substitution, within the limits and with all checks of a document.
//!
//! Invariant: the result is one object, an ignored object, or an error. Several documents and lists are errors, because
//! the user did not write them.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::decryption::Decryption;
use super::document::{At, objects};
use super::limits::{Budget, Form, Limits, larger_than};
use super::load::load;
use super::tokens::{Mark, Yaml, control_character};
use mainstay_object::{Names, Object, Place};

/// Parses a text as a map. Errors may quote keys.
pub fn read_value(text: &str, limits: &Limits) -> Result<Map<String, Value>, String> {
    if text.len() > limits.document {
        return Err(format!("it is {}", larger_than(limits.document)));
    }
    if let Some(fault) = control_character(text) {
        return Err(fault.what);
    }
    if text.lines().any(|line| line.starts_with("---") || line.starts_with("...")) {
        return Err("it is more than one document".to_owned());
    }
    let mut budget = Budget::new(limits, text.len());
    let tokens = || Yaml::new(text, limits.depth);
    let loaded = load(&mut tokens(), tokens, &mut budget);
    match (loaded.faults.into_iter().next(), loaded.value) {
        (Some(fault), _) => Err(fault.what),
        (None, Value::Object(map)) => Ok(map),
        (None, _) => Err("it is not a map".to_owned()),
    }
}

/// Decodes the object in a map like any other; `None` if the object is ignored. Errors may quote keys.
pub fn read_object(map: Map<String, Value>, place: &Place) -> Result<Option<Arc<Object>>, Vec<String>> {
    let mark = Mark { line: place.line, column: place.column };
    let (form, decryption) = (Form::Final, &Decryption::NotConfigured);
    let at = At { file: &place.file, document: place.document, mark, items: &[], form, decryption, origins: None };
    let has_name = map.get("metadata").is_some_and(|metadata| metadata.get("name").is_some());
    let is_list = !has_name && map.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    let mut found = objects(Value::Object(map), &at, &mut Names::default());
    if is_list {
        return Err(vec!["it is a list of objects".to_owned()]);
    }
    if found.flaws.is_empty() {
        return Ok(found.objects.pop());
    }
    Err(found.flaws.into_iter().map(|flaw| flaw.what).collect())
}
