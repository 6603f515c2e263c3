//! Standard output: text for users, and the same content as JSON or YAML.
//!
//! Invariant: strings from repositories and servers cannot control the terminal. Control characters are escaped. JSON
//! and YAML use the escapes of their format.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use serde::Serialize;

use super::{
    Error,
    style::{self, Stream, written},
};
use mainstay_object::{is_unprintable, printable_lines};

/// The format of a command's result.
#[derive(clap::ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Format {
    /// Text for people
    #[default]
    Text,
    /// Text for people, with more columns, and without truncation on a terminal
    Wide,
    /// One JSON document; a stream has one per line
    Json,
    /// One YAML document; a stream separates them by `---`
    Yaml,
}

/// The flag of every command that prints facts.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(super) struct OutputArgument {
    /// Output format
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        default_value = "text",
        hide_possible_values = true,
        help = "Output format: text, wide (text without truncation), json or yaml"
    )]
    pub(super) output: Format,
}

impl OutputArgument {
    /// Writes one result: `text`, or `facts` in the requested format.
    pub(super) fn print(self, facts: &impl Serialize, text: impl FnOnce() -> String) -> Result<(), Error> {
        print(&self.render(Position::Only, facts, text)?)
    }

    /// Writes one of several results.
    pub(super) fn print_next(
        self,
        facts: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<ControlFlow<()>, Error> {
        write(&self.render(Position::InStream, facts, text)?)
    }

    /// Returns whether the format is for users.
    pub(super) fn is_text(self) -> bool {
        matches!(self.output, Format::Text | Format::Wide)
    }

    fn render(
        self,
        position: Position,
        facts: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> Result<String, Error> {
        Ok(match (self.output, position) {
            (Format::Text | Format::Wide, _) => text(),
            (Format::Json, Position::Only) => json(facts)?,
            (Format::Json, Position::InStream) => {
                escaped(&serde_json::to_string(facts).map_err(Error::WriteJson)?, Escape::Json)
            }
            (Format::Yaml, position) => {
                let divider = if position == Position::InStream { "---\n" } else { "" };
                format!("{divider}{}", yaml(facts)?)
            }
        })
    }
}

/// Whether other results follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Position {
    Only,
    InStream,
}

/// Returns YAML. YAML supports escapes only in double quotes. If an escape is needed, the document is JSON, which is
/// valid YAML.
pub(super) fn yaml(facts: &impl Serialize) -> Result<String, Error> {
    let text = serde_yaml::to_string(facts).map_err(Error::WriteYaml)?;
    if !text.contains(|c| is_unprintable(c) && c != '\n') {
        return Ok(text);
    }
    Ok(escaped(&serde_json::to_string_pretty(facts).map_err(Error::WriteJson)?, Escape::Yaml))
}

/// Returns multi-line JSON.
pub(super) fn json(facts: &impl Serialize) -> Result<String, Error> {
    Ok(escaped(&serde_json::to_string_pretty(facts).map_err(Error::WriteJson)?, Escape::Json))
}

/// How a character above U+FFFF is escaped: JSON uses surrogate pairs, which YAML does not support.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Escape {
    Json,
    Yaml,
}

/// Returns JSON with a line feed. Unprintable characters occur only in strings and become `\uXXXX`.
fn escaped(json: &str, escape: Escape) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        if is_unprintable(c) && c > '\u{ffff}' && escape == Escape::Yaml {
            text.push_str(&format!("\\U{:08x}", u32::from(c)));
        } else if is_unprintable(c) && c != '\n' {
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            text.push(c);
        }
    }
    text.push('\n');
    text
}

/// Writes `text`. A closed pipe (`| head`) is not an error.
pub(super) fn print(text: &str) -> Result<(), Error> {
    write(text).map(drop)
}

/// Writes a line of a stream. Returns `Break` if the pipe is closed.
pub(super) fn print_line(line: &str) -> Result<ControlFlow<()>, Error> {
    write(&format!("{line}\n"))
}

/// Writes `text`. Returns `Break` if the pipe is closed.
pub(super) fn write(text: &str) -> Result<ControlFlow<()>, Error> {
    let mut out = io::stdout().lock();
    let text = written(text, style::is_on(Stream::Out), escape);
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ControlFlow::Break(())),
        Err(error) => Err(Error::Print(error)),
    }
}

/// Writes `text` to standard error, for users. A failure is ignored.
pub(super) fn note(text: &str) {
    let text = written(text, style::is_on(Stream::Error), escape);
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

fn escape(text: &str) -> String {
    printable_lines(text).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn json_and_yaml_say_hostile_texts_without_writing_them() {
        let facts = json!({ "message": "a\nb\u{202e}c\u{e0001}\u{9b}31m", "plain": "größe" });
        for output in [Format::Json, Format::Yaml] {
            for position in [Position::Only, Position::InStream] {
                let text = OutputArgument { output }.render(position, &facts, String::new).unwrap();
                assert_eq!(printable_lines(&text), text);
                let read: Value = match output {
                    Format::Json => serde_json::from_str(&text).unwrap(),
                    _ => serde_yaml::from_str(&text).unwrap(),
                };
                assert_eq!(read, facts, "{text}");
            }
        }
        let line = OutputArgument { output: Format::Json }.render(Position::InStream, &facts, String::new).unwrap();
        assert_eq!(line.lines().count(), 1);
    }
}
