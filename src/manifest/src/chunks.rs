//! Splits the text of a YAML file into its documents.
//!
//! As in `kubectl`, lines that begin with `---` separate documents.

use super::tokens::Mark;

/// The text between two separators.
pub(super) struct Chunk<'t> {
    pub(super) text: &'t str,
    /// Number of the document, from 1.
    pub(super) number: usize,
    pub(super) lines_before: u32,
    /// The position of text after the separator on the same line. A chunk with such text is not read.
    pub(super) bad_separator: Option<Mark>,
}

/// Splits a text at its separators.
pub(super) fn chunks(text: &str) -> impl Iterator<Item = Chunk<'_>> {
    let mut rest = Some(text);
    let (mut number, mut lines, mut bad_separator) = (0, 0u32, None);
    std::iter::from_fn(move || {
        let here = rest?;
        let lines_before = lines;
        let (mut end, mut next, mut next_bad) = (here.len(), None, None);
        let mut at = 0;
        for line in here.split_inclusive('\n') {
            lines = lines.saturating_add(1);
            if let Some(behind) = line.strip_prefix("---") {
                end = at;
                next = here.get(at + line.len()..);
                let behind = behind.trim();
                next_bad = (!behind.is_empty() && !behind.starts_with('#')).then_some(Mark { line: lines, column: 4 });
                break;
            }
            at += line.len();
        }
        let text = without_version(&here[..end]);
        let blank = text.lines().all(is_blank);
        // The part before the first separator counts only if it is a document.
        if number > 0 || !blank {
            number += 1;
        }
        let bad = bad_separator.take();
        (rest, bad_separator) = (next, next_bad);
        Some(Chunk { text: if blank { "" } else { text }, number: number.max(1), lines_before, bad_separator: bad })
    })
}

/// Returns whether a line contains only a comment or the `%YAML` directive. Both have no effect.
fn is_blank(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#') || line.starts_with("%YAML 1.")
}

/// Removes the `%YAML` directive of the next document after the end (`...`) of the current one.
fn without_version(text: &str) -> &str {
    if !text.contains("\n%YAML 1.") {
        return text;
    }
    let mut kept = text.len();
    for line in text.split_inclusive('\n').rev() {
        if line.trim_end() == "..." {
            return &text[..kept];
        }
        if !is_blank(line) {
            break;
        }
        kept -= line.len();
    }
    text
}
