//! Reads the documents of texts that are not manifests into values, strictly, as `kubectl` does, and within the limits.

use serde_json::{Map, Value};

use super::chunks::chunks;
use super::limits::{Budget, Limits, larger_than};
use super::load::load;
use super::tokens::{Yaml, control_character};

/// The error of a text: the line, from 1 (0 if the line is unknown), and the description. The description may quote
/// keys.
pub(crate) type TextFault = (u32, String);

/// Returns the values of all documents with content.
///
/// # Errors
/// The first error.
pub(crate) fn read_documents(text: &str, limits: &Limits) -> Result<Vec<Value>, TextFault> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut budget = Budget::new(limits, text.len());
    let mut all = Vec::new();
    for chunk in chunks(text) {
        if let Some(mark) = chunk.bad_separator {
            return Err((mark.line, "there is text after the document separator `---`".to_owned()));
        }
        if chunk.text.is_empty() {
            continue;
        }
        if chunk.text.len() > limits.document {
            return Err((chunk.lines_before + 1, format!("the document is {}", larger_than(limits.document))));
        }
        let tokens = || Yaml::new(chunk.text, limits.depth);
        let loaded = load(&mut tokens(), tokens, &mut budget);
        let fault = control_character(chunk.text).or_else(|| loaded.faults.into_iter().next());
        if let Some(fault) = fault {
            return Err((fault.mark.line.saturating_add(chunk.lines_before), fault.what));
        }
        all.push(loaded.value);
    }
    Ok(all)
}

/// Returns the fields of the only document. Without a document, they are empty.
///
/// # Errors
/// The first error.
pub(crate) fn read_fields(text: &str, limits: &Limits) -> Result<Map<String, Value>, TextFault> {
    let mut documents = read_documents(text, limits)?.into_iter().filter(|document| !document.is_null());
    match (documents.next(), documents.next()) {
        (None, _) => Ok(Map::new()),
        (Some(Value::Object(fields)), None) => Ok(fields),
        (Some(_), None) => Err((0, "it is not a map".to_owned())),
        (Some(_), Some(_)) => Err((0, "it has more than one document".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn fields(text: &str) -> Result<Value, TextFault> {
        read_fields(text, &Limits::new(|| Duration::ZERO)).map(Value::Object)
    }

    #[test]
    fn one_document_is_read_as_kubectl_does() {
        assert_eq!(fields(""), Ok(json!({})));
        assert_eq!(fields("# nothing\n---\n"), Ok(json!({})));
        assert_eq!(fields("---\na: 1\n---\n"), Ok(json!({"a": 1})));
        assert_eq!(fields("<<: {a: [x]}\nb: !!binary eA==\n"), Ok(json!({"a": ["x"], "b": "x"})));
    }

    #[test]
    fn a_problem_has_its_line() {
        let wrong = |text: &str| fields(text).unwrap_err();
        assert_eq!(wrong("a: 1\n---\nb: 1\n"), (0, "it has more than one document".to_owned()));
        assert_eq!(wrong("- a\n"), (0, "it is not a map".to_owned()));
        assert_eq!(wrong("# x\n---\na: [\n").0, 3);
        assert_eq!(wrong("a: 1\nb: 2\na: 3\n").0, 3);
        assert_eq!(wrong("a: 1\n--- b\n").0, 2);
        assert_eq!(wrong("a: \u{7}\n"), (1, "a control character is not allowed".to_owned()));
    }
}
