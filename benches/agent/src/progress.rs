//! Progress output.

use std::io::{self, Write as _};

/// Prints the present situation to standard error.
pub(super) fn progress(what: &str) {
    // A failed write does not end the benchmark.
    let _ = writeln!(io::stderr(), "measuring: {what}");
}
