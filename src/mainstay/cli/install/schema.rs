//! Checks values against the schema of the chart. A problem contains the path of the value, the reason, and the purpose
//! of the value.
//!
//! Invariant: no message contains a value, which may be a password.
//!
//! `jsonschema` is not used: it would add 27 dependencies for one file with twelve keywords. A test compares the
//! results with Helm's.

use regex::Regex;
use serde_json::{Map, Value};

/// The schema keywords that are checked here.
#[cfg(test)]
const CHECKED: [&str; 12] = [
    "additionalProperties",
    "enum",
    "items",
    "maxLength",
    "maximum",
    "minLength",
    "minimum",
    "not",
    "pattern",
    "properties",
    "propertyNames",
    "type",
];
/// The keywords that have no effect on validity.
#[cfg(test)]
const DESCRIBING: [&str; 4] = ["$schema", "default", "description", "title"];

/// The text of the schema of `manifests/chart`.
const TEXT: &str = include_str!("../../../../manifests/chart/values.schema.json");

/// A schema.
#[derive(Debug)]
pub(super) struct Schema(Value);

impl Schema {
    /// Returns the schema of the chart.
    pub(super) fn of_chart() -> Self {
        Self(serde_json::from_str(TEXT).expect("a test reads the schema of the chart"))
    }

    /// Returns the problems of values, each with its path.
    pub(super) fn problems(&self, values: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        check(&self.0, values, "", &mut problems);
        problems
    }

    /// Returns the paths of all values.
    #[cfg(test)]
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut open = vec![(String::new(), &self.0)];
        while let Some((path, schema)) = open.pop() {
            match schema["properties"].as_object() {
                Some(properties) => open.extend(properties.iter().map(|(name, schema)| (join(&path, name), schema))),
                None => paths.push(path),
            }
        }
        paths
    }
}

fn join(path: &str, name: &str) -> String {
    let dot = if path.is_empty() { "" } else { "." };
    format!("{path}{dot}{name}")
}

fn check(schema: &Value, value: &Value, path: &str, problems: &mut Vec<String>) {
    if let Some(why) = flaw(schema, value) {
        let about = schema["description"].as_str().unwrap_or("The values of the installation.");
        let path = if path.is_empty() { "the document" } else { path };
        problems.push(format!("{path}: {why}. {about}"));
        return;
    }
    match value {
        Value::Object(fields) => members(schema, fields, path, problems),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                check(&schema["items"], item, &format!("{path}[{index}]"), problems);
            }
        }
        _ => {}
    }
}

fn members(schema: &Value, fields: &Map<String, Value>, path: &str, problems: &mut Vec<String>) {
    for (name, value) in fields {
        let at = join(path, name);
        if let Some(why) = flaw(&schema["propertyNames"], &Value::String(name.clone())) {
            let about = schema["description"].as_str().unwrap_or_default();
            problems.push(format!("{at}: the name cannot be used: {why}. {about}"));
        } else if let Some(known) = schema["properties"].get(name) {
            check(known, value, &at, problems);
        } else if schema["additionalProperties"] == false {
            problems.push(format!("{at}: there is no such value{}", nearest(schema, name, path)));
        } else {
            check(&schema["additionalProperties"], value, &at, problems);
        }
    }
}

/// Returns the likely intended name, or all names.
fn nearest(schema: &Value, name: &str, path: &str) -> String {
    let known: Vec<&str> =
        schema["properties"].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
    let alike = |known: &&str| strsim::jaro_winkler(&known.to_lowercase(), &name.to_lowercase());
    let best = known.iter().copied().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    match best.filter(|best| alike(best) > 0.8) {
        Some(best) => format!("; did you mean {}?", join(path, best)),
        None => format!("; there are {}", known.join(", ")),
    }
}

/// Returns why a value does not match, apart from the content of maps and lists.
fn flaw(schema: &Value, value: &Value) -> Option<String> {
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        kinds => kinds.as_array().into_iter().flatten().filter_map(Value::as_str).collect(),
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is_of(kind, value)) {
        return Some(format!(
            "it is {}, but must be {}",
            kind_of(value),
            kinds.iter().map(with_article).collect::<Vec<_>>().join(" or ")
        ));
    }
    if let Some(choices) = schema["enum"].as_array().filter(|choices| !choices.contains(value)) {
        let all: Vec<&str> = choices.iter().filter_map(Value::as_str).filter(|choice| !choice.is_empty()).collect();
        return Some(format!("it must be one of {}", all.join(", ")));
    }
    if schema["not"].is_object() && flaw(&schema["not"], value).is_none() {
        return Some("it is set by Mainstay itself".to_owned());
    }
    match value {
        Value::Number(number) => {
            let number = number.as_f64()?;
            let (least, most) = (schema["minimum"].as_f64(), schema["maximum"].as_f64());
            let low = least.filter(|least| number < *least).map(|least| format!("it must be at least {least}"));
            low.or_else(|| most.filter(|most| number > *most).map(|most| format!("it must be at most {most}")))
        }
        Value::String(text) => flaw_of_text(schema, text),
        _ => None,
    }
}

fn flaw_of_text(schema: &Value, text: &str) -> Option<String> {
    let length = text.chars().count() as u64;
    if schema["minLength"].as_u64().is_some_and(|least| length < least) {
        return Some("it is empty".to_owned());
    }
    if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
        return Some(format!("it is longer than {most} characters"));
    }
    let pattern = schema["pattern"].as_str()?;
    let is_match = Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
    (!is_match).then(|| format!("it does not match {pattern}"))
}

fn is_of(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        kind => kind_of(value).ends_with(kind),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// Returns the name of a type with its article.
fn with_article(word: &&str) -> String {
    let article = if word.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {word}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(values: &Value, expected: &[&str]) {
        assert_eq!(Schema::of_chart().problems(values), expected, "{values}");
    }

    #[test]
    fn says_which_value_is_wrong_and_what_it_is_for() {
        check(&json!({}), &[]);
        check(&json!({"replicas": 2, "git": {"paths": ["a"]}, "resources": {"guard": {"limits": {"cpu": 0.5}}}}), &[]);
        check(&json!([]), &["the document: it is an array, but must be an object. The values of the installation."]);
        check(&json!({"git": {"brunch": "x"}}), &["git.brunch: there is no such value; did you mean git.branch?"]);
        check(
            &json!({"replicas": "2"}),
            &[
                "replicas: it is a string, but must be an integer. Number of agents. One leads, the others stand by and \
               take over within 15 seconds.",
            ],
        );
        check(
            &json!({"replicas": 0, "imagePullPolicy": "always"}),
            &[
                "imagePullPolicy: it must be one of Always, IfNotPresent, Never. When nodes pull the images of the installation. \
                 Without it, the default of Kubernetes applies: always for the tag latest, else if the node lacks the image.",
                "replicas: it must be at least 1. Number of agents. One leads, the others stand by and take over within 15 seconds.",
            ],
        );
        let said = Schema::of_chart().problems(&json!({
            "git": {"paths": ["a", ""], "secret": "Pass word"},
            "tolerations": [{"key": "a", "efect": "NoSchedule"}],
            "extraEnv": {"MAINSTAY_POD": "x", "A B": "x", "A": 1},
            "podLabels": {"app.kubernetes.io/name": "x"},
            "resources": {"mainstay": {"limits": {"cpu": "much"}}},
        }));
        let begins = [
            "extraEnv.A: it is a number, but must be a string or an object. ",
            "extraEnv.A B: the name cannot be used: it does not match ",
            "extraEnv.MAINSTAY_POD: the name cannot be used: it is set by Mainstay itself. ",
            "git.paths[1]: it is empty. A directory",
            "git.secret: it does not match ",
            "podLabels.app.kubernetes.io/name: the name cannot be used: it is set by Mainstay itself. ",
            "resources.mainstay.limits.cpu: it does not match ",
            "tolerations[0].efect: the name cannot be used: it must be one of key, operator, value, effect, tolerationSeconds. ",
        ];
        assert_eq!(said.len(), begins.len(), "{said:#?}");
        for (said, expected) in said.iter().zip(begins) {
            assert!(said.starts_with(expected) && !said.contains("Pass word") && !said.contains("much"), "{said}");
        }
    }

    #[test]
    fn every_word_of_the_schema_is_checked_or_describes() {
        let schema = Schema::of_chart().0;
        let mut open = vec![&schema];
        while let Some(schema) = open.pop() {
            for (word, value) in schema.as_object().unwrap() {
                let is_known = CHECKED.contains(&&**word) || DESCRIBING.contains(&&**word);
                assert!(is_known, "{word} is not checked");
                match &**word {
                    "properties" => open.extend(value.as_object().unwrap().values()),
                    "items" | "not" | "propertyNames" => open.push(value),
                    "additionalProperties" if value.is_object() => open.push(value),
                    "pattern" => assert!(Regex::new(value.as_str().unwrap()).is_ok(), "{value}"),
                    _ => {}
                }
            }
        }
    }
}
