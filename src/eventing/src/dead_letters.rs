//! Events that could not be delivered: a file for each subscriber, one JSON object per line.
//!
//! Invariant: each subscriber has at most two files of about 4 MiB. The older file is replaced when the newer file is
//! full.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::cloud_event::CloudEvent;
use super::subscriber::SubscriberId;

/// Size in bytes from which on a new file is started.
const LONGEST: u64 = 4 << 20;
/// Suffixes of the files: older, newer, and in redelivery.
const OLDER: &str = "older.jsonl";
const NEWER: &str = "jsonl";
const AGAIN: &str = "again.jsonl";
/// Suffix of a file that is being written and replaces the one in redelivery.
const NEW: &str = "again.new";

/// An event whose delivery was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// When the delivery was given up.
    pub time: Timestamp,
    /// The event's subscriber.
    pub subscriber: String,
    /// Why the delivery was given up.
    pub reason: String,
    /// Number of failed deliveries.
    pub attempts: u32,
    /// The event's attributes.
    pub attributes: BTreeMap<String, String>,
    /// The event's data, in base64.
    pub data: String,
}

impl DeadLetter {
    pub(super) fn new(to: &SubscriberId, event: &CloudEvent, reason: &str, attempts: u32, time: Timestamp) -> Self {
        let (subscriber, reason) = (to.to_string(), reason.to_owned());
        let data = BASE64_STANDARD.encode(&event.data);
        Self { time, subscriber, reason, attempts, attributes: event.attributes.clone(), data }
    }

    pub(super) fn event(self) -> Option<CloudEvent> {
        Some(CloudEvent { data: BASE64_STANDARD.decode(self.data).ok()?.into(), attributes: self.attributes })
    }
}

/// The files.
#[derive(Debug)]
pub(super) struct DeadLetters {
    directory: PathBuf,
    /// Held while a file is written.
    writing: Mutex<()>,
}

impl DeadLetters {
    pub(super) fn new(data: &Path) -> io::Result<Self> {
        let directory = place(data);
        fs::create_dir_all(&directory)?;
        Ok(Self { directory, writing: Mutex::default() })
    }

    /// Appends a dead letter. The dead letter is on disk when this returns.
    pub(super) fn append(&self, to: &SubscriberId, letter: &DeadLetter) -> io::Result<()> {
        let _writing = self.writing.lock();
        let (newer, older) = (self.path(to, NEWER), self.path(to, OLDER));
        if fs::metadata(&newer).is_ok_and(|found| found.len() >= LONGEST) {
            fs::rename(&newer, older)?;
        }
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(newer)?;
        // An earlier write may have ended within its line, for lack of space or with the process.
        let mut line = if ends_line(&mut file)? { Vec::new() } else { vec![b'\n'] };
        serde_json::to_writer(&mut line, letter)?;
        line.push(b'\n');
        file.write_all(&line)?;
        file.sync_data()
    }

    /// Takes the dead letters of a subscriber for redelivery. They are kept until [`done`](Self::done).
    pub(super) fn take(&self, to: &SubscriberId) -> io::Result<Vec<DeadLetter>> {
        let _writing = self.writing.lock();
        let again = self.path(to, AGAIN);
        let mut taken = read(&again)?;
        for ending in [OLDER, NEWER] {
            taken.extend(read(&self.path(to, ending))?);
        }
        let mut all = Vec::new();
        for letter in &taken {
            serde_json::to_writer(&mut all, letter)?;
            all.push(b'\n');
        }
        // Until the new file is complete, the old one may have the only copy of a letter.
        let new = self.path(to, NEW);
        let mut file = File::create(&new)?;
        file.write_all(&all)?;
        file.sync_all()?;
        fs::rename(&new, &again)?;
        for ending in [OLDER, NEWER] {
            remove(&self.path(to, ending))?;
        }
        Ok(taken)
    }

    /// Removes the taken dead letters, because they are now in the journal.
    pub(super) fn done(&self, to: &SubscriberId) -> io::Result<()> {
        remove(&self.path(to, AGAIN))
    }

    /// Removes all dead letters of a deleted subscriber.
    pub(super) fn remove(&self, to: &SubscriberId) -> io::Result<()> {
        let _writing = self.writing.lock();
        [OLDER, NEWER, AGAIN, NEW].into_iter().try_for_each(|ending| remove(&self.path(to, ending)))
    }

    fn path(&self, to: &SubscriberId, ending: &str) -> PathBuf {
        self.directory.join(format!("{}.{ending}", to.file_name()))
    }
}

/// Returns all dead letters below a data directory, oldest first. No eventing process needs to run.
///
/// # Errors
/// Fails if the directory or a file cannot be read.
pub fn dead_letters(data: &Path) -> io::Result<Vec<DeadLetter>> {
    let mut all = Vec::new();
    let entries = match fs::read_dir(place(data)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(all),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "new") {
            all.extend(read(&path)?);
        }
    }
    all.sort_by_key(|letter| letter.time);
    Ok(all)
}

fn place(data: &Path) -> PathBuf {
    data.join("dead-letters")
}

/// Whether a file is empty, or ends with the end of a line.
fn ends_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == [b'\n'])
}

/// Reads a file. An incomplete line is skipped: the process ended while it was writing the line, and the event will be
/// delivered again.
fn read(path: &Path) -> io::Result<Vec<DeadLetter>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => Ok(read?.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()),
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::subscriber::SubscriberKind;
    use super::*;

    fn letter(to: &SubscriberId, number: i64, data: &str) -> DeadLetter {
        let event = CloudEvent { data: data.to_owned().into(), ..CloudEvent::default() };
        DeadLetter::new(to, &event, "why", 1, Timestamp::from_second(number).unwrap())
    }

    #[test]
    fn they_are_listed_and_taken() {
        let (room, to) = (tempfile::tempdir().unwrap(), SubscriberId::new(SubscriberKind::Trigger, "a", "b"));
        assert_eq!(dead_letters(room.path()).unwrap(), []);
        let letters = DeadLetters::new(room.path()).unwrap();
        let all: Vec<_> = (0..3).map(|number| letter(&to, number, "data")).collect();
        for one in &all {
            letters.append(&to, one).unwrap();
        }
        assert_eq!(dead_letters(room.path()).unwrap(), all);
        assert_eq!(letters.take(&to).unwrap(), all);
        assert_eq!(letters.take(&to).unwrap(), all, "until that is done");
        letters.done(&to).unwrap();
        assert_eq!((letters.take(&to).unwrap(), all[0].clone().event().unwrap().data), (vec![], "data".into()));
    }

    #[test]
    fn an_incomplete_line_takes_no_other_letter_with_it() {
        let (room, to) = (tempfile::tempdir().unwrap(), SubscriberId::new(SubscriberKind::Trigger, "a", "b"));
        let letters = DeadLetters::new(room.path()).unwrap();
        let all: Vec<_> = (0..3).map(|number| letter(&to, number, "data")).collect();
        letters.append(&to, &all[0]).unwrap();
        let mut file = OpenOptions::new().append(true).open(letters.path(&to, NEWER)).unwrap();
        file.write_all(&serde_json::to_vec(&all[1]).unwrap()[..20]).unwrap();
        letters.append(&to, &all[2]).unwrap();
        let complete = [all[0].clone(), all[2].clone()];
        assert_eq!(letters.take(&to).unwrap(), complete);
        // The process ended while it was writing the next file.
        fs::write(letters.path(&to, NEW), "{").unwrap();
        assert_eq!(
            (dead_letters(room.path()).unwrap(), letters.take(&to).unwrap()),
            (complete.to_vec(), complete.to_vec())
        );
    }

    #[test]
    fn their_size_is_bounded() {
        let (room, to) = (tempfile::tempdir().unwrap(), SubscriberId::new(SubscriberKind::Trigger, "a", "b"));
        let letters = DeadLetters::new(room.path()).unwrap();
        let data = "x".repeat(60_000);
        for number in 0..200 {
            letters.append(&to, &letter(&to, number, &data)).unwrap();
        }
        let kept = dead_letters(room.path()).unwrap();
        assert!((50..=110).contains(&kept.len()) && kept.last().unwrap().time.as_second() == 199, "{}", kept.len());
    }
}
