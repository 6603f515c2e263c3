//! Kills agents while objects change by commits and by hand.

use std::time::{Duration, Instant};

use super::{
    Error,
    changes::{Cause, Change, Changes},
    deaths::{Death, Deaths, Kills},
    history::History,
    load::{OBJECTS, Place},
    progress,
    world::{Owners, World},
};
use crate::choices::Choices;

/// Interval of kills.
const KILLS: Duration = Duration::from_secs(20);
/// Interval of commits. Each costs a status write for each GitSync.
const COMMITS: Duration = Duration::from_secs(30);
/// Interval of edits.
const EDITS: Duration = Duration::from_secs(1);
/// Interval at which agents that have ended are replaced.
const CHECKS: Duration = Duration::from_secs(2);
/// Number of objects that a commit changes.
const CHANGED: usize = 10;
/// Number of edits of the share of an agent that has just been killed.
const PROBES: usize = 3;
/// Number of attempts to find an object with a property.
const ATTEMPTS: usize = 200;
/// Deadline until everything is as committed after the last kill.
pub(super) const SETTLED: Duration = Duration::from_mins(10);
/// Interval of reads of all GitSyncs.
const PAUSE: Duration = Duration::from_secs(2);

/// A timer with a constant interval.
struct Timer {
    next: Instant,
    interval: Duration,
}

impl Timer {
    fn new(start: Instant, interval: Duration) -> Self {
        Self { next: start + interval, interval }
    }

    /// Whether the time has come. Intervals that have passed meanwhile are left out.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.next;
        while self.next <= now {
            self.next += self.interval;
        }
        is_due
    }
}

/// The measurement while it runs.
pub(super) struct Run<'w> {
    world: &'w mut World,
    choices: Choices,
    changes: Changes,
    history: History,
    deaths: Deaths,
    commits: usize,
    kills: Kills,
}

/// The events of a measurement.
pub(super) struct Finished {
    pub changes: Changes,
    pub history: History,
    pub commits: usize,
    pub kills: Kills,
}

impl<'w> Run<'w> {
    /// Prepares the measurement.
    pub(super) fn new(world: &'w mut World, deaths: Deaths) -> Self {
        let history = History::new(Instant::now(), jiff::Timestamp::now());
        let (choices, changes, kills) = (Choices::new(1), Changes::default(), Kills::default());
        Self { world, choices, changes, history, deaths, commits: 0, kills }
    }

    /// Kills agents for this time.
    pub(super) async fn kill_agents(&mut self, length: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let end = start + length;
        let [mut kill, mut commit, mut edit, mut check] =
            [KILLS, COMMITS, EDITS, CHECKS].map(|interval| Timer::new(start, interval));
        while Instant::now() < end {
            let next = [kill.next, commit.next, edit.next, check.next, end].into_iter().min().unwrap_or(end);
            self.see_until(next).await;
            let now = Instant::now();
            if check.is_due(now) {
                self.replace_ended().await?;
            }
            if commit.is_due(now) {
                self.commit().await?;
            }
            if edit.is_due(now) {
                self.edit_any().await?;
            }
            if kill.is_due(now) {
                self.kill().await?;
            }
        }
        Ok(())
    }

    /// Waits until every GitSync is Ready at the last commit and every change has ended. Returns the time; `None` at the
    /// deadline.
    pub(super) async fn settle(&mut self) -> Result<Option<Duration>, Error> {
        let (start, commit) = (Instant::now(), self.world.load.commit()?);
        while start.elapsed() < SETTLED {
            self.replace_ended().await?;
            if self.world.behind(&commit).await? == 0 && self.changes.open() == 0 {
                return Ok(Some(start.elapsed()));
            }
            self.see_until(Instant::now() + PAUSE).await;
        }
        Ok(None)
    }

    /// Ends the measurement.
    pub(super) fn finish(self) -> Finished {
        let Self { world, changes, mut history, commits, kills, .. } = self;
        history.leases = world.leases.take();
        Finished { changes, history, commits, kills }
    }

    /// Takes the events of the watch into account until this time.
    async fn see_until(&mut self, until: Instant) {
        while let Some(event) = self.world.watch.next(until).await {
            self.changes.see(&event);
            if Instant::now() >= until {
                break;
            }
        }
    }

    async fn replace_ended(&mut self) -> Result<(), Error> {
        let owners = self.world.owners().await?;
        let ended = self.world.fleet.replace_ended(&self.world.stand).await?;
        for death in ended {
            progress(&format!("{} has ended by itself", death.agent));
            self.see_death(death, &owners);
        }
        Ok(())
    }

    /// Records a death. The changes of the agent are open until it, or another one, looks after its share.
    fn see_death(&mut self, death: Death, owners: &Owners) {
        self.changes.orphan(&death, |place| owners.responsible(place.sync).part(&death.agent));
        self.history.deaths.push(death);
    }

    async fn kill(&mut self) -> Result<(), Error> {
        let owners = self.world.owners().await?;
        let at = self.choices.below(self.world.fleet.len());
        let lost = self.deaths.lost(self.kills.total());
        let death = self.world.fleet.kill(&self.world.stand, at, lost).await?;
        self.kills.add(lost);
        progress(&format!(
            "the {} of {} is killed, {} changes are open",
            lost.name(),
            death.agent,
            self.changes.open()
        ));
        self.see_death(death.clone(), &owners);
        let is_owned = |place: Place| owners.of(place.sync).as_deref() == Some(&*death.agent);
        self.world.fleet.replace(&self.world.stand, &death).await?;
        for _ in 0..PROBES {
            if let Some(place) = self.choose(is_owned) {
                self.edit(place, &owners).await?;
            }
        }
        Ok(())
    }

    async fn edit_any(&mut self) -> Result<(), Error> {
        let owners = self.world.owners().await?;
        match self.choose(|_| true) {
            Some(place) => self.edit(place, &owners).await,
            None => Ok(()),
        }
    }

    async fn edit(&mut self, place: Place, owners: &Owners) -> Result<(), Error> {
        let wanted = self.world.load.revision(place);
        let (version, at) = self.world.edit(place).await?;
        self.begin(Change::new(place, Cause::Edit, version, wanted, at), owners);
        Ok(())
    }

    /// Commits a change of some objects, and requests a sync of their GitSyncs.
    async fn commit(&mut self) -> Result<(), Error> {
        let owners = self.world.owners().await?;
        let version = self.world.version().await?;
        let mut places: Vec<Place> = Vec::with_capacity(CHANGED);
        for _ in 0..CHANGED {
            let place = self.choose(|place| places.iter().all(|other| other.sync != place.sync));
            places.extend(place);
        }
        self.world.load.change(&places)?;
        self.commits += 1;
        let start = Instant::now();
        for place in &places {
            let wanted = self.world.load.revision(*place);
            self.begin(Change::new(*place, Cause::Commit, version, wanted, start), &owners);
        }
        for place in places {
            self.world.request(place.sync).await?;
        }
        Ok(())
    }

    /// Adds a change. If an agent has died and its Lease has not expired, the share is already unprotected. The
    /// same applies if its container restarts and has not written the Lease yet.
    fn begin(&mut self, mut change: Change, owners: &Owners) {
        let died = |agent: &str| self.world.fleet.died(agent, owners.written(agent));
        change.entrust(owners.responsible(change.place.sync), died);
        self.changes.begin(change);
    }

    /// Chooses an object without an open change.
    fn choose(&mut self, is_suitable: impl Fn(Place) -> bool) -> Option<Place> {
        let syncs = self.world.load.len();
        (0..ATTEMPTS)
            .map(|_| Place { sync: self.choices.below(syncs), number: self.choices.below(OBJECTS) })
            .find(|place| !self.changes.is_open(*place) && is_suitable(*place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_leaves_out_intervals_that_have_passed() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timer = Timer::new(start, Duration::from_secs(20));
        assert!(!timer.is_due(at(19)) && timer.is_due(at(20)) && !timer.is_due(at(21)));
        assert!(timer.is_due(at(65)));
        assert_eq!(timer.next, at(80));
    }
}
