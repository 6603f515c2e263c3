//! Converts a Function between its two versions.
//!
//! The table [`PATHS`] maps fields whose path differs. Fields that only `v1alpha1` has, such as `deps` of code in Git,
//! have no effect. An annotation stores these fields, so that editing one version loses no field of the other.
//!
//! Invariant: a round trip returns the same object, except for `null` and empty sections, which have no meaning.
//! Invariant: the annotation has no effect. An annotation whose value is not exactly as this module writes it is
//! treated as an ordinary one. Invariant: everything outside of `spec` is unchanged, and so are values of the wrong
//! type, which the schema refuses.
//!
//! Not here: the API server's reviews (`conversion_review`).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use mainstay_api::function_v1alpha2::{Form, PATHS};
use mainstay_api::names::ONLY_V1ALPHA1;
use mainstay_api::own_repository::OwnRepository;

/// The versions of a Function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// The stored version.
    V1alpha1,
    /// The other served version.
    V1alpha2,
}

impl Version {
    const ALL: [(Self, &str); 2] = [
        (Self::V1alpha1, "serverless.kyma-project.io/v1alpha1"),
        (Self::V1alpha2, "serverless.kyma-project.io/v1alpha2"),
    ];

    /// Returns the version with this `apiVersion`.
    pub fn of(api_version: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, name)| *name == api_version).map(|(version, _)| version)
    }

    /// Returns the `apiVersion` of this version.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1alpha1 => Self::ALL[0].1,
            Self::V1alpha2 => Self::ALL[1].1,
        }
    }
}

/// The fields that only `v1alpha1` has. Written as JSON without whitespace, in alphabetical order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Unsaid {
    /// `type` of inline code, if it is not `git`.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// `deps` of code in Git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deps: Option<String>,
    /// This field and the next two belong to inline code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reference: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base_dir: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    git_repository: Option<OwnRepository>,
    /// The earlier value of the annotation, if the object already had an annotation of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    annotation: Option<String>,
}

impl Unsaid {
    /// Reads the annotation of a Function of this form. Returns `None` if its value is not as this module writes it.
    fn read(text: &str, form: Form) -> Option<Self> {
        let read: Self = serde_json::from_str(text).ok()?;
        let of_inline =
            read.kind.is_some() || read.reference.is_some() || read.base_dir.is_some() || read.git_repository.is_some();
        let fits = match form {
            Form::Git => !of_inline,
            _ => read.deps.is_none() && read.kind.as_deref() != Some("git"),
        };
        let says = of_inline || read.deps.is_some();
        let is_needed = || read.annotation.as_deref().is_some_and(|inner| Self::read(inner, form).is_some());
        (fits && read.write() == text && (says || is_needed())).then_some(read)
    }

    fn write(&self) -> String {
        json!(self).to_string()
    }
}

/// Converts a Function to another version. Objects without a known version stay unchanged.
pub fn convert(object: &mut Value, to: Version) {
    let from = object["apiVersion"].as_str().and_then(Version::of);
    let Some(root) = object.as_object_mut().filter(|_| from.is_some_and(|from| from != to)) else { return };
    root.insert("apiVersion".into(), to.name().into());
    // A spec that is not an object stays unchanged.
    let Some(mut spec) = root.get_mut("spec").and_then(Value::as_object_mut).map(std::mem::take) else { return };
    let mut annotation = Annotation(root);
    let spec = match to {
        Version::V1alpha2 => newer(&mut spec, &mut annotation),
        Version::V1alpha1 => older(&mut spec, &mut annotation),
    };
    root.insert("spec".into(), spec.into());
}

/// Returns a spec in `v1alpha2`.
fn newer(old: &mut Map<String, Value>, annotation: &mut Annotation<'_>) -> Map<String, Value> {
    let form = match old.get("source") {
        Some(Value::String(_)) if old.get("type").is_some_and(|kind| kind == "git") => Form::Git,
        Some(Value::String(_)) => Form::Inline,
        _ => Form::Any,
    };
    let mut moved = Map::new();
    if form == Form::Git {
        put(&mut moved, &["source", "gitRepository"], json!({}));
    }
    for (_, before, after) in rows(form) {
        let value = take(old, before);
        // A Git source with an empty name has its own URL.
        if let Some(value) = value.filter(|value| form != Form::Git || *before != ["source"] || value != "") {
            put(&mut moved, after, value);
        }
    }
    let mut unsaid = Unsaid { annotation: annotation.get().map(str::to_owned), ..Unsaid::default() };
    if form == Form::Git {
        old.remove("type");
        old.remove("gitRepository");
        unsaid.deps = text(old, "deps");
    } else if form == Form::Inline {
        (unsaid.kind, unsaid.reference, unsaid.base_dir) =
            (text(old, "type"), text(old, "reference"), text(old, "baseDir"));
        let own = old.remove("gitRepository").filter(|own| !own.is_null());
        unsaid.git_repository = own.and_then(|own| serde_json::from_value(own).ok());
    }
    let written = unsaid.write();
    if form != Form::Any && Unsaid::read(&written, form).is_some() {
        annotation.set(Some(written));
    }
    old.append(&mut moved);
    std::mem::take(old)
}

/// Returns a spec in `v1alpha1`.
fn older(new: &mut Map<String, Value>, annotation: &mut Annotation<'_>) -> Map<String, Value> {
    let is_there = |field: &str| new.get("source").is_some_and(|source| source[field].is_object());
    let form = match (is_there("inline"), is_there("gitRepository")) {
        (true, false) => Form::Inline,
        (false, true) => Form::Git,
        // The schema refuses this object, so no form is chosen.
        _ => Form::Any,
    };
    let mut moved = Map::new();
    for (_, after, before) in rows(form) {
        if let Some(value) = take(new, before) {
            put(&mut moved, after, value);
        }
    }
    // The remaining sections are empty.
    for section in ["source", "resourceConfiguration", "scaleConfig"] {
        if section != "source" || form != Form::Any {
            new.remove(section);
        }
    }
    if form == Form::Git {
        moved.insert("type".into(), "git".into());
        moved.entry("source").or_insert_with(|| "".into());
    }
    let told = annotation.get().filter(|_| form != Form::Any);
    if let Some(unsaid) = told.and_then(|text| Unsaid::read(text, form)) {
        let fields = [
            ("type", unsaid.kind),
            ("deps", unsaid.deps),
            ("reference", unsaid.reference),
            ("baseDir", unsaid.base_dir),
        ];
        moved.extend(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))));
        moved.extend(unsaid.git_repository.map(|own| ("gitRepository".to_owned(), json!(own))));
        annotation.set(unsaid.annotation);
    }
    new.append(&mut moved);
    std::mem::take(new)
}

fn rows(form: Form) -> impl Iterator<Item = &'static (Form, &'static [&'static str], &'static [&'static str])> {
    PATHS.iter().filter(move |(of, ..)| *of == form || *of == Form::Any)
}

/// Removes and returns the value at a path. A `null` counts as missing.
fn take(from: &mut Map<String, Value>, path: &[&str]) -> Option<Value> {
    let (last, sections) = path.split_last()?;
    let section = sections.iter().try_fold(from, |section, key| section.get_mut(*key)?.as_object_mut())?;
    section.remove(*last).filter(|value| !value.is_null())
}

/// Sets the value at a path, and creates its sections.
fn put(into: &mut Map<String, Value>, path: &[&str], value: Value) {
    let Some((last, sections)) = path.split_last() else { return };
    let section =
        sections.iter().try_fold(into, |section, key| section.entry(*key).or_insert_with(|| json!({})).as_object_mut());
    if let Some(section) = section {
        section.insert((*last).to_owned(), value);
    }
}

/// Removes and returns a string. A value of a different type stays, so that the schema refuses it.
fn text(from: &mut Map<String, Value>, field: &str) -> Option<String> {
    let text = from.get(field)?.as_str()?.to_owned();
    from.remove(field);
    Some(text)
}

/// The annotation of an object.
struct Annotation<'a>(&'a mut Map<String, Value>);

impl Annotation<'_> {
    fn get(&self) -> Option<&str> {
        self.0.get("metadata")?.get("annotations")?.get(ONLY_V1ALPHA1)?.as_str()
    }

    fn set(&mut self, text: Option<String>) {
        let metadata = self.0.entry("metadata").or_insert_with(|| json!({}));
        let Some(metadata) = metadata.as_object_mut() else { return };
        let annotations = metadata.entry("annotations").or_insert(Value::Null);
        if annotations.is_null() {
            *annotations = json!({});
        }
        let Some(all) = annotations.as_object_mut() else { return };
        match text {
            Some(text) => drop(all.insert(ONLY_V1ALPHA1.to_owned(), text.into())),
            None => drop(all.remove(ONLY_V1ALPHA1)),
        }
        if all.is_empty() {
            metadata.remove("annotations");
        }
    }
}

#[cfg(test)]
mod tests;
