//! A pack on its way into a mirror, in unnamed files: each goes as soon as it is read, so that a pack does not need room twice.
//! Everything here blocks.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::error::Fault;
use super::transport::Weight;

/// Room for a pack; gives all of it back when it is dropped.
pub(super) trait Space: Send {
    /// Takes room for more bytes.
    fn take(&mut self, bytes: u64) -> Result<(), Fault>;

    /// The volume is full: removes what is not needed, so that it has so many bytes more. Whether it removed anything.
    fn relieve(&mut self, bytes: u64) -> bool;
}

/// Bytes of a file.
const SEGMENT: u64 = 16 << 20;
/// At most this part of the volume stays free beside what is secured.
const SLACK: u64 = 32;

/// A received pack.
pub(super) struct PackSpool {
    directory: PathBuf,
    segments: VecDeque<File>,
    /// Bytes of the last file.
    last: u64,
    /// Bytes of all of it.
    length: u64,
    room: Box<dyn Space>,
    /// Bytes of the largest object.
    object_bytes: u64,
    weight: Weight,
}

impl PackSpool {
    /// An empty one in `directory`, for objects of at most so many bytes.
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

    /// The pack is complete: what indexing it takes.
    pub(super) fn finish(&mut self, weight: Weight) -> Result<(), Fault> {
        self.weight = weight;
        self.segments.iter_mut().try_for_each(File::rewind).map_err(Fault::disk)
    }

    /// What indexing it takes.
    pub(super) fn weight(&self) -> &Weight {
        &self.weight
    }

    /// Makes sure of room for more than the pack itself.
    pub(super) fn secure(&mut self, bytes: u64, at: &Path) -> Result<(), Fault> {
        self.room.take(bytes)?;
        let missing = self.missing(bytes, at)?;
        if missing > 0 && !(self.room.relieve(missing) && self.missing(bytes, at)? == 0) {
            return Err(Fault::DiskFull);
        }
        Ok(())
    }

    /// Bytes that the volume has too few.
    fn missing(&self, bytes: u64, at: &Path) -> Result<u64, Fault> {
        let disk = rustix::fs::statvfs(at).map_err(|error| Fault::disk(error.into()))?;
        // libgit2 appends objects that the pack builds on through mapped memory: on a full disk that ends the process.
        let slack = if self.weight.bases > 0 {
            self.object_bytes.min(disk.f_blocks.saturating_mul(disk.f_frsize) / SLACK)
        } else {
            0
        };
        // A piece of the pack is there twice until it is read.
        let needed = bytes.saturating_add(self.length.min(SEGMENT)).saturating_add(slack);
        Ok(needed.saturating_sub(disk.f_bavail.saturating_mul(disk.f_frsize)))
    }

    /// Reads the next bytes, which are gone then; none at the end.
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
