//! Errors of an object.

/// Errors of an object, each as `message: field`.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<String>);

impl Findings {
    /// Adds an error.
    pub(super) fn add(&mut self, what: impl std::fmt::Display, field: impl std::fmt::Display) {
        self.0.push(format!("{what}: {field}"));
    }
}
