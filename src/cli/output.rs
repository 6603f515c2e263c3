//! Standard output: plain text and JSON lines.
//!
//! Invariant: texts from repositories and servers cannot control the terminal: what controls it is escaped.

use std::io::{self, Write};

use super::Error;
use crate::object::printable_lines;

/// Writes `text`. A closed pipe (`| head`) is not an error.
pub(super) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(printable_lines(text).as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Error::Print),
    }
}

/// Writes `text` to standard error, for people. A failure to write is ignored.
pub(super) fn note(text: &str) {
    let _ = io::stderr().lock().write_all(printable_lines(text).as_bytes());
}
