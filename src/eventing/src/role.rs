//! The part of eventing that a process has.

/// The tasks of a process. Several processes share the tasks only if NATS stores the events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Accepts events, delivers them, and writes statuses.
    #[default]
    Whole,
    /// Accepts events. Any number of processes can have this role.
    Publisher,
    /// Delivers events and writes statuses. Any number of processes can have this role.
    Dispatcher,
}

impl Role {
    /// Returns whether the process accepts events.
    pub(super) fn accepts(self) -> bool {
        self != Self::Dispatcher
    }

    /// Returns whether the process delivers events and writes statuses.
    pub(super) fn delivers(self) -> bool {
        self != Self::Publisher
    }
}
