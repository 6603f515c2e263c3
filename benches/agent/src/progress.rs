//! Prints what is being measured.

use std::io::{self, Write as _};

/// Says on standard error what is being measured.
pub(super) fn progress(what: &str) {
    // Progress that nobody can see is no reason to stop.
    let _ = writeln!(io::stderr(), "measuring: {what}");
}
