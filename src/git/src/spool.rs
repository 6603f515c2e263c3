//! A received pack in unnamed files. Each file is removed once it is read, so a pack never needs its space twice.
//! Everything here blocks.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::error::Fault;
use super::transport::Weight;

/// Reserved space for a pack. Dropping it releases the reservation.
pub(super) trait Space: Send {
    /// Reserves more bytes.
    fn take(&mut self, bytes: u64) -> Result<(), Fault>;

    /// Frees this many bytes on a full volume by removing unneeded data. Returns whether it removed any.
    fn relieve(&mut self, bytes: u64) -> bool;
}

/// Maximum size of a file, in bytes.
const SEGMENT: u64 = 16 << 20;
/// Reciprocal of the part of the volume that limits the slack in addition to secured bytes.
const SLACK: u64 = 32;

/// A received pack.
pub(super) struct PackSpool {
    directory: PathBuf,
    segments: VecDeque<File>,
    /// Bytes in the last file.
    last: u64,
    /// Bytes in all files.
    length: u64,
    room: Box<dyn Space>,
    /// Maximum size of an object, in bytes.
    object_bytes: u64,
    weight: Weight,
}

impl PackSpool {
    /// Creates an empty spool in `directory`, for objects of at most `object_bytes`.
    pub(super) fn new(directory: &Path, object_bytes: u64, room: impl Space + 'static) -> Self {
        let (directory, room) = (directory.to_owned(), Box::new(room));
        let (segments, last, length) = (VecDeque::new(), SEGMENT, 0);
        Self { directory, segments, last, length, room, object_bytes, weight: Weight::default() }
    }

    /// Appends the next bytes.
    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        self.room.take(bytes.len() as u64)?;
        let mut is_relieved = false;
        while !bytes.is_empty() {
            match self.write_some(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(Fault::DiskFull) if !is_relieved && self.room.relieve(bytes.len() as u64) => is_relieved = true,
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }

    fn write_some(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        if self.last >= SEGMENT {
            self.segments.push_back(tempfile::tempfile_in(&self.directory).map_err(Fault::disk)?);
            self.last = 0;
        }
        let Some(segment) = self.segments.back_mut() else { return Err(Fault::Stopped) };
        match segment.write(bytes) {
            Ok(0) => Err(Fault::DiskFull),
            Ok(length) => {
                self.last += length as u64;
                self.length += length as u64;
                Ok(length)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(Fault::disk(error)),
        }
    }

    /// Completes the pack. `weight` is the cost of indexing it.
    pub(super) fn finish(&mut self, weight: Weight) -> Result<(), Fault> {
        self.weight = weight;
        self.segments.iter_mut().try_for_each(File::rewind).map_err(Fault::disk)
    }

    /// Returns the cost of indexing the pack.
    pub(super) fn weight(&self) -> &Weight {
        &self.weight
    }

    /// Reserves disk space in addition to that of the pack itself.
    pub(super) fn secure(&mut self, bytes: u64, at: &Path) -> Result<(), Fault> {
        self.room.take(bytes)?;
        let missing = self.missing(bytes, at)?;
        if missing > 0 && !(self.room.relieve(missing) && self.missing(bytes, at)? == 0) {
            return Err(Fault::DiskFull);
        }
        Ok(())
    }

    /// Returns how many bytes of free space the volume lacks.
    fn missing(&self, bytes: u64, at: &Path) -> Result<u64, Fault> {
        let disk = rustix::fs::statvfs(at).map_err(|error| Fault::disk(error.into()))?;
        // libgit2 appends base objects through mapped memory, so a full disk would kill the process.
        let slack = if self.weight.bases > 0 {
            self.object_bytes.min(disk.f_blocks.saturating_mul(disk.f_frsize) / SLACK)
        } else {
            0
        };
        // Each part of the pack exists twice until it is read.
        let needed = bytes.saturating_add(self.length.min(SEGMENT)).saturating_add(slack);
        Ok(needed.saturating_sub(disk.f_bavail.saturating_mul(disk.f_frsize)))
    }

    /// Reads the next bytes and frees their space; returns 0 at the end.
    pub(super) fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        while let Some(segment) = self.segments.front_mut() {
            match segment.read(piece)? {
                0 => drop(self.segments.pop_front()),
                length => return Ok(length),
            }
        }
        Ok(0)
    }
}

impl fmt::Debug for PackSpool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackSpool").field("directory", &self.directory).finish_non_exhaustive()
    }
}
