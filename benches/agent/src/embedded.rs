//! The embedded cluster of a measurement, as it is spoken to.

/// Its address, and what it wants to see.
#[derive(Clone)]
pub(super) struct Embedded {
    pub url: String,
    pub token: String,
}
