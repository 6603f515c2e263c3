//! The deaths of agents: the part that dies, and whether the agent runs again.

use std::{collections::HashMap, time::Instant};

/// The deaths that a measurement causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Deaths {
    Pods,
    Containers,
    // Every second death is that of a container. Not a doc comment, because `--help` would need a page for them.
    #[default]
    Both,
}

impl Deaths {
    /// Returns the part that a kill ends, by the number of kills before it.
    pub(super) fn lost(self, before: usize) -> Lost {
        match self {
            Self::Pods => Lost::Pod,
            Self::Both if before.is_multiple_of(2) => Lost::Pod,
            Self::Both | Self::Containers => Lost::Container,
        }
    }

    /// Names the parts that are killed.
    pub(crate) fn described(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Containers => "containers",
            Self::Both => "pods and containers",
        }
    }
}

/// The part of an agent that dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// The process. It starts again in its pod, with the same identity and the same data directory.
    Container,
    /// The pod. Another one with a new identity and an empty data directory replaces it.
    Pod,
}

impl Lost {
    /// Returns the name of the part.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Pod => "pod",
        }
    }
}

/// The death of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Death {
    pub at: Instant,
    pub agent: String,
    pub lost: Lost,
}

/// Numbers of kills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kills {
    pub containers: usize,
    pub pods: usize,
}

impl Kills {
    /// Counts a kill.
    pub(super) fn add(&mut self, lost: Lost) {
        match lost {
            Lost::Container => self.containers += 1,
            Lost::Pod => self.pods += 1,
        }
    }

    /// Returns the number of kills of a part.
    pub(super) fn of(self, lost: Lost) -> usize {
        match lost {
            Lost::Container => self.containers,
            Lost::Pod => self.pods,
        }
    }

    /// Returns the number of all kills.
    pub(super) fn total(self) -> usize {
        self.containers + self.pods
    }
}

/// The last death of each agent that has died.
#[derive(Debug, Default)]
pub(super) struct Dead(HashMap<String, (Death, Option<u64>)>);

impl Dead {
    /// Records a death. `version` is the resource version of the cluster between the death and the start of the same agent;
    /// `None` if that does not start again.
    pub(super) fn add(&mut self, death: Death, version: Option<u64>) {
        self.0.insert(death.agent.clone(), (death, version));
    }

    /// Returns the death of an agent. `None` for a running agent. `written` is the resource version of its newest Lease: an
    /// agent whose container restarts runs again once it has written a Lease.
    pub(super) fn of(&self, agent: &str, written: u64) -> Option<Death> {
        let (death, version) = self.0.get(agent)?;
        let is_back = version.is_some_and(|version| written > version);
        (!is_back).then(|| death.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_death_is_that_of_a_container() {
        let lost = |deaths: Deaths| [0, 1, 2, 3].map(|before| deaths.lost(before));
        assert_eq!(lost(Deaths::default()), [Lost::Pod, Lost::Container, Lost::Pod, Lost::Container]);
        assert_eq!((lost(Deaths::Pods), lost(Deaths::Containers)), ([Lost::Pod; 4], [Lost::Container; 4]));
        let mut kills = Kills::default();
        for part in lost(Deaths::Both).into_iter().take(3) {
            kills.add(part);
        }
        assert_eq!((kills.of(Lost::Pod), kills.of(Lost::Container), kills.total()), (2, 1, 3));
    }

    #[test]
    fn an_agent_whose_container_restarts_runs_again_once_it_has_written_its_lease() {
        let death = |agent: &str, lost| Death { at: Instant::now(), agent: agent.to_owned(), lost };
        let (container, pod) = (death("one", Lost::Container), death("two", Lost::Pod));
        let mut dead = Dead::default();
        dead.add(container.clone(), Some(10));
        dead.add(pod.clone(), None);
        assert_eq!(
            [8, 10, 11].map(|written| dead.of("one", written)),
            [Some(container.clone()), Some(container), None]
        );
        assert_eq!((dead.of("two", 11), dead.of("three", 0)), (Some(pod), None));
        let again = death("one", Lost::Container);
        dead.add(again.clone(), Some(20));
        assert_eq!(dead.of("one", 11), Some(again));
    }
}
