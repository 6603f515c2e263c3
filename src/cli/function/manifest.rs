//! Objects as they are printed: ready to be committed.
//!
//! Invariant: every reader of YAML gets the same text of the code, byte for byte; where a block of lines would not do, the document
//! is JSON, which is YAML too.

use serde_json::Value;

use crate::cli::{Error, output};

/// The format of what is printed.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// A line for each object: what became of it
    #[default]
    Text,
    /// Each object as JSON
    Json,
    /// Each object as YAML, after `---`
    Yaml,
    /// Nothing
    None,
}

/// The text of an object, if the format shows objects.
pub(super) fn text(object: &Value, format: Format) -> Result<Option<String>, Error> {
    match format {
        Format::Text | Format::None => Ok(None),
        Format::Json => output::json(object).map(Some),
        Format::Yaml => {
            let text = output::yaml(object)?;
            let is_same = serde_yaml::from_str::<Value>(&text).is_ok_and(|read| read == *object);
            let text = if is_same { text } else { output::json(object)? };
            // No line after it: a block that keeps its last line ends would have one more.
            Ok(Some(format!("---\n{text}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn the_code_is_read_as_it_was(source in "([a-z:#'\"\\\\{}\\[\\]|>%& -]|\\PC|\n|\t|\r|  ){0,60}") {
            let object = json!({"kind": "Function", "spec": {"source": source}});
            for format in [Format::Yaml, Format::Json] {
                let text = text(&object, format).unwrap().unwrap();
                prop_assert_eq!(&serde_yaml::from_str::<Value>(&text).unwrap(), &object, "{}", text);
                prop_assert_eq!(crate::object::printable_lines(&text), text.as_str());
            }
        }
    }
}
