//! The kills: which process is killed when, and for how long it is away.

use std::time::Duration;

use super::servers::SERVERS;
use crate::choices::Choices;

/// Bounds of the time between two kills in milliseconds.
const BETWEEN: [usize; 2] = [1000, 4000];
/// Bounds of the time until a killed process is started again in milliseconds.
const AWAY: [usize; 2] = [200, 3000];

/// The kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Publisher,
    Dispatcher,
    /// A server of NATS.
    Server,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Publisher, Self::Dispatcher, Self::Server];

    /// Returns the number of processes.
    pub(super) const fn count(self) -> usize {
        match self {
            Self::Publisher | Self::Dispatcher => 2,
            Self::Server => SERVERS,
        }
    }

    /// Returns the name of one process, and of several.
    pub(super) const fn names(self) -> [&'static str; 2] {
        match self {
            Self::Publisher => ["publisher", "publishers"],
            Self::Dispatcher => ["dispatcher", "dispatchers"],
            Self::Server => ["NATS server", "NATS servers"],
        }
    }
}

/// A kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kill {
    /// Time since the kill before.
    pub after: Duration,
    pub kind: Kind,
    pub number: usize,
    /// Time until the process is started again.
    pub away: Duration,
}

/// Returns the kills of a seed. Each kind has its turn in random order, then again.
pub(super) fn schedule(seed: u64, kills: u32) -> Vec<Kill> {
    let mut choices = Choices::new(seed);
    let mut kinds = Vec::new();
    let mut all = Vec::new();
    for _ in 0..kills {
        if kinds.is_empty() {
            kinds = Kind::ALL.to_vec();
        }
        let kind: Kind = kinds.swap_remove(choices.below(kinds.len()));
        all.push(Kill {
            after: between(&mut choices, BETWEEN),
            kind,
            number: choices.below(kind.count()),
            away: between(&mut choices, AWAY),
        });
    }
    all
}

fn between(choices: &mut Choices, [least, most]: [usize; 2]) -> Duration {
    Duration::from_millis((least + choices.below(most - least)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_kills_which_are_of_each_kind_and_process() {
        let kills = schedule(1, 60);
        assert_eq!(kills, schedule(1, 60));
        assert_ne!(kills, schedule(2, 60));
        for kind in Kind::ALL {
            let of_kind: Vec<&Kill> = kills.iter().filter(|kill| kill.kind == kind).collect();
            assert_eq!(of_kind.len(), 20);
            assert!((0..kind.count()).all(|number| of_kind.iter().any(|kill| kill.number == number)), "{kind:?}");
            assert!(kills[..3].iter().any(|kill| kill.kind == kind), "{kind:?}");
        }
        let in_bounds =
            |time: Duration, [least, most]: [usize; 2]| (least as u128..most as u128).contains(&time.as_millis());
        assert!(kills.iter().all(|kill| in_bounds(kill.after, BETWEEN) && in_bounds(kill.away, AWAY)));
    }
}
