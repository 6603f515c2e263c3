//! Prints objects as manifests for a repository.
//!
//! Invariant: YAML parsers of every version read the same strings, byte for byte. For example, `on` is quoted.

use serde_json::Value;

use super::shape::scalar;
use crate::cli::{Error, output};
use mainstay_object::is_unprintable;

/// The format of what is printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// A line for each object, with its result
    #[default]
    Text,
    /// Each object as JSON
    Json,
    /// Each object as YAML, after `---`
    Yaml,
    /// Nothing
    None,
}

/// Returns an object as text, if the format prints objects.
pub(super) fn text(object: &Value, format: Format) -> Result<Option<String>, Error> {
    match format {
        Format::Text | Format::None => Ok(None),
        Format::Json => output::json(object).map(Some),
        Format::Yaml => {
            // No empty line follows, because it would add a line end to a block scalar that keeps its line ends.
            let mut text = "---\n".to_owned();
            write(object, 0, &mut text);
            Ok(Some(text))
        }
    }
}

/// Writes a value on new lines.
fn write(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                text.push_str(&format!("{:indent$}{}:", "", scalar(name)));
                let is_list = value.as_array().is_some_and(|items| !items.is_empty());
                // The items of a list are not indented below the name of the list.
                after(value, indent + if is_list { 0 } else { 2 }, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                let at = text.len();
                text.push_str(&format!("{:indent$}-", ""));
                match item {
                    Value::Object(fields) if !fields.is_empty() => {
                        text.truncate(at);
                        write(item, indent + 2, text);
                        text.replace_range(at..at + indent + 2, &format!("{:indent$}- ", ""));
                    }
                    item => after(item, indent + 2, text),
                }
            }
        }
        other => after(other, indent, text),
    }
}

/// Writes a value after a name or a dash.
fn after(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) if fields.is_empty() => text.push_str(" {}\n"),
        Value::Array(items) if items.is_empty() => text.push_str(" []\n"),
        Value::Object(_) | Value::Array(_) => {
            text.push('\n');
            write(value, indent, text);
        }
        Value::String(words) => match block(words) {
            Some(head) => {
                text.push_str(&format!(" {head}\n"));
                let lines = words.strip_suffix('\n').unwrap_or(words).split('\n');
                lines.for_each(|line| match line {
                    "" => text.push('\n'),
                    line => text.push_str(&format!("{:indent$}{line}\n", "")),
                });
            }
            None => text.push_str(&format!(" {}\n", scalar(words))),
        },
        other => text.push_str(&format!(" {other}\n")),
    }
}

/// Returns the header for writing a string as a literal block; `None` if that would change the string.
fn block(text: &str) -> Option<&'static str> {
    let is_plain = text.trim_end_matches('\n').contains('\n') || text.ends_with('\n');
    let is_safe = !text.contains(|c: char| is_unprintable(c) && c != '\n' && c != '\t');
    // The indentation of the first line determines that of all lines.
    if !is_plain || !is_safe || text.starts_with([' ', '\n', '\t']) {
        return None;
    }
    Some(match text.strip_suffix('\n') {
        None => "|-",
        Some(rest) if rest.ends_with('\n') => "|+",
        Some(_) => "|",
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_written_so_that_no_reader_takes_them_for_something_else() {
        let object = json!({
            "a": {"on": "yes", "n": 1, "empty": {}, "none": [], "list": ["- x", ["y"], {"k": {"v": "007"}, "l": []}]},
            "code": "if (a) {\n\n  b # c\n}\n", "bare": "a\nb", "kept": "a\n\n", "first": " a\n",
        });
        let expected = "---\na:\n  empty: {}\n  list:\n  - \"- x\"\n  -\n    - \"y\"\n  - k:\n      v: \"007\"\n    l: []\n  \"n\": 1\n  \
                        none: []\n  \"on\": \"yes\"\nbare: |-\n  a\n  b\ncode: |\n  if (a) {\n\n    b # c\n  }\nfirst: \" \
                        a\\n\"\nkept: |+\n  a\n\n";
        assert_eq!(text(&object, Format::Yaml).unwrap().unwrap(), expected);
    }

    proptest! {
        #[test]
        fn texts_are_read_as_they_were(
            source in "([a-z:#'\"\\\\{}\\[\\]|>%&! -]|\\PC|\n|\t|\r|  ){0,60}", word in "[a-zA-Z0-9.:_+-]{0,6}", name in any::<String>(),
        ) {
            let object = json!({"kind": "Function", "spec": {"source": source, "list": [source, word, {name: word, "x": [source]}]}});
            for format in [Format::Yaml, Format::Json] {
                let text = text(&object, format).unwrap().unwrap();
                prop_assert_eq!(&serde_yaml::from_str::<Value>(&text).unwrap(), &object, "{}", text);
                if let Some(text) = text.strip_prefix("---\n") {
                    // Reads the document as kubectl does.
                    let read = mainstay_manifest::read_value(text, &mainstay_manifest::Limits::new(|| std::time::Duration::ZERO));
                    prop_assert_eq!(read.map(Value::Object), Ok(object.clone()), "{}", text);
                }
                prop_assert_eq!(mainstay_object::printable_lines(&text), text.as_str());
            }
        }
    }
}
