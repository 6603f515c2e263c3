//! The Secrets that usages bind to a Function, and whether the Function accepts them.

use std::collections::HashSet;

use super::usage::Usage;

/// Maximum number of usages of one Function. Each usage needs a watch of a Secret, and its variables are in every pod.
pub(super) const MAX_USAGES: usize = 32;

/// Namespace and name.
pub(super) type Name = (String, String);

/// A Secret whose keys become environment variables of a Function's pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Name of the usage.
    pub usage: String,
    /// UID of the usage.
    pub uid: String,
    /// Prefix of each variable name.
    pub prefix: String,
    /// Name of the Secret.
    pub secret: String,
}

impl Bound {
    /// Returns the Secret that a usage binds.
    pub(super) fn of(key: &Name, usage: &Usage, secret: String) -> Self {
        Self { usage: key.1.clone(), uid: usage.uid.clone(), prefix: usage.prefix.clone(), secret }
    }
}

/// Whether a Function accepts a [`Bound`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// The Function's pods get the Secret.
    Bound,
    /// The Function's code must not read the Secret, for this reason.
    Refused(String),
}

/// A known Function.
#[derive(Debug, Default)]
pub(super) struct Function {
    /// The bindings that the Function's task read last.
    pub(super) bound: Vec<Bound>,
    pub(super) taken: Vec<(Bound, Taken)>,
    /// UIDs of usages from the Function's labels, which another controller sets.
    pub(super) labels: HashSet<String>,
}
