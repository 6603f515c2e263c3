//! Logs of containers on disk.
//!
//! [`devcluster_apiserver::kubelet::log`] defines the format. A log that exceeds its limit is rotated, with one
//! predecessor.
//!
//! Invariant: the disk and memory for a container's output are bounded.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::sync::watch;

use devcluster_apiserver::kubelet::ContainerLog;
use devcluster_apiserver::kubelet::log::{Position, entries};

/// Maximum size of a log file in bytes before rotation.
const FULL: u64 = 5 << 20;
/// Maximum length of a stored line in bytes; longer ones are split.
const LONGEST: usize = 16 << 10;

/// The logs of a node by pod UID and container name.
#[derive(Debug, Default)]
pub(super) struct StoredLogs(Mutex<HashMap<(String, String), Arc<StoredLog>>>);

impl StoredLogs {
    /// Returns the log of a container, created if it is missing.
    pub(super) fn open(&self, uid: &str, container: &str, directory: PathBuf) -> Arc<StoredLog> {
        let mut logs = self.0.lock();
        logs.entry((uid.to_owned(), container.to_owned()))
            .or_insert_with(|| Arc::new(StoredLog::new(directory)))
            .clone()
    }

    /// Returns the log of a container, if it exists.
    pub(super) fn of(&self, uid: &str, container: &str) -> Option<Arc<StoredLog>> {
        self.0.lock().get(&(uid.to_owned(), container.to_owned())).cloned()
    }

    /// Removes the logs of a pod. Their readers reach the end.
    pub(super) fn forget(&self, uid: &str) {
        self.0.lock().retain(|(pod, _), log| {
            if pod == uid {
                log.end();
            }
            pod != uid
        });
    }
}

/// The logs of a container: of the current attempt and the previous one.
#[derive(Debug)]
pub(super) struct StoredLog {
    directory: PathBuf,
    state: Mutex<State>,
    /// Incremented with every line and at the end of an attempt.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Number of the current attempt; 0 before the first.
    attempt: u64,
    /// Whether the attempt still runs.
    open: bool,
    file: Option<File>,
    size: u64,
    /// Number of rotations in this attempt.
    rotations: u64,
}

impl StoredLog {
    fn new(directory: PathBuf) -> Self {
        Self { directory, state: Mutex::default(), changed: watch::Sender::new(0) }
    }

    fn path(&self, attempt: u64) -> PathBuf {
        self.directory.join(format!("{attempt}.log"))
    }

    fn earlier(&self, attempt: u64) -> PathBuf {
        self.directory.join(format!("{attempt}.log.1"))
    }

    /// Begins the log of the next attempt, and removes the log of the attempt before the previous attempt.
    pub(super) fn begin(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        let attempt = state.attempt + 1;
        let file = OpenOptions::new().create(true).append(true).open(self.path(attempt))?;
        *state = State { attempt, open: true, file: Some(file), size: 0, rotations: 0 };
        if let Some(old) = attempt.checked_sub(2) {
            // Either file may be missing.
            let _ = (fs::remove_file(self.path(old)), fs::remove_file(self.earlier(old)));
        }
        Ok(())
    }

    /// Ends the log of the current attempt.
    pub(super) fn end(&self) {
        let mut state = self.state.lock();
        state.open = false;
        state.file = None;
        drop(state);
        self.changed.send_modify(|n| *n += 1);
    }

    fn write(&self, stream: &str, text: &[u8], whole: bool) {
        let mut state = self.state.lock();
        let mut line = format!("{:.9} {stream} {} ", Timestamp::now(), if whole { 'F' } else { 'P' }).into_bytes();
        line.extend_from_slice(text);
        line.push(b'\n');
        if state.size + line.len() as u64 > FULL {
            let attempt = state.attempt;
            let turned =
                fs::rename(self.path(attempt), self.earlier(attempt)).and_then(|()| File::create(self.path(attempt)));
            if let Ok(file) = turned {
                state.file = Some(file);
                state.size = 0;
                state.rotations += 1;
            }
        }
        if let Some(file) = &mut state.file
            && file.write_all(&line).is_ok()
        {
            state.size += line.len() as u64;
        }
        drop(state);
        self.changed.send_modify(|n| *n += 1);
    }

    /// Stores the output of a pipe.
    pub(super) async fn keep(&self, stream: &str, mut pipe: impl AsyncRead + Unpin) {
        let (mut line, mut buffer) = (Vec::new(), vec![0; 8 << 10]);
        while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
            for piece in buffer[..read].split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(piece);
                if line.last() == Some(&b'\n') {
                    line.pop();
                    self.write(stream, &line, true);
                    line.clear();
                } else if line.len() >= LONGEST {
                    self.write(stream, &line, false);
                    line.clear();
                }
            }
        }
        if !line.is_empty() {
            self.write(stream, &line, true);
        }
    }

    /// Returns the end of the current attempt's log: at most so many lines and bytes.
    pub(super) fn last_words(&self, lines: usize, bytes: usize) -> String {
        let Some((stored, _)) = self.read(false) else { return String::new() };
        let texts: Vec<Vec<u8>> = entries(&stored).map(|entry| entry.text()).collect();
        let all = texts[texts.len().saturating_sub(lines)..].concat();
        String::from_utf8_lossy(&all[all.len().saturating_sub(bytes)..]).into_owned()
    }
}

impl ContainerLog for StoredLog {
    fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn read(&self, previous: bool) -> Option<(Vec<u8>, Position)> {
        let state = self.state.lock();
        let attempt = state.attempt.checked_sub(u64::from(previous)).filter(|attempt| *attempt > 0)?;
        let mut all = fs::read(self.earlier(attempt)).unwrap_or_default();
        let present = fs::read(self.path(attempt)).unwrap_or_default();
        let position = Position { attempt, rotations: state.rotations, offset: present.len() as u64 };
        all.extend_from_slice(&present);
        Some((all, position))
    }

    fn more(&self, position: &mut Position) -> (Vec<u8>, bool) {
        let state = self.state.lock();
        let mut all = Vec::new();
        if position.attempt != state.attempt {
            // The next attempt has begun: return the rest of this attempt's log and its end.
            all.extend(tail(&self.path(position.attempt), position.offset));
            return (all, false);
        }
        if position.rotations != state.rotations {
            all.extend(tail(
                &self.earlier(position.attempt),
                if position.rotations + 1 == state.rotations { position.offset } else { 0 },
            ));
            (position.rotations, position.offset) = (state.rotations, 0);
        }
        let fresh = tail(&self.path(position.attempt), position.offset);
        position.offset += fresh.len() as u64;
        all.extend(fresh);
        (all, state.open)
    }
}

fn tail(path: &Path, offset: u64) -> Vec<u8> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        let mut rest = Vec::new();
        file.read_to_end(&mut rest)?;
        Ok(rest)
    };
    // A removed log yields nothing.
    read().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log() -> (tempfile::TempDir, Arc<StoredLog>) {
        let directory = tempfile::tempdir().unwrap();
        let log = StoredLogs::default().open("u", "c", directory.path().to_owned());
        (directory, log)
    }

    fn texts(stored: &[u8]) -> String {
        entries(stored).map(|entry| String::from_utf8(entry.text()).unwrap()).collect()
    }

    #[tokio::test]
    async fn keeps_this_attempt_and_the_one_before() {
        let (_directory, log) = log();
        assert!(log.read(false).is_none());
        for text in ["one\n", "two\ntwo", "three\n"] {
            log.begin().unwrap();
            log.keep("stdout", text.as_bytes()).await;
            log.end();
        }
        assert_eq!(texts(&log.read(false).unwrap().0), "three\n");
        assert_eq!(texts(&log.read(true).unwrap().0), "two\ntwo\n");
        assert_eq!(fs::read_dir(&log.directory).unwrap().count(), 2);
    }

    #[tokio::test]
    async fn a_reader_follows_to_the_end_of_the_attempt() {
        let (_directory, log) = log();
        log.begin().unwrap();
        log.keep("stdout", &b"a\n"[..]).await;
        let (_, mut position) = log.read(false).unwrap();
        log.keep("stderr", &b"b\n"[..]).await;
        let (more, open) = log.more(&mut position);
        assert_eq!((texts(&more), open), ("b\n".to_owned(), true));
        log.end();
        let (more, open) = log.more(&mut position);
        assert_eq!((texts(&more), open), (String::new(), false));
    }

    #[tokio::test]
    async fn endless_output_costs_little_disk() {
        let (directory, log) = log();
        log.begin().unwrap();
        let line = vec![b'x'; 3 * LONGEST];
        for _ in 0..400 {
            log.keep("stdout", &line[..]).await;
        }
        let used: u64 = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(used <= 2 * FULL, "{used}");
        assert!(log.last_words(80, 2048).len() <= 2048);
    }
}
