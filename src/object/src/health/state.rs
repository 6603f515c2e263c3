//! How healthy an object is.

/// The health of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Healthy,
    /// Not yet healthy; with the reason.
    Progressing(String),
    /// It reports a failure; with the reason.
    Failed(String),
}
