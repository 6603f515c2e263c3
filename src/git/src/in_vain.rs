//! Failed fetches of a remote, which are recorded so that not every attempt and every consumer repeats them.
//!
//! Invariant: only failures that remain while the remote is unchanged are recorded: no errors of network, disk or
//! credentials.
//! Not here: the clock. Times are arguments.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::abbreviation::Tips;
use super::allowance::ALLOWED;
use super::error::Fault;
use super::id::{Commit, Id};

/// Maximum number of recorded commits per remote.
const KEPT: usize = 256;
/// Maximum number of failed fetches of a tip; further fetches of it are skipped. One failure is not enough, because the
/// server may be under repair.
const TRIED: u32 = 3;
/// Time after which fetches from an unchanged remote are tried again.
pub(super) const ASK_AFTER: Duration = Duration::from_secs(3600);

/// Failed fetches of a remote.
#[derive(Debug, Default)]
pub(super) struct InVain {
    /// Commits that the history of all branches lacks, each with the tips of these branches.
    missing: VecDeque<(Commit, Tips)>,
    failed: VecDeque<Failed>,
}

#[derive(Debug)]
struct Failed {
    tip: Id,
    fault: Arc<Fault>,
    times: u32,
    first: Instant,
}

impl InVain {
    /// Returns whether the history of these branches was already searched for the commit.
    pub(super) fn lacks(&self, commit: Commit, tips: Tips) -> bool {
        self.missing.contains(&(commit, tips))
    }

    /// Records that the history of these branches lacks the commit.
    pub(super) fn add_missing(&mut self, commit: Commit, tips: Tips) {
        self.missing.retain(|(known, _)| *known != commit);
        self.missing.push_back((commit, tips));
        if self.missing.len() > KEPT {
            self.missing.pop_front();
        }
    }

    /// Returns why fetches of the tip are skipped, if they are.
    pub(super) fn fault(&self, tip: Id, now: Instant) -> Option<Arc<Fault>> {
        let failed = self.failed.iter().find(|failed| failed.tip == tip)?;
        let holds = failed.times >= TRIED && now.saturating_duration_since(failed.first) < ASK_AFTER;
        holds.then(|| Arc::clone(&failed.fault))
    }

    /// Records a failed fetch of the tip.
    pub(super) fn add_failure(&mut self, tip: Id, fault: Fault, now: Instant) -> Arc<Fault> {
        let fault = Arc::new(fault);
        let lasts = match *fault {
            Fault::Pack { .. } | Fault::Incomplete | Fault::Broken { .. } => true,
            // This limit applies to one repository's request. It need not be exceeded for other repositories with the
            // same submodule.
            Fault::TooLarge { what, .. } => what != ALLOWED,
            _ => false,
        };
        if lasts {
            let is_recent = |failed: &Failed| now.saturating_duration_since(failed.first) < ASK_AFTER;
            let known = self.failed.iter().position(|failed| failed.tip == tip);
            let known = known.and_then(|at| self.failed.remove(at)).filter(is_recent);
            let (times, first) = known.map_or((1, now), |known| (known.times + 1, known.first));
            self.failed.push_back(Failed { tip, fault: Arc::clone(&fault), times, first });
            if self.failed.len() > KEPT {
                self.failed.pop_front();
            }
        }
        fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> Id {
        let mut bytes = [0; 20];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        Id(bytes)
    }

    #[test]
    fn three_failures_of_a_tip_hold_for_an_hour() {
        let (start, mut in_vain) = (Instant::now(), InVain::default());
        let at = |second| start + Duration::from_secs(second);
        for second in [0, 30] {
            in_vain.add_failure(id(1), Fault::Incomplete, at(second));
            assert!(in_vain.fault(id(1), at(second)).is_none(), "the server may be mended just now");
        }
        in_vain.add_failure(id(1), Fault::Incomplete, at(60));
        assert!(matches!(in_vain.fault(id(1), at(3599)).as_deref(), Some(Fault::Incomplete)));
        assert!(in_vain.fault(id(2), at(60)).is_none(), "the remote moved");
        assert!(in_vain.fault(id(1), at(3600)).is_none());
        in_vain.add_failure(id(1), Fault::Incomplete, at(3600));
        assert!(in_vain.fault(id(1), at(3600)).is_none(), "counted anew");
        let allowed = || Fault::TooLarge { what: ALLOWED, limit: 1 };
        for fault in [Fault::DiskFull, Fault::DiskFull, Fault::DiskFull, allowed(), allowed(), allowed()] {
            in_vain.add_failure(id(3), fault, at(0));
        }
        assert!(in_vain.fault(id(3), at(0)).is_none(), "the remote is not to blame");
    }

    #[test]
    fn keeps_several_commits_and_only_so_many() {
        let (now, mut in_vain) = (Instant::now(), InVain::default());
        let tips = |number| Tips::of(&[id(number)].into());
        for number in 0..KEPT {
            in_vain.add_missing(Commit(id(number)), tips(1));
        }
        assert!((0..KEPT).all(|number| in_vain.lacks(Commit(id(number)), tips(1))));
        assert!(!in_vain.lacks(Commit(id(0)), tips(2)), "the branches moved");
        in_vain.add_missing(Commit(id(KEPT)), tips(1));
        assert!(!in_vain.lacks(Commit(id(0)), tips(1)));
        for number in 0..=KEPT {
            in_vain.add_failure(id(number), Fault::Incomplete, now);
        }
        assert_eq!((in_vain.missing.len(), in_vain.failed.len()), (KEPT, KEPT));
    }
}
