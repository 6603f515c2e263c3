//! Standard output: plain text, tables, JSON lines.

use std::io::{self, Write};

use super::Error;

/// Writes `text` as it is. A reader that has gone away (`| head`) is not an error.
pub(super) fn print(text: &str) -> Result<(), Error> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(Error::Print),
    }
}
