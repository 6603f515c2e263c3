//! Violations: the problems of a Function, as `message: paths`, with details on the next line.
//!
//! The format is that of the webhooks of Kyma's Functions: equal messages are merged, and lines are sorted.

use std::collections::BTreeMap;
use std::fmt;

use mainstay_api::function_conditions::Reason;
pub(super) use mainstay_object::syntax::shown;

/// A problem that only the user can fix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The problem.
    pub message: String,
    /// Details or a hint; may be empty.
    pub details: String,
    /// The affected fields, such as `spec.source`.
    pub paths: Vec<String>,
    /// The condition's reason.
    pub reason: Reason,
}

impl Violation {
    /// Returns the violation for a missing required field.
    pub(super) fn missing(path: &str) -> Self {
        Self::new("missing field(s)".into(), path)
    }

    /// Returns the violation for a field with an invalid value.
    pub(super) fn invalid(what: impl fmt::Display, path: &str) -> Self {
        Self::new(format!("invalid value: {what}"), path)
    }

    /// Returns the violation for a key with an invalid name.
    pub(super) fn key(name: &str, path: &str, details: String) -> Self {
        Self { details, ..Self::new(format!("invalid key name \"{}\"", shown(name)), path) }
    }

    /// Returns the violation for a runtime that is not available.
    pub(super) fn runtime(what: impl fmt::Display, path: &str, details: String) -> Self {
        Self { details, reason: Reason::RuntimeNotSupported, ..Self::invalid(what, path) }
    }

    /// Adds details to the violation.
    pub(super) fn because(self, details: impl Into<String>) -> Self {
        Self { details: details.into(), ..self }
    }

    fn new(message: String, path: &str) -> Self {
        Self { message, details: String::new(), paths: vec![path.to_owned()], reason: Reason::SpecInvalid }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.paths.join(", "))?;
        if !self.details.is_empty() {
            write!(f, "\n{}", self.details)?;
        }
        Ok(())
    }
}

/// Returns all violations as one string, for the condition and the webhook's response.
pub fn text(violations: &[Violation]) -> String {
    let mut merged: BTreeMap<(&str, &str), Vec<&String>> = BTreeMap::new();
    for violation in violations {
        merged.entry((&violation.message, &violation.details)).or_default().extend(&violation.paths);
    }
    let lines = merged.into_iter().map(|((message, details), mut paths)| {
        paths.sort();
        paths.dedup();
        let paths = paths.into_iter().cloned().collect();
        Violation { message: message.into(), details: details.into(), paths, reason: Reason::SpecInvalid }.to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the condition's reason. The reason for an unsupported runtime is used only without other violations.
pub fn reason(violations: &[Violation]) -> Reason {
    let first = violations.first().map_or(Reason::SpecInvalid, |violation| violation.reason);
    if violations.iter().all(|violation| violation.reason == first) { first } else { Reason::SpecInvalid }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_equal_messages_and_sorts_the_lines() {
        let all = [
            Violation::missing("spec.reference"),
            Violation::invalid("a is b", "spec.maxReplicas"),
            Violation::missing("spec.baseDir"),
            Violation::missing("spec.baseDir"),
            Violation::key("1A", "spec.env", "because".into()),
        ];
        assert_eq!(
            text(&all),
            "invalid key name \"1A\": spec.env\nbecause\ninvalid value: a is b: spec.maxReplicas\n\
             missing field(s): spec.baseDir, spec.reference"
        );
    }

    #[test]
    fn the_reason_is_the_runtime_only_if_nothing_else_is_wrong() {
        let runtime = Violation::runtime("cannot find runtime: x", "spec.runtime", String::new());
        assert_eq!(reason(std::slice::from_ref(&runtime)), Reason::RuntimeNotSupported);
        assert_eq!(reason(&[runtime, Violation::missing("spec.source")]), Reason::SpecInvalid);
    }
}
