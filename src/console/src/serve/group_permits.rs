//! Permits that are limited for the server, and for each group of users: memory of pages and forms, watches of lists beside
//! the fleets, requests, streams, and calls.
//!
//! Invariant: no group takes the permits of all others. Invariant: a request that waits for permits delays only the requests of
//! its own group. Free permits go to the waiting group that has the fewest.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::session::{self, is_unknown};

/// Maximum numbers of permits of the server, and of the sessions of a group of users.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    pub(super) server: usize,
    pub(super) group: usize,
    /// Number of permits that a group gets even if the server has its maximum. All groups of users without a name together
    /// get it once.
    pub(super) least: usize,
}

/// The maximum numbers of watches beside those of the fleets.
pub(super) const WATCHES: Most = Most { server: 140, group: 40, least: 0 };

/// Who has the maximum number of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    Session,
    Group,
    Server,
}

/// The permits that each group of users has taken. Clones share them.
#[derive(Clone)]
pub(super) struct GroupPermits {
    most: Most,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    taken: HashMap<String, usize>,
    /// The requests that wait, in the order of their arrival.
    waiting: BTreeMap<u64, Waiting>,
    /// The number for the next request that waits.
    entered: u64,
}

struct Waiting {
    group: String,
    count: usize,
    given: oneshot::Sender<GroupPermit>,
}

/// Some permits of a group, until it is dropped.
pub(super) struct GroupPermit {
    all: GroupPermits,
    group: String,
    count: usize,
}

impl State {
    fn own(&self, group: &str) -> usize {
        self.taken.get(group).copied().unwrap_or(0)
    }

    /// Returns who has too many permits for so many more of a group.
    fn full(&self, most: Most, group: &str, count: usize) -> Option<Full> {
        let own = self.own(group) + count;
        if own > most.group {
            return Some(Full::Group);
        }
        let all = self.taken.values().sum::<usize>() + count;
        // One user may have many tokens without a user name, and each one is a group.
        let unknown = is_unknown(group).then(|| self.of_unknown() + count);
        let is_full = all > most.server || unknown.is_some_and(|unknown| unknown > most.of_unknown());
        let has_least = unknown.unwrap_or(own) > most.least || all > most.all();
        (is_full && has_least).then_some(Full::Server)
    }

    /// Returns the number of permits of all groups of users without a name.
    fn of_unknown(&self) -> usize {
        self.taken.iter().filter(|(group, _)| is_unknown(group)).map(|(_, taken)| taken).sum()
    }

    /// Returns the request that gets its permits next: the first one of the group that has the fewest permits.
    fn next(&self, most: Most) -> Option<u64> {
        let mut groups = HashSet::new();
        let mut next: Option<(usize, u64)> = None;
        for (number, waiting) in &self.waiting {
            let is_first = groups.insert(waiting.group.as_str());
            if is_first && self.full(most, &waiting.group, waiting.count).is_none() {
                let candidate = (self.own(&waiting.group), *number);
                next = Some(next.map_or(candidate, |next| next.min(candidate)));
            }
        }
        next.map(|(_, number)| number)
    }

    /// Takes the permits of the request that gets them next.
    fn grant(&mut self, most: Most) -> Option<Waiting> {
        let waiting = self.waiting.remove(&self.next(most)?)?;
        *self.taken.entry(waiting.group.clone()).or_default() += waiting.count;
        Some(waiting)
    }
}

impl Most {
    /// The maximum number for all groups together. Groups of ended sessions may have permits, too.
    pub(super) const fn all(self) -> usize {
        self.server + session::ALL * self.least
    }

    /// The maximum number for all groups of users without a name together.
    const fn of_unknown(self) -> usize {
        let half = self.server / 2;
        if half > self.group { half } else { self.group }
    }
}

impl GroupPermits {
    pub(super) fn new(most: Most) -> Self {
        Self { most, state: Arc::default() }
    }

    /// Takes so many permits for a group, if the server and the group have them.
    pub(super) fn try_acquire(&self, group: &str, count: usize) -> Result<GroupPermit, Full> {
        self.try_acquire_leaving(group, count, 0)
    }

    /// Same as `try_acquire`, but leaves so many of the group's permits to others of the group.
    pub(super) fn try_acquire_leaving(&self, group: &str, count: usize, left: usize) -> Result<GroupPermit, Full> {
        let most = Most { group: self.most.group.saturating_sub(left), ..self.most };
        let mut state = self.state.lock();
        if let Some(full) = state.full(most, group, count) {
            return Err(full);
        }
        *state.taken.entry(group.to_owned()).or_default() += count;
        Ok(GroupPermit { all: self.clone(), group: group.to_owned(), count })
    }

    /// Waits for so many permits for a group. Requests of a group get theirs in the order of their arrival. `None` is never
    /// returned while this value exists.
    pub(super) async fn acquire(&self, group: &str, count: usize) -> Option<GroupPermit> {
        let (given, granted) = oneshot::channel();
        let number = {
            let mut state = self.state.lock();
            let number = state.entered;
            state.entered += 1;
            state.waiting.insert(number, Waiting { group: group.to_owned(), count, given });
            number
        };
        let _entry = Entry { all: self, number };
        self.grant();
        granted.await.ok()
    }

    /// Gives the free permits to requests that wait.
    fn grant(&self) {
        loop {
            let granted = self.state.lock().grant(self.most);
            let Some(Waiting { group, count, given }) = granted else { return };
            // A request that has gone returns its permits.
            drop(given.send(GroupPermit { all: self.clone(), group, count }));
        }
    }

    fn release(&self, group: &str, count: usize) {
        {
            let mut state = self.state.lock();
            let left = state.own(group).saturating_sub(count);
            if left == 0 {
                state.taken.remove(group);
            } else {
                state.taken.insert(group.to_owned(), left);
            }
        }
        self.grant();
    }

    /// Returns the number of permits that are taken.
    #[cfg(test)]
    pub(super) fn taken(&self) -> usize {
        self.state.lock().taken.values().sum()
    }
}

impl GroupPermit {
    /// Returns the number of its permits.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes so many further permits of its group. Returns whether they were free.
    pub(super) fn try_grow(&mut self, more: usize) -> bool {
        let Ok(mut more) = self.all.try_acquire(&self.group, more) else { return false };
        self.count += std::mem::take(&mut more.count);
        true
    }

    /// Returns the maximum number of permits of its group.
    pub(super) fn most(&self) -> usize {
        self.all.most.group
    }

    /// Returns the permits of a group beyond this number.
    pub(super) fn shrink_to(&mut self, count: usize) {
        let unused = self.count.saturating_sub(count);
        if unused > 0 {
            self.count = count;
            self.all.release(&self.group, unused);
        }
    }
}

impl Drop for GroupPermit {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

/// The entry of a request while it waits.
struct Entry<'p> {
    all: &'p GroupPermits,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let waiting = self.all.state.lock().waiting.remove(&self.number);
        // The next request of the same group may need fewer permits.
        if waiting.is_some() {
            self.all.grant();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn a_group_takes_its_part_of_the_permits_and_returns_them() {
        let permits = GroupPermits::new(WATCHES);
        let take =
            |group: &str| -> Vec<GroupPermit> { std::iter::from_fn(|| permits.try_acquire(group, 7).ok()).collect() };
        let first = take("a");
        assert_eq!(first.len(), WATCHES.group / 7);
        assert_eq!(permits.try_acquire("a", 7).err(), Some(Full::Group));
        let others: Vec<_> = ["b", "c", "d"].into_iter().map(take).collect();
        assert_eq!(others.iter().map(Vec::len).sum::<usize>(), 15, "the server has no more");
        assert_eq!(permits.try_acquire("e", 7).err(), Some(Full::Server));
        drop(first);
        assert!(permits.try_acquire("e", 7).is_ok());
        drop(others);
        assert!(permits.state.lock().taken.is_empty());
    }

    #[test]
    fn a_group_has_its_least_number_of_permits_on_a_full_server() {
        let permits = GroupPermits::new(Most { server: 4, group: 4, least: 2 });
        let take = |group: &str| std::iter::from_fn(|| permits.try_acquire(group, 1).ok()).collect::<Vec<_>>();
        let (first, second) = (take("a"), take("b"));
        assert_eq!((first.len(), second.len()), (4, 2));
        assert_eq!(permits.try_acquire("b", 1).err(), Some(Full::Server));
    }

    #[test]
    fn the_groups_of_users_without_a_name_leave_permits_to_others() {
        let permits = GroupPermits::new(Most { server: 8, group: 3, least: 0 });
        let take = |group: &str| std::iter::from_fn(|| permits.try_acquire(group, 1).ok()).collect::<Vec<_>>();
        let unknown = ["token 1", "token 2", "token 3"].map(take);
        assert_eq!(unknown.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1, 0]);
        assert_eq!(take("user a").len(), 3);
    }

    #[test]
    fn the_groups_of_users_without_a_name_share_one_least_number() {
        let permits = GroupPermits::new(Most { server: 8, group: 4, least: 2 });
        let take = |group: &str| std::iter::from_fn(|| permits.try_acquire(group, 1).ok()).collect::<Vec<_>>();
        let held = ["user a", "user b", "token 1", "token 2", "user c"].map(take);
        assert_eq!(held.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2, 0, 2]);
    }

    #[test]
    fn the_groups_of_many_ended_sessions_take_no_more_than_all_sessions() {
        let most = Most { server: 4, group: 4, least: 2 };
        let permits = GroupPermits::new(most);
        let take = |group: usize| {
            let group = format!("user {group}");
            std::iter::from_fn(|| permits.try_acquire(&group, 1).ok()).collect::<Vec<_>>()
        };
        let held: Vec<GroupPermit> = (0..2 * session::ALL).flat_map(take).collect();
        assert_eq!((held.len(), permits.taken()), (most.all(), most.all()));
    }

    #[test]
    fn some_permits_of_a_group_are_left_to_others_and_a_permit_grows() {
        let permits = GroupPermits::new(Most { server: 9, group: 4, least: 0 });
        let mut first = permits.try_acquire_leaving("a", 3, 1).ok().unwrap();
        assert_eq!(permits.try_acquire_leaving("a", 1, 1).err(), Some(Full::Group));
        assert!(first.try_grow(1) && !first.try_grow(1));
        assert_eq!((first.count(), first.most(), permits.taken()), (4, 4, 4));
        drop(first);
        assert_eq!(permits.taken(), 0);
    }

    #[test]
    fn a_request_that_waits_delays_its_own_group_only() {
        let permits = GroupPermits::new(Most { server: 10, group: 8, least: 0 });
        let held = permits.try_acquire("a", 7).ok().unwrap();
        let mut large = Box::pin(permits.acquire("b", 8));
        assert!(large.as_mut().now_or_never().is_none());
        let mut behind = Box::pin(permits.acquire("b", 1));
        assert!(behind.as_mut().now_or_never().is_none());
        let small = permits.acquire("c", 2).now_or_never().flatten();
        assert!(small.is_some());
        drop((held, small));
        assert!(large.as_mut().now_or_never().flatten().is_some(), "and its permits are returned");
        assert!(behind.as_mut().now_or_never().flatten().is_some());
        drop(behind);
        assert!(permits.state.lock().taken.is_empty());
    }

    #[test]
    fn free_permits_go_to_the_group_that_has_the_fewest() {
        let permits = GroupPermits::new(Most { server: 4, group: 4, least: 0 });
        let mut held: Vec<_> = std::iter::from_fn(|| permits.try_acquire("a", 1).ok()).collect();
        let mut waiting: Vec<_> = ["a", "a", "b", "b", "c"].map(|group| Box::pin(permits.acquire(group, 1))).into();
        for one in &mut waiting {
            assert!(one.as_mut().now_or_never().is_none());
        }
        held.truncate(2);
        let mut granted = Vec::new();
        for one in &mut waiting {
            granted.push(one.as_mut().now_or_never().flatten());
        }
        let served: Vec<bool> = granted.iter().map(Option::is_some).collect();
        assert_eq!(served, [false, false, true, false, true]);
    }

    #[test]
    fn a_request_that_has_gone_lets_the_next_one_of_its_group_in() {
        let permits = GroupPermits::new(Most { server: 4, group: 4, least: 0 });
        let _held = permits.try_acquire("a", 2).ok();
        let mut large = Box::pin(permits.acquire("b", 3));
        assert!(large.as_mut().now_or_never().is_none());
        let mut small = Box::pin(permits.acquire("b", 2));
        assert!(small.as_mut().now_or_never().is_none());
        drop(large);
        assert!(small.as_mut().now_or_never().flatten().is_some());
        assert!(permits.state.lock().waiting.is_empty());
    }
}
