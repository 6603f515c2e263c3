//! The health of an object.

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// In the desired state.
    Healthy,
    /// Not healthy yet, with the reason.
    Progressing(String),
    /// It reports a failure, with the reason.
    Failed(String),
}
