//! Parses a YAML document into a tree.
//!
//! A comment belongs to the next value at its level. A comment at the end of a line belongs to the value on that line.
//! A comment that is indented deeper than the next value belongs to no value. SOPS reads the comments of its own output
//! in the same way.

use std::borrow::Cow;

use granit_parser::{Event, Options, Parser, ScalarStyle, Tag};

use super::scalar::{Scalar, resolve};
use super::tree::{DEPTH, Member, Node, Unreadable, foreign};
use mainstay_object::Step;

/// An incomplete map or list.
struct Frame {
    is_map: bool,
    members: Vec<Member>,
    /// The key of the next value, and the comments before the key.
    key: Option<(String, Vec<String>)>,
    /// Column of the first member.
    column: Option<usize>,
}

#[derive(Default)]
struct Builder {
    open: Vec<Frame>,
    /// Pending comments, with their columns.
    comments: Vec<(String, usize)>,
    root: Option<Node>,
    /// The line on which the last scalar ended.
    line: usize,
}

/// Parses a document; `None` if it is empty.
pub(super) fn parse(text: &str) -> Result<Option<Node>, Unreadable> {
    let mut options = Options::default();
    options.set_emit_comments(true);
    options.max_buffered_comment_events = usize::MAX;
    options.flow_nesting_limit = DEPTH + 10;
    options.block_nesting_limit = DEPTH + 10;
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder::default();
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|_| Unreadable::Syntax)?;
        let (start, end) = ((span.start.line(), span.start.col()), span.end.line());
        match event {
            Event::Comment(text, _) => builder.comment(text, start),
            Event::Scalar(text, style, 0, tag) => builder.scalar(&text, style, tag.as_deref(), start, end)?,
            Event::SequenceStart(_, 0, _) => builder.begin(false, start)?,
            Event::MappingStart(_, 0, _) => builder.begin(true, start)?,
            Event::SequenceEnd | Event::MappingEnd => builder.end()?,
            Event::DocumentStart(..) if builder.root.is_some() => return Err(Unreadable::Syntax),
            Event::DocumentStart(..) | Event::DocumentEnd | Event::StreamStart | Event::StreamEnd => {}
            // An anchor or an alias.
            _ => return Err(foreign(builder.path(), "it has an anchor or an alias, which SOPS does not write")),
        }
    }
    Ok(builder.root.filter(|root| *root != Node::Leaf(Scalar::Null)))
}

impl Builder {
    fn path(&self) -> Vec<Step> {
        let step = |frame: &Frame| match (&frame.key, frame.is_map) {
            (Some((key, _)), _) => Some(Step::Key(key.clone())),
            (None, true) => None,
            (None, false) => Some(Step::Item(frame.members.len())),
        };
        self.open.iter().map_while(step).collect()
    }

    fn comment(&mut self, text: Cow<'_, str>, (line, column): (usize, usize)) {
        let text = text.into_owned();
        if line != self.line || self.line == 0 {
            return self.comments.push((text, column));
        }
        // The comment ends the line of a key or value.
        if let Some(frame) = self.open.last_mut() {
            if let Some((_, comments)) = &mut frame.key {
                comments.push(text);
            } else if let Some(last) = frame.members.last_mut() {
                last.comments.push(text);
            }
        }
    }

    fn taken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.comments).into_iter().map(|(text, _)| text).collect()
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        (_, column): (usize, usize),
        end: usize,
    ) -> Result<(), Unreadable> {
        let full = tag.map(|tag| {
            let (handle, suffix) = tag.parts();
            format!("{handle}{suffix}")
        });
        let known = full.as_deref().map(|full| full.strip_prefix("tag:yaml.org,2002:").unwrap_or(full));
        let scalar = resolve(text, style == ScalarStyle::Plain, known);
        // A block scalar ends with its last line break, which is at the beginning of the next line.
        self.line = if matches!(style, ScalarStyle::Literal | ScalarStyle::Folded) { 0 } else { end };
        let is_key = self.open.last().is_some_and(|frame| frame.is_map && frame.key.is_none());
        if is_key {
            let Some(Scalar::Text(key)) = scalar else {
                return Err(foreign(self.path(), "a key is not a string, and SOPS encrypts only string keys"));
            };
            let comments = self.taken();
            if let Some(frame) = self.open.last_mut() {
                frame.column.get_or_insert(column);
                frame.key = Some((key, comments));
            }
            return Ok(());
        }
        let Some(scalar) = scalar else {
            return Err(foreign(self.path(), "it is a number that is too large for SOPS"));
        };
        let comments = self.taken();
        self.add(Node::Leaf(scalar), comments, column);
        Ok(())
    }

    /// Adds a complete value to the open map or list.
    fn add(&mut self, node: Node, comments: Vec<String>, column: usize) {
        let Some(frame) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        frame.column.get_or_insert(column);
        let (key, mut before) = frame.key.take().unwrap_or_default();
        before.extend(comments);
        frame.members.push(Member { key, comments: before, node });
    }

    fn begin(&mut self, is_map: bool, (_, column): (usize, usize)) -> Result<(), Unreadable> {
        if self.open.len() >= DEPTH {
            return Err(Unreadable::Syntax);
        }
        if self.open.last().is_some_and(|frame| frame.is_map && frame.key.is_none()) {
            return Err(foreign(self.path(), "a key is not a string, and SOPS encrypts only string keys"));
        }
        if let Some(frame) = self.open.last_mut().filter(|frame| !frame.is_map) {
            frame.column.get_or_insert(column);
            // A comment before an item belongs to the whole item.
            let comments = std::mem::take(&mut self.comments).into_iter().map(|(text, _)| text).collect();
            frame.key = Some((String::new(), comments));
        }
        self.open.push(Frame { is_map, members: Vec::new(), key: None, column: None });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Unreadable> {
        let Some(frame) = self.open.pop() else { return Err(Unreadable::Syntax) };
        let outer = self.open.last().and_then(|outer| outer.column);
        if let Some(column) = frame.column.filter(|column| outer.is_none_or(|outer| *column > outer)) {
            self.comments.retain(|(_, own)| *own < column);
        }
        let node = if frame.is_map { Node::Map(frame.members) } else { Node::List(frame.members) };
        let column = frame.column.unwrap_or_default();
        self.add(node, Vec::new(), column);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns each leaf with its path, and the comments above it.
    fn shown(node: &Node, path: &str, comments: &str) -> Vec<String> {
        match node {
            Node::Leaf(scalar) => {
                vec![format!("{path}={}{comments}", String::from_utf8_lossy(&scalar.bytes()))]
            }
            Node::Map(members) | Node::List(members) => members
                .iter()
                .flat_map(|member| {
                    let own = member.comments.iter().flat_map(|c| [" #", c.trim()]).collect::<String>();
                    shown(&member.node, &format!("{path}{}.", member.key), &format!("{comments}{own}"))
                })
                .collect(),
        }
    }

    fn check(text: &str, expected: &[&str]) {
        let tree = parse(text).unwrap().unwrap();
        assert_eq!(shown(&tree, "", ""), expected, "{text}");
    }

    #[test]
    fn a_comment_belongs_to_what_it_stands_before() {
        check("# one\n\n# two\na: 1\nb: 2\n", &["a.=1 #one #two", "b.=2"]);
        check("a:\n  # in\n  b: 1\n  # foot\n# next\nc: 2\n", &["a.b.=1 #in", "c.=2 #next"]);
        check("a: 1 # line\nb: # key\n  c: 2\nd: 3\n", &["a.=1 #line", "b.c.=2 #key", "d.=3"]);
        check("l:\n  # first\n  - a\n  # second\n  - {b: c}\n  - d\n", &["l..=a #first", "l..b.=c #second", "l..=d"]);
        check("l:\n- a\n# after\nm: 1\n", &["l..=a", "m.=1 #after"]);
        check("a: |\n  x\n# next\nb: 1\n", &["a.=x\n", "b.=1 #next"]);
    }

    #[test]
    fn yaml_that_sops_does_not_write_is_refused() {
        for (text, what) in [
            ("a: &x 1\nb: *x\n", "anchor"),
            ("1: x\n", "a key is not a string"),
            ("? [a]\n: x\n", "a key is not a string"),
            ("a: 18446744073709551615\n", "too large"),
        ] {
            match parse(text) {
                Err(Unreadable::Foreign(flaw)) => assert!(flaw.what.contains(what), "{}", flaw.what),
                other => panic!("{other:?}"),
            }
        }
        for text in ["a: [", "a: b: c", &"[".repeat(1000)] {
            assert!(matches!(parse(text), Err(Unreadable::Syntax)), "{text}");
        }
        assert!(parse("# nothing\n").unwrap().is_none());
    }
}
