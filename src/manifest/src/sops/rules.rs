//! The encryption rule of a file, from its metadata.

use regex::{Regex, RegexBuilder};

use super::tree::Node;
use mainstay_object::pattern_fault;

/// Suffix of keys whose values are not encrypted in a file without a rule.
const DEFAULT: &str = "_unencrypted";
/// Maximum size of a compiled regular expression, in bytes.
const PATTERN: usize = 1 << 20;
/// The fields that define rules.
const FIELDS: [&str; 6] = [
    "unencrypted_suffix",
    "encrypted_suffix",
    "unencrypted_regex",
    "encrypted_regex",
    "unencrypted_comment_regex",
    "encrypted_comment_regex",
];

/// The rule of a file.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    /// Whether matching values are encrypted. If not, all other values are.
    matches_are_encrypted: bool,
    matcher: Matcher,
}

#[derive(Clone, Debug)]
enum Matcher {
    Suffix(String),
    Key(Regex),
    Comment(Regex),
}

impl Rule {
    /// Parses the rule in the metadata of a file.
    ///
    /// # Errors
    /// The error.
    pub(super) fn of(metadata: &Node) -> Result<Self, String> {
        let mut rules = FIELDS.into_iter().filter_map(|field| {
            let text = metadata.text(field).filter(|text| !text.is_empty())?;
            Some((field, text))
        });
        let (field, text) = rules.next().unwrap_or(("unencrypted_suffix", DEFAULT));
        if let Some((other, _)) = rules.next() {
            return Err(format!("it has two rules, {field} and {other}, and SOPS supports only one"));
        }
        let regex = || {
            let built = RegexBuilder::new(text).size_limit(PATTERN).dfa_size_limit(PATTERN).build();
            built.map_err(|_| match pattern_fault(text) {
                Some(fault) => format!("its rule {field} is not a valid pattern: {fault}"),
                None => format!("its rule {field} is not a valid pattern"),
            })
        };
        let matcher = match field {
            "unencrypted_suffix" | "encrypted_suffix" => Matcher::Suffix(text.to_owned()),
            "unencrypted_regex" | "encrypted_regex" => Matcher::Key(regex()?),
            _ => Matcher::Comment(regex()?),
        };
        Ok(Self { matches_are_encrypted: field.starts_with("encrypted"), matcher })
    }

    /// Returns whether a key, or a comment before it, matches.
    pub(super) fn matches(&self, key: Option<&str>, comments: &[String]) -> bool {
        match &self.matcher {
            Matcher::Suffix(suffix) => key.is_some_and(|key| key.ends_with(suffix.as_str())),
            Matcher::Key(regex) => key.is_some_and(|key| regex.is_match(key)),
            Matcher::Comment(regex) => comments.iter().any(|comment| regex.is_match(comment)),
        }
    }

    /// Returns whether a value is encrypted. `matched` says whether a step of the value's path matches.
    pub(super) fn selects(&self, matched: bool) -> bool {
        matched == self.matches_are_encrypted
    }

    /// Returns whether the rule depends on comments, which other tools do not keep.
    pub(super) fn is_by_comment(&self) -> bool {
        matches!(self.matcher, Matcher::Comment(_))
    }
}
