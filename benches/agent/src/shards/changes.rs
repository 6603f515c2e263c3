//! Changes of objects, by commits and by hand, and the time until each is in the cluster as committed.
//!
//! Resource versions order changes and writes, so no clock of the cluster is compared.
//!
//! Invariant: an object has one change at a time that has not ended.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use super::{
    deaths::{Death, Lost},
    load::Place,
    watch::Watched,
};

/// The origin of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A commit changed the object.
    Commit,
    /// An edit in the cluster, which is reverted.
    Edit,
}

/// The agents that are responsible for a GitSync at a time. A new holder waits while another agent has published a set of
/// agents in which that one owns the GitSync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Responsible {
    /// The agent that holds the Lease of the shard.
    pub holder: Option<String>,
    /// The agents with a Lease that have published a set in which they own the GitSync.
    pub claimants: Vec<String>,
}

/// The part of an agent in the work for a GitSync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It holds the Lease of the shard.
    Holder,
    /// It does not hold that Lease, but has published a set in which it owns the GitSync.
    Claimant,
    /// It is not responsible.
    Other,
}

impl Responsible {
    /// Returns the part of an agent.
    pub(super) fn part(&self, agent: &str) -> Part {
        if self.holder.as_deref() == Some(agent) {
            Part::Holder
        } else if self.claimants.iter().any(|claimant| claimant == agent) {
            Part::Claimant
        } else {
            Part::Other
        }
    }

    /// Returns all responsible agents, each one once.
    pub(super) fn agents(&self) -> impl Iterator<Item = &String> {
        let others = self.claimants.iter().filter(|claimant| self.holder.as_ref() != Some(*claimant));
        self.holder.iter().chain(others)
    }
}

/// The event from which the time of a change is counted. It is the change itself if there was no such event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The first death of an agent that was responsible when the change began, or became so later.
    First,
    /// The last one.
    Last,
    /// The last death of the agent that held the shard.
    Holder,
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
    pub start: Instant,
    /// The agents that were responsible when the change began.
    pub responsible: Responsible,
    /// The deaths of responsible agents during the change, or just before it.
    pub deaths: Vec<Death>,
    /// The last death of the agent that held the shard of the GitSync during the change, or just before it.
    pub orphaned: Option<Instant>,
    /// The first later write after which the object was as committed: its time and resource version.
    pub end: Option<(Instant, u64)>,
    /// Number of writes that changed the object.
    writes: usize,
}

impl Change {
    /// Creates a change that begins.
    pub(super) fn new(place: Place, cause: Cause, version: u64, wanted: String, start: Instant) -> Self {
        let (responsible, deaths) = (Responsible::default(), Vec::new());
        Self { place, cause, version, wanted, start, responsible, deaths, orphaned: None, end: None, writes: 0 }
    }

    /// Returns the time until the object was as committed. `None` if that never happened.
    pub(super) fn took(&self, since: Since) -> Option<Duration> {
        let deaths = self.deaths.iter().map(|death| death.at);
        let from = match since {
            Since::First => deaths.min(),
            Since::Last => deaths.max(),
            Since::Holder => self.orphaned,
        };
        let (end, _) = self.end?;
        Some(end.saturating_duration_since(from.unwrap_or(self.start)))
    }

    /// Returns the part that the last death of a responsible agent ended. `None` if there was no death.
    pub(super) fn lost(&self) -> Option<Lost> {
        self.deaths.iter().max_by_key(|death| death.at).map(|death| death.lost)
    }

    /// Sets the agents that are responsible when the change begins. Those that have died already leave the object
    /// unprotected.
    pub(super) fn entrust(&mut self, responsible: Responsible, died: impl Fn(&str) -> Option<Death>) {
        for agent in responsible.agents() {
            if let Some(death) = died(agent) {
                self.bereave(&death, responsible.part(agent));
            }
        }
        self.responsible = responsible;
    }

    /// Records the death of an agent with this part.
    fn bereave(&mut self, death: &Death, part: Part) {
        if part == Part::Holder {
            self.orphaned = Some(death.at);
        }
        if part != Part::Other {
            self.deaths.push(death.clone());
        }
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
            change.end = change.end.or(Some((event.at, event.version)));
        }
    }

    /// Records the death of an agent. `part` returns its part in the work for the GitSync of an object.
    pub(super) fn orphan(&mut self, death: &Death, part: impl Fn(Place) -> Part) {
        for change in self.all.iter_mut().filter(|change| change.end.is_none()) {
            change.bereave(death, part(change.place));
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

    /// Returns all changes.
    pub(super) fn all(&self) -> impl Iterator<Item = &Change> {
        self.all.iter()
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
        let took: Vec<_> = changes.of(Cause::Edit).map(|change| change.took(Since::Last)).collect();
        assert_eq!((took, changes.repeated()), (vec![Some(Duration::from_secs(3))], 1));
        changes.see(&event(10, None, at(5)));
        assert_eq!(changes.deleted, [PLACE.name()]);
    }

    #[test]
    fn the_time_of_a_change_begins_with_the_last_death_of_its_agent() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let death = |seconds| Death { at: at(seconds), agent: format!("agent-{seconds}"), lost: Lost::Pod };
        let part = |is_holder| if is_holder { Part::Holder } else { Part::Other };
        let mut changes = Changes::default();
        changes.begin(Change::new(PLACE, Cause::Commit, 5, "1".to_owned(), start));
        changes.orphan(&death(1), |place| part(place.sync == PLACE.sync));
        changes.orphan(&death(2), |place| part(place.sync != PLACE.sync));
        changes.see(&event(7, Some("1"), at(11)));
        changes.orphan(&death(12), |_| Part::Holder);
        let change = changes.of(Cause::Commit).next().unwrap();
        for since in [Since::First, Since::Last, Since::Holder] {
            assert_eq!(change.took(since), Some(Duration::from_secs(10)), "{since:?}");
        }
        assert_eq!((change.deaths.as_slice(), change.end), ([death(1)].as_slice(), Some((at(11), 7))));
        assert_eq!(changes.of(Cause::Edit).count(), 0);
        assert_eq!(changes.beginnings(), HashMap::from([(PLACE.name(), vec![(5, Cause::Commit)])]));
    }

    #[test]
    fn the_death_of_an_agent_that_had_taken_the_share_over_counts_as_well() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let responsible = |holder: &str, claimants: &[&str]| Responsible {
            holder: Some(holder.to_owned()),
            claimants: claimants.iter().map(|name| (*name).to_owned()).collect(),
        };
        let death = |seconds, agent: &str, lost| Death { at: at(seconds), agent: agent.to_owned(), lost };
        let mut change = Change::new(PLACE, Cause::Edit, 5, "0".to_owned(), at(1));
        assert_eq!(change.lost(), None);
        // The holder has died before the edit. Another agent takes over and dies while a new agent holds the shard.
        change.entrust(responsible("one", &["one"]), |agent| (agent == "one").then(|| death(0, "one", Lost::Pod)));
        assert_eq!(change.lost(), Some(Lost::Pod));
        let mut changes = Changes::default();
        changes.begin(change);
        let later = responsible("three", &["two"]);
        changes.orphan(&death(20, "two", Lost::Container), |_| later.part("two"));
        changes.orphan(&death(21, "four", Lost::Pod), |_| later.part("four"));
        changes.see(&event(6, Some("0"), at(34)));
        let change = changes.all().next().unwrap();
        let took = [Since::First, Since::Last, Since::Holder].map(|since| change.took(since));
        assert_eq!(took, [34, 14, 34].map(|seconds| Some(Duration::from_secs(seconds))));
        assert_eq!(change.lost(), Some(Lost::Container));
        assert_eq!(change.deaths.iter().map(|death| &*death.agent).collect::<Vec<_>>(), ["one", "two"]);
    }

    #[test]
    fn a_change_belongs_to_the_last_death_in_time() {
        let start = Instant::now();
        let death = |seconds, agent: &str, lost| {
            Some(Death { at: start + Duration::from_secs(seconds), agent: agent.to_owned(), lost })
        };
        for (container, pod, expected) in [(1, 2, Lost::Pod), (2, 1, Lost::Container)] {
            let mut change = Change::new(PLACE, Cause::Edit, 5, "0".to_owned(), start);
            let responsible = Responsible { holder: Some("one".to_owned()), claimants: vec!["two".to_owned()] };
            change.entrust(responsible, |agent| match agent {
                "one" => death(container, agent, Lost::Container),
                _ => death(pod, agent, Lost::Pod),
            });
            assert_eq!((change.deaths.len(), change.lost()), (2, Some(expected)));
        }
    }
}
