//! The short form of commit ids in printer columns and messages. A printer column cannot shorten a field itself.

/// Number of digits of a short id, as Git hosts show it.
pub const SHORT_ID: usize = 12;

/// Returns the first digits of a commit id, or the first characters of any other string.
pub fn short_id(id: &str) -> String {
    id.chars().take(SHORT_ID).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiRule, Function, GitRepository, GitSync, Receiver};
    use kube::CustomResourceExt as _;

    #[test]
    fn default_columns_show_no_whole_id() {
        let whole = ["Commit", "revision", "commit", "TreeId"];
        for definition in [GitSync::crd(), GitRepository::crd(), Function::crd(), Receiver::crd(), ApiRule::crd()] {
            let versions = definition.spec.versions.into_iter();
            for column in versions.flat_map(|version| version.additional_printer_columns.unwrap_or_default()) {
                let field = column.json_path.rsplit('.').next().unwrap_or_default();
                let is_whole = whole.iter().any(|end| field.ends_with(end)) && !field.starts_with("short");
                assert!(!is_whole || column.priority.is_some_and(|priority| priority > 0), "{}", column.json_path);
            }
        }
    }

    #[test]
    fn the_short_form_is_the_beginning() {
        assert_eq!(short_id("0123456789abcdef0123456789abcdef01234567"), "0123456789ab");
        assert_eq!(short_id("é"), "é");
    }
}
