//! The tags of ImageRepositories, for ImagePolicies.
//!
//! Invariant: the memory of all tags is bounded.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};

use crate::agent::kept::Name;
use mainstay_api::image_repository::AccessFrom;
use mainstay_function::registry::Digest;

/// Maximum number of bytes of the tags of an ImageRepository.
pub(super) const TAG_BYTES: usize = 256 << 10;
/// Maximum number of bytes of all tags.
const ALL_BYTES: usize = 8 << 20;

/// The tags of all ImageRepositories.
#[derive(Debug, Default)]
pub(super) struct Scans {
    rows: Mutex<HashMap<Name, Row>>,
    bytes: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Row {
    /// The number of the task that publishes.
    number: u64,
    known: watch::Sender<Known>,
    /// Requests for digests, to the task of the ImageRepository.
    digests: Option<mpsc::Sender<Ask>>,
}

/// The knowledge about an ImageRepository.
#[derive(Clone, Debug, Default)]
pub(super) enum Known {
    /// It does not exist.
    #[default]
    Absent,
    /// Its first listing has not ended.
    Pending,
    /// Its tags are unknown, for this reason.
    Unread(String),
    Read(Arc<Scan>),
}

impl Known {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent, Self::Absent) | (Self::Pending, Self::Pending) => true,
            (Self::Unread(one), Self::Unread(two)) => one == two,
            (Self::Read(one), Self::Read(two)) => {
                Arc::ptr_eq(&one.tags, &two.tags) && one.image == two.image && one.access_from == two.access_from
            }
            _ => false,
        }
    }
}

/// A listing of tags.
#[derive(Debug)]
pub(super) struct Scan {
    /// The image as the ImageRepository names it.
    pub(super) image: String,
    pub(super) access_from: Option<AccessFrom>,
    pub(super) tags: Arc<Tags>,
}

/// A request for the digest of a tag.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) tag: String,
    pub(super) reply: oneshot::Sender<Result<Digest, String>>,
}

/// Sorted tags.
#[derive(Debug)]
pub(super) struct Tags {
    /// The tags with line breaks between them. A tag contains no line break.
    text: Box<str>,
    bytes: Arc<AtomicUsize>,
}

impl Tags {
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.text.split('\n').filter(|tag| !tag.is_empty())
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }
}

impl Drop for Tags {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.text.len(), Ordering::Relaxed);
    }
}

impl Scans {
    /// Returns tags from their sorted text, if there is memory for them.
    pub(super) fn tags(&self, text: String) -> Option<Tags> {
        let size = text.len();
        let add = |bytes: usize| bytes.checked_add(size).filter(|sum| *sum <= ALL_BYTES);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Tags { text: text.into_boxed_str(), bytes: Arc::clone(&self.bytes) })
    }

    /// Registers the task of an ImageRepository, and returns the requests for digests.
    pub(super) fn open(&self, repository: &Name, number: u64) -> mpsc::Receiver<Ask> {
        let (sender, receiver) = mpsc::channel(16);
        let mut rows = self.rows.lock();
        let row = rows.entry(repository.clone()).or_default();
        (row.number, row.digests) = (number, Some(sender));
        row.known.send_replace(Known::Pending);
        receiver
    }

    /// Publishes the knowledge of the task with this number. Listeners are not woken if it is the same.
    pub(super) fn publish(&self, repository: &Name, number: u64, known: Known) {
        let rows = self.rows.lock();
        if let Some(row) = rows.get(repository).filter(|row| row.number == number) {
            row.known.send_if_modified(|old| {
                let is_new = !old.is_same(&known);
                *old = known;
                is_new
            });
        }
    }

    /// Removes the knowledge of the task with this number.
    pub(super) fn close(&self, repository: &Name, number: u64) {
        let mut rows = self.rows.lock();
        let Some(row) = rows.get_mut(repository).filter(|row| row.number == number) else { return };
        row.digests = None;
        row.known.send_replace(Known::Absent);
        if row.known.receiver_count() == 0 {
            rows.remove(repository);
        }
    }

    /// Follows an ImageRepository, which need not exist.
    pub(super) fn listen(&self, repository: &Name) -> watch::Receiver<Known> {
        self.rows.lock().entry(repository.clone()).or_default().known.subscribe()
    }

    /// Stops following an ImageRepository.
    pub(super) fn leave(&self, repository: &Name, listening: watch::Receiver<Known>) {
        let mut rows = self.rows.lock();
        drop(listening);
        if rows.get(repository).is_some_and(|row| row.digests.is_none() && row.known.receiver_count() == 0) {
            rows.remove(repository);
        }
    }

    /// Returns the digest of a tag.
    pub(super) async fn digest(&self, repository: &Name, tag: &str) -> Result<Digest, String> {
        let gone = || "the ImageRepository does not exist any more".to_owned();
        let asks = self.rows.lock().get(repository).and_then(|row| row.digests.clone()).ok_or_else(gone)?;
        let (reply, answer) = oneshot::channel();
        asks.send(Ask { tag: tag.to_owned(), reply }).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Name {
        ("team".to_owned(), name.to_owned())
    }

    #[test]
    fn an_older_task_publishes_nothing_after_a_newer_one_began() {
        let scans = Scans::default();
        let listening = scans.listen(&name("web"));
        assert!(matches!(*listening.borrow(), Known::Absent));
        let _old = scans.open(&name("web"), 1);
        let _new = scans.open(&name("web"), 2);
        scans.publish(&name("web"), 1, Known::Absent);
        scans.close(&name("web"), 1);
        assert!(matches!(*listening.borrow(), Known::Pending));
        scans.close(&name("web"), 2);
        assert!(matches!(*listening.borrow(), Known::Absent));
        scans.leave(&name("web"), listening);
        assert!(scans.rows.lock().is_empty());
    }

    #[test]
    fn the_memory_of_all_tags_is_bounded() {
        let scans = Scans::default();
        let held = scans.tags("a".repeat(ALL_BYTES)).unwrap();
        assert!(scans.tags("b".to_owned()).is_none());
        drop(held);
        assert_eq!(scans.tags("a\nb".to_owned()).unwrap().iter().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(scans.tags(String::new()).unwrap().iter().count(), 0);
    }
}
