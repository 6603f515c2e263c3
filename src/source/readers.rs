//! Who reads which remote: what is kept of a remote stays for as long as anybody reads it, whoever that is.
//!
//! Invariant: a remote is told as unread exactly when the last one who read it reads another one, or none.
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

/// What a [`Reader`] is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReaderKind {
    /// A GitSync.
    GitSync,
    /// A Function.
    Function,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Readers {
    reads: HashMap<Reader, Identity>,
    remotes: HashMap<Identity, HashSet<Reader>>,
}

impl Readers {
    /// The reader reads this remote from now on, or (`None`) none. Returns the remote that nobody reads any more.
    pub(super) fn set(&mut self, reader: &Reader, remote: Option<Identity>) -> Option<Identity> {
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
        Reader { kind, namespace: "shop".into(), name: "web".into() }
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
