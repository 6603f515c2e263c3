//! The Applications of an ApplicationSet whose generators are lists or Git directories.

use globset::{GlobBuilder, GlobMatcher};
use serde_json::{Map, Value, json};

use super::document::Document;
use super::fields::Fields;
use super::report::Judged;

/// The directories of the repository that generators read, relative to its root.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) directories: Vec<String>,
}

/// Returns the Applications, and the report about the fields of the set. Fails with the part that has no counterpart.
pub(super) fn applications(document: &Document, tree: &Tree) -> Result<(Vec<Document>, Judged), String> {
    let mut fields = Fields::new(&document.object);
    let is_go = fields.flag("spec.goTemplate") == Some(true);
    let mut parameters = Vec::new();
    for generator in fields.list("spec.generators") {
        let map = generator.as_object().into_iter().flatten();
        for (name, options) in map {
            match name.as_str() {
                "list" => parameters.extend(options["elements"].as_array().cloned().unwrap_or_default()),
                "git" if options["directories"].is_array() => parameters.extend(of_directories(options, tree, is_go)?),
                "template" | "selector" => return Err(format!("`{name}` of a generator has no counterpart")),
                other => return Err(format!("generators of the type {other} have no counterpart")),
            }
        }
    }
    let template = fields.take("spec.template").ok_or("it has no template")?;
    let mut made = Vec::new();
    for parameters in &parameters {
        let mut object = filled(&template, parameters, is_go)?;
        object["apiVersion"] = document.object["apiVersion"].clone();
        object["kind"] = "Application".into();
        if object["metadata"]["namespace"].is_null() && !document.namespace().is_empty() {
            object["metadata"]["namespace"] = document.namespace().into();
        }
        made.push(Document { file: document.file.clone(), ..Document::of(object) });
    }
    fields.drop_lost("spec.templatePatch", "change the GitSyncs that are printed");
    fields.drop_different("spec.strategy", "`dependsOn` and windows order the GitSyncs");
    fields.drop_unneeded(&["spec.goTemplateOptions", "spec.syncPolicy", "metadata.labels", "metadata.finalizers"]);
    fields.differs(
        "spec.generators",
        "the GitSyncs cover the present elements: a new element or directory needs a new GitSync",
    );
    Ok((made, Judged::new(document, fields.finish())))
}

/// Returns the parameters for each matching directory.
fn of_directories(options: &Value, tree: &Tree, is_go: bool) -> Result<Vec<Value>, String> {
    let (mut wanted, mut excluded) = (Vec::new(), Vec::new());
    for directory in options["directories"].as_array().into_iter().flatten() {
        let text = directory["path"].as_str().unwrap_or_default();
        let pattern = GlobBuilder::new(text).literal_separator(true).build();
        let pattern = pattern.map_err(|error| format!("{text} is not a valid pattern: {error}"))?.compile_matcher();
        if directory["exclude"] == true { &mut excluded } else { &mut wanted }.push(pattern);
    }
    let matches = |patterns: &[GlobMatcher], path: &str| patterns.iter().any(|pattern| pattern.is_match(path));
    let chosen = tree.directories.iter().filter(|path| matches(&wanted, path) && !matches(&excluded, path));
    let chosen: Vec<&String> = chosen.collect();
    if chosen.is_empty() {
        return Err("no directory matches its generator: run the command in a checkout of the repository".to_owned());
    }
    let parameters = |path: &&String| {
        let base = path.rsplit('/').next().unwrap_or_default();
        let segments: Vec<&str> = path.split('/').collect();
        if is_go {
            return json!({"path": {"path": path, "basename": base, "basenameNormalized": base, "segments": segments}});
        }
        let mut flat = json!({"path": path, "path.basename": base, "path.basenameNormalized": base});
        for (number, segment) in segments.iter().enumerate() {
            flat[format!("path[{number}]")] = (*segment).into();
        }
        flat
    };
    Ok(chosen.iter().map(parameters).collect())
}

/// Returns the template with its parameters replaced by values.
fn filled(template: &Value, parameters: &Value, is_go: bool) -> Result<Value, String> {
    Ok(match template {
        Value::String(text) => Value::String(filled_text(text, parameters, is_go)?),
        Value::Array(items) => items.iter().map(|item| filled(item, parameters, is_go)).collect::<Result<_, _>>()?,
        Value::Object(map) => {
            let mut made = Map::new();
            for (key, value) in map {
                made.insert(filled_text(key, parameters, is_go)?, filled(value, parameters, is_go)?);
            }
            Value::Object(made)
        }
        other => other.clone(),
    })
}

fn filled_text(text: &str, parameters: &Value, is_go: bool) -> Result<String, String> {
    let (mut made, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").ok_or_else(|| format!("{text}: `}}}}` is missing"))?;
        let name = name.trim();
        let value =
            if is_go { path_of(name).and_then(|path| parameters.pointer(&path)) } else { flat(parameters, name) };
        let value =
            value.ok_or_else(|| format!("{{{{{name}}}}} of the template is not a parameter of its generators"))?;
        made.push_str(before);
        made.push_str(&value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        rest = after;
    }
    made.push_str(rest);
    Ok(made)
}

/// Returns a parameter by its name, or by a dotted path into an element of a list.
fn flat<'v>(parameters: &'v Value, name: &str) -> Option<&'v Value> {
    let dotted = || name.split('.').try_fold(parameters, |value, key| value.get(key));
    parameters.get(name).or_else(dotted).filter(|value| !value.is_object())
}

/// Converts an expression of a Go template such as `.path.basename` into a JSON pointer; `None` for other expressions.
fn path_of(expression: &str) -> Option<String> {
    let path = expression.strip_prefix('.')?;
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_'));
    is_plain.then(|| format!("/{}", path.replace('.', "/")))
}
