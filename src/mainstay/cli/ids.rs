//! Shortens ids of commits and trees in messages for users, to the length that Git hosts show.

pub(super) use mainstay_api::{SHORT_ID as ID, short_id as short};

/// Returns whether a string is the whole id of a Git object.
pub(super) fn is_id(text: &str) -> bool {
    matches!(text.len(), 40 | 64) && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns whether a string is the short form of an id.
pub(super) fn is_short(text: &str) -> bool {
    text.len() == ID && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Shortens every id in a message, except after `=`, because an id there is a value in a command to copy.
pub(super) fn shortened(text: &str) -> String {
    let mut shortened = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let end = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
        let (id, rest) = word.split_at(end);
        let is_cut = is_id(id) && !shortened.ends_with('=');
        shortened.push_str(if is_cut { &id[..ID] } else { id });
        shortened.push_str(rest);
    }
    shortened
}

/// Removes a commit from the message `applied commit …` if it is shown elsewhere, whole or in its short form. Other
/// messages keep their commit.
pub(super) fn without(text: &str, commit: &str) -> String {
    let rest = text.strip_prefix("applied commit ").and_then(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let is_it = rest[..end] == *commit || is_id(&rest[..end]) && is_short(commit) && rest.starts_with(commit);
        is_it.then(|| &rest[end..])
    });
    rest.map_or_else(|| text.to_owned(), |rest| format!("applied{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_whole_ids_and_nothing_else() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(shortened(&format!("commit {id}, tree:{id}.")), "commit 0123456789ab, tree:0123456789ab.");
        for text in [&id[..39], &format!("{id}0"), &id.to_uppercase(), "größe: 12", "", "a b\n"] {
            assert_eq!(shortened(text), *text);
        }
        assert_eq!(without(&format!("applied commit {id}, but"), id), "applied, but");
        assert_eq!(without(&format!("applied commit {id}, but"), &id[..12]), "applied, but");
        let other = format!("applied commit {id}");
        assert_eq!(without(&other, "0123456789ac"), other);
        let command = format!("kubectl annotate gitsync shop mainstay.dev/allow-prune={id}");
        assert_eq!(shortened(&command), command, "a command to copy");
        let missing = format!("baseDir: /apps is not a directory at commit {id}: there is no /apps");
        assert_eq!(without(&missing, id), missing);
        assert_eq!(without("applied", id), "applied");
    }
}
