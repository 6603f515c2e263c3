//! The logs of containers and the format of stored lines.
//!
//! Lines have the format of container runtimes: `2026-01-02T03:04:05.000000001Z stdout F text`. `P` instead of `F`
//! marks a part of a line that was too long.

use tokio::sync::watch;

/// The logs of one container: those of the current and the previous attempt.
pub trait ContainerLog: Send + Sync {
    /// Returns the stored lines of the current or previous attempt, and the position after them; `None` if there is no
    /// such attempt.
    fn read(&self, previous: bool) -> Option<(Vec<u8>, Position)>;

    /// Returns the output after a position, and whether more may follow.
    fn more(&self, position: &mut Position) -> (Vec<u8>, bool);

    /// Notifies when there may be new output.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// The position of a reader in an attempt's log.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    /// Number of the attempt.
    pub attempt: u64,
    /// Number of rotations of the attempt's log.
    pub rotations: u64,
    /// Number of bytes read from the current file.
    pub offset: u64,
}

/// One stored line.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Time of the write.
    pub time: &'a str,
    piece: &'a [u8],
    whole: bool,
}

impl Entry<'_> {
    /// Returns the written text, with a line feed if it ended a line.
    pub fn text(&self) -> Vec<u8> {
        let mut text = self.piece.to_vec();
        if self.whole {
            text.push(b'\n');
        }
        text
    }
}

/// Returns the lines of a stored log.
pub fn entries(stored: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    stored.split(|byte| *byte == b'\n').filter_map(|line| {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok()?;
        let (_, kind, piece) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Entry { time, piece, whole: kind == b"F" })
    })
}
