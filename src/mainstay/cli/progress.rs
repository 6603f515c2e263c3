//! Shows on one line of a terminal what a command waits for. Prints nothing if standard error is not a terminal.
//!
//! Invariant: the line is erased before any other output, and when the command ends.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::table::{cut, width_of_notes};
use mainstay_object::printable;

/// Interval at which the elapsed time is updated.
const TICK: Duration = Duration::from_secs(1);
/// Moves to the start of the line and erases it.
const ERASE: &str = "\r\u{1b}[K";

/// The line; `None` without a terminal.
#[derive(Clone)]
pub(super) struct Progress(Option<Arc<Line>>);

struct Line {
    text: Mutex<String>,
    began: Instant,
}

impl Progress {
    /// Begins a line, if standard error is a terminal.
    pub(super) fn begin() -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let line = Arc::new(Line { text: Mutex::default(), began: Instant::now() });
        let ticking = Arc::downgrade(&line);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                let Some(line) = ticking.upgrade() else { return };
                line.draw();
            }
        });
        Self(Some(line))
    }

    /// Shows what the command waits for now.
    pub(super) fn say(&self, text: &str) {
        let Some(line) = &self.0 else { return };
        *line.text.lock() = printable(text).into_owned();
        line.draw();
    }

    /// Erases the line before other output.
    pub(super) fn clear(&self) {
        let Some(line) = &self.0 else { return };
        line.text.lock().clear();
        write(ERASE);
    }
}

impl Line {
    fn draw(&self) {
        let text = self.text.lock();
        if !text.is_empty() {
            let text = format!("{} s  {text}", self.began.elapsed().as_secs());
            // The text is shorter than the line, because some terminals wrap a line that fills the width.
            let width = width_of_notes().map_or(79, |width| width.saturating_sub(1));
            write(&format!("{ERASE}{}", cut(&text, width)));
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        write(ERASE);
    }
}

/// Writes to standard error. Errors are ignored.
fn write(text: &str) {
    let mut error = io::stderr().lock();
    let _ = error.write_all(text.as_bytes()).and_then(|()| error.flush());
}
