//! The lines in which two YAML documents differ.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// Number of equal lines around differences.
const AROUND: usize = 3;
/// Maximum time to search for the shortest difference. Afterwards, any difference is used.
const WITHIN: Duration = Duration::from_millis(500);

/// The side of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Both,
    /// The line is only in the cluster.
    Cluster,
    /// The line is only in the repository.
    Repository,
    /// The line is a mark between two parts.
    Gap,
}

/// Returns the lines around each difference; an empty list if the documents are equal.
pub(crate) fn difference(cluster: &str, repository: &str) -> Vec<(Side, String)> {
    difference_within(cluster, repository, WITHIN)
}

/// Returns the lines around each difference. After the time `within`, any difference is used instead of the shortest one.
pub(crate) fn difference_within(cluster: &str, repository: &str, within: Duration) -> Vec<(Side, String)> {
    let difference = TextDiff::configure().timeout(within).diff_lines(cluster, repository);
    let mut lines = Vec::new();
    for group in difference.grouped_ops(AROUND) {
        if !lines.is_empty() {
            lines.push((Side::Gap, "⋯".to_owned()));
        }
        for change in group.iter().flat_map(|op| difference.iter_changes(op)) {
            let side = match change.tag() {
                ChangeTag::Equal => Side::Both,
                ChangeTag::Delete => Side::Cluster,
                ChangeTag::Insert => Side::Repository,
            };
            lines.push((side, change.value().trim_end_matches('\n').to_owned()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_documents_have_no_lines_and_a_gap_is_between_parts() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), []);
        let text = |first: &str, last: &str| format!("{first}\n{}{last}\n", "same\n".repeat(20));
        let lines = difference(&text("a", "b"), &text("c", "d"));
        let of =
            |side: Side| lines.iter().filter(|(of, _)| *of == side).map(|(_, text)| text.as_str()).collect::<Vec<_>>();
        assert_eq!(
            (of(Side::Cluster), of(Side::Repository), of(Side::Gap)),
            (vec!["a", "b"], vec!["c", "d"], vec!["⋯"])
        );
    }
}
