//! One list of objects for all deliveries of a Receiver that wait for it.
//!
//! Invariant: a delivery gets only a list that began after the delivery arrived, so it sees each change before it.
//! Invariant: a list is kept only while deliveries wait that may use it.
//! Not here: how objects are listed, and how often (`listing`).

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;

use super::filter::Object;
use super::turns::Turn;

/// The listed objects.
#[derive(Debug)]
pub(super) struct Listed {
    pub(super) objects: Vec<Object>,
    /// The permit of the list. It bounds the lists that are in memory.
    _turn: Turn,
}

/// The result of a list: the objects, or a message for the owner of the Receiver.
pub(super) type Shared = Result<Arc<Listed>, String>;

/// The newest list of a Receiver.
#[derive(Debug, Default)]
pub(super) struct SharedList(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Number of deliveries that wait for a list.
    waiting: usize,
    /// When the newest list began, and its result.
    newest: Option<(Instant, Shared)>,
}

/// A delivery that waits for a list, until this value is dropped.
#[derive(Debug)]
pub(super) struct Waiting<'l> {
    list: &'l SharedList,
    since: Instant,
}

impl Listed {
    /// Keeps objects, and the permit with which they were listed.
    pub(super) fn new(objects: Vec<Object>, turn: Turn) -> Self {
        Self { objects, _turn: turn }
    }
}

impl SharedList {
    /// Registers a delivery that arrived at this time.
    pub(super) fn wait(&self, since: Instant) -> Waiting<'_> {
        self.0.lock().waiting += 1;
        Waiting { list: self, since }
    }
}

impl Waiting<'_> {
    /// Returns the newest list if it began after the delivery arrived. An older one is dropped, because its permit must not
    /// delay the next list.
    pub(super) fn newest(&self) -> Option<Shared> {
        let mut state = self.list.0.lock();
        if state.newest.as_ref().is_some_and(|(began, _)| *began < self.since) {
            state.newest = None;
        }
        state.newest.as_ref().map(|(_, result)| result.clone())
    }

    /// Keeps a list for the other deliveries that wait.
    pub(super) fn share(&self, began: Instant, result: Shared) {
        self.list.0.lock().newest = Some((began, result));
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.list.0.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            state.newest = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::FutureExt as _;

    use super::super::turns::Turns;
    use super::*;

    /// Returns times that follow each other.
    fn times() -> [Instant; 4] {
        let first = Instant::now();
        [0, 1, 2, 3].map(|second| first + Duration::from_secs(second))
    }

    #[test]
    fn deliveries_share_a_list_that_began_after_they_arrived() {
        let list = SharedList::default();
        let [first, second, third, fourth] = times();
        let (one, two, late) = (list.wait(first), list.wait(first), list.wait(third));
        assert_eq!(one.newest().map(|result| result.is_ok()), None);
        one.share(second, Err("a failure".to_owned()));
        assert_eq!(two.newest().and_then(Result::err).as_deref(), Some("a failure"));
        assert!(late.newest().is_none(), "the list began before this delivery arrived");
        assert!(two.newest().is_none(), "an old list is not kept");
        late.share(fourth, Err("another".to_owned()));
        assert_eq!(two.newest().and_then(Result::err).as_deref(), Some("another"));
    }

    #[tokio::test]
    async fn a_list_ends_with_the_last_delivery_that_uses_it_and_returns_its_permit() {
        let (list, turns) = (SharedList::default(), Turns::new(1));
        let [first, second, ..] = times();
        let (one, two) = (list.wait(first), list.wait(first));
        one.share(second, Ok(Arc::new(Listed::new(Vec::new(), turns.acquire("shop").await))));
        drop(one);
        let used = two.newest().unwrap().unwrap();
        drop(two);
        assert!(list.0.lock().newest.is_none(), "no delivery waits");
        assert!(turns.acquire("bank").now_or_never().is_none(), "the objects are still used");
        drop(used);
        assert!(turns.acquire("bank").now_or_never().is_some());
    }
}
