//! The names that flags give to objects.

/// What is said of a name that is none.
pub(super) const RULE: &str =
    "it has up to 63 lower-case letters, digits and dashes, and begins and ends with a letter or digit";

/// Whether it is a DNS label, and so a valid name of a namespace and of any object.
pub(super) fn is_label(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.chars().all(|c| plain(c) || c == '-')
        && name.starts_with(plain)
        && name.ends_with(plain)
}
