//! What is wrong with an object.

/// What is wrong with an object: what, and the field.
#[derive(Debug, Default)]
pub(super) struct Findings(pub(super) Vec<String>);

impl Findings {
    /// Adds one.
    pub(super) fn add(&mut self, what: impl std::fmt::Display, field: impl std::fmt::Display) {
        self.0.push(format!("{what}: {field}"));
    }
}
