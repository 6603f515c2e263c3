//! The values of variables, from `spec.substitute` and the sources in `spec.substituteFrom`.
//!
//! Invariant: no value is shown, not even in `Debug`. A digest of all values shows whether they are equal.
//!
//! Not here: reading the sources (`sources`), and the substitution (`substitution`).

use std::collections::BTreeMap;
use std::fmt;

use super::outcome::{Refused, reason_of_secret};
use mainstay_api::conditions::Reason;
use mainstay_api::git_sync::{
    GitSyncSpec, SubstituteSource, SubstituteSourceKind, SubstituteStrategy, UndefinedVariables,
};
use mainstay_cluster::secrets::{Known, SecretData};
use mainstay_manifest::render::Undefined;
use mainstay_object::failure::Class;
use mainstay_object::{Digest, printable};

/// Maximum number of keys in one message.
const SHOWN: usize = 10;
/// The rule for names, which completes a sentence.
const NO_NAME: &str =
    "is not a valid variable name: use letters (a-z, A-Z), digits and `_`; the first character must not be a digit";

/// The values of variables.
pub(super) struct Values {
    by_name: BTreeMap<String, Variable>,
    is_always: bool,
    pub(super) undefined: Undefined,
    pub(super) digest: Digest,
}

#[derive(Clone, PartialEq, Eq)]
struct Variable {
    text: String,
    is_secret: bool,
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Values({:?}, {})", self.by_name.keys(), self.digest)
    }
}

impl Values {
    /// Returns the values of a spec with the contents of its sources; `None` if it defines no variables.
    ///
    /// # Errors
    ///
    /// All errors in the spec and its sources.
    pub(super) fn of(spec: &GitSyncSpec, sources: &[Known]) -> Result<Option<Self>, Refused> {
        let is_always = spec.substitute_strategy == SubstituteStrategy::Always;
        if spec.substitute.is_empty() && spec.substitute_from.is_empty() && !is_always {
            return Ok(None);
        }
        let (mut by_name, mut refused) = (BTreeMap::new(), Vec::new());
        for (number, (source, known)) in spec.substitute_from.iter().zip(sources).enumerate() {
            match of_source(source, known) {
                Ok(values) => by_name.extend(values),
                Err((class, why)) => {
                    let reason = reason_of(source, class, known);
                    let line = format!("spec.substituteFrom[{number}]: {} {why}", named(source));
                    refused.push((class, reason, line));
                }
            }
        }
        let wrong = wrong_names(spec.substitute.keys());
        refused.extend(wrong.map(|wrong| (Class::Invalid, Reason::SpecInvalid, format!("spec.substitute: {wrong}"))));
        let own = |text: &String| Variable { text: without_newlines(text), is_secret: false };
        by_name.extend(spec.substitute.iter().map(|(name, text)| (name.clone(), own(text))));
        if let Some((class, reason, _)) = refused.first() {
            let lines: Vec<String> = refused.iter().map(|(.., line)| line.clone()).collect();
            return Err(Refused { class: *class, reason: *reason, message: lines.join("\n"), retry_after: None });
        }
        let undefined = match spec.substitute_undefined {
            UndefinedVariables::Refuse => Undefined::Refused,
            UndefinedVariables::Empty => Undefined::Empty,
        };
        let digest = digest(&by_name);
        Ok(Some(Self { by_name, is_always, undefined, digest }))
    }

    /// Whether variables are substituted.
    pub(super) fn are_substituted(&self) -> bool {
        self.is_always || !self.by_name.is_empty()
    }

    /// Returns the value of a variable.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|variable| &*variable.text)
    }

    /// Returns the values from Secrets.
    pub(super) fn secrets(&self) -> Vec<String> {
        let secret = self.by_name.values().filter(|variable| variable.is_secret);
        secret.map(|variable| variable.text.clone()).collect()
    }

    /// Whether the value of a variable is from a Secret.
    pub(super) fn is_secret(&self, name: &str) -> bool {
        self.by_name.get(name).is_some_and(|variable| variable.is_secret)
    }
}

pub(super) fn named(source: &SubstituteSource) -> String {
    let kind = match source.kind {
        SubstituteSourceKind::ConfigMap => "ConfigMap",
        SubstituteSourceKind::Secret => "Secret",
    };
    format!("{kind} {}", printable(&source.name))
}

/// Returns the data of a source, which is `None` if it is optional and missing; or its error, which completes a sentence
/// that begins with the name of the source.
pub(super) fn data_of<'k>(
    source: &SubstituteSource,
    known: &'k Known,
) -> Result<Option<&'k SecretData>, (Class, String)> {
    let Some(data) = known.data() else {
        return match known {
            Known::Absent if source.optional => Ok(None),
            Known::Absent => {
                Err((Class::NotReady, "does not exist in this namespace, and is not `optional`".to_owned()))
            }
            Known::Unreadable { class: Class::Denied, .. } => {
                let kinds = if source.kind == SubstituteSourceKind::Secret { "Secrets" } else { "ConfigMaps" };
                let needed =
                    format!("may not be read: the agent needs get, list and watch on {kinds} in this namespace");
                Err((Class::Denied, needed))
            }
            Known::Unreadable { class, why } => Err((*class, format!("cannot be read: {why}"))),
            Known::Nothing | Known::Withheld { .. } | Known::Data(_) => {
                let not_yet = || (Class::NotReady, "cannot be read yet".to_owned());
                Err(known.problem().unwrap_or_else(not_yet))
            }
        };
    };
    Ok(Some(data))
}

/// Returns the reason of an error of a source.
pub(super) fn reason_of(source: &SubstituteSource, class: Class, known: &Known) -> Reason {
    match source.kind {
        SubstituteSourceKind::Secret => reason_of_secret(class, known),
        SubstituteSourceKind::ConfigMap if class == Class::Unavailable => Reason::ClusterUnavailable,
        SubstituteSourceKind::ConfigMap => Reason::SpecInvalid,
    }
}

/// Returns the values of a source, or its error, as [`data_of`] does.
fn of_source(source: &SubstituteSource, known: &Known) -> Result<BTreeMap<String, Variable>, (Class, String)> {
    let Some(data) = data_of(source, known)? else { return Ok(BTreeMap::new()) };
    if let Some(wrong) = wrong_names(data.keys()) {
        return Err((Class::Invalid, format!("has a key that cannot be used: {wrong}")));
    }
    let is_secret = source.kind == SubstituteSourceKind::Secret;
    let mut values = BTreeMap::new();
    for (name, bytes) in data {
        let Ok(text) = std::str::from_utf8(&bytes.0) else {
            return Err((Class::Invalid, format!("has a value that is not UTF-8, with the key {name}")));
        };
        values.insert(name.clone(), Variable { text: without_newlines(text), is_secret });
    }
    Ok(values)
}

/// Removes line breaks, like Flux: a value cannot start a new line of a manifest.
fn without_newlines(text: &str) -> String {
    text.replace(['\n', '\r'], "")
}

/// Returns the error about invalid names; `None` if all are valid.
fn wrong_names<'n>(names: impl Iterator<Item = &'n String>) -> Option<String> {
    let is_name = |name: &str| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
            && name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit())
    };
    let wrong: Vec<String> = names.filter(|name| !is_name(name)).map(|name| format!("{name:?}")).collect();
    let shown = wrong.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match wrong.len() {
        0 => None,
        1..=SHOWN => Some(format!("{shown} {NO_NAME}")),
        more => Some(format!("{shown} and {} more: each name {NO_NAME}", more - SHOWN)),
    }
}

fn digest(values: &BTreeMap<String, Variable>) -> Digest {
    let mut bytes = Vec::new();
    for (name, Variable { text, is_secret }) in values {
        for part in [name.as_bytes(), text.as_bytes(), &[u8::from(*is_secret)]] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
    }
    Digest::of(&bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::ByteString;
    use serde_json::{Value, json};

    use super::*;
    use mainstay_cluster::secrets::Contents;

    fn known(data: &[(&str, &[u8])]) -> Known {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect();
        Known::Data(Arc::new(Contents { data, ..Contents::default() }))
    }

    fn values(spec: Value, sources: &[Known]) -> Result<Option<Values>, String> {
        let mut whole = json!({"gitRepository": "r"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        Values::of(&serde_json::from_value(whole).unwrap(), sources).map_err(|refused| refused.message)
    }

    const TWO: &str = r#"[{"kind": "ConfigMap", "name": "a"}, {"kind": "Secret", "name": "b", "optional": true}]"#;

    fn check(sources: &[Known]) -> Result<String, String> {
        let from: Value = serde_json::from_str(TWO).unwrap();
        let values = values(json!({"substituteFrom": from, "substitute": {"C": "spec"}}), sources)?.unwrap();
        let one =
            |name: &str| format!("{name}={}{}", values.get(name).unwrap_or("-"), u8::from(values.is_secret(name)));
        Ok(["A", "B", "C"].map(one).join(" "))
    }

    #[test]
    fn later_sources_win_and_the_spec_wins_over_all() {
        let first = known(&[("A", b"1\n2\n"), ("B", b"1"), ("C", b"1")]);
        assert_eq!(check(&[first.clone(), known(&[("B", b"2"), ("C", b"2")])]), Ok("A=120 B=21 C=spec0".to_owned()));
        assert_eq!(check(&[first, Known::Absent]), Ok("A=120 B=10 C=spec0".to_owned()));
    }

    #[test]
    fn all_problems_of_sources_are_reported_without_values() {
        let wrong = [Known::Absent, known(&[("tls.crt", b"hunter2"), ("1a", b"hunter2"), ("A", b"1")])];
        let reported = check(&wrong).unwrap_err();
        assert_eq!(
            reported,
            format!(
                "spec.substituteFrom[0]: ConfigMap a does not exist in this namespace, and is not `optional`\n\
                 spec.substituteFrom[1]: Secret b has a key that cannot be used: \"1a\", \"tls.crt\" {NO_NAME}"
            )
        );
        let reported = check(&[known(&[("A", b"\xff")]), Known::Absent]).unwrap_err();
        assert_eq!(reported, "spec.substituteFrom[0]: ConfigMap a has a value that is not UTF-8, with the key A");
        let reported = values(json!({"substitute": {"a-b": "x"}}), &[]).unwrap_err();
        assert_eq!(reported, format!("spec.substitute: \"a-b\" {NO_NAME}"));
    }

    #[test]
    fn the_same_values_have_the_same_digest_and_are_not_shown() {
        let of = |spec: Value| values(spec, &[]).unwrap().unwrap();
        let one = of(json!({"substitute": {"A": "hunter2", "B": ""}}));
        assert_eq!(one.digest, of(json!({"substitute": {"B": "", "A": "hunter2"}})).digest);
        assert_ne!(one.digest, of(json!({"substitute": {"A": "hunter", "B": "2"}})).digest);
        assert!(!format!("{one:?}").contains("hunter2"));
        assert!(values(json!({}), &[]).unwrap().is_none());
        assert!(of(json!({"substituteStrategy": "Always"})).are_substituted());
    }
}
