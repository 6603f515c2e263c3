//! The `Change-Id` of a commit for a review in Gerrit.

use sha2::{Digest as _, Sha256};

use super::message::Change;

/// Name of the line at the end of a message.
const NAME: &str = "Change-Id: ";
/// Length of an id, in bytes.
const LENGTH: usize = 20;

/// Returns the message with an id, unless it has one. The same changes of an automation have the same id, so a later
/// commit with them is a patch set of the same change.
pub(super) fn with_change_id(message: &str, automation: &str, changes: &[Change]) -> String {
    if message.lines().any(|line| line.starts_with(NAME)) {
        return message.to_owned();
    }
    let mut digest = Sha256::new();
    let parts = changes.iter().flat_map(|(file, change)| [file, &change.old, &change.new]).map(String::as_str);
    for part in std::iter::once(automation).chain(parts) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    let id = hex::encode(&digest.finalize()[..LENGTH]);
    format!("{}\n\n{NAME}I{id}\n", message.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_gets_one_id_that_depends_on_the_changes() {
        let one = with_change_id("Update\n", "team/images", &[]);
        let (head, id) = one.split_once("\n\nChange-Id: I").unwrap();
        assert_eq!((head, id.trim_end().len()), ("Update", 40));
        assert_eq!(with_change_id(&one, "team/other", &[]), one);
        assert_ne!(with_change_id("Update", "team/other", &[]), one);
    }
}
