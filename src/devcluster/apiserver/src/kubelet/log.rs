//! Logs of containers: who keeps them, and the format in which lines are stored.
//!
//! A line is stored as container runtimes do: `2026-01-02T03:04:05.000000001Z stdout F text`, `P` instead of `F` for a
//! piece of a line that was too long.

use tokio::sync::watch;

/// The logs of one container: that of the present attempt and that of the one before.
pub trait ContainerLog: Send + Sync {
    /// The stored lines of the present attempt or of the one before, and where to read on; `None` when there is no such
    /// attempt.
    fn read(&self, previous: bool) -> Option<(Vec<u8>, Position)>;

    /// The output since then, and whether more may follow.
    fn more(&self, position: &mut Position) -> (Vec<u8>, bool);

    /// Wakes when there may be more to read.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// Where a reader is in the log of an attempt.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// Number of the attempt.
    pub attempt: u64,
    /// How often the log of the attempt had begun anew.
    pub rotations: u64,
    /// Bytes of the present file that were read.
    pub offset: u64,
}

/// One stored line.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// When it was written.
    pub time: &'a str,
    piece: &'a [u8],
    whole: bool,
}

impl Entry<'_> {
    /// The written text, with the line feed if it ended a line.
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.piece.to_vec();
        if self.whole {
            text.push(b'\n');
        }
        text
    }
}

/// The lines of a stored log.
pub fn entries(stored: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    stored.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok()?;
        let (_, kind, piece) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Entry { time, piece, whole: kind == b"F" })
    })
}
