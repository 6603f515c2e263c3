//! Parses the content of a `config.yaml` into nodes with line and column.
//!
//! Invariant: scalars are read as strings (even `1`, `on` and `007`). Only an empty scalar, `~` and `null` count as
//! absent.
//!
//! Not here: anchors, aliases and several documents, which a configuration does not need.

use std::{collections::HashMap, fmt};

use granit_parser::{Event, Options, Parser, ScalarStyle, StrInput};

/// Maximum nesting of lists and maps.
const DEPTH: usize = 16;

/// A position: line and column from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Mark {
    pub(super) line: usize,
    pub(super) column: usize,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A problem with its position.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    pub(super) mark: Mark,
    pub(super) what: String,
}

impl Problem {
    pub(super) fn new(mark: Mark, what: impl Into<String>) -> Self {
        Self { mark, what: what.into() }
    }
}

/// A value with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) mark: Mark,
    pub(super) content: Content,
}

/// The content of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// No value.
    Null,
    /// A scalar.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map, in order.
    Map(Vec<Field>),
}

/// A field of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) mark: Mark,
    pub(super) name: String,
    pub(super) node: Node,
}

/// Parses a string with one document. An empty string is an empty document.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = DEPTH;
    options.block_nesting_limit = DEPTH;
    let mut reader = Reader { parser: Parser::new_from_str_with_options(text, options) };
    let mut document = None;
    while let Some((event, mark)) = reader.next()? {
        match event {
            Event::DocumentStart(..) if document.is_some() => {
                return Err(Problem::new(mark, "there is a second document; a configuration is one"));
            }
            Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => {}
            event => document = Some(reader.node(event, mark)?),
        }
    }
    Ok(document.unwrap_or(Node { mark: Mark { line: 1, column: 1 }, content: Content::Null }))
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Mark)>, Problem> {
        let place = |at: granit_parser::Marker| Mark { line: at.line(), column: at.col().saturating_add(1) };
        match self.parser.next_event() {
            None => Ok(None),
            Some(Ok((event, span))) => Ok(Some((event, place(span.start)))),
            // The parser's own message may repeat a part of the document.
            Some(Err(error)) => Err(Problem::new(place(*error.marker()), "this is not YAML")),
        }
    }

    fn expect(&mut self, begun: Mark) -> Result<(Event<'t>, Mark), Problem> {
        self.next()?.ok_or_else(|| Problem::new(begun, "the construct that begins here is not closed"))
    }

    fn node(&mut self, event: Event<'t>, mark: Mark) -> Result<Node, Problem> {
        let content = match event {
            Event::Scalar(_, _, anchor, _) | Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _)
                if anchor != 0 =>
            {
                return Err(Problem::new(mark, "anchors and aliases are not supported here; write the value out"));
            }
            Event::Scalar(text, style, ..) => {
                let is_absent = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if is_absent { Content::Null } else { Content::Text(text.into_owned()) }
            }
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.expect(mark)? {
                        (Event::SequenceEnd, _) => break Content::List(items),
                        (event, mark) => items.push(self.node(event, mark)?),
                    }
                }
            }
            Event::MappingStart(..) => Content::Map(self.fields(mark)?),
            _ => return Err(Problem::new(mark, "anchors and aliases are not supported here; write the value out")),
        };
        Ok(Node { mark, content })
    }

    fn fields(&mut self, begun: Mark) -> Result<Vec<Field>, Problem> {
        let mut fields: Vec<Field> = Vec::new();
        let mut named = HashMap::new();
        loop {
            let (name, mark) = match self.expect(begun)? {
                (Event::MappingEnd, _) => return Ok(fields),
                (Event::Scalar(name, ..), mark) => (name.into_owned(), mark),
                (_, mark) => return Err(Problem::new(mark, "the name of a field must be a string")),
            };
            if let Some(first) = named.insert(name.clone(), mark) {
                return Err(Problem::new(mark, format!("duplicate field; the first is at {first}")));
            }
            let (event, at) = self.expect(mark)?;
            fields.push(Field { mark, name, node: self.node(event, at)? });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_problem(text: &str, expected: &str) {
        let Problem { mark, what } = parse(text).unwrap_err();
        assert_eq!(format!("{mark}: {what}"), expected, "{text:?}");
    }

    #[test]
    fn scalars_are_texts_as_they_are_written() {
        let Content::Map(fields) = parse("a: 007\nb: on\nc: ~\nd: \"~\"\ne:\n").unwrap().content else { panic!() };
        let contents: Vec<_> = fields.into_iter().map(|field| (field.mark.line, field.node.content)).collect();
        let text = |text: &str| Content::Text(text.to_owned());
        let expected = [(1, text("007")), (2, text("on")), (3, Content::Null), (4, text("~")), (5, Content::Null)];
        assert_eq!(contents, expected);
    }

    #[test]
    fn says_where_a_text_cannot_be_read() {
        check_problem("a: 1\na: 2\n", "2:1: duplicate field; the first is at 1:1");
        check_problem("a: &x 1\nb: *x\n", "1:7: anchors and aliases are not supported here; write the value out");
        check_problem("a: 1\n---\nb: 2\n", "2:1: there is a second document; a configuration is one");
        check_problem("? [a]\n: b\n", "1:3: the name of a field must be a string");
        let deep = format!("a: {}{}", "[".repeat(100), "]".repeat(100));
        assert_eq!(parse(&deep).unwrap_err().what, "this is not YAML");
        assert!(parse("a: \"sec").is_err());
        assert_eq!(parse("# nothing\n").unwrap().content, Content::Null);
    }
}
