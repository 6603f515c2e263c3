//! Standard output: plain text and JSON lines.
//!
//! Invariant: texts from repositories and servers cannot control the terminal: control characters are replaced.

use std::{
    borrow::Cow,
    io::{self, Write},
};

use super::Error;

/// Writes `text`. A closed pipe (`| head`) is not an error.
pub(super) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(sanitized(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Error::Print),
    }
}

/// Writes `text` to standard error, for people. A failure to write is ignored.
pub(super) fn note(text: &str) {
    let _ = io::stderr().lock().write_all(sanitized(text).as_bytes());
}

/// The text with every control character but line feed and tab replaced.
pub(super) fn sanitized(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() && c != '\n' && c != '\t';
    if text.contains(is_control) { text.replace(is_control, "\u{fffd}").into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_control_characters() {
        assert_eq!(sanitized("a\tb\n"), "a\tb\n");
        assert_eq!(sanitized("\u{1b}]0;owned\u{7}\u{9b}31m\r"), "\u{fffd}]0;owned\u{fffd}\u{fffd}31m\u{fffd}");
    }
}
