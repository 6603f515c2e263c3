//! What is watched of usages and bindings, and which lists of it have come.

use std::collections::{HashMap, HashSet};

use mainstay_api::names::{BINDING_DEFINITION, POD_PRESET_DEFINITION, USAGE_DEFINITION};

/// What is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Watched {
    Definition(Defined),
    Usages,
    Bindings,
}

/// What a definition defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Defined {
    Usages,
    Bindings,
    /// Without them no other controller of usages works.
    PodPresets,
}

impl Defined {
    /// Name of the definition.
    pub(super) const fn definition(self) -> &'static str {
        match self {
            Self::Usages => USAGE_DEFINITION,
            Self::Bindings => BINDING_DEFINITION,
            Self::PodPresets => POD_PRESET_DEFINITION,
        }
    }
}

/// The lists that have come.
#[derive(Debug, Default)]
pub(super) struct Listed {
    /// What is defined, as far as that is known.
    defined: HashMap<Defined, bool>,
    /// Lists that came once.
    complete: HashSet<Watched>,
}

impl Listed {
    /// Something is defined, or not. Whether that was not known.
    pub(super) fn define(&mut self, defined: Defined, is_there: bool) -> bool {
        self.defined.insert(defined, is_there) != Some(is_there)
    }

    /// Whether something is defined; `None`: it is not known.
    pub(super) fn is_defined(&self, defined: Defined) -> Option<bool> {
        self.defined.get(&defined).copied()
    }

    /// All of a list has come. Whether that is so for the first time.
    pub(super) fn complete(&mut self, watched: Watched) -> bool {
        self.complete.insert(watched)
    }

    /// Whether a list came once.
    pub(super) fn is_complete(&self, watched: Watched) -> bool {
        self.complete.contains(&watched)
    }

    /// Whether everything is known that a decision needs.
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
