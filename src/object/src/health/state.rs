//! The health of an object.

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// The object has its desired state.
    Healthy,
    /// The object is not healthy yet, for this reason.
    Progressing(String),
    /// The object reports a failure, with this reason.
    Failed(String),
}
