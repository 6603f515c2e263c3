//! The lines in which two YAML documents differ.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// Number of equal lines around differences.
const AROUND: usize = 3;
/// Maximum time to search for the shortest difference. Afterwards, any difference is used.
const WITHIN: Duration = Duration::from_millis(500);

/// Maximum number of lines of a document, and maximum size of the lines of a short difference in bytes. Each line takes
/// [`MARKUP`] bytes more on a page.
const LINES: usize = 20_000;
const SHORT: usize = 256 << 10;
const MARKUP: usize = 20;

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

/// Returns the first lines around each difference; an empty list if the documents are equal. A last line says if lines are
/// left out.
pub(crate) fn short_difference(cluster: &str, repository: &str) -> Vec<(Side, String)> {
    let gap = |text: &str| (Side::Gap, text.to_owned());
    if cluster.lines().count().max(repository.lines().count()) > LINES {
        return vec![gap("One of the documents has more than 20 000 lines, so they are not compared.")];
    }
    let mut lines = difference(cluster, repository);
    let mut left = SHORT;
    let fits = lines.iter().take_while(|(_, line)| {
        let rest = left.checked_sub(line.len() + MARKUP);
        left = rest.unwrap_or_default();
        rest.is_some()
    });
    let count = fits.count();
    if count < lines.len() {
        lines.truncate(count);
        lines.push(gap("⋯ Further lines are left out."));
    }
    lines
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
    fn a_short_difference_has_a_maximum_size() {
        assert_eq!(short_difference("a\n", "b\n"), difference("a\n", "b\n"));
        let text = |word: &str| format!("{word}\n").repeat(LINES);
        let lines = short_difference(&text("a"), &text("b"));
        assert_eq!(lines.len(), SHORT / (MARKUP + 1) + 1);
        assert!(lines.last().is_some_and(|(side, line)| *side == Side::Gap && line.contains("left out")));
        let lines = short_difference("", &format!("{}b\n", text("a")));
        assert!(lines.len() == 1 && lines[0].1.contains("not compared"), "{lines:?}");
    }

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
