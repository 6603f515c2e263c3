//! What a Function gets by usages, and what it makes of that.

use std::collections::HashSet;

use super::usage::Usage;

/// Most usages of one Function: each is a watch of a Secret, and all its variables are in every pod.
pub(super) const MAX_USAGES: usize = 32;

/// Namespace and name.
pub(super) type Name = (String, String);

/// A Secret whose keys the pods of a Function get as environment variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Name of the usage.
    pub usage: String,
    /// UID of the usage.
    pub uid: String,
    /// What stands before each key.
    pub prefix: String,
    /// Name of the Secret.
    pub secret: String,
}

impl Bound {
    /// The Secret that a usage of this name gives.
    pub(super) fn of(key: &Name, usage: &Usage, secret: String) -> Self {
        Self { usage: key.1.clone(), uid: usage.uid.clone(), prefix: usage.prefix.clone(), secret }
    }
}

/// What a Function makes of a [`Bound`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Its pods get it.
    Bound,
    /// Its code may not have it, for this reason.
    Refused(String),
}

/// A Function that is there.
#[derive(Debug, Default)]
pub(super) struct Function {
    /// What it asked for last.
    pub(super) bound: Vec<Bound>,
    pub(super) taken: Vec<(Bound, Taken)>,
    /// UIDs of usages whose label another controller has given to it.
    pub(super) labels: HashSet<String>,
}
