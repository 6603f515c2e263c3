//! Recognizes documents that are encrypted with SOPS, and the reasons that a document cannot be decrypted.
//!
//! Invariant: no encrypted value reaches an applied object, because it would be useless there.
//!
//! Not here: verification (`verified`) and decryption (`decrypted`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::decryption::Decryption;
use crate::sops::MARKER;
use mainstay_api::names::FLUX_DECRYPT;
use mainstay_object::{Flaw, Object, Step, path_text, split_api_version};

/// The problem of a document that is encrypted with SOPS if `spec.decryption` is not set.
pub(super) const SOPS: &str = "it is encrypted with SOPS, and spec.decryption is not set";
const SOPS_HINT: &str =
    "name a Secret with the private key in the GitSync: spec.decryption: {provider: sops, secretRef: {name: …}}";
const IN_CHART: &str = "it is encrypted with SOPS, which is not decrypted in charts";
const IN_CHART_HINT: &str = "take it out of the chart: encrypted manifests and kustomizations are decrypted";
/// Instructions for encryption that keeps the identity readable.
const SELECT: &str = "encrypt with --encrypted-regex '^(data|stringData)$', or with that encrypted_regex in .sops.yaml";
const WHOLE_FILE: &str = "encrypt the manifest of the object itself, and name it among the resources";
/// The fields that identify an object.
const IDENTITY: [(&str, &[&str]); 4] =
    [("apiVersion", &[]), ("kind", &[]), ("metadata", &["name"]), ("metadata", &["namespace"])];

/// The encryption state of a document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// No part of the document is encrypted.
    Plain,
    /// The document is encrypted, and stays so until all other changes are made.
    Encrypted,
}

/// Returns the state of a document, or the error that makes it unusable.
pub(super) fn state(map: &Map<String, Value>, decryption: &Decryption) -> Result<State, Flaw> {
    let flaw = |what: &str, hint| Err(Flaw::new(vec![], what, Some(hint)));
    let api_version = map.get("apiVersion").and_then(Value::as_str);
    let is_sealed = mac_in(map).is_some();
    // Kinds that Kubernetes does not define may have a field for the SOPS metadata, and a controller that decrypts
    // them.
    let is_refused_by_the_server = is_sealed && api_version.is_none_or(is_of_kubernetes);
    match decryption {
        Decryption::NotConfigured if is_refused_by_the_server => flaw(SOPS, SOPS_HINT),
        Decryption::NotConfigured => Ok(State::Plain),
        Decryption::Keys(_) | Decryption::InChart if is_disabled(map) => {
            if !is_refused_by_the_server {
                return Ok(State::Plain);
            }
            let what = format!("it is encrypted with SOPS, and {FLUX_DECRYPT} says not to decrypt it");
            flaw(&what, "remove that label or annotation: Kubernetes has no fields for the metadata of SOPS")
        }
        Decryption::Keys(_) if is_sealed => can_be_kept(map).map(|()| State::Encrypted),
        Decryption::Keys(_) => unsealed(map).map_or(Ok(State::Plain), Err),
        Decryption::InChart if is_sealed => flaw(IN_CHART, IN_CHART_HINT),
        Decryption::InChart => first_value(map).map_or(Ok(State::Plain), |path| {
            let what = format!("{} is encrypted with SOPS, which is not decrypted in charts", path_text(&path));
            Err(Flaw::new(path, what, Some(IN_CHART_HINT)))
        }),
    }
}

/// Returns whether a file may be encrypted with SOPS.
pub(super) fn may_be_encrypted(content: &[u8]) -> bool {
    match std::str::from_utf8(content) {
        Ok(text) => text.contains(MARKER),
        Err(_) => content.windows(MARKER.len()).any(|part| part == MARKER.as_bytes()),
    }
}

/// Returns the content of an object with SOPS metadata.
pub(super) fn sealed_content(object: &Object) -> Option<Map<String, Value>> {
    if !may_be_encrypted(object.json()) {
        return None;
    }
    let Value::Object(map) = object.value() else { return None };
    mac_in(&map).is_some().then_some(map)
}

/// Returns the content of an object that stays encrypted until all other changes are made.
pub(super) fn encrypted_content(object: &Object) -> Option<Map<String, Value>> {
    sealed_content(object).filter(|map| !is_disabled(map))
}

/// Returns the MAC of an encrypted object's file; `None` if the object is not encrypted.
pub fn mac(object: &Object) -> Option<String> {
    mac_in(&encrypted_content(object)?).map(str::to_owned)
}

/// Returns the encrypted values of an object. Patches may have added values from other files.
pub fn encrypted_values(object: &Object) -> Vec<String> {
    let mut values = Vec::new();
    let content = encrypted_content(object).into_iter().flatten().filter(|(key, _)| key != "sops");
    let mut left: Vec<Value> = content.map(|(_, value)| value).collect();
    while let Some(value) = left.pop() {
        match value {
            Value::String(text) if text.starts_with(MARKER) => values.push(text),
            Value::Array(items) => left.extend(items),
            Value::Object(map) => left.extend(map.into_iter().map(|(_, value)| value)),
            _ => {}
        }
    }
    values
}

/// Returns whether a file contains an encrypted value for which `is_wanted` is true.
pub fn holds_any<'t>(file: &'t str, is_wanted: impl Fn(&'t str) -> bool) -> bool {
    file.match_indices(MARKER).any(|(at, _)| {
        let rest = &file[at..];
        rest.find(']').is_some_and(|end| is_wanted(&rest[..=end]))
    })
}

/// Returns the MAC in the SOPS metadata of a document. The MAC identifies the encrypted file.
pub(super) fn mac_in(map: &Map<String, Value>) -> Option<&str> {
    map.get("sops")?.get("mac")?.as_str()
}

/// Returns whether Kubernetes defines this apiVersion. Objects of Kubernetes have no field for the SOPS metadata;
/// objects of other groups, such as `SopsSecret`, may have one.
fn is_of_kubernetes(api_version: &str) -> bool {
    let (group, _) = split_api_version(api_version);
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// Returns whether Flux's label or annotation disables decryption.
fn is_disabled(map: &Map<String, Value>) -> bool {
    let in_metadata = |field: &str| map.get("metadata")?.get(field)?.get(FLUX_DECRYPT)?.as_str();
    ["labels", "annotations"].iter().any(|field| in_metadata(field).is_some_and(|v| v.eq_ignore_ascii_case("disabled")))
}

/// Checks that the identity of an encrypted document is readable. Names are shown everywhere, so encrypting them is
/// useless.
fn can_be_kept(map: &Map<String, Value>) -> Result<(), Flaw> {
    for fields in IDENTITY {
        let (first, rest) = fields;
        let value = map.get(first).and_then(|value| rest.iter().try_fold(value, |value, field| value.get(field)));
        if value.and_then(Value::as_str).is_some_and(|text| text.starts_with(MARKER)) {
            let path: Vec<Step> =
                std::iter::once(&first).chain(rest).map(|field| Step::Key((*field).to_owned())).collect();
            let what = format!("{} is encrypted, but the identity of an object must be readable", path_text(&path));
            return Err(Flaw::new(path, what, Some(SELECT)));
        }
    }
    let text = |key: &str| map.get(key).and_then(Value::as_str);
    if text("apiVersion").is_none() && text("kind").is_none() {
        let what = "it is encrypted with SOPS, and it is not a manifest: it has neither apiVersion nor kind";
        return Err(Flaw::new(vec![], what, Some("if it is none, list it in .mainstayignore")));
    }
    if text("kind").is_some_and(|kind| kind.ends_with("List")) && map.get("items").is_some_and(Value::is_array) {
        let what = "it is a list that was encrypted as a whole, so no object can be decrypted alone";
        return Err(Flaw::new(vec![], what, Some("write its items as documents, and encrypt those")));
    }
    Ok(())
}

/// Returns the error for encrypted values in a document without a MAC. Such values cannot be verified.
fn unsealed(map: &Map<String, Value>) -> Option<Flaw> {
    if let Some(path) = first_value(map) {
        let what = if map.get("sops").is_some() {
            "it has no MAC, so its changes cannot be verified: the file is cut short"
        } else {
            "it was encrypted by SOPS, and the metadata behind it are missing: the file is cut short, or the value was moved"
        };
        let hint = "restore the file, or edit it with `sops FILE`, which writes both";
        return Some(Flaw::new(path.clone(), format!("{}: {what}", path_text(&path)), Some(hint)));
    }
    let key = whole_file(map)?;
    let path = vec![Step::Key("data".to_owned()), Step::Key(key)];
    let what = format!("{} is a file that SOPS encrypted, which is not decrypted there", path_text(&path));
    Some(Flaw::new(path, what, Some(WHOLE_FILE)))
}

/// Returns the path of the first SOPS-encrypted value.
fn first_value(map: &Map<String, Value>) -> Option<Vec<Step>> {
    let mut own = map.iter().filter(|(key, _)| *key != "sops");
    own.find_map(|(key, value)| found_in(value, Step::Key(key.clone()))).map(|mut path| {
        path.reverse();
        path
    })
}

/// Returns the path to the first SOPS-encrypted value in `value`, in reverse.
fn found_in(value: &Value, step: Step) -> Option<Vec<Step>> {
    let mut path = match value {
        Value::String(text) => text.starts_with(MARKER).then(Vec::new),
        Value::Array(items) => items.iter().zip(0..).find_map(|(item, at)| found_in(item, Step::Item(at))),
        Value::Object(map) => map.iter().find_map(|(key, value)| found_in(value, Step::Key(key.clone()))),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }?;
    path.push(step);
    Some(path)
}

/// Returns the key of a Secret whose value is a whole encrypted file. Generators of kustomizations create such Secrets.
fn whole_file(map: &Map<String, Value>) -> Option<String> {
    let text = |key: &str| map.get(key).and_then(Value::as_str).unwrap_or_default();
    if text("kind") != "Secret" || !split_api_version(text("apiVersion")).0.is_empty() {
        return None;
    }
    let decoded = |value: &Value| STANDARD.decode(value.as_str()?).ok();
    let mut data = map.get("data")?.as_object()?.iter();
    let found = data
        .find(|(key, value)| *key == "sops_mac" || decoded(value).is_some_and(|content| may_be_encrypted(&content)));
    found.map(|(key, _)| key.clone())
}
