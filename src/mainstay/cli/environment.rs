//! The environment of this process.

/// Returns the environment. Variables that are not UTF-8 are converted lossily, so that they are reported as invalid
/// and not ignored.
pub(super) fn variables() -> impl Iterator<Item = (String, String)> {
    let text = |word: std::ffi::OsString| word.to_string_lossy().into_owned();
    std::env::vars_os().map(move |(name, value)| (text(name), text(value)))
}
