//! The last decisions about objects, for the status of their owner and for `mainstay trace`.
//!
//! Invariant: the memory is bounded, whatever the number of objects and of owners. A repeated decision is counted in its
//! entry, so it displaces no other one.
//!
//! Not here: reverts and replacements (`account`), and applies of commits, which have lists of their own.

use std::collections::{HashMap, VecDeque};

use mainstay_api::git_sync::{DECISIONS, DECISIONS_OF_OBJECT, Decided, Decision};
use mainstay_object::Owner;

/// Maximum number of entries of all owners: about 256 KiB with usual names.
const TOTAL: usize = 1536;
/// Maximum number of failed applies of an owner: those of one commit displace no other decisions.
const FAILED_APPLIES: usize = DECISIONS / 2;
/// Maximum length of a recalled name in bytes. A user may have written the status.
const LONGEST: usize = 1024;

/// The last decisions, newest first, by the owner of the object.
#[derive(Debug, Default)]
pub(crate) struct Decisions(HashMap<Owner, VecDeque<Decision>>);

impl Decisions {
    /// Records a decision.
    pub(super) fn record(&mut self, owner: &Owner, mut decision: Decision) {
        let all = self.0.entry(owner.clone()).or_default();
        let newest = all.iter().position(|known| known.object == decision.object);
        match newest.filter(|at| all.get(*at).is_some_and(|known| known.repeats(&decision))) {
            Some(_) if is_recorded_once(decision.decided) => return,
            Some(at) => {
                let times = all.remove(at).map_or(0, |known| known.times);
                decision.times = times.saturating_add(1).max(decision.times);
            }
            None => {
                remove_oldest(all, DECISIONS_OF_OBJECT, |known| known.object == decision.object);
                if decision.decided == Decided::ApplyFailed {
                    remove_oldest(all, FAILED_APPLIES, |known| known.decided == Decided::ApplyFailed);
                }
            }
        }
        all.push_front(decision);
        all.truncate(DECISIONS);
        self.shrink();
    }

    /// Records the decisions of an earlier agent, newest first.
    pub(super) fn recall(&mut self, owner: &Owner, mut decisions: Vec<Decision>) {
        let is_short = |text: &str| text.len() <= LONGEST;
        decisions.retain(|known| is_short(&known.object) && known.who.as_deref().is_none_or(is_short));
        decisions.truncate(DECISIONS);
        if !decisions.is_empty() {
            self.0.insert(owner.clone(), decisions.into());
            self.shrink();
        }
    }

    /// Returns the decisions about an owner's objects, newest first.
    pub(super) fn of(&self, owner: &Owner) -> Vec<Decision> {
        self.0.get(owner).into_iter().flatten().cloned().collect()
    }

    pub(super) fn remove_owner(&mut self, owner: &Owner) {
        self.0.remove(owner);
    }

    /// Removes the oldest decisions of all owners beyond the maximum.
    fn shrink(&mut self) {
        let mut total: usize = self.0.values().map(VecDeque::len).sum();
        while total > TOTAL {
            let oldest = self.0.values_mut().min_by_key(|all| all.back().map(|decision| decision.when.0));
            let Some(all) = oldest else { return };
            all.pop_back();
            total -= 1;
            self.0.retain(|_, all| !all.is_empty());
        }
    }
}

/// Whether a repeated decision leaves the status as it is. A starting agent sees a pause again, and the same failure of a
/// retried apply is no reason to write a status.
fn is_recorded_once(decided: Decided) -> bool {
    matches!(decided, Decided::Paused | Decided::Resumed | Decided::ApplyFailed)
}

/// Removes the oldest of the selected decisions if there are already `most` of them.
fn remove_oldest(all: &mut VecDeque<Decision>, most: usize, is_selected: impl Fn(&Decision) -> bool) {
    if all.iter().filter(|known| is_selected(known)).count() >= most
        && let Some(oldest) = all.iter().rposition(is_selected)
    {
        all.remove(oldest);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn owner(number: usize) -> Owner {
        Owner::git_sync("shop", &number.to_string())
    }

    fn decision(object: &str, decided: Decided, second: usize) -> Decision {
        let when = Time(Timestamp::from_second(i64::try_from(second).unwrap()).unwrap());
        Decision { object: object.to_owned(), decided, who: None, code: None, until: None, times: 1, when }
    }

    /// Returns the objects, with the seconds of the decisions about them.
    fn listed(decisions: &Decisions, owner: &Owner) -> Vec<(String, i64)> {
        decisions.of(owner).into_iter().map(|known| (known.object, known.when.0.as_second())).collect()
    }

    #[test]
    fn the_newest_decisions_of_an_object_and_of_an_owner_are_kept() {
        let (mut decisions, owner) = (Decisions::default(), owner(0));
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
    }

    #[test]
    fn a_repeated_decision_is_counted_and_a_repeated_pause_is_not() {
        let (mut decisions, owner) = (Decisions::default(), owner(0));
        for second in 0..1000 {
            decisions.record(&owner, decision("web", Decided::RevertFailed, second));
        }
        decisions.record(&owner, decision("api", Decided::Paused, 1000));
        decisions.record(&owner, decision("web", Decided::RevertFailed, 1001));
        decisions.record(&owner, decision("api", Decided::Paused, 1002));
        let all = decisions.of(&owner);
        assert_eq!(listed(&decisions, &owner), [("web".to_owned(), 1001), ("api".to_owned(), 1000)]);
        assert_eq!([all[0].times, all[1].times], [1001, 1]);
        let other = Decision { who: Some("kubectl".to_owned()), ..decision("web", Decided::RevertFailed, 1003) };
        decisions.record(&owner, other);
        assert_eq!(decisions.of(&owner).len(), 3, "another cause is another decision");
    }

    #[test]
    fn failed_applies_of_many_objects_leave_half_of_the_entries() {
        let (mut decisions, owner) = (Decisions::default(), owner(0));
        for number in 0..DECISIONS - FAILED_APPLIES {
            decisions.record(&owner, decision(&format!("paused-{number}"), Decided::Paused, number));
        }
        for second in 100..1100 {
            decisions.record(&owner, decision(&format!("failed-{}", second % 500), Decided::ApplyFailed, second));
        }
        let all = decisions.of(&owner);
        let count = |decided: Decided| all.iter().filter(|known| known.decided == decided).count();
        assert_eq!([count(Decided::Paused), count(Decided::ApplyFailed)], [DECISIONS - FAILED_APPLIES, FAILED_APPLIES]);
        let before = all[0].clone();
        decisions.record(&owner, Decision { when: Time(Timestamp::UNIX_EPOCH), ..before.clone() });
        assert_eq!(decisions.of(&owner)[0], before, "a retry with the same failure changes nothing");
        decisions.record(&owner, Decision { code: Some(422), ..before });
        assert_eq!(decisions.of(&owner)[0].code, Some(422));
    }

    #[test]
    fn the_oldest_decisions_of_all_owners_go_first() {
        let mut decisions = Decisions::default();
        let owners = TOTAL / DECISIONS + 2;
        for number in 0..owners {
            for at in 0..DECISIONS {
                let second = number * DECISIONS + at;
                decisions.record(&owner(number), decision(&second.to_string(), Decided::Reported, second));
            }
        }
        assert_eq!(decisions.0.values().map(VecDeque::len).sum::<usize>(), TOTAL);
        assert!(decisions.of(&owner(0)).is_empty(), "its decisions are the oldest");
        assert_eq!(decisions.of(&owner(owners - 1)).len(), DECISIONS);
        decisions.remove_owner(&owner(owners - 1));
        assert!(decisions.of(&owner(owners - 1)).is_empty());
    }

    #[test]
    fn decisions_of_an_earlier_agent_are_recalled_unless_they_are_too_large() {
        let (mut decisions, owner) = (Decisions::default(), owner(0));
        let long = decision(&"x".repeat(LONGEST + 1), Decided::Reported, 1);
        let many = (0..100).map(|second| decision("web", Decided::Missed, 200 - second));
        decisions.recall(&owner, std::iter::once(long).chain(many).collect());
        let all = listed(&decisions, &owner);
        assert_eq!((all.len(), &all[0]), (DECISIONS, &("web".to_owned(), 200)));
        decisions.record(&owner, decision("web", Decided::Missed, 300));
        assert_eq!(decisions.of(&owner)[0].times, 2);
    }
}
