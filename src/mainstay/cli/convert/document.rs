//! The documents of YAML files.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use mainstay_manifest::{Limits, read_value};

use super::comments::Comments;

/// An object as it was read.
#[derive(Clone, Debug)]
pub(super) struct Document {
    /// The file, for messages; empty for standard input and the cluster.
    pub(super) file: String,
    pub(super) object: Value,
    pub(super) comments: Comments,
    /// Objects that this one references and that get another name, by kind and new name; with the old name.
    pub(super) renamed: BTreeMap<(String, String), String>,
}

impl Document {
    /// Returns an object without a file.
    pub(super) fn of(object: Value) -> Self {
        Self { file: String::new(), object, comments: Comments::default(), renamed: BTreeMap::new() }
    }

    pub(super) fn field(&self, pointer: &str) -> &str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn kind(&self) -> &str {
        self.field("/kind")
    }

    /// Returns the API group.
    pub(super) fn group(&self) -> &str {
        self.field("/apiVersion").split_once('/').map_or("", |(group, _)| group)
    }

    pub(super) fn name(&self) -> &str {
        self.field("/metadata/name")
    }

    /// Returns the namespace; empty if the object has none.
    pub(super) fn namespace(&self) -> &str {
        self.field("/metadata/namespace")
    }

    /// Returns kind, namespace and name for messages.
    pub(super) fn subject(&self) -> String {
        match self.namespace() {
            "" => format!("{} {}", self.kind(), self.name()),
            namespace => format!("{} {namespace}/{}", self.kind(), self.name()),
        }
    }
}

/// Reads the documents of a string that contain one of the API groups. Other documents need not be YAML: files of a
/// repository may be templates. Fails with the cause.
pub(super) fn read(file: &str, text: &str, groups: &[&str], limits: &Limits) -> Result<Vec<Document>, String> {
    let mut documents = Vec::new();
    for (number, text) in split(text).into_iter().enumerate() {
        if !groups.iter().any(|group| text.contains(group)) {
            continue;
        }
        let object = read_value(&text, limits).map_err(|why| format!("document {}: {why}", number + 1))?;
        for object in items(object) {
            let comments = Comments::read(&text);
            let document = Document { file: file.to_owned(), object, comments, renamed: BTreeMap::new() };
            if groups.iter().any(|group| document.group().ends_with(group)) {
                documents.push(document);
            }
        }
    }
    Ok(documents)
}

/// Returns kind and name of the objects in a string that are of no group of the tool. Templates and files of
/// kustomizations are skipped.
pub(super) fn others(text: &str, group: &str, limits: &Limits) -> Vec<String> {
    let read = split(text).into_iter().filter_map(|text| read_value(&text, limits).ok());
    let documents = read.flat_map(items).map(Document::of);
    let is_other = |document: &Document| {
        !document.name().is_empty()
            && !document.kind().is_empty()
            && !document.group().ends_with(group)
            && !document.group().ends_with("config.k8s.io")
            // The components of Flux itself.
            && document.field("/metadata/labels/app.kubernetes.io~1part-of") != "flux"
    };
    documents.filter(is_other).map(|document| document.subject()).collect()
}

/// Returns the objects of a list such as `kubectl get -o yaml` prints, or the object itself.
fn items(mut object: Map<String, Value>) -> Vec<Value> {
    let is_list = object.get("kind").and_then(Value::as_str).is_some_and(|kind| kind.ends_with("List"));
    match object.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) if is_list => items,
        Some(other) => {
            object.insert("items".to_owned(), other);
            vec![Value::Object(object)]
        }
        None => vec![Value::Object(object)],
    }
}

/// Returns the documents between the separator lines (`---`).
fn split(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.lines() {
        if line == "---" || line.starts_with("--- ") {
            documents.push(String::new());
        } else if let Some(last) = documents.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    documents
}
