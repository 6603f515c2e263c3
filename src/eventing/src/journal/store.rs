//! The segment files on disk.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::cloud_event::CloudEvent;
use super::super::subscriber::SubscriberId;
use super::index::{Entry, Index, Place};
use super::recent::{MEMORY, Recent};
use super::record::{self, Head, Recipient};

/// Size in bytes from which on a new segment is started.
const SEGMENT: u64 = 4 << 20;
const SUFFIX: &str = "segment";

/// The reason why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or directory cannot be used.
    #[error("could not open the journal in {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// Another process uses the journal. Both would deliver every event.
    #[error("another process uses the journal in {}", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
}

/// The files of segments, opened for reading.
pub(super) type Files = HashMap<u64, Arc<File>>;

/// The segment that is being written.
#[derive(Debug)]
struct Current {
    number: u64,
    file: Arc<File>,
    length: u64,
}

/// The journal's directory.
#[derive(Debug)]
pub(crate) struct Store {
    directory: PathBuf,
    current: Current,
    /// A lock that is held while this process writes.
    _lock: File,
}

/// The state of an opened journal.
pub(super) struct Found {
    pub(super) store: Store,
    pub(super) index: Index,
    pub(super) recent: Recent,
    pub(super) files: Files,
    /// The number of the next event.
    pub(super) next: u64,
}

impl Store {
    /// Opens and reads the journal in a directory. Creates the directory if needed. `now` is in milliseconds since
    /// 1970.
    pub(super) fn open(directory: &Path, now: i64) -> Result<Found, OpenError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            |cause| OpenError::Io { path, cause }
        };
        fs::create_dir_all(directory).map_err(failed(directory))?;
        let lock = directory.join("lock");
        let lock = OpenOptions::new().create(true).append(true).open(&lock).map_err(failed(&lock))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(OpenError::InUse { path: directory.to_owned() }),
            Err(fs::TryLockError::Error(cause)) => return Err(failed(directory)(cause)),
        }
        let mut numbers = segments(directory).map_err(failed(directory))?;
        numbers.sort_unstable();
        let (mut index, mut recent, mut files, mut last) = (Index::default(), Recent::default(), Files::new(), 0);
        for number in &numbers {
            let path = path(directory, *number);
            let bytes = fs::read(&path).map_err(failed(&path))?;
            let (read, damaged) = replay(*number, &bytes, now, &mut index, &mut recent, &mut last);
            if damaged > 0 {
                tracing::error!(
                    segment = %path.display(), records = damaged,
                    "damaged records of the journal are skipped: their events are lost or delivered again"
                );
            }
            if read < bytes.len() {
                tracing::warn!(
                    segment = %path.display(), bytes = bytes.len() - read,
                    "the end of a journal segment is incomplete and is skipped"
                );
            }
            index.wrote(*number, bytes.len() as u64, now);
            files.insert(*number, Arc::new(File::open(&path).map_err(failed(&path))?));
        }
        // A new segment is started, so that no record follows an incomplete record.
        let number = numbers.last().map_or(1, |last| last.saturating_add(1));
        let current = Current::create(directory, number).map_err(failed(directory))?;
        files.insert(number, Arc::clone(&current.file));
        let next = last.max(index.last()).saturating_add(1);
        let store = Self { directory: directory.to_owned(), current, _lock: lock };
        Ok(Found { store, index, recent, files, next })
    }

    /// Returns the number of the current segment.
    pub(super) fn current(&self) -> u64 {
        self.current.number
    }

    /// Returns the segment and offset of the next byte.
    pub(super) fn end(&self) -> (u64, u64) {
        (self.current.number, self.current.length)
    }

    /// Appends bytes. After a failure, none of these bytes are read later.
    pub(super) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.current.file.write_all_at(bytes, self.current.length);
        match written {
            Ok(()) => self.current.length += bytes.len() as u64,
            // Bytes that remain are overwritten, or form an incomplete record.
            Err(_) => self.current.file.set_len(self.current.length)?,
        }
        written
    }

    /// Syncs the current segment to disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.current.file.sync_data()
    }

    /// Starts a new segment if the current segment is full or broken. Returns its file.
    pub(super) fn roll(&mut self, is_broken: bool) -> io::Result<Option<(u64, Arc<File>)>> {
        // An empty segment is reused, because it has no readers. A full disk therefore creates no further files.
        let is_due = self.current.length >= SEGMENT || (is_broken && self.current.length > 0);
        if !is_due {
            return Ok(None);
        }
        self.current = Current::create(&self.directory, self.current.number + 1)?;
        Ok(Some((self.current.number, Arc::clone(&self.current.file))))
    }

    /// Removes a segment.
    pub(super) fn remove(&self, number: u64) -> io::Result<()> {
        fs::remove_file(path(&self.directory, number))
    }
}

impl Current {
    fn create(directory: &Path, number: u64) -> io::Result<Self> {
        let path = path(directory, number);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
        // The directory entry has to be on disk too.
        File::open(directory)?.sync_all()?;
        Ok(Self { number, file: Arc::new(file), length: 0 })
    }
}

/// Reads an event of the journal.
pub(super) fn read(file: &File, place: &Place) -> io::Result<CloudEvent> {
    let mut bytes = vec![0; place.length];
    file.read_exact_at(&mut bytes, place.offset)?;
    record::event(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the record is damaged"))
}

/// Reads a segment. Returns the bytes of its records, and how many of these are damaged. Unlike an incomplete end, a
/// damaged record is followed by valid records.
fn replay(
    segment: u64,
    bytes: &[u8],
    now: i64,
    index: &mut Index,
    recent: &mut Recent,
    last: &mut u64,
) -> (usize, usize) {
    let (mut at, mut damaged) = (0, 0);
    loop {
        let Some((head, _, length)) = record::decode(&bytes[at..]) else {
            let Some(next) = record::after_damaged(&bytes[at..]) else { return (at, damaged) };
            damaged += 1;
            at += next;
            continue;
        };
        match head {
            Head::Event { number, published, to, attributes } => {
                let text = |name: &str| attributes.get(name).map(String::as_str).unwrap_or_default();
                if now - published < MEMORY {
                    for recipient in &to {
                        recent.insert(&recipient.id, text("source"), text("id"), published);
                    }
                }
                let to =
                    to.into_iter().filter_map(|Recipient { id, attempts }| Some((SubscriberId::parse(&id)?, attempts)));
                let place = Place { segment, offset: at as u64, length };
                index.insert(number, Entry { place, published, to: to.collect() });
                *last = (*last).max(number);
            }
            Head::Ended { number, to } => {
                if let Some(to) = SubscriberId::parse(&to) {
                    index.end(number, &to);
                }
                *last = (*last).max(number);
            }
            Head::Tried { number, to, attempts } => {
                if let Some(to) = SubscriberId::parse(&to) {
                    index.tried(number, &to, attempts);
                }
            }
        }
        at += length;
    }
}

fn segments(directory: &Path) -> io::Result<Vec<u64>> {
    let names = fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let of = |path: &PathBuf| {
        let is_segment = path.extension().is_some_and(|suffix| suffix == SUFFIX);
        path.file_stem().filter(|_| is_segment)?.to_str()?.parse().ok()
    };
    Ok(names.iter().filter_map(of).collect())
}

fn path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}.{SUFFIX}"))
}
