//! The identities that may sign an artifact without a key: patterns for the issuer and the subject of a certificate.
//!
//! As in Flux, a pattern matches if a part of the text matches it.

use regex::{Regex, RegexBuilder};

use mainstay_api::oci_repository::OidcIdentity;
use mainstay_object::pattern_problem;

/// The field with the patterns.
const FIELD: &str = "spec.verify.matchOIDCIdentity";
/// Maximum number of identities.
const MOST: usize = 16;
/// Maximum size of a compiled pattern, in bytes.
const PATTERN_BYTES: usize = 256 << 10;

/// The identities that may sign an artifact.
#[derive(Clone, Debug)]
pub(in crate::agent) struct Identities(Vec<Identity>);

#[derive(Clone, Debug)]
struct Identity {
    issuer: Regex,
    subject: Regex,
}

impl Identities {
    /// Reads the patterns of a spec.
    ///
    /// # Errors
    /// Fails with the patterns that cannot be read.
    pub(super) fn read(listed: &[OidcIdentity]) -> Result<Self, Vec<String>> {
        if listed.len() > MOST {
            return Err(vec![format!("{FIELD}: has more than {MOST} entries")]);
        }
        let mut problems = Vec::new();
        let mut compiled = |at: usize, name: &str, text: &str| {
            let pattern = RegexBuilder::new(text).size_limit(PATTERN_BYTES).build();
            let why = match pattern {
                Ok(_) if text.is_empty() => "is empty, and matches any text".to_owned(),
                Ok(pattern) => return Some(pattern),
                Err(_) => pattern_problem(text),
            };
            problems.push(format!("{FIELD}[{at}].{name}: {why}"));
            None
        };
        let read = |(at, one): (usize, &OidcIdentity)| {
            let (issuer, subject) = (compiled(at, "issuer", &one.issuer), compiled(at, "subject", &one.subject));
            issuer.zip(subject).map(|(issuer, subject)| Identity { issuer, subject })
        };
        let identities: Vec<Identity> = listed.iter().enumerate().filter_map(read).collect();
        if problems.is_empty() { Ok(Self(identities)) } else { Err(problems) }
    }

    /// Returns whether one entry matches both the subject and the issuer.
    pub(super) fn include(&self, subject: &str, issuer: &str) -> bool {
        self.0.iter().any(|one| one.issuer.is_match(issuer) && one.subject.is_match(subject))
    }

    /// Returns the patterns: each issuer with its subject.
    pub(super) fn patterns(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|one| (one.issuer.as_str(), one.subject.as_str()))
    }
}

impl PartialEq for Identities {
    fn eq(&self, other: &Self) -> bool {
        self.patterns().eq(other.patterns())
    }
}

impl Eq for Identities {}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(listed: &[(&str, &str)]) -> Result<Identities, Vec<String>> {
        let one = |(issuer, subject): &(&str, &str)| OidcIdentity {
            issuer: (*issuer).to_owned(),
            subject: (*subject).to_owned(),
        };
        Identities::read(&listed.iter().map(one).collect::<Vec<_>>())
    }

    #[test]
    fn one_entry_has_to_match_issuer_and_subject() {
        let all = read(&[("^https://a\\.example$", "^web@"), ("^https://b\\.example$", "shop")]).unwrap();
        assert!(all.include("web@example.org", "https://a.example"));
        assert!(all.include("the shop of b", "https://b.example"), "a part is enough");
        assert!(!all.include("web@example.org", "https://b.example"), "the entries do not mix");
        assert!(!all.include("other web@example.org", "https://a.example"));
        assert!(!all.include("web@example.org", "https://a.example.evil"));
        assert!(!read(&[]).unwrap().include("", ""));
    }

    #[test]
    fn a_subject_pattern_without_at_signs_refuses_a_branch_that_ends_like_another_one() {
        let (issuer, of_main) = ("https://ci.example", "https://ci.example/shop/release.yaml@refs/heads/main");
        let of_other = "https://ci.example/shop/other.yaml@refs/heads/x@refs/heads/main";
        let strict = read(&[("^https://ci\\.example$", "^https://ci\\.example/shop/[^@]+@refs/heads/main$")]).unwrap();
        assert!(strict.include(of_main, issuer) && !strict.include(of_other, issuer));
        let loose = read(&[("^https://ci\\.example$", "^https://ci\\.example/shop/.+@refs/heads/main$")]).unwrap();
        assert!(loose.include(of_other, issuer));
    }

    #[test]
    fn names_each_pattern_that_cannot_be_read() {
        let found = read(&[("a", "b"), ("(", ""), ("\\w{999}", "c")]).unwrap_err();
        assert_eq!(
            found,
            [
                "spec.verify.matchOIDCIdentity[1].issuer: is not a regular expression (RE2 syntax): line 1, column 1: \
                 unclosed group",
                "spec.verify.matchOIDCIdentity[1].subject: is empty, and matches any text",
                "spec.verify.matchOIDCIdentity[2].issuer: is too large as a compiled regular expression; shorten it",
            ]
        );
        assert_eq!(read(&[("a", "b"); 17]).unwrap_err(), ["spec.verify.matchOIDCIdentity: has more than 16 entries"]);
    }
}
