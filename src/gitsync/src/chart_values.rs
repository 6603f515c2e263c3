//! The values of a chart, from the ConfigMaps and Secrets in `spec.render.helm.valuesFrom` and from
//! `spec.render.helm.values`.
//!
//! Invariant: no value of a Secret is shown, not even in `Debug`.
//!
//! Not here: reading the sources (`sources`), the files with values (`manifest`), and the objects that depend on values
//! of Secrets (`chart_secrets`).

use std::fmt;

use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::{GitSyncSpec, SubstituteSource, SubstituteSourceKind};
use mainstay_api::render::{Helm, ValuesSource};
use mainstay_cluster::secrets::Known;
use mainstay_manifest::{Limits, read_value};
use mainstay_object::failure::Class;
use mainstay_object::{Digest, printable};
use serde_json::{Map, Value};

use super::outcome::Refused;
use super::values::{data_of, named, reason_of};

/// Maximum size of all values as JSON, in bytes.
const LARGEST: usize = 1 << 20;
/// Replacements of a string and of a number of a Secret in the decoy. The second one replaces the first one.
const DECOY: [&str; 2] = ["decoy", "other-decoy"];
const DECOY_NUMBER: [i64; 2] = [7, 8];

/// The values of a chart.
pub(super) struct ChartValues {
    pub(super) map: Map<String, Value>,
    /// The values from Secrets; `None` if no value is from a Secret.
    pub(super) secret: Option<SecretValues>,
    pub(super) digest: Digest,
}

/// The values of a chart that are from Secrets.
#[derive(Default)]
pub(super) struct SecretValues {
    /// All values of the chart, with other strings and numbers in place of those of Secrets. An object that is the same
    /// with these values contains no value of a Secret.
    pub(super) decoy: Map<String, Value>,
    /// The strings and numbers of Secrets.
    pub(super) texts: Vec<String>,
}

impl fmt::Debug for ChartValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChartValues({})", self.digest)
    }
}

fn helm(spec: &GitSyncSpec) -> Option<&Helm> {
    spec.render.as_ref()?.helm.as_ref()
}

fn source_of(from: &ValuesSource) -> SubstituteSource {
    SubstituteSource { kind: from.kind, name: from.name.clone(), optional: from.optional }
}

/// Returns the sources that a spec names.
pub(super) fn sources(spec: &GitSyncSpec) -> Vec<SubstituteSource> {
    helm(spec).into_iter().flat_map(|helm| &helm.values_from).map(source_of).collect()
}

impl ChartValues {
    /// Returns the values of a spec with the contents of its [`sources`]; `None` if it names none.
    ///
    /// # Errors
    ///
    /// All errors of the sources.
    pub(super) fn of(spec: &GitSyncSpec, known: &[Known], limits: &Limits) -> Result<Option<Self>, Refused> {
        let Some(helm) = helm(spec).filter(|helm| !helm.values_from.is_empty()) else { return Ok(None) };
        let (mut map, mut secret, mut refused) = (Map::new(), SecretValues::default(), Vec::new());
        for (number, (from, known)) in helm.values_from.iter().zip(known).enumerate() {
            let source = source_of(from);
            match values_of(from, &source, known, limits) {
                Ok(values) => {
                    secret.add(&values, from.kind);
                    merge(&mut map, values);
                }
                Err((class, why)) => {
                    let line = format!("spec.render.helm.valuesFrom[{number}]: {} {why}", named(&source));
                    refused.push((class, reason_of(&source, class, known), line));
                }
            }
        }
        if let Some((class, reason, _)) = refused.first() {
            let lines: Vec<String> = refused.iter().map(|(.., line)| line.clone()).collect();
            return Err(Refused { class: *class, reason: *reason, message: lines.join("\n"), retry_after: None });
        }
        let own = helm.values.clone().unwrap_or_default();
        secret.add(&own, SubstituteSourceKind::ConfigMap);
        merge(&mut map, own);
        let text = Value::Object(map.clone()).to_string();
        if text.len() > LARGEST {
            let message = "spec.render.helm: `values` and `valuesFrom` together are larger than 1 MiB".to_owned();
            let (class, reason) = (Class::Invalid, Reason::SpecInvalid);
            return Err(Refused { class, reason, message, retry_after: None });
        }
        let has_secrets = helm.values_from.iter().any(|from| from.kind == SubstituteSourceKind::Secret);
        let secret = has_secrets.then_some(secret);
        let of_secrets = secret.as_ref().map(SecretValues::digest);
        let digest = Digest::of(format!("{text}\n{of_secrets:?}").as_bytes());
        Ok(Some(Self { map, secret, digest }))
    }
}

impl SecretValues {
    /// Returns a digest that shows which values are from Secrets.
    pub(super) fn digest(&self) -> Digest {
        Digest::of(Value::Object(self.decoy.clone()).to_string().as_bytes())
    }

    /// Adds the values of a source.
    fn add(&mut self, values: &Map<String, Value>, kind: SubstituteSourceKind) {
        let mut values = values.clone();
        if kind == SubstituteSourceKind::Secret {
            values.values_mut().for_each(|value| self.replace(value));
        }
        merge(&mut self.decoy, values);
    }

    /// Collects the strings and numbers of a value, and replaces them.
    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) => map.values_mut().for_each(|value| self.replace(value)),
            Value::Array(items) => items.iter_mut().for_each(|value| self.replace(value)),
            Value::String(text) => {
                let decoy = DECOY[usize::from(*text == DECOY[0])];
                self.texts.push(std::mem::replace(text, decoy.to_owned()));
            }
            Value::Number(number) => {
                self.texts.push(number.to_string());
                let is_first = number.as_i64() == Some(DECOY_NUMBER[0]);
                *value = DECOY_NUMBER[usize::from(is_first)].into();
            }
            Value::Bool(_) | Value::Null => {}
        }
    }
}

/// Returns the values of a source, or its error, which completes a sentence that begins with the name of the source.
fn values_of(
    from: &ValuesSource,
    source: &SubstituteSource,
    known: &Known,
    limits: &Limits,
) -> Result<Map<String, Value>, (Class, String)> {
    let invalid = |why: String| (Class::Invalid, why);
    let Some(data) = data_of(source, known)? else { return Ok(Map::new()) };
    let key = printable(from.key());
    let Some(bytes) = data.get(from.key()) else {
        let why = || invalid(format!("has no key {key}, and is not `optional`"));
        return if from.optional { Ok(Map::new()) } else { Err(why()) };
    };
    let text = std::str::from_utf8(&bytes.0).map_err(|_| invalid(format!("has a key {key} that is not UTF-8")))?;
    match &from.target_path {
        Some(path) => {
            let refused = || {
                invalid(
                    "has a targetPath that cannot be set: names must be separated by `.`, and lists are refused".into(),
                )
            };
            at_path(path, typed(text)).ok_or_else(refused)
        }
        None if text.trim().is_empty() => Ok(Map::new()),
        // The error may quote a part of the text.
        None => read_value(text, limits).map_err(|why| match from.kind {
            SubstituteSourceKind::ConfigMap => invalid(format!("has a key {key} with invalid values: {why}")),
            SubstituteSourceKind::Secret => invalid(format!("has a key {key} that does not contain a map in YAML")),
        }),
    }
}

/// Adds values as Helm does: maps are merged, and other values are replaced.
fn merge(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => merge(known, more),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

/// Returns the value of a text as Flux and `helm --set` parse it. Quotes keep it a string.
fn typed(text: &str) -> Value {
    for quote in ['\'', '"'] {
        if let Some(inner) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return inner.into();
        }
    }
    match text {
        "true" => true.into(),
        "false" => false.into(),
        "null" => Value::Null,
        // `0` is a number, and `007` a string.
        _ if text != "0" && text.starts_with('0') => text.into(),
        _ => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
    }
}

/// Returns a map with a value at a path; `None` if the path is invalid.
fn at_path(path: &str, value: Value) -> Option<Map<String, Value>> {
    // A character that is invalid in a path stands for the escaped dot.
    let names: Vec<String> = path.replace("\\.", "\0").split('.').map(|name| name.replace('\0', ".")).collect();
    if names.iter().any(|name| name.is_empty() || name.contains(['[', '{', ',', '='])) {
        return None;
    }
    let whole = names.into_iter().rev().fold(value, |value, name| Value::Object(Map::from_iter([(name, value)])));
    match whole {
        Value::Object(map) => Some(map),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use k8s_openapi::ByteString;
    use mainstay_cluster::secrets::Contents;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_secrets_have_a_decoy_and_are_not_shown() {
        let helm = json!({
            "valuesFrom": [
                {"kind": "Secret", "name": "a"},
                {"kind": "Secret", "name": "b", "valuesKey": "password", "targetPath": "db.password"},
                {"kind": "ConfigMap", "name": "c"},
            ],
            "values": {"user": "own"},
        });
        let a = known(&[(
            "values.yaml",
            "user: root\nport: 5432\nhosts: [h1, decoy]\ntls: true\nhost: db\nless: [7, -1, 7.0]\n",
        )]);
        let sources = [a, known(&[("password", "hunter22")]), known(&[("values.yaml", "host: shown\n")])];
        let spec = serde_json::from_value(json!({"gitRepository": "r", "render": {"helm": helm}})).unwrap();
        let read = ChartValues::of(&spec, &sources, &Limits::new(|| Duration::ZERO)).unwrap().unwrap();
        let secret = read.secret.as_ref().unwrap();
        let decoy = json!({
            "user": "own", "port": 7, "hosts": ["decoy", "other-decoy"], "tls": true, "host": "shown",
            "db": {"password": "decoy"}, "less": [8, 7, 8],
        });
        assert_eq!(Value::Object(secret.decoy.clone()), decoy);
        let mut texts = secret.texts.clone();
        texts.sort();
        assert_eq!(texts, ["-1", "5432", "7", "7", "db", "decoy", "h1", "hunter22", "root"]);
        assert!(!format!("{read:?}").contains("hunter22"));
        // The same values have another digest if they are not from Secrets.
        let mut plain = spec.clone();
        for from in &mut plain.render.as_mut().unwrap().helm.as_mut().unwrap().values_from {
            from.kind = SubstituteSourceKind::ConfigMap;
        }
        let plain = ChartValues::of(&plain, &sources, &Limits::new(|| Duration::ZERO)).unwrap().unwrap();
        assert!(plain.secret.is_none() && plain.map == read.map && plain.digest != read.digest);
        let broken = json!({"valuesFrom": [{"kind": "Secret", "name": "a"}]});
        let message = values(broken, &[known(&[("values.yaml", "hunter22: [")])]).unwrap_err();
        let expected =
            "spec.render.helm.valuesFrom[0]: Secret a has a key values.yaml that does not contain a map in YAML";
        assert_eq!(message, expected);
    }

    fn known(data: &[(&str, &str)]) -> Known {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
        Known::Data(Arc::new(Contents { data, ..Contents::default() }))
    }

    fn values(helm: Value, known: &[Known]) -> Result<Option<Value>, String> {
        let spec = serde_json::from_value(json!({"gitRepository": "r", "render": {"helm": helm}})).unwrap();
        let read = ChartValues::of(&spec, known, &Limits::new(|| Duration::ZERO));
        read.map(|found| found.map(|found| Value::Object(found.map))).map_err(|refused| refused.message)
    }

    #[test]
    fn later_sources_take_precedence_and_own_values_over_all() {
        let helm = json!({
            "valuesFrom": [
                {"kind": "ConfigMap", "name": "a"},
                {"kind": "ConfigMap", "name": "b", "valuesKey": "prod.yaml"},
                {"kind": "ConfigMap", "name": "b", "valuesKey": "tag", "targetPath": "image.tag"},
                {"kind": "ConfigMap", "name": "b", "valuesKey": "quoted", "targetPath": "notes.a\\.b"},
                {"kind": "ConfigMap", "name": "b", "valuesKey": "other", "optional": true},
                {"kind": "ConfigMap", "name": "c", "optional": true},
            ],
            "values": {"replicas": 3, "image": {"pull": null}},
        });
        let b = || known(&[("prod.yaml", "image: {name: shop}\nhosts: [b]\n"), ("tag", "7"), ("quoted", "'7'")]);
        let a = known(&[("values.yaml", "replicas: 1\nimage: {name: web, pull: Always}\nhosts: [a, c]\n")]);
        let expected = json!({
            "replicas": 3, "hosts": ["b"], "image": {"name": "shop", "pull": null, "tag": 7}, "notes": {"a.b": "7"},
        });
        assert_eq!(values(helm, &[a, b(), b(), b(), b(), Known::Absent]), Ok(Some(expected)));
        assert_eq!(values(json!({"values": {"a": 1}}), &[]), Ok(None));
    }

    #[test]
    fn all_errors_are_listed() {
        let from = |more: Value| {
            let mut from = json!({"kind": "ConfigMap", "name": "a"});
            json_patch::merge(&mut from, &more);
            from
        };
        let helm = json!({"valuesFrom": [
            from(json!({})), from(json!({"valuesKey": "b"})), from(json!({})), from(json!({"targetPath": "a[0]"})),
        ]});
        let list = known(&[("values.yaml", "- a\n")]);
        let message = values(helm, &[Known::Absent, known(&[]), list, known(&[("values.yaml", "x")])]).unwrap_err();
        assert_eq!(
            message.lines().collect::<Vec<_>>(),
            [
                "spec.render.helm.valuesFrom[0]: ConfigMap a does not exist in this namespace, and is not `optional`",
                "spec.render.helm.valuesFrom[1]: ConfigMap a has no key b, and is not `optional`",
                "spec.render.helm.valuesFrom[2]: ConfigMap a has a key values.yaml with invalid values: it is not a map",
                "spec.render.helm.valuesFrom[3]: ConfigMap a has a targetPath that cannot be set: names must be \
                 separated by `.`, and lists are refused",
            ]
        );
    }
}
