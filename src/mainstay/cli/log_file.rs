//! The log file of `mainstay dev`: written by the agent in that process, and read by `mainstay logs`.
//!
//! Invariant: the file has at most 16 MiB. A full file is emptied.

use std::{
    fs::File,
    io::{self, Seek as _, SeekFrom, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, future, stream, stream::BoxStream};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt as _, AsyncSeekExt as _, BufReader};

/// Maximum size of the file, in bytes.
const LARGEST: u64 = 16 << 20;
/// Time between two checks for new lines.
const BETWEEN: Duration = Duration::from_millis(200);

/// A writer to a file whose path is set later. Until then, nothing is written.
#[derive(Clone, Debug, Default)]
pub(super) struct LogFile(Arc<Mutex<Option<Written>>>);

#[derive(Debug)]
struct Written {
    file: File,
    bytes: u64,
}

impl LogFile {
    /// Creates a file, and writes all further log lines to it.
    #[cfg_attr(not(feature = "dev"), expect(dead_code, reason = "only `dev` has a log file"))]
    pub(super) fn begin(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        *self.0.lock() = Some(Written { file, bytes: 0 });
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut held = self.0.lock();
        let Some(written) = &mut *held else { return Ok(line.len()) };
        if written.bytes + line.len() as u64 > LARGEST {
            written.file.set_len(0)?;
            written.file.seek(SeekFrom::Start(0))?;
            written.bytes = 0;
        }
        written.file.write_all(line)?;
        written.bytes += line.len() as u64;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the lines of a file that are not older than `since`. With `follow`, the stream continues with new lines.
pub(super) fn lines(path: PathBuf, follow: bool, since: Option<Timestamp>) -> BoxStream<'static, io::Result<String>> {
    let lines = stream::try_unfold(None, move |reader| next(path.clone(), reader, follow));
    let mut is_recent = since.is_none();
    lines
        .try_filter(move |line| {
            is_recent = is_recent || since.is_some_and(|since| time_of(line).is_some_and(|time| time >= since));
            future::ready(is_recent)
        })
        .boxed()
}

type Reader = (BufReader<tokio::fs::File>, String);

async fn next(path: PathBuf, reader: Option<Reader>, follow: bool) -> io::Result<Option<(String, Option<Reader>)>> {
    let (mut reader, mut line) = match reader {
        Some(reader) => reader,
        None => (BufReader::new(tokio::fs::File::open(path).await?), String::new()),
    };
    loop {
        let read = reader.read_line(&mut line).await?;
        if let Some(whole) = line.strip_suffix('\n') {
            return Ok(Some((whole.to_owned(), Some((reader, String::new())))));
        }
        if read > 0 {
            continue;
        }
        if !follow {
            return Ok((!line.is_empty()).then(|| (std::mem::take(&mut line), Some((reader, String::new())))));
        }
        tokio::time::sleep(BETWEEN).await;
        // The writer has emptied a full file.
        if reader.get_ref().metadata().await?.len() < reader.stream_position().await? {
            reader.seek(SeekFrom::Start(0)).await?;
            line.clear();
        }
    }
}

/// Returns the time at the beginning of a line.
fn time_of(line: &str) -> Option<Timestamp> {
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "2026-01-01T00:00:00.5Z  INFO a: old\n";
    const NEW: &str = "2026-01-01T00:00:02.5Z  INFO a: new\n    of new\n";

    async fn all(path: &Path, since: Option<&str>) -> Vec<String> {
        let since = since.map(|since| since.parse().unwrap());
        lines(path.to_owned(), false, since).try_collect().await.unwrap()
    }

    #[tokio::test]
    async fn lines_are_read_as_they_were_written_and_those_that_follow_after_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = LogFile::default();
        log.write_all(b"before the file\n").unwrap();
        log.begin(&path).unwrap();
        log.write_all(format!("{OLD}{NEW}").as_bytes()).unwrap();
        assert_eq!(all(&path, None).await.len(), 3);
        assert_eq!(
            all(&path, Some("2026-01-01T00:00:01Z")).await,
            ["2026-01-01T00:00:02.5Z  INFO a: new", "    of new"]
        );
        let mut following = lines(path, true, None).skip(3);
        log.write_all(b"half ").unwrap();
        let writing = async { log.write_all(b"a line\n").unwrap() };
        let (line, ()) = future::join(following.next(), writing).await;
        assert_eq!(line.unwrap().unwrap(), "half a line");
    }

    #[tokio::test]
    async fn a_full_file_is_emptied() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = LogFile::default();
        log.begin(&path).unwrap();
        let line = format!("{}\n", "x".repeat(1 << 20));
        for _ in 0..16 {
            log.write_all(line.as_bytes()).unwrap();
        }
        log.write_all(b"last\n").unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() <= LARGEST);
        assert_eq!(all(&path, None).await.last().unwrap(), "last");
    }
}
