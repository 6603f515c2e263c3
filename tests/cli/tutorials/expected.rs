//! Compares the output that a tutorial states with the real one.

/// Matches any text in a line; alone in a line it matches any number of lines.
const ANY: &str = "...";

/// Separator of table columns.
const GAP: &str = "   ";

/// Whether the output matches, except for `...`, trailing blanks and column widths.
pub(super) fn is(expected: &str, printed: &str) -> bool {
    let lines = |text: &str| text.trim_end().lines().map(columns).collect::<Vec<_>>();
    lines_are(&lines(expected), &lines(printed))
}

/// Reduces larger gaps in a line to three blanks.
fn columns(line: &str) -> String {
    let indentation = line.len() - line.trim_start().len();
    let (indentation, text) = line.trim_end().split_at(indentation.min(line.trim_end().len()));
    let cells: Vec<_> = text.split(GAP).map(str::trim_start).filter(|cell| !cell.is_empty()).collect();
    format!("{indentation}{}", cells.join(GAP))
}

fn lines_are(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == ANY => (0..=printed.len()).any(|skipped| lines_are(rest, &printed[skipped..])),
        Some((first, rest)) => {
            printed.split_first().is_some_and(|(line, others)| line_is(first, line) && lines_are(rest, others))
        }
    }
}

fn line_is(expected: &str, printed: &str) -> bool {
    match expected.split_once(ANY) {
        None => expected == printed,
        Some((before, rest)) => printed
            .strip_prefix(before)
            .is_some_and(|left| (0..=left.len()).filter_map(|at| left.get(at..)).any(|left| line_is(rest, left))),
    }
}

#[test]
fn dots_stand_for_text_in_a_line_and_for_lines() {
    for (expected, printed) in [
        ("a", "a\n"),
        ("a...d", "a b c d"),
        ("a...", "a"),
        ("...\nb", "a\na\nb"),
        ("a\n...", "a"),
        ("a\n...\nb...\n", "a\nx\nbc\n"),
        ("", ""),
        ("AGE   SERVES\n...   1", "AGE     SERVES\n5m12s   1"),
        ("  a   b", "  a       b"),
    ] {
        assert!(is(expected, printed), "{expected:?} {printed:?}");
    }
    for (expected, printed) in [
        ("a", "b"),
        ("a", "a\nb"),
        ("a\nb", "a"),
        ("a...d", "a b c"),
        ("...\nb", "a"),
        ("a...\nb", "a\nx\nb"),
        ("", "a"),
        ("  a", "    a"),
        ("a  b", "a b"),
    ] {
        assert!(!is(expected, printed), "{expected:?} {printed:?}");
    }
}
