//! The end of a command: its exit code, and the output of its failure.

use std::{error::Error as _, process::ExitCode};

use super::{
    Error, output,
    style::{Style, paint},
};

/// The exit code of a command that was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Exit {
    /// There are no differences.
    Fine = 0,
    /// There are differences, or an object is not in sync.
    Differs = 1,
    /// A checked part does not work.
    Failed = 2,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Prints a failure on standard error: the attempt, its indented causes, then the hint. The exit code is 2.
pub(super) fn report(error: &Error) -> ExitCode {
    output::note(&text(error));
    ExitCode::from(2)
}

/// Returns the message of a failure.
pub(super) fn text(error: &Error) -> String {
    let mut text = format!("{} {error}\n", paint(Style::Bad, "error:"));
    let mut depth = 1;
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        // Some libraries repeat the cause in their own message.
        if !text.trim_end().ends_with(&cause_text) {
            text.push_str(&format!("{:1$}{cause_text}\n", "", depth * 2));
            depth += 1;
        }
        next = cause.source();
    }
    if let Some(hint) = error.hint() {
        text.push_str(&format!("{} {hint}\n", paint(Style::Title, "hint:")));
    }
    text
}
