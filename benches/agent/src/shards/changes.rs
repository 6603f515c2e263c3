//! Changes of objects, by commits and by hand, and the time until each is in the cluster as committed.
//!
//! Resource versions order changes and writes, so no clock of the cluster is compared.
//!
//! Invariant: an object has one change at a time that has not ended.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{load::Place, watch::Watched};

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A commit changed the object.
    Commit,
    /// An edit in the cluster, which is reverted.
    Edit,
}

/// A change of an object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub place: Place,
    pub cause: Cause,
    /// The resource version of the edit, or one before the commit. Writes for this change have higher ones.
    pub version: u64,
    /// The committed `data.revision`.
    wanted: String,
    start: Instant,
    /// The last death of the agent that owned the GitSync during the change, or just before it.
    pub orphaned: Option<Instant>,
    end: Option<Instant>,
    /// Number of writes that changed the object.
    writes: usize,
}

impl Change {
    /// Creates a change that begins.
    pub(super) fn new(place: Place, cause: Cause, version: u64, wanted: String, start: Instant) -> Self {
        Self { place, cause, version, wanted, start, orphaned: None, end: None, writes: 0 }
    }

    /// Returns the time until the object was as committed: since the death of the agent, or else since the change.
    /// `None` if that never happened.
    pub(super) fn took(&self) -> Option<Duration> {
        Some(self.end?.saturating_duration_since(self.orphaned.unwrap_or(self.start)))
    }
}

/// All changes of a measurement.
#[derive(Default)]
pub(super) struct Changes {
    all: Vec<Change>,
    /// The last change of each object, by name.
    last: HashMap<String, usize>,
    /// The names of deleted objects.
    pub deleted: Vec<String>,
}

impl Changes {
    /// Adds a change. Its events have not been passed to [`Self::see`] yet.
    pub(super) fn begin(&mut self, change: Change) {
        self.last.insert(change.place.name(), self.all.len());
        self.all.push(change);
    }

    /// Takes an event of the watch into account.
    pub(super) fn see(&mut self, event: &Watched) {
        let Some(revision) = &event.revision else {
            self.deleted.push(event.name.clone());
            return;
        };
        let Some(change) = self.last.get(&event.name).and_then(|at| self.all.get_mut(*at)) else { return };
        if event.version <= change.version {
            return;
        }
        change.writes += 1;
        if *revision == change.wanted {
            change.end = change.end.or(Some(event.at));
        }
    }

    /// Records the death of an agent that owns the GitSyncs of some objects.
    pub(super) fn orphan(&mut self, died: Instant, is_owned: impl Fn(Place) -> bool) {
        for change in self.all.iter_mut().filter(|change| change.end.is_none()) {
            if is_owned(change.place) {
                change.orphaned = Some(died);
            }
        }
    }

    /// Whether an object has a change that has not ended.
    pub(super) fn is_open(&self, place: Place) -> bool {
        self.last.get(&place.name()).is_some_and(|at| self.all[*at].end.is_none())
    }

    /// Returns the number of changes that have not ended.
    pub(super) fn open(&self) -> usize {
        self.all.iter().filter(|change| change.end.is_none()).count()
    }

    /// Returns the number of changes for which an object was changed more than once.
    pub(super) fn repeated(&self) -> usize {
        self.all.iter().filter(|change| change.writes > 1).count()
    }

    /// Returns the changes of a cause.
    pub(super) fn of(&self, cause: Cause) -> impl Iterator<Item = &Change> {
        self.all.iter().filter(move |change| change.cause == cause)
    }

    /// Returns the beginnings of the changes of each object, in order.
    pub(super) fn beginnings(&self) -> HashMap<String, Vec<(u64, Cause)>> {
        let mut all: HashMap<String, Vec<(u64, Cause)>> = HashMap::new();
        for change in &self.all {
            all.entry(change.place.name()).or_default().push((change.version, change.cause));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place { sync: 3, number: 1 };

    fn event(version: u64, revision: Option<&str>, at: Instant) -> Watched {
        Watched { name: PLACE.name(), version, revision: revision.map(str::to_owned), at }
    }

    #[test]
    fn an_edit_ends_with_the_first_later_event_that_is_as_committed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut changes = Changes::default();
        changes.see(&event(4, Some("0"), at(0)));
        changes.begin(Change::new(PLACE, Cause::Edit, 5, "0".to_owned(), start));
        changes.see(&event(4, Some("0"), at(1)));
        changes.see(&event(5, Some("edited"), at(2)));
        assert!(changes.is_open(PLACE) && !changes.is_open(Place { sync: 0, number: 0 }));
        changes.see(&event(6, Some("0"), at(3)));
        assert_eq!((changes.open(), changes.repeated()), (0, 0));
        changes.see(&event(9, Some("0"), at(4)));
        let took: Vec<_> = changes.of(Cause::Edit).map(Change::took).collect();
        assert_eq!((took, changes.repeated()), (vec![Some(Duration::from_secs(3))], 1));
        changes.see(&event(10, None, at(5)));
        assert_eq!(changes.deleted, [PLACE.name()]);
    }

    #[test]
    fn the_time_of_a_change_begins_with_the_last_death_of_its_agent() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut changes = Changes::default();
        changes.begin(Change::new(PLACE, Cause::Commit, 5, "1".to_owned(), start));
        changes.orphan(at(1), |place| place.sync == PLACE.sync);
        changes.orphan(at(2), |place| place.sync != PLACE.sync);
        changes.see(&event(7, Some("1"), at(11)));
        changes.orphan(at(12), |_| true);
        assert_eq!(changes.of(Cause::Commit).map(Change::took).collect::<Vec<_>>(), [Some(Duration::from_secs(10))]);
        assert_eq!(changes.of(Cause::Edit).count(), 0);
        assert_eq!(changes.beginnings(), HashMap::from([(PLACE.name(), vec![(5, Cause::Commit)])]));
    }
}
