//! Writes objects to a file for a tool, and converts the tool's output into objects with the locations of the original
//! ones.
//!
//! Not here: the changes that the tool makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::{Form, Problem};
use mainstay_api::overlay::CommonMetadata;
use mainstay_object::{Flaw, Names, Object, Place, path_text};

/// The annotation with the index of the original object.
const NUMBER: &str = "internal.mainstay.dev/number";

/// Writes the objects as a stream of documents.
pub fn written_out(objects: &[Arc<Object>]) -> Vec<u8> {
    let mut stream = String::new();
    for (number, object) in objects.iter().enumerate() {
        let mut value = object.value();
        if let Some(annotations) = annotations(&mut value) {
            annotations.insert(NUMBER.to_owned(), number.to_string().into());
        }
        stream.push_str("---\n");
        stream.extend(value.to_string().chars().flat_map(escaped));
        stream.push('\n');
    }
    stream.into_bytes()
}

/// Escapes characters that JSON strings may contain, but YAML accepts only as escapes.
fn escaped(character: char) -> impl Iterator<Item = char> {
    let is_escaped =
        matches!(character, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let text = if is_escaped { format!("\\u{:04x}", u32::from(character)) } else { character.into() };
    text.chars().collect::<Vec<_>>().into_iter()
}

fn annotations(value: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    let all = value.get_mut("metadata")?.as_object_mut()?.entry("annotations").or_insert(Value::Null);
    if all.is_null() {
        *all = json!({});
    }
    all.as_object_mut()
}

/// Returns the objects in the tool's output, with the locations of the objects in `before`. A new object keeps its own
/// location.
pub fn read_back(made: &[Arc<Object>], before: &[Arc<Object>], form: Form) -> Result<Vec<Arc<Object>>, Vec<Problem>> {
    changed(made, form, |object, value| {
        let number = annotations(value).and_then(|all| all.remove(NUMBER));
        if annotations(value).is_some_and(|all| all.is_empty())
            && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
        let was = number.as_ref().and_then(Value::as_str).and_then(|number| before.get(number.parse::<usize>().ok()?));
        was.map_or_else(|| object.place.clone(), |was| was.place.clone())
    })
}

/// Adds labels and annotations to the metadata of objects.
pub fn with_metadata(
    objects: &[Arc<Object>],
    common: &CommonMetadata,
    form: Form,
) -> Result<Vec<Arc<Object>>, Vec<Problem>> {
    changed(objects, form, |object, value| {
        for (field, added) in [("labels", &common.labels), ("annotations", &common.annotations)] {
            add(value, field, added);
        }
        object.place.clone()
    })
}

fn add(value: &mut Value, field: &str, added: &BTreeMap<String, String>) {
    let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut).filter(|_| !added.is_empty()) else {
        return;
    };
    let all = metadata.entry(field).or_insert(Value::Null);
    if all.is_null() {
        *all = json!({});
    }
    if let Some(all) = all.as_object_mut() {
        all.extend(added.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))));
    }
}

/// Returns the changed objects, each with the location that `change` returns.
fn changed(
    objects: &[Arc<Object>],
    form: Form,
    mut change: impl FnMut(&Object, &mut Value) -> Place,
) -> Result<Vec<Arc<Object>>, Vec<Problem>> {
    let (mut names, mut all, mut problems) = (Names::default(), Vec::with_capacity(objects.len()), Vec::new());
    for object in objects {
        let mut value = object.value();
        let place = change(object, &mut value);
        let read = match form {
            Form::Final => Object::sharing_names(&value, place.clone(), &mut names),
            Form::WithExpressions => Object::with_expressions(&value, place.clone(), &mut names),
        };
        match read {
            Ok(read) => all.push(Arc::new(if object.is_from_secret() { read.from_secret() } else { read })),
            Err(flaws) => problems.extend(flaws.into_iter().map(|flaw| problem(&place, flaw))),
        }
    }
    if problems.is_empty() { Ok(all) } else { Err(problems) }
}

fn problem(place: &Place, flaw: Flaw) -> Problem {
    let what = if flaw.path.is_empty() { flaw.what } else { format!("{}: {}", path_text(&flaw.path), flaw.what) };
    Problem::new(place.clone(), what, flaw.hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value, file: &str) -> Arc<Object> {
        Arc::new(Object::from_value(value, Place::file(file)).unwrap())
    }

    fn map(name: &str, data: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": data}})
    }

    #[test]
    fn written_yaml_is_read_back_unchanged() {
        let odd = "del \u{7f} next \u{85} line \u{2028} mark \u{feff} {{ .Values }} ${x}\n# \"";
        let before = [object(&map("a", odd), "a.yaml"), object(&map("b", "---\n"), "b.yaml")];
        let text = String::from_utf8(written_out(&before)).unwrap();
        assert!(!text.contains(['\u{7f}', '\u{85}', '\u{2028}', '\u{feff}']), "{text}");
        let documents = text.split("---\n{").skip(1).map(|text| format!("{{{text}"));
        let made = documents.map(|text| object(&serde_yaml::from_str(&text).unwrap(), "made.yaml")).collect::<Vec<_>>();
        assert_eq!(read_back(&made, &before, Form::Final).unwrap(), before);
        // In a different order, and with a new object.
        let new = object(&map("c", "1"), "made.yaml");
        let other = [made[1].clone(), new.clone(), made[0].clone()];
        assert_eq!(read_back(&other, &before, Form::Final).unwrap(), [before[1].clone(), new, before[0].clone()]);
    }

    #[test]
    fn a_number_that_is_none_changes_no_place() {
        for number in ["", "-1", "9", "x"] {
            let mut forged = map("a", "1");
            forged["metadata"]["annotations"] = json!({NUMBER: number, "own": "1"});
            let read =
                read_back(&[object(&forged, "made.yaml")], &[object(&map("a", "1"), "a.yaml")], Form::Final).unwrap();
            assert_eq!(
                (&*read[0].place.file, &read[0].value()["metadata"]["annotations"]),
                ("made.yaml", &json!({"own": "1"}))
            );
        }
    }

    #[test]
    fn labels_and_annotations_take_the_place_of_those_in_manifests() {
        let mut before = map("a", "1");
        before["metadata"]["labels"] = json!({"tier": "front", "app": "web"});
        let labels = [("tier".to_owned(), "back".to_owned())].into();
        let common = CommonMetadata { labels, annotations: [("team".to_owned(), "x".to_owned())].into() };
        let after = with_metadata(&[object(&before, "a.yaml")], &common, Form::Final).unwrap()[0].value();
        let expected = json!({"name": "a", "labels": {"tier": "back", "app": "web"}, "annotations": {"team": "x"}});
        assert_eq!(after["metadata"], expected);
    }
}
