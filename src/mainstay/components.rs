//! The optional parts of a Mainstay installation.
//!
//! Invariant: an excluded part has no installed objects and no task in the agent.
//!
//! Not here: the objects of a part. The objects in `manifests/` have the label `mainstay.dev/component`.

use std::collections::BTreeSet;

/// A part of Mainstay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Component {
    /// GitSyncs, Receivers and GitRepositories.
    Sync,
    /// Functions, their builds, registries and bindings.
    Functions,
    /// Triggers and Subscriptions, in a process of its own.
    Eventing,
    /// `APIRules`.
    Exposure,
    /// The web page for all users of the cluster, in a process of its own.
    Console,
}

impl Component {
    /// All components.
    pub const ALL: [Self; 5] = [Self::Sync, Self::Functions, Self::Eventing, Self::Exposure, Self::Console];

    /// Returns the name, as in flags and in the label.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Functions => "functions",
            Self::Eventing => "eventing",
            Self::Exposure => "exposure",
            Self::Console => "console",
        }
    }
}

/// The parts of an installation; by default, all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Components(BTreeSet<Component>);

impl Default for Components {
    fn default() -> Self {
        Self(Component::ALL.into())
    }
}

impl Components {
    /// Returns a set of exactly these components.
    ///
    /// # Errors
    /// Fails if `sync` is missing, because all other parts need it.
    pub fn of(chosen: &[Component]) -> Result<Self, &'static str> {
        if chosen.contains(&Component::Sync) {
            Ok(Self(chosen.iter().copied().collect()))
        } else {
            Err("name sync as well: it has the GitRepositories that the other components read")
        }
    }

    /// Returns whether the installation has this part.
    pub fn has(&self, component: Component) -> bool {
        self.0.contains(&component)
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_component_has_the_name_of_its_flag() {
        for component in Component::value_variants() {
            assert_eq!(component.to_possible_value().unwrap().get_name(), component.name());
            assert!(Components::default().has(*component));
        }
        assert_eq!(Component::value_variants().len(), Component::ALL.len());
    }

    #[test]
    fn the_component_sync_is_required() {
        assert!(Components::of(&[Component::Functions]).unwrap_err().starts_with("name sync as well"));
        let some = Components::of(&[Component::Exposure, Component::Sync]).unwrap();
        assert!(some.has(Component::Exposure) && !some.has(Component::Functions));
    }
}
