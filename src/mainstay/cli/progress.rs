//! One line on a terminal that says what a command waits for. Nothing where standard error is no terminal.
//!
//! Invariant: the line is gone before anything else is printed, and when the command ends.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::table::{cut, width_of_notes};
use mainstay_object::printable;

/// How often the line says how long it has been there.
const TICK: Duration = Duration::from_secs(1);
/// Back to the start of the line, which is erased.
const ERASE: &str = "\r\u{1b}[K";

/// What is waited for.
#[derive(Clone)]
pub(super) struct Progress(Option<Arc<Line>>);

struct Line {
    text: Mutex<String>,
    began: Instant,
}

impl Progress {
    /// A line from now on, if somebody sees it.
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

    /// This is waited for now.
    pub(super) fn say(&self, text: &str) {
        let Some(line) = &self.0 else { return };
        *line.text.lock() = printable(text).into_owned();
        line.draw();
    }

    /// Something else is printed next.
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
            // One that fills the line would begin another one on some terminals.
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

/// A failure to write is ignored.
fn write(text: &str) {
    let mut error = io::stderr().lock();
    let _ = error.write_all(text.as_bytes()).and_then(|()| error.flush());
}
