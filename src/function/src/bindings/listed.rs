//! The watched kinds of bindings, and which of their lists are complete.

use std::collections::{HashMap, HashSet};

use mainstay_api::names::{BINDING_DEFINITION, POD_PRESET_DEFINITION, USAGE_DEFINITION};

/// A watched kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watched {
    Definition(Defined),
    Usages,
    Bindings,
}

/// A kind whose CRD is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Defined {
    Usages,
    Bindings,
    /// PodPresets, which other controllers of usages need.
    PodPresets,
}

impl Defined {
    /// Returns the name of the CRD.
    pub(super) const fn definition(self) -> &'static str {
        match self {
            Self::Usages => USAGE_DEFINITION,
            Self::Bindings => BINDING_DEFINITION,
            Self::PodPresets => POD_PRESET_DEFINITION,
        }
    }
}

/// The state of all lists.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// Whether each kind is defined, as far as known.
    defined: HashMap<Defined, bool>,
    /// Lists that have been complete once.
    complete: HashSet<Watched>,
}

impl Listed {
    /// Sets whether a kind is defined. Returns whether this is new.
    pub(super) fn define(&mut self, defined: Defined, is_there: bool) -> bool {
        self.defined.insert(defined, is_there) != Some(is_there)
    }

    /// Whether a kind is defined; `None` if unknown.
    pub(super) fn is_defined(&self, defined: Defined) -> Option<bool> {
        self.defined.get(&defined).copied()
    }

    /// Records that a list is complete. Returns whether this is the first time.
    pub(super) fn complete(&mut self, watched: Watched) -> bool {
        self.complete.insert(watched)
    }

    /// Whether a list has been complete once.
    pub(super) fn is_complete(&self, watched: Watched) -> bool {
        self.complete.contains(&watched)
    }

    /// Whether all objects that a decision needs are known.
    pub(super) fn is_enough(&self) -> bool {
        match self.is_defined(Defined::Usages) {
            None => false,
            Some(false) => true,
            Some(true) => {
                self.is_defined(Defined::PodPresets).is_some()
                    && self.is_complete(Watched::Usages)
                    && self
                        .is_defined(Defined::Bindings)
                        .is_some_and(|is_there| !is_there || self.is_complete(Watched::Bindings))
            }
        }
    }
}
