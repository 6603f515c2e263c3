//! A document as a sequence of tokens, the same for YAML and JSON.
//!
//! Invariant: no text of an error comes from the document. An error states the problem and its position.

use std::borrow::Cow;

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, StrInput, Tag};

use super::scalar::{Scalar, TypedBy, Unusable, resolve};

/// A position in a document: line and column, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Mark {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// An error at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) mark: Mark,
    pub(super) what: String,
    pub(super) hint: Option<String>,
}

impl Fault {
    pub(super) fn new(mark: Mark, what: impl Into<String>) -> Self {
        Self { mark, what: what.into(), hint: None }
    }

    pub(super) fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// A token of a document. `anchor` is the number by which aliases refer to the value; 0 means none.
#[derive(Debug, PartialEq)]
pub(super) enum Token<'t> {
    /// A scalar, or the reason that it is invalid.
    Scalar {
        value: Result<Scalar<'t>, Unusable>,
        anchor: usize,
        /// Whether the scalar is `<<`. As a key, it requests a merge.
        merge: bool,
    },
    List {
        anchor: usize,
    },
    Map {
        anchor: usize,
    },
    /// The end of the innermost list or map.
    End,
    Alias(usize),
}

/// The tokens of one document. The end of the document is `None`.
pub(super) trait Tokens<'t> {
    fn next(&mut self) -> Result<Option<(Token<'t>, Mark)>, Fault>;
}

/// The tokens of one YAML document.
pub(super) struct Yaml<'t> {
    parser: Parser<'t, StrInput<'t>>,
    ended: bool,
}

impl<'t> Yaml<'t> {
    pub(super) fn new(text: &'t str, depth: usize) -> Self {
        let mut options = Options::default();
        options.set_emit_comments(false);
        // The limit of `Loader` is lower, and the message of `Loader` names it.
        options.flow_nesting_limit = depth + 10;
        options.block_nesting_limit = depth + 10;
        Self { parser: Parser::new_from_str_with_options(text, options), ended: false }
    }
}

impl<'t> Tokens<'t> for Yaml<'t> {
    fn next(&mut self) -> Result<Option<(Token<'t>, Mark)>, Fault> {
        loop {
            let Some(event) = self.parser.next_event() else { return Ok(None) };
            let (event, span) = event.map_err(|error| scan_fault(error.kind(), mark(*error.marker())))?;
            let mark = mark(span.start);
            let token = match event {
                Event::Scalar(text, style, anchor, tag) => yaml_scalar(text, style, anchor, tag.as_deref()),
                Event::SequenceStart(_, anchor, _) => Token::List { anchor },
                Event::MappingStart(_, anchor, _) => Token::Map { anchor },
                Event::SequenceEnd | Event::MappingEnd => Token::End,
                Event::Alias(anchor) => Token::Alias(anchor),
                Event::DocumentStart(..) if self.ended => {
                    return Err(Fault::new(mark, "there is content after the end of the document (`...`)")
                        .with_hint("put `---` on a line of its own before it"));
                }
                Event::DocumentEnd => {
                    self.ended = true;
                    continue;
                }
                _ => continue,
            };
            return Ok(Some((token, mark)));
        }
    }
}

/// Returns the first character that YAML does not allow.
pub(super) fn control_character(text: &str) -> Option<Fault> {
    let forbidden = |c: char| matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\x7f'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}');
    let at = text.find(forbidden)?;
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    let narrow = |number| u32::try_from(number).unwrap_or(u32::MAX);
    let mark = Mark { line: narrow(line), column: narrow(column) };
    Some(Fault::new(mark, "a control character is not allowed").with_hint("write it as an escape in double quotes"))
}

fn mark(marker: granit_parser::Marker) -> Mark {
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Mark { line: narrow(marker.line()), column: narrow(marker.col().saturating_add(1)) }
}

fn yaml_scalar<'t>(text: Cow<'t, str>, style: ScalarStyle, anchor: usize, tag: Option<&Tag>) -> Token<'t> {
    let plain = style == ScalarStyle::Plain;
    let full = tag.map(|tag| {
        let (handle, suffix) = tag.parts();
        format!("{handle}{suffix}")
    });
    let known = full.as_deref().and_then(|full| full.strip_prefix("tag:yaml.org,2002:"));
    let merge = &*text == "<<" && (known == Some("merge") || full.is_none() && plain);
    let by = match (known, &full) {
        (Some(tag), _) => TypedBy::Tag(tag),
        (None, Some(_)) => TypedBy::ForeignTag,
        (None, None) if plain => TypedBy::Text,
        (None, None) => TypedBy::Quotes,
    };
    Token::Scalar { value: resolve(text, by), anchor, merge }
}

fn scan_fault(kind: &ErrorKind, mark: Mark) -> Fault {
    match kind {
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInPlainScalar => {
            Fault::new(mark, "YAML does not allow a tab here").with_hint("indent with spaces")
        }
        ErrorKind::UnknownAnchor => Fault::new(mark, "the alias refers to an anchor that the document does not have"),
        ErrorKind::RecursionLimitExceeded => Fault::new(mark, "the document is nested too deeply"),
        ErrorKind::ExpectedDocumentStart => Fault::new(mark, "invalid YAML: there is no document after a directive")
            .with_hint("remove the line that begins with `%`"),
        // Only these messages of the parser can quote a part of the document.
        ErrorKind::UnexpectedCharacter { .. } => Fault::new(mark, "invalid YAML: unexpected character"),
        ErrorKind::Custom(_) | ErrorKind::InputIo { .. } | ErrorKind::InputDecoding { .. } => {
            Fault::new(mark, "invalid YAML")
        }
        ErrorKind::MappingValueNotAllowed => Fault::new(mark, format!("invalid YAML: {kind}"))
            .with_hint("quote values that contain `: `, and check the indentation"),
        kind => Fault::new(mark, format!("invalid YAML: {kind}")),
    }
}
