//! Records all logs and panic messages of this process, at every level.

use std::{io, sync::OnceLock};

use parking_lot::Mutex;

static LOGGED: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static SUBSCRIBED: OnceLock<()> = OnceLock::new();

struct Sink;

impl io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.lock().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Records logs and panic messages from now on.
pub fn keep() {
    SUBSCRIBED.get_or_init(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            LOGGED.lock().extend(format!("{panic}\n").bytes());
            before(panic);
        }));
        let filter = tracing_subscriber::EnvFilter::new("trace,h2=off,hyper=off");
        tracing_subscriber::fmt().with_env_filter(filter).without_time().with_ansi(false).with_writer(|| Sink).init();
    });
}

/// Returns the recorded logs and messages.
pub fn text() -> String {
    String::from_utf8_lossy(&LOGGED.lock()).into_owned()
}
