//! Reads the index of a chart repository (`index.yaml`): the versions of one chart.
//!
//! Invariant: an index takes bounded memory: it is read as a stream, and only the entries of the chart are kept.
//! Anchors are refused, because the parser keeps them.

use std::cell::Cell;
use std::io::Read;
use std::rc::Rc;

use granit_parser::{ErrorKind, Event, FallibleBufferedInput, Options, Parser};

/// Maximum number of bytes of an index that is read.
pub const CHART_INDEX_BYTES: u64 = 50 << 20;
/// Maximum depth of an index.
const DEPTH: usize = 40;
/// Maximum number of characters between two values.
const VALUE: usize = 1 << 20;
/// Maximum length of a field that is kept, in bytes.
const FIELD: usize = 2 << 10;
/// Maximum number of versions of a chart, and of bytes of their fields.
const VERSIONS: usize = 10_000;
const KEPT: usize = 4 << 20;
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// A version of a chart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartVersion {
    /// The version, as written.
    pub version: String,
    /// The first address of the archive, as written; empty if there is none.
    pub url: String,
    /// The digest of the archive, as written; empty if there is none.
    pub digest: String,
    /// The time of the publication, as written.
    pub created: String,
}

/// Returns the versions of a chart in an index; `None` if the index has no such chart.
///
/// # Errors
/// The file is not an index, or it is too large.
pub fn chart_versions(index: impl Read, chart: &str) -> Result<Option<Vec<ChartVersion>>, String> {
    let mut events = Events::new(index);
    loop {
        match events.next()? {
            Event::StreamStart | Event::DocumentStart(..) => {}
            Event::MappingStart(..) => break,
            _ => return Err("it is not the index of a chart repository: it is not a map".to_owned()),
        }
    }
    while let Some(key) = events.key()? {
        if key != "entries" {
            events.skip()?;
            continue;
        }
        match events.next()? {
            Event::MappingStart(..) => {}
            // A repository without charts.
            Event::Scalar(..) => return Ok(None),
            _ => return Err("it is not the index of a chart repository: `entries` is not a map".to_owned()),
        }
        while let Some(name) = events.key()? {
            if name == chart {
                return events.entries().map(Some);
            }
            events.skip()?;
        }
        return Ok(None);
    }
    Err("it is not the index of a chart repository: it has no `entries`".to_owned())
}

/// The characters of an index, and their number since the last event.
struct Characters<R> {
    input: R,
    text: std::vec::IntoIter<char>,
    /// Bytes of an unfinished character.
    rest: Vec<u8>,
    since: Rc<Cell<usize>>,
}

impl<R: Read> Characters<R> {
    /// Reads the next piece. Returns whether there is one.
    fn fill(&mut self) -> Result<bool, ErrorKind> {
        let mut bytes = std::mem::take(&mut self.rest);
        let begun = bytes.len();
        let failed = |_| ErrorKind::Custom("the index could not be read".to_owned());
        (&mut self.input).take(PIECE as u64).read_to_end(&mut bytes).map_err(failed)?;
        let is_end = bytes.len() == begun;
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            Err(error) if error.error_len().is_none() && !is_end => {
                self.rest = bytes[error.valid_up_to()..].to_vec();
                std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
            }
            Err(_) => return Err(ErrorKind::Custom("the index is not UTF-8 text".to_owned())),
        };
        self.text = text.chars().collect::<Vec<_>>().into_iter();
        Ok(!is_end)
    }
}

impl<R: Read> Iterator for Characters<R> {
    type Item = Result<char, ErrorKind>;

    fn next(&mut self) -> Option<Self::Item> {
        self.since.set(self.since.get() + 1);
        if self.since.get() > VALUE {
            return Some(Err(ErrorKind::Custom("a value of the index is too long".to_owned())));
        }
        loop {
            if let Some(next) = self.text.next() {
                return Some(Ok(next));
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// The events of an index.
struct Events<R: Read> {
    parser: Parser<'static, FallibleBufferedInput<Characters<R>>>,
    since: Rc<Cell<usize>>,
}

impl<R: Read> Events<R> {
    fn new(input: R) -> Self {
        let mut options = Options::default();
        options.set_emit_comments(false);
        (options.flow_nesting_limit, options.block_nesting_limit) = (DEPTH, DEPTH);
        let since = Rc::new(Cell::new(0));
        let characters = Characters { input, text: Vec::new().into_iter(), rest: Vec::new(), since: Rc::clone(&since) };
        Self { parser: Parser::new_from_fallible_iter_with_options(characters, options), since }
    }

    fn next(&mut self) -> Result<Event<'static>, String> {
        let event = self.parser.next_event().ok_or("it ends within a value")?;
        self.since.set(0);
        let (event, mark) = event.map_err(|error| {
            let line = error.marker().line();
            match error.kind() {
                // These are messages of this file.
                ErrorKind::Custom(why) => format!("line {line}: {why}"),
                ErrorKind::RecursionLimitExceeded => format!("line {line}: the index is nested too deeply"),
                _ => format!("line {line}: the index is invalid YAML"),
            }
        })?;
        if event.anchor_id().is_some() {
            return Err(format!("line {}: the index contains an anchor, which is not supported", mark.start.line()));
        }
        Ok(event)
    }

    /// Returns the next key of a map; `None` at its end.
    fn key(&mut self) -> Result<Option<String>, String> {
        match self.next()? {
            Event::MappingEnd => Ok(None),
            Event::Scalar(text, ..) => Ok(Some(text.into_owned())),
            _ => Err("it is not the index of a chart repository: a key is not text".to_owned()),
        }
    }

    /// Skips the next value.
    fn skip(&mut self) -> Result<(), String> {
        let first = self.next()?;
        self.skip_rest(&first)
    }

    /// Skips the value that begins with an event.
    fn skip_rest(&mut self, first: &Event<'_>) -> Result<(), String> {
        let mut depth = depth_after(0, first);
        while depth > 0 {
            let event = self.next()?;
            depth = depth_after(depth, &event);
        }
        Ok(())
    }

    /// Returns the versions of a chart.
    fn entries(&mut self) -> Result<Vec<ChartVersion>, String> {
        match self.next()? {
            Event::SequenceStart(..) => {}
            Event::Scalar(..) => return Ok(Vec::new()),
            _ => return Err("the versions of the chart are not a list".to_owned()),
        }
        let (mut entries, mut kept) = (Vec::new(), 0);
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(entries),
                Event::MappingStart(..) => {
                    let entry = self.entry()?;
                    kept += entry.version.len() + entry.url.len() + entry.digest.len() + entry.created.len();
                    entries.push(entry);
                }
                _ => return Err("a version of the chart is not a map".to_owned()),
            }
            if entries.len() > VERSIONS {
                return Err(format!("the chart has more than {VERSIONS} versions"));
            }
            if kept > KEPT {
                return Err(format!("the versions of the chart have more than {KEPT} bytes"));
            }
        }
    }

    /// Returns the version whose map has begun.
    fn entry(&mut self) -> Result<ChartVersion, String> {
        let mut entry = ChartVersion::default();
        while let Some(key) = self.key()? {
            match &*key {
                "version" => entry.version = self.text()?,
                "digest" => entry.digest = self.text()?,
                "created" => entry.created = self.text()?,
                "urls" => entry.url = self.first()?,
                _ => self.skip()?,
            }
        }
        Ok(entry)
    }

    /// Returns the text of the next value; an empty one if the value is not a scalar.
    fn text(&mut self) -> Result<String, String> {
        match self.next()? {
            Event::Scalar(text, ..) if text.len() <= FIELD => Ok(text.into_owned()),
            Event::Scalar(..) => Err(format!("a field of the chart is longer than {FIELD} bytes")),
            other => self.skip_rest(&other).map(|()| String::new()),
        }
    }

    /// Returns the first text of the list that is the next value; an empty one if there is none.
    fn first(&mut self) -> Result<String, String> {
        let first = self.next()?;
        if !matches!(first, Event::SequenceStart(..)) {
            return self.skip_rest(&first).map(|()| String::new());
        }
        let mut found = String::new();
        loop {
            match self.next()? {
                Event::SequenceEnd => return Ok(found),
                Event::Scalar(text, ..) if found.is_empty() && text.len() <= FIELD => found = text.into_owned(),
                other => self.skip_rest(&other)?,
            }
        }
    }
}

fn depth_after(depth: usize, event: &Event<'_>) -> usize {
    match event {
        Event::SequenceStart(..) | Event::MappingStart(..) => depth + 1,
        Event::SequenceEnd | Event::MappingEnd => depth.saturating_sub(1),
        _ => depth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "apiVersion: v1
entries:
  other:
  - version: 9.0.0
    urls: [other-9.0.0.tgz]
  shop:
  - created: \"2026-01-01T00:00:00Z\"
    dependencies:
    - name: a
      version: 7.0.0
    digest: 0123
    keywords: [a, {b: c}]
    urls:
    - shop-1.0.0.tgz
    - https://mirror.example.org/shop-1.0.0.tgz
    version: 1.0.0
  - version: 1.1.0
generated: \"2026-01-01T00:00:00Z\"
";

    fn read(index: &str) -> Result<Option<Vec<ChartVersion>>, String> {
        chart_versions(index.as_bytes(), "shop")
    }

    #[test]
    fn reads_the_versions_of_one_chart() {
        let text = |text: &str| text.to_owned();
        let first = ChartVersion {
            version: text("1.0.0"),
            url: text("shop-1.0.0.tgz"),
            digest: text("0123"),
            created: text("2026-01-01T00:00:00Z"),
        };
        let second = ChartVersion { version: text("1.1.0"), ..ChartVersion::default() };
        assert_eq!(read(INDEX), Ok(Some(vec![first, second])));
        assert_eq!(chart_versions(INDEX.as_bytes(), "none"), Ok(None));
        let json = r#"{"entries":{"shop":[{"version":"1.0.0","urls":["é.tgz"]}]},"apiVersion":"v1"}"#;
        assert_eq!(read(json).unwrap().unwrap()[0].url, "é.tgz");
        assert_eq!(read("entries: {}\n"), Ok(None));
    }

    #[test]
    fn refuses_other_files_and_hostile_ones() {
        for (index, part) in [
            ("<html></html>", "it is not a map"),
            ("a: b\n", "has no `entries`"),
            ("entries: [a]\n", "`entries` is not a map"),
            ("entries: {shop: {a: b}}\n", "not a list"),
            ("entries: {shop: [a]}\n", "is not a map"),
            ("entries: {shop: [", "invalid YAML"),
            ("entries: {? [a] : b}\n", "a key is not text"),
        ] {
            let said = read(index).unwrap_err();
            assert!(said.contains(part), "{index}: {said}");
        }
        assert!(read(&format!("a: {}", "[".repeat(1 << 20))).is_err());
        for index in [format!("a: {}\n", "x".repeat(VALUE + 99)), format!("{}\na: b\n", "#".repeat(VALUE + 99))] {
            assert_eq!(read(&index), Err("line 1: a value of the index is too long".to_owned()));
        }
        let many = "- version: 1.0.0\n".repeat(VERSIONS + 1);
        assert!(
            read(&format!("entries:\n  shop:\n{}", many.replace("- v", "  - v"))).unwrap_err().contains("more than")
        );
        let field = format!("entries: {{shop: [{{version: {}}}]}}\n", "1".repeat(FIELD + 1));
        assert!(read(&field).unwrap_err().contains("longer than"));
        assert!(chart_versions(&b"a: \xff\n"[..], "shop").unwrap_err().contains("UTF-8"));
        let anchors = "a:\n- &a x\nentries: {shop: [{version: *a}]}\n";
        assert_eq!(read(anchors), Err("line 2: the index contains an anchor, which is not supported".to_owned()));
        assert!(read("a: *a\n").unwrap_err().contains("invalid YAML"));
        let large = format!("  - version: {}\n", "1".repeat(FIELD)).repeat(KEPT / FIELD + 1);
        assert!(read(&format!("entries:\n  shop:\n{large}")).unwrap_err().contains("more than 4194304 bytes"));
    }

    #[test]
    fn reads_characters_that_two_pieces_share() {
        let index = format!("a: {}\nentries: {{shop: [{{version: 1.0.0}}]}}\n", "é".repeat(PIECE));
        assert_eq!(read(&index).unwrap().unwrap().len(), 1);
        assert_eq!(read(&format!("a: x{}", &index[3..])).unwrap().unwrap().len(), 1);
    }
}
