//! Access to the embedded cluster of a benchmark.

/// URL and token.
#[derive(Clone)]
pub(super) struct Embedded {
    pub url: String,
    pub token: String,
}
