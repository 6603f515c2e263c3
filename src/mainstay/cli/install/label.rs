//! Object names from flags.

/// The rule for a name, in messages.
pub(super) const RULE: &str =
    "it must have at most 63 lower-case letters, digits and dashes, and begin and end with a letter or digit";

/// Returns whether a name is a DNS label, which is valid for a namespace and any other object.
pub(super) fn is_label(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.chars().all(|c| plain(c) || c == '-')
        && name.starts_with(plain)
        && name.ends_with(plain)
}
