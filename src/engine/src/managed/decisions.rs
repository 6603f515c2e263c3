//! The last decisions about objects, for the status of their owner and for `mainstay trace`.
//!
//! Invariant: the memory of an owner is bounded, whatever the number of its objects. The decisions about the objects of
//! one owner displace none of another.
//! Invariant: a decision contains no value and no field of an object.
//!
//! Not here: reverts and replacements (`account`), and applies of commits, which have lists of their own.

use std::collections::{HashMap, HashSet, VecDeque};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::inventory::Inventory;
use super::pause_end::PauseEnd;
use mainstay_api::git_sync::{DECISIONS, DECISIONS_OF_OBJECT, Decided, Decision, UNKNOWN};
use mainstay_object::{Key, Owner};

/// Maximum length of a recalled name in bytes. A user may have written the status.
const LONGEST: usize = 1024;
/// Maximum length of the name of a field manager, in characters. A remote cluster may send any name.
const LONGEST_MANAGER: usize = 128;

/// The last decisions, newest first, by the owner of the object.
#[derive(Debug, Default)]
pub(crate) struct Decisions(HashMap<Owner, VecDeque<Decision>>);

impl Decisions {
    /// Records a decision. One that repeats an earlier decision since the last pause of the object is counted there.
    pub(super) fn record(&mut self, owner: &Owner, mut decision: Decision) {
        let all = self.0.entry(owner.clone()).or_default();
        if let Some(times) = repeated(all, &decision).and_then(|at| all.remove(at)).map(|known| known.times) {
            decision.times = times.saturating_add(1);
        } else {
            remove_oldest(all, &decision.object);
        }
        all.push_front(decision);
        all.truncate(DECISIONS);
    }

    /// Records the decisions of an earlier agent, newest first.
    pub(super) fn recall(&mut self, owner: &Owner, mut decisions: Vec<Decision>) {
        let is_short = |text: &str| text.len() <= LONGEST;
        decisions.retain(|known| is_short(&known.object) && known.who.as_deref().is_none_or(is_short));
        decisions.truncate(DECISIONS);
        if !decisions.is_empty() {
            self.0.insert(owner.clone(), decisions.into());
        }
    }

    /// Removes the decisions about objects that the inventory of their owner does not list and that are not paused.
    pub(super) fn keep_listed(&mut self, owner: &Owner, inventory: &Inventory, is_paused: impl Fn(&str) -> bool) {
        let Some(all) = self.0.get_mut(owner) else { return };
        // An inventory may be large, so only keys with these names are written as text.
        let names = all.iter().filter_map(|known| known.object.rsplit(['/', ' ']).next()).collect::<HashSet<_>>();
        let listed = inventory.0.keys().filter(|key| names.contains(&*key.name));
        let listed = listed.map(ToString::to_string).collect::<HashSet<_>>();
        all.retain(|known| listed.contains(&known.object) || is_paused(&known.object));
        if all.is_empty() {
            self.remove_owner(owner);
        }
    }

    /// Returns the decisions about an owner's objects, newest first.
    pub(super) fn of(&self, owner: &Owner) -> Vec<Decision> {
        self.0.get(owner).into_iter().flatten().cloned().collect()
    }

    /// Removes the decisions about an object of an owner.
    pub(super) fn remove_object(&mut self, owner: &Owner, key: &Key) {
        let Some(all) = self.0.get_mut(owner) else { return };
        let object = key.to_string();
        all.retain(|known| known.object != object);
        if all.is_empty() {
            self.remove_owner(owner);
        }
    }

    pub(super) fn remove_owner(&mut self, owner: &Owner) {
        self.0.remove(owner);
    }
}

/// Returns a decision with a new time.
pub(crate) fn decision(decided: Decided, key: &Key, now: Timestamp) -> Decision {
    Decision { object: key.to_string(), decided, who: None, until: None, times: 1, when: Time(now) }
}

/// Returns a decision that the change of a field manager has caused.
pub(crate) fn caused_by(decided: Decided, who: &str, key: &Key, now: Timestamp) -> Decision {
    let who = (who != UNKNOWN).then(|| who.chars().take(LONGEST_MANAGER).collect());
    Decision { who, ..decision(decided, key, now) }
}

/// Returns the decision to leave a paused object as it is.
pub(super) fn paused(key: &Key, until: PauseEnd, now: Timestamp) -> Decision {
    Decision { until: until.time().map(Time), ..decision(Decided::Paused, key, now) }
}

/// Returns the index of the entry that a decision repeats.
fn repeated(all: &VecDeque<Decision>, decision: &Decision) -> Option<usize> {
    if decision.decided.is_about_pause() {
        return None;
    }
    let of_object = all.iter().enumerate().filter(|(_, known)| known.object == decision.object);
    let mut since_pause = of_object.take_while(|(_, known)| !known.decided.is_about_pause());
    let found = since_pause.find(|(_, known)| known.decided == decision.decided && known.who == decision.who);
    found.map(|(at, _)| at)
}

/// Removes the oldest decision about an object if there are already [`DECISIONS_OF_OBJECT`] of them.
fn remove_oldest(all: &mut VecDeque<Decision>, object: &str) {
    let is_about = |known: &Decision| known.object == object;
    if all.iter().filter(|known| is_about(known)).count() >= DECISIONS_OF_OBJECT
        && let Some(oldest) = all.iter().rposition(is_about)
    {
        all.remove(oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::managed::inventory::Entry;

    fn owner() -> Owner {
        Owner::git_sync("shop", "demo")
    }

    fn decision(object: &str, decided: Decided, second: usize) -> Decision {
        let key = Key::new("", "ConfigMap", Some("shop"), object);
        super::decision(decided, &key, Timestamp::from_second(i64::try_from(second).unwrap()).unwrap())
    }

    fn by(who: &str, decision: Decision) -> Decision {
        Decision { who: Some(who.to_owned()), ..decision }
    }

    /// Returns the objects, with the seconds of the decisions about them.
    fn listed(decisions: &Decisions, owner: &Owner) -> Vec<(String, i64)> {
        let name = |object: String| object.trim_start_matches("ConfigMap shop/").to_owned();
        decisions.of(owner).into_iter().map(|known| (name(known.object), known.when.0.as_second())).collect()
    }

    #[test]
    fn the_newest_decisions_of_an_object_and_of_an_owner_are_kept() {
        let (mut decisions, owner) = (Decisions::default(), owner());
        decisions.record(&owner, decision("quiet", Decided::Reported, 0));
        for second in 1..=30 {
            let decided = if second % 2 == 0 { Decided::Paused } else { Decided::Resumed };
            decisions.record(&owner, decision("restless", decided, second));
        }
        let all = listed(&decisions, &owner);
        assert_eq!((all.len(), &all[0]), (DECISIONS_OF_OBJECT + 1, &("restless".to_owned(), 30)));
        assert_eq!(all.last(), Some(&("quiet".to_owned(), 0)), "another object displaces nothing");
        for second in 31..=60 {
            decisions.record(&owner, decision(&second.to_string(), Decided::Reported, second));
        }
        let all = listed(&decisions, &owner);
        assert_eq!((all.len(), all[0].1, all[DECISIONS - 1].1), (DECISIONS, 60, 41));
        decisions.record(&Owner::git_sync("other", "demo"), decision("a", Decided::Reported, 61));
        assert_eq!(decisions.of(&owner).len(), DECISIONS, "another owner displaces nothing");
    }

    #[test]
    fn repeated_decisions_are_counted_until_the_object_is_paused() {
        let (mut decisions, owner) = (Decisions::default(), owner());
        for second in 0..1000 {
            let who = if second % 2 == 0 { "kubectl" } else { "helm" };
            let decided = if second % 4 < 2 { Decided::Reported } else { Decided::SlowedDown };
            decisions.record(&owner, by(who, decision("web", decided, second)));
            decisions.record(&owner, decision("api", Decided::Missed, second));
        }
        let all = decisions.of(&owner);
        let times = |all: &[Decision]| all.iter().map(|known| known.times).collect::<Vec<_>>();
        assert_eq!(times(&all), [1000, 250, 250, 250, 250]);
        decisions.record(&owner, decision("web", Decided::Paused, 1000));
        decisions.record(&owner, decision("web", Decided::Paused, 1001));
        decisions.record(&owner, by("helm", decision("web", Decided::Reported, 1002)));
        assert_eq!(times(&decisions.of(&owner)), [1, 1, 1, 1000, 250, 250, 250, 250]);
    }

    #[test]
    fn decisions_of_an_earlier_agent_are_recalled_unless_they_are_too_large() {
        let (mut decisions, owner) = (Decisions::default(), owner());
        let long = decision(&"x".repeat(LONGEST), Decided::Reported, 1);
        let many = (0..100).map(|second| decision("web", Decided::Missed, 200 - second));
        decisions.recall(&owner, std::iter::once(long).chain(many).collect());
        let all = listed(&decisions, &owner);
        assert_eq!((all.len(), &all[0]), (DECISIONS, &("web".to_owned(), 200)));
        decisions.record(&owner, decision("web", Decided::Missed, 300));
        assert_eq!(decisions.of(&owner)[0].times, 2);
    }

    #[test]
    fn decisions_about_objects_that_the_inventory_lacks_are_removed_unless_they_are_paused() {
        let (mut decisions, owner) = (Decisions::default(), owner());
        let both = vec![decision("my-web", Decided::Paused, 2), decision("web", Decided::Paused, 1)];
        decisions.recall(&owner, both);
        let mut inventory = Inventory::default();
        inventory.0.insert(Key::new("", "ConfigMap", Some("shop"), "web"), Entry::default());
        decisions.keep_listed(&owner, &inventory, |_| false);
        assert_eq!(listed(&decisions, &owner), [("web".to_owned(), 1)]);
        decisions.keep_listed(&owner, &Inventory::default(), |object| object == "ConfigMap shop/web");
        assert_eq!(listed(&decisions, &owner), [("web".to_owned(), 1)]);
        decisions.keep_listed(&owner, &Inventory::default(), |_| false);
        assert!(decisions.of(&owner).is_empty());
    }

    #[test]
    fn a_decision_has_the_bounded_name_of_a_known_field_manager() {
        let key = Key::new("", "Secret", Some("shop"), "key");
        let who = |who: &str| caused_by(Decided::Reported, who, &key, Timestamp::UNIX_EPOCH).who;
        assert_eq!(who("kubectl-edit").as_deref(), Some("kubectl-edit"));
        assert_eq!(who(UNKNOWN), None);
        assert_eq!(who(&"ü".repeat(1000)), Some("ü".repeat(LONGEST_MANAGER)));
    }
}
