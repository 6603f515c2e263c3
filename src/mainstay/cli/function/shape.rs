//! The fields of `config.yaml`: one table for reading the file, with the position of each mistake, and for writing it
//! in order.
//!
//! Invariant: a written file reads back as the same value.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::document::{Content, Field, Mark, Node, Problem};
use mainstay_object::printable;

/// The type of a value.
pub(super) enum Shape {
    /// A scalar.
    Text,
    /// An integer.
    Number,
    /// A list of scalars.
    Texts,
    /// A map with arbitrary names and scalar values.
    Pairs,
    /// A map with these fields.
    Object(&'static [Row]),
    /// A list of maps with these fields.
    List(&'static [Row]),
}

/// A field of a map.
pub(super) struct Row {
    name: &'static str,
    /// An alternative name of the field.
    also: Option<&'static str>,
    shape: Shape,
}

const fn row(name: &'static str, shape: Shape) -> Row {
    Row { name, also: None, shape }
}

const fn text(name: &'static str) -> Row {
    row(name, Shape::Text)
}

const AMOUNTS: &[Row] = &[text("cpu"), text("memory")];
const KEY_REF: &[Row] = &[text("name"), text("key")];
const MATCH: &[Row] = &[text("property"), text("type"), text("value")];

/// The fields of the file.
pub(super) const CONFIG: &[Row] = &[
    text("name"),
    text("namespace"),
    text("runtime"),
    text("runtimeImageOverride"),
    row("labels", Shape::Pairs),
    row("runtimeLabels", Shape::Pairs),
    row("runtimeAnnotations", Shape::Pairs),
    row(
        "source",
        Shape::Object(&[
            text("sourceType"),
            text("sourcePath"),
            text("sourceHandlerName"),
            text("depsHandlerName"),
            text("url"),
            text("repository"),
            text("reference"),
            text("baseDir"),
            text("credentialsSecretName"),
            text("credentialsType"),
        ]),
    ),
    Row {
        name: "resource",
        also: Some("resources"),
        shape: Shape::Object(&[row("limits", Shape::Object(AMOUNTS)), row("requests", Shape::Object(AMOUNTS))]),
    },
    row(
        "env",
        Shape::List(&[
            text("name"),
            text("value"),
            row(
                "valueFrom",
                Shape::Object(&[
                    row("configMapKeyRef", Shape::Object(KEY_REF)),
                    row("secretKeyRef", Shape::Object(KEY_REF)),
                ]),
            ),
        ]),
    ),
    row(
        "triggers",
        Shape::List(&[
            text("name"),
            Row { name: "eventTypeVersion", also: Some("version"), shape: Shape::Text },
            text("source"),
            text("type"),
        ]),
    ),
    row(
        "subscriptions",
        Shape::List(&[
            text("name"),
            text("protocol"),
            row(
                "filter",
                Shape::Object(&[
                    text("dialect"),
                    row(
                        "filters",
                        Shape::List(&[
                            row("eventSource", Shape::Object(MATCH)),
                            row("eventType", Shape::Object(MATCH)),
                        ]),
                    ),
                ]),
            ),
            text("typeMatching"),
            text("source"),
            row("types", Shape::Texts),
        ]),
    ),
    row(
        "apiRules",
        Shape::List(&[
            text("name"),
            text("gateway"),
            row("service", Shape::Object(&[text("host"), row("port", Shape::Number)])),
            row(
                "rules",
                Shape::List(&[
                    text("path"),
                    row("methods", Shape::Texts),
                    row(
                        "accessStrategies",
                        Shape::List(&[
                            text("handler"),
                            row(
                                "config",
                                Shape::Object(&[
                                    row("jwksUrls", Shape::Texts),
                                    row("trustedIssuers", Shape::Texts),
                                    row("requiredScope", Shape::Texts),
                                ]),
                            ),
                        ]),
                    ),
                ]),
            ),
        ]),
    ),
    text("schemaVersion"),
];

/// The result of reading a document: the position of each part by its path, and the problems.
#[derive(Default)]
pub(super) struct Reading {
    pub(super) marks: BTreeMap<String, Mark>,
    pub(super) problems: Vec<Problem>,
}

impl Reading {
    /// Reads a document with these fields.
    pub(super) fn read(&mut self, node: &Node, rows: &[Row]) -> Value {
        self.marks.insert(String::new(), node.mark);
        Value::Object(self.object(node, rows, "").unwrap_or_default())
    }

    /// Returns the position of a path, or of its nearest parent.
    pub(super) fn mark(&self, path: &str) -> Mark {
        let mut path = path;
        loop {
            if let Some(mark) = self.marks.get(path) {
                return *mark;
            }
            path = path.rfind(['.', '[']).map_or("", |end| &path[..end]);
        }
    }

    pub(super) fn wrong(&mut self, path: &str, what: impl Into<String>) {
        self.problems.push(Problem::new(self.mark(path), what));
    }

    fn value(&mut self, node: &Node, shape: &Shape, path: &str) -> Option<Value> {
        self.marks.insert(path.to_owned(), node.mark);
        match (shape, &node.content) {
            (_, Content::Null) => None,
            (Shape::Text, Content::Text(text)) => Some(Value::from(text.as_str())),
            (Shape::Number, Content::Text(text)) => {
                let number = text.parse::<u32>().ok();
                if number.is_none() {
                    self.problems.push(Problem::new(node.mark, format!("{path} must be an integer")));
                }
                number.map(Value::from)
            }
            (Shape::Texts, Content::List(items)) => Some(self.items(items, &Shape::Text, path)),
            (Shape::Pairs, Content::Map(fields)) => {
                let pairs = fields.iter().filter_map(|field| {
                    let path = format!("{path}.{}", printable(&field.name));
                    Some((field.name.clone(), self.value(&field.node, &Shape::Text, &path)?))
                });
                Some(Value::Object(pairs.collect()))
            }
            (Shape::Object(rows), Content::Map(_)) => self.object(node, rows, path).map(Value::Object),
            (Shape::List(rows), Content::List(items)) => Some(self.items(items, &Shape::Object(rows), path)),
            (shape, _) => {
                let expected = match shape {
                    Shape::Text => "a string",
                    Shape::Number => "an integer",
                    Shape::Texts | Shape::List(_) => "a list",
                    Shape::Pairs | Shape::Object(_) => "a map",
                };
                self.problems.push(Problem::new(node.mark, format!("{path} must be {expected}")));
                None
            }
        }
    }

    fn items(&mut self, items: &[Node], shape: &Shape, path: &str) -> Value {
        let items = items.iter().enumerate().filter_map(|(at, item)| {
            let path = format!("{path}[{at}]");
            if item.content == Content::Null {
                self.problems.push(Problem::new(item.mark, format!("{path} is empty")));
            }
            self.value(item, shape, &path)
        });
        Value::Array(items.collect())
    }

    fn object(&mut self, node: &Node, rows: &[Row], path: &str) -> Option<Map<String, Value>> {
        let Content::Map(fields) = &node.content else {
            if node.content != Content::Null {
                self.problems.push(Problem::new(node.mark, "this is not a map of fields"));
            }
            return None;
        };
        let mut object = Map::new();
        for field in fields {
            let Some(row) = rows.iter().find(|row| row.name == field.name || row.also == Some(&field.name)) else {
                self.problems.push(unknown(field, rows, path));
                continue;
            };
            let inside = if path.is_empty() { row.name.to_owned() } else { format!("{path}.{}", row.name) };
            if fields.iter().any(|other| other.mark < field.mark && is(row, other)) {
                let (one, other) = (row.name, row.also.unwrap_or_default());
                self.problems
                    .push(Problem::new(field.mark, format!("{one} and {other} are the same field; remove one")));
            } else if let Some(value) = self.value(&field.node, &row.shape, &inside) {
                object.insert(row.name.to_owned(), value);
            }
        }
        Some(object)
    }
}

fn is(row: &Row, field: &Field) -> bool {
    row.name == field.name || row.also == Some(&field.name)
}

/// Similarity, from 0 to 1, above which one name may be a typo of the other.
const ALIKE: f64 = 0.5;

fn unknown(field: &Field, rows: &[Row], path: &str) -> Problem {
    let name = printable(&field.name);
    let name: String = name.chars().take(60).collect();
    let place = if path.is_empty() { String::new() } else { format!(" in {path}") };
    let likeness = |row: &Row| strsim::normalized_damerau_levenshtein(&row.name.to_lowercase(), &name.to_lowercase());
    let nearest = rows.iter().map(|row| (likeness(row), row.name)).max_by(|(one, _), (other, _)| one.total_cmp(other));
    let advice = match nearest.filter(|(likeness, _)| *likeness >= ALIKE) {
        Some((_, nearest)) => format!("did you mean {nearest}?"),
        None => format!("there are {}", rows.iter().map(|row| row.name).collect::<Vec<_>>().join(", ")),
    };
    Problem::new(field.mark, format!("there is no field {name}{place}; {advice}"))
}

/// Writes a value, with four columns per level.
pub(super) fn write(value: &Value, rows: &[Row]) -> String {
    let mut text = String::new();
    object(value, rows, 0, &mut text);
    text
}

fn object(value: &Value, rows: &[Row], indent: usize, text: &mut String) {
    for row in rows {
        if let Some(value) = value.get(row.name) {
            field(row.name, value, &row.shape, indent, text);
        }
    }
}

fn field(name: &str, value: &Value, shape: &Shape, indent: usize, text: &mut String) {
    let start = text.len();
    text.push_str(&format!("{:indent$}{}:", "", scalar(name)));
    let head = text.len();
    match shape {
        Shape::Text | Shape::Number => text.push_str(&format!(" {}\n", value_text(value))),
        Shape::Texts => {
            text.push('\n');
            let items = value.as_array().into_iter().flatten();
            items.for_each(|item| text.push_str(&format!("{:indent$}    - {}\n", "", value_text(item))));
        }
        Shape::Pairs => {
            text.push('\n');
            let pairs = value.as_object().into_iter().flatten();
            pairs.for_each(|(name, value)| field(name, value, &Shape::Text, indent + 4, text));
        }
        Shape::Object(rows) => {
            text.push('\n');
            object(value, rows, indent + 4, text);
        }
        Shape::List(rows) => {
            text.push('\n');
            for item in value.as_array().into_iter().flatten() {
                let at = text.len();
                object(item, rows, indent + 6, text);
                if text.len() > at {
                    text.replace_range(at..at + indent + 6, &format!("{:indent$}    - ", ""));
                }
            }
        }
    }
    // The map or list is empty.
    if text[head..] == *"\n" {
        text.truncate(start);
    }
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        other => other.to_string(),
    }
}

/// Writes a scalar that every YAML parser reads as this string.
pub(super) fn scalar(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "/._-@:+=,".contains(c);
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '_');
    let reserved = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];
    let is_plain = starts
        && text.chars().all(is_word)
        && !text.ends_with(':')
        && !reserved.contains(&text.to_ascii_lowercase().as_str());
    if is_plain {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if mainstay_object::is_unprintable(c) && c > '\u{ffff}' => {
                quoted.push_str(&format!("\\U{:08X}", u32::from(c)));
            }
            c if mainstay_object::is_unprintable(c) => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::cli::function::document::parse;

    fn problems(text: &str) -> Vec<String> {
        let mut reading = Reading::default();
        reading.read(&parse(text).unwrap(), CONFIG);
        reading.problems.iter().map(|problem| format!("{}: {}", problem.mark, problem.what)).collect()
    }

    #[test]
    fn an_unknown_field_is_refused_where_it_stands_with_the_nearest_name() {
        assert_eq!(problems("nmae: a\n"), ["1:1: there is no field nmae; did you mean name?"]);
        let text = "source:\n  sourceType: inline\n  sourceFileName: x\n";
        assert_eq!(
            problems(text),
            ["3:3: there is no field sourceFileName in source; did you mean sourceHandlerName?"]
        );
        let text = "env:\n- name: A\n  valueFrom: {secretKeyRef: {Name: s, key: k}}\n";
        assert_eq!(
            problems(text),
            ["3:30: there is no field Name in env[0].valueFrom.secretKeyRef; did you mean name?"]
        );
        assert_eq!(
            problems("resource:\n  limits: {gpu: 1}\n"),
            ["2:12: there is no field gpu in resource.limits; did you mean cpu?"]
        );
        assert_eq!(
            problems("resource: {zzz: 1}\n"),
            ["1:12: there is no field zzz in resource; there are limits, requests"]
        );
    }

    #[test]
    fn a_field_of_another_shape_is_refused_with_its_position() {
        assert_eq!(
            problems("name: [a]\nenv: x\nlabels: [a]\n"),
            ["1:7: name must be a string", "2:6: env must be a list", "3:9: labels must be a map"]
        );
        assert_eq!(
            problems("apiRules:\n- service: {port: http}\n"),
            ["2:19: apiRules[0].service.port must be an integer"]
        );
        assert_eq!(problems("apiRules:\n-\n"), ["2:2: apiRules[0] is empty"]);
        assert_eq!(problems("- a\n"), ["1:1: this is not a map of fields"]);
        assert_eq!(
            problems("resource: {}\nresources: {}\n"),
            ["2:1: resource and resources are the same field; remove one"]
        );
    }

    #[test]
    fn is_written_in_the_order_of_the_table() {
        let config = json!({
            "runtime": "nodejs22", "name": "hello", "namespace": "default", "schemaVersion": "v1",
            "source": {"baseDir": "/", "sourceType": "git", "url": "https://example.org/a.git"},
            "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "labels": {"app": "on"}, "triggers": [],
            "apiRules": [{"service": {"port": 80}, "rules": [{"methods": ["GET"]}]}],
        });
        let expected = "name: hello\nnamespace: default\nruntime: nodejs22\nlabels:\n    app: \"on\"\nsource:\n    \
                        sourceType: git\n    url: https://example.org/a.git\n    baseDir: /\nenv:\n    - name: A\n      \
                        value: \"1\"\n    - name: B\n      valueFrom:\n          secretKeyRef:\n              name: s\n              \
                        key: k\napiRules:\n    - service:\n          port: 80\n      rules:\n          - methods:\n                \
                        - GET\nschemaVersion: v1\n";
        assert_eq!(write(&config, CONFIG), expected);
    }

    proptest! {
        #[test]
        fn a_written_configuration_is_read_back_unchanged(
            name in any::<String>(), key in "[^\u{0}]{1,9}", values in prop::collection::vec(any::<String>(), 1..4),
            port in any::<u32>(),
        ) {
            let config = json!({
                "name": name, "labels": {key: values[0]}, "env": values.iter().map(|v| json!({"value": v})).collect::<Vec<_>>(),
                "apiRules": [{"service": {"port": port}, "rules": [{"methods": values}]}],
            });
            let text = write(&config, CONFIG);
            let mut reading = Reading::default();
            prop_assert_eq!(&reading.read(&parse(&text).unwrap(), CONFIG), &config, "{}", text);
            prop_assert_eq!(reading.problems.len(), 0);
            // A different parser reads the same value.
            prop_assert_eq!(serde_yaml::from_str::<Value>(&text).unwrap(), config, "{}", text);
        }
    }
}
