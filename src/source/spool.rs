//! A pack on its way into a mirror, in unnamed files: each goes as soon as it is read, so that a pack does not need room twice.
//! Everything here blocks.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use super::error::Fault;

/// Takes room for more bytes, and gives all of it back when it is dropped.
type TakeRoom = Box<dyn FnMut(u64) -> Result<(), Fault> + Send>;

/// Bytes of a file.
const SEGMENT: u64 = 16 << 20;

/// A received pack.
pub(super) struct PackSpool {
    directory: PathBuf,
    segments: VecDeque<File>,
    /// Bytes of the last file.
    last: u64,
    room: TakeRoom,
    objects: u64,
    bases: u64,
}

impl PackSpool {
    /// An empty one in `directory`.
    pub(super) fn new(directory: &Path, take_room: impl FnMut(u64) -> Result<(), Fault> + Send + 'static) -> Self {
        let (directory, room) = (directory.to_owned(), Box::new(take_room));
        Self { directory, segments: VecDeque::new(), last: SEGMENT, room, objects: 0, bases: 0 }
    }

    /// Appends the next bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        (self.room)(bytes.len() as u64)?;
        if self.last >= SEGMENT {
            self.segments.push_back(tempfile::tempfile_in(&self.directory).map_err(Fault::disk)?);
            self.last = 0;
        }
        let Some(segment) = self.segments.back_mut() else { return Err(Fault::Stopped) };
        segment.write_all(bytes).map_err(Fault::disk)?;
        self.last += bytes.len() as u64;
        Ok(())
    }

    /// The pack is complete: the number of its objects, and the bytes of the objects outside that it builds on.
    pub(super) fn finish(&mut self, objects: u64, bases: u64) -> Result<(), Fault> {
        (self.objects, self.bases) = (objects, bases);
        self.segments.iter_mut().try_for_each(File::rewind).map_err(Fault::disk)
    }

    /// The number of its objects, and the bytes of the objects outside that it builds on.
    pub(super) fn sizes(&self) -> (u64, u64) {
        (self.objects, self.bases)
    }

    /// Makes sure of room for more than the pack itself.
    pub(super) fn secure(&mut self, bytes: u64, at: &Path) -> Result<(), Fault> {
        (self.room)(bytes)?;
        let disk = rustix::fs::statvfs(at).map_err(|error| Fault::disk(error.into()))?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < bytes {
            return Err(Fault::DiskFull);
        }
        Ok(())
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
