//! Who reads which remote: what is kept of a remote stays for as long as anybody reads it, whoever that is.
//!
//! Invariant: a remote is told as unread exactly when the last one who read it reads another one, or none.
//! Invariant: what all read is known only when all of them are, and each has said what it reads or that it cannot tell.
//! Deliberately not here: removing what was kept.

use std::collections::{HashMap, HashSet};

/// What makes two remotes one.
pub(super) type Identity = [u8; 32];

/// One who reads remotes, one at a time.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reader {
    /// What it is: a GitSync and a Function of the same name are two readers.
    pub kind: ReaderKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Reader {
    /// A reader of this kind.
    pub fn new(kind: ReaderKind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// What a [`Reader`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReaderKind {
    /// A GitSync.
    GitSync,
    /// A Function.
    Function,
}

impl ReaderKind {
    const ALL: [Self; 2] = [Self::GitSync, Self::Function];
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    reads: HashMap<Reader, Identity>,
    remotes: HashMap<Identity, HashSet<Reader>>,
    /// Those of whom nobody knows yet what they read.
    unheard: HashSet<Reader>,
    /// Kinds of which all readers that there were are named.
    named: HashSet<ReaderKind>,
}

impl Readers {
    /// The reader is there. One that comes when its kind is named in full is not waited for.
    pub(super) fn expect(&mut self, reader: &Reader) {
        if !self.named.contains(&reader.kind) && !self.reads.contains_key(reader) {
            self.unheard.insert(reader.clone());
        }
    }

    /// All readers of this kind that there are have been named.
    pub(super) fn expect_no_more(&mut self, kind: ReaderKind) {
        self.named.insert(kind);
    }

    /// The reader has said what it reads, or cannot tell.
    pub(super) fn heard(&mut self, reader: &Reader) {
        self.unheard.remove(reader);
    }

    /// Whether it is known what all of them read.
    pub(super) fn are_known(&self) -> bool {
        self.unheard.is_empty() && ReaderKind::ALL.iter().all(|kind| self.named.contains(kind))
    }

    /// Every remote that somebody reads.
    pub(super) fn remotes(&self) -> impl Iterator<Item = &Identity> {
        self.remotes.keys()
    }

    /// The reader reads this remote from now on, or (`None`) none. Returns the remote that nobody reads any more.
    pub(super) fn set(&mut self, reader: &Reader, remote: Option<Identity>) -> Option<Identity> {
        self.heard(reader);
        let old = self.reads.get(reader).copied();
        if old == remote {
            return None;
        }
        match remote {
            Some(remote) => {
                self.reads.insert(reader.clone(), remote);
                self.remotes.entry(remote).or_default().insert(reader.clone());
            }
            None => {
                self.reads.remove(reader);
            }
        }
        let readers = self.remotes.get_mut(&old?)?;
        readers.remove(reader);
        if !readers.is_empty() {
            return None;
        }
        self.remotes.remove(&old?);
        old
    }

    /// The namespaces of everyone who reads a remote.
    pub(super) fn namespaces(&self, remote: &Identity) -> impl Iterator<Item = &str> {
        self.remotes.get(remote).into_iter().flatten().map(|reader| &*reader.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(kind: ReaderKind) -> Reader {
        Reader::new(kind, "shop", "web")
    }

    #[test]
    fn what_all_read_is_known_when_all_are_named_and_each_has_been_heard() {
        let (sync, function) = (reader(ReaderKind::GitSync), reader(ReaderKind::Function));
        let mut readers = Readers::default();
        readers.expect(&sync);
        readers.expect(&function);
        readers.set(&sync, Some([1; 32]));
        readers.expect(&sync);
        readers.heard(&function);
        assert!(!readers.are_known(), "there may be more of them");
        readers.expect_no_more(ReaderKind::GitSync);
        assert!(!readers.are_known(), "there may be more Functions");
        let late = Reader::new(ReaderKind::Function, "shop", "late");
        readers.expect(&late);
        readers.expect_no_more(ReaderKind::Function);
        assert!(!readers.are_known(), "one has not been heard");
        readers.set(&late, None);
        assert!(readers.are_known());
        readers.expect(&Reader::new(ReaderKind::GitSync, "shop", "new"));
        assert!(readers.are_known(), "whoever comes later had nothing before");
    }

    #[test]
    fn a_remote_is_read_until_its_last_reader_goes_whatever_that_is() {
        let (sync, function) = (reader(ReaderKind::GitSync), reader(ReaderKind::Function));
        let (one, two) = ([1; 32], [2; 32]);
        let mut readers = Readers::default();
        assert_eq!(readers.set(&sync, Some(one)), None);
        assert_eq!(readers.set(&function, Some(one)), None);
        assert_eq!(readers.set(&function, Some(one)), None, "nothing new");
        assert_eq!(readers.set(&sync, None), None, "the Function still reads it");
        assert_eq!(readers.set(&sync, None), None, "it is gone already");
        assert_eq!(readers.set(&function, Some(two)), Some(one));
        assert_eq!(readers.namespaces(&two).collect::<Vec<_>>(), ["shop"]);
        assert_eq!(readers.set(&function, None), Some(two));
        assert!(readers.reads.is_empty() && readers.remotes.is_empty(), "nothing is kept of those who are gone");
    }
}
