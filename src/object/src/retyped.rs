//! Strings whose type changed because YAML parses the string after substitution as a different type: `"${SHA:0:6}"`
//! becomes the number 8.3e202.
//!
//! Invariant: names of variables are shown, values are not.

use super::printable;

/// Maximum number of fields in a hint.
const NAMED: usize = 3;
/// Phrases with which API servers and the manifest parser require a string.
const WANTED: [&str; 4] = ["expected string", "of type string", "be a string", "not a string"];

/// A string that became a value of a different type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retyped {
    /// Path of the field, such as `metadata.labels.sha`.
    pub field: String,
    /// The string in the manifest, such as `${SHA:0:6}`.
    pub written: String,
    /// Type of the field after substitution, such as `a number`.
    pub is_now: &'static str,
}

impl Retyped {
    /// Returns a remedy for a message that requires a string, if it concerns one of these fields.
    pub fn hint(all: &[Self], message: &str) -> Option<String> {
        if all.is_empty() || !WANTED.iter().any(|wanted| message.contains(wanted)) {
            return None;
        }
        let last = |field: &str| {
            field.rsplit(['.', '[', '"', ']']).find(|part| !part.is_empty()).unwrap_or_default().to_owned()
        };
        let named: Vec<&Self> = all.iter().filter(|one| message.contains(&last(&one.field))).take(NAMED).collect();
        let reported = named.iter().map(|one| {
            let written = printable(&one.written);
            format!("{}: {written} became {}: write ${{quote}}{written}${{quote}}", printable(&one.field), one.is_now)
        });
        let reported: Vec<String> = reported.collect();
        (!reported.is_empty()).then(|| format!("{}, and set `quote: '\"'` in spec.substitute", reported.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_number_names_the_variable_and_the_quoting() {
        let field = "spec.template.metadata.labels[\"app/sha\"]";
        let all = [Retyped { field: field.to_owned(), written: "${SHA:0:6}".to_owned(), is_now: "a number" }];
        assert_eq!(
            Retyped::hint(&all, ".spec.template.metadata.labels.app/sha: expected string, got 8.3e+202").as_deref(),
            Some(
                "spec.template.metadata.labels[\"app/sha\"]: ${SHA:0:6} became a number: write ${quote}${SHA:0:6}${quote}, and \
                 set `quote: '\"'` in spec.substitute"
            )
        );
        assert_eq!(Retyped::hint(&all, ".spec.replicas: expected string, got 1"), None, "another field");
        assert_eq!(Retyped::hint(&all, "spec.template.metadata.labels.app/sha: too long"), None, "another problem");
        assert_eq!(Retyped::hint(&[], "expected string"), None);
    }
}
