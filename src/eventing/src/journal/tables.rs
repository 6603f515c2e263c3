//! The tables of the journal on disk, in a database of redb.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};
use sha2::{Digest as _, Sha256};

use super::super::cloud_event::CloudEvent;
use super::super::subscriber::SubscriberId;
use super::index::Index;
use super::recent::{MEMORY, Name, Recent};

/// Time of publication, digest of the rest, attributes in JSON, and data.
type Row = (i64, u64, &'static [u8], &'static [u8]);

/// The events by number.
const EVENTS: TableDefinition<'_, u64, Row> = TableDefinition::new("events");
/// The subscribers that wait for an event: number of failed deliveries, and bytes of the event.
const WAITING: TableDefinition<'_, (u64, &str), (u32, u64)> = TableDefinition::new("waiting");
/// The names of recently published events, by time.
const RECENT: TableDefinition<'_, (i64, Name), ()> = TableDefinition::new("recent");

const FILE: &str = "events.redb";
/// Suffix of the files of earlier versions.
const EARLIER: &str = "segment";
/// Bytes of the file that are cached in memory.
const CACHE: usize = 4 << 20;
/// Size of a page of the file in bytes.
const PAGE: u64 = 4096;
/// Bytes of the rows of an event, in addition to its contents, for each subscriber.
const ROWS: u64 = 256;

/// The reason why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or directory cannot be used.
    #[error("could not open the journal {}", path.display())]
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
    /// The file is damaged.
    #[error("the journal {} is damaged; restore it, or move it away to start without the events in it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: Box<redb::Error>,
    },
    /// An earlier version has left events in files that this version cannot read.
    #[error(
        "the journal in {} has events of an earlier version; deliver them with that version, then remove its files \
         *.{EARLIER}", path.display()
    )]
    Earlier {
        /// The directory.
        path: PathBuf,
    },
}

/// An event that was read from a store.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) event: Arc<CloudEvent>,
    pub(crate) published: Timestamp,
}

/// The opened database.
#[derive(Debug)]
pub(super) struct Tables {
    database: Database,
    path: PathBuf,
}

/// The contents of the tables.
pub(super) struct Found {
    pub(super) index: Index,
    pub(super) recent: Recent,
    /// The number of the next event.
    pub(super) next: u64,
}

/// A new event.
pub(super) struct Put {
    pub(super) number: u64,
    pub(super) event: Arc<CloudEvent>,
    /// The attributes in JSON.
    pub(super) attributes: Vec<u8>,
    /// The subscribers, with their number of failed deliveries.
    pub(super) to: Vec<(SubscriberId, u32)>,
    /// The names that were not known.
    pub(super) names: Vec<Name>,
}

/// A change of an event for a subscriber.
pub(super) struct Mark {
    pub(super) number: u64,
    pub(super) to: SubscriberId,
    pub(super) change: Change,
}

pub(super) enum Change {
    /// The subscriber does not wait any more.
    Ended,
    /// No subscriber waits any more.
    LastEnded,
    /// A delivery failed. The bytes of the event are stored again.
    Tried { attempts: u32, length: u64 },
}

/// The changes of a transaction.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) marks: Vec<Mark>,
    pub(super) puts: Vec<Put>,
}

impl Put {
    /// Returns the bytes of the event in the file. Small events share pages, and up to a half of a page is empty. A large
    /// event has a block of pages. The size of a block is a power of two.
    pub(super) fn length(&self) -> u64 {
        let bytes = (self.attributes.len() + self.event.data.len()) as u64 + ROWS / 2;
        let bytes = if bytes > PAGE / 2 { bytes.next_power_of_two().max(PAGE) } else { bytes * 2 };
        bytes + ROWS * self.to.len() as u64
    }
}

impl Tables {
    /// Opens the database in a directory. Creates both if needed.
    pub(super) fn open(directory: &Path) -> Result<Self, OpenError> {
        let failed = |cause| OpenError::Io { path: directory.to_owned(), cause };
        fs::create_dir_all(directory).map_err(failed)?;
        for entry in fs::read_dir(directory).map_err(failed)? {
            if entry.map_err(failed)?.path().extension().is_some_and(|suffix| suffix == EARLIER) {
                return Err(OpenError::Earlier { path: directory.to_owned() });
            }
        }
        let path = directory.join(FILE);
        let database = match Database::builder().set_cache_size(CACHE).create(&path) {
            Ok(database) => database,
            Err(DatabaseError::DatabaseAlreadyOpen) => return Err(OpenError::InUse { path: directory.to_owned() }),
            Err(error) => return Err(unusable(path, error.into())),
        };
        // The directory entry has to be on disk too.
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)?;
        Ok(Self { database, path })
    }

    /// Reads the tables, except for the contents of events. `now` is in milliseconds since 1970.
    pub(super) fn load(&self, now: i64) -> Result<Found, OpenError> {
        self.try_load(now).map_err(|error| unusable(self.path.clone(), error))
    }

    fn try_load(&self, now: i64) -> Result<Found, redb::Error> {
        let transaction = self.database.begin_write()?;
        // This creates the tables of a new database.
        transaction.open_table(EVENTS)?;
        transaction.open_table(WAITING)?;
        transaction.open_table(RECENT)?;
        transaction.commit()?;
        let (mut index, mut recent, mut last) = (Index::default(), Recent::default(), 0);
        let transaction = self.database.begin_read()?;
        for row in transaction.open_table(WAITING)?.iter()? {
            let (key, value) = row?;
            let ((number, to), (attempts, length)) = (key.value(), value.value());
            if let Some(to) = SubscriberId::parse(to) {
                index.insert(number, length, &to, attempts);
            }
            last = number;
        }
        for row in transaction.open_table(RECENT)?.range((now - MEMORY, Name::MIN)..)? {
            let (at, name) = row?.0.value();
            recent.insert(name, at);
        }
        Ok(Found { index, recent, next: last + 1 })
    }

    /// Writes the changes. They are on disk when this returns.
    pub(super) fn write(&self, batch: &Batch, recent: &Recent, now: i64) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut events = transaction.open_table(EVENTS)?;
            let mut waiting = transaction.open_table(WAITING)?;
            let mut names = transaction.open_table(RECENT)?;
            for Mark { number, to, change } in &batch.marks {
                if let Change::Tried { attempts, length } = change {
                    waiting.insert((*number, to.as_str()), (*attempts, *length))?;
                    continue;
                }
                waiting.remove((*number, to.as_str()))?;
                if matches!(change, Change::LastEnded) {
                    events.remove(number)?;
                }
            }
            for put in &batch.puts {
                let (attributes, data) = (put.attributes.as_slice(), put.event.data.as_ref());
                events.insert(put.number, (now, digest(attributes, data), attributes, data))?;
                for (to, attempts) in &put.to {
                    waiting.insert((put.number, to.as_str()), (*attempts, put.length()))?;
                }
                for name in &put.names {
                    names.insert((now, *name), ())?;
                }
            }
            if let Some(oldest) = recent.oldest() {
                names.retain_in(..(oldest, Name::MIN), |_, ()| false)?;
            }
        }
        Ok(transaction.commit()?)
    }

    /// Reads an event, if a subscriber still waits for it. The error is `InvalidData` if the event is damaged.
    pub(super) fn read(&self, number: u64) -> io::Result<Option<Kept>> {
        self.try_read(number).map_err(io_error)?.transpose()
    }

    fn try_read(&self, number: u64) -> Result<Option<io::Result<Kept>>, redb::Error> {
        let table = self.database.begin_read()?.open_table(EVENTS)?;
        let Some(row) = table.get(number)? else { return Ok(None) };
        let (published, expected, attributes, data) = row.value();
        let parsed = serde_json::from_slice(attributes).ok().filter(|_| digest(attributes, data) == expected);
        Ok(Some(match parsed {
            Some(attributes) => Ok(Kept {
                event: Arc::new(CloudEvent { attributes, data: Bytes::copy_from_slice(data) }),
                published: Timestamp::from_millisecond(published).unwrap_or(Timestamp::UNIX_EPOCH),
            }),
            None => Err(io::Error::new(io::ErrorKind::InvalidData, "the record is damaged")),
        }))
    }

    /// Returns the bytes that the file occupies on disk. The file is longer, with holes.
    pub(super) fn size(&self) -> u64 {
        fs::metadata(&self.path).map_or(0, |found| found.blocks() * 512)
    }
}

/// Returns the cause of a failure as an error of a file.
pub(super) fn io_error(error: redb::Error) -> io::Error {
    match error {
        redb::Error::Io(cause) => cause,
        redb::Error::Corrupted(_) => io::Error::new(io::ErrorKind::InvalidData, error),
        other => io::Error::other(other),
    }
}

fn unusable(path: PathBuf, error: redb::Error) -> OpenError {
    match error {
        redb::Error::Io(cause) if cause.kind() != io::ErrorKind::InvalidData => OpenError::Io { path, cause },
        cause => OpenError::Damaged { path, cause: Box::new(cause) },
    }
}

fn digest(attributes: &[u8], data: &[u8]) -> u64 {
    let digest = Sha256::new().chain_update((attributes.len() as u64).to_le_bytes());
    let digest = digest.chain_update(attributes).chain_update(data).finalize();
    digest[..8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
