//! Where mirrors lie, and what a remote may cost at most.

use std::path::PathBuf;
use std::time::Duration;

const SLOTS: usize = 8;
/// Threads that remotes may hold at the same time with the usual settings.
pub const MOST_THREADS: usize = SLOTS + super::transport::THREADS;

/// How a [`Source`](super::Source) works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Directory of the mirrors; made when it is missing. Only this process may write there.
    pub directory: PathBuf,
    /// Whether local paths and `file://` are read (only `mainstay dev` does).
    pub allow_local: bool,
    /// What one remote may cost in bytes and pieces.
    pub limits: Limits,
    /// What one remote may cost in time.
    pub deadlines: Deadlines,
    /// How many threads may index packs and read objects at the same time. One namespace never takes more than half of
    /// those that it finds free.
    pub slots: usize,
}

impl Settings {
    /// The usual limits and deadlines, with mirrors in `directory`, and no local repositories.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            allow_local: false,
            limits: Limits::default(),
            deadlines: Deadlines::default(),
            slots: SLOTS,
        }
    }
}

/// What one remote may cost in bytes and pieces.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of an answer to a reference lookup (all references of a server that has only protocol version 0).
    pub advertisement_bytes: u64,
    /// Bytes of one pack as it is sent.
    pub pack_bytes: u64,
    /// Objects in one pack.
    pub pack_objects: u32,
    /// Bytes of any one object of a pack once unpacked.
    pub object_bytes: u64,
    /// Bytes of all objects of a pack once unpacked.
    pub unpacked_bytes: u64,
    /// Bytes of a mirror; a larger one is cloned anew, and refused when that does not help.
    pub mirror_bytes: u64,
    /// Packs in a mirror; one with more is cloned anew.
    pub mirror_packs: usize,
    /// Bytes of a file that is read.
    pub file_bytes: u64,
    /// Files and directories under a base directory.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const MIB: u64 = 1 << 20;
        Self {
            advertisement_bytes: 32 * MIB,
            pack_bytes: 256 * MIB,
            pack_objects: 500_000,
            object_bytes: 64 * MIB,
            unpacked_bytes: 2048 * MIB,
            mirror_bytes: 512 * MIB,
            mirror_packs: 64,
            file_bytes: 16 * MIB,
            entries: 100_000,
        }
    }
}

/// What one remote may cost in time.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// From the name to a connection.
    pub connect: Duration,
    /// Without a single byte.
    pub silence: Duration,
    /// A whole lookup, however slowly it drips.
    pub lookup: Duration,
    /// A whole fetch, however slowly it drips.
    pub fetch: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            lookup: Duration::from_secs(30),
            fetch: Duration::from_secs(300),
        }
    }
}
