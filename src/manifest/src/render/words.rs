//! The setting that determines how much of a tool's own messages a problem shows.

use crate::Problem;
use mainstay_object::printable;

/// The shown part of a tool's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Words {
    /// Only known names. Messages may quote Secrets, and a status has more readers than a repository.
    #[default]
    Reduced,
    /// The whole messages, for a developer who has the input files.
    Full,
}

impl Words {
    /// Adds a tool's message to a problem. `root` is the directory of the copied inputs.
    pub(super) fn add(self, problem: Problem, said: &str, root: &str) -> Problem {
        let said = said.replace(&format!("{}/", root.trim_end_matches('/')), "");
        let said = error_of_log_lines(&said).unwrap_or(said);
        let lines: Vec<_> =
            said.lines().map(without_log_prefix).filter(|line| !line.is_empty()).map(printable).collect();
        if self == Self::Reduced || lines.is_empty() {
            return problem;
        }
        // Hints to look at the messages of the tool are dropped.
        let hint = problem.hint.filter(|hint| !hint.contains("in a checkout"));
        Problem { what: format!("{}: {}", problem.what, lines.join(" ")), hint, ..problem }
    }
}

/// Extracts the error from kubectl's log line `"command failed" err="…"` or `"command failed" err=<…>`. Warnings that
/// precede the line did not stop the tool.
fn error_of_log_lines(said: &str) -> Option<String> {
    let (before, error) = said.split_once(r#""command failed" err="#)?;
    let prefix = before.rsplit('\n').next().unwrap_or_default();
    if !without_log_prefix(&format!("{prefix}.")).trim_start().starts_with('.') {
        return None;
    }
    let error = error.trim();
    match error.strip_prefix('<').and_then(|error| error.strip_suffix('>')) {
        Some(lines) => Some(lines.to_owned()),
        None => serde_json::from_str(error).ok(),
    }
}

/// Removes klog's prefix from a line: severity and date, time, thread, and source position.
fn without_log_prefix(line: &str) -> &str {
    let line = line.trim();
    let mut severity = line.bytes();
    let is_dated =
        matches!(severity.next(), Some(b'I' | b'W' | b'E' | b'F')) && severity.take(4).all(|c| c.is_ascii_digit());
    let message = || line.split_once("] ").filter(|(prefix, _)| prefix.split_whitespace().count() == 4);
    if is_dated { message().map_or(line, |(_, message)| message) } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_object::Place;

    #[test]
    fn only_a_developer_sees_all_output_of_the_tool() {
        let problem = |hint| Problem::new(Place::file("a/kustomization.yaml"), "kustomize refuses it", Some(hint));
        let said = "Error: in '/scratch/x/a/p.yaml':\n  no such key hush\n\n";
        let told = |words: Words, hint| words.add(problem(hint), said, "/scratch/x").to_string();
        let see = "run `kubectl kustomize` in a checkout to see why";
        assert_eq!(
            told(Words::Full, see),
            "a/kustomization.yaml: kustomize refuses it: Error: in 'a/p.yaml': no such key hush"
        );
        assert_eq!(told(Words::Reduced, see), problem(see).to_string());
        assert!(told(Words::Full, "correct it").ends_with("hush (correct it)"));
    }

    #[test]
    fn warnings_before_the_error_are_left_out() {
        let warnings = "# Warning: 'vars' is deprecated. Run 'kustomize edit fix'.\nW1127 04:00:00.1 1 a.go:1] old\n";
        for prefix in ["", "E1127 04:00:00.123456   12345 run.go:72] "] {
            let said = format!("{warnings}{prefix}\"command failed\" err=\"no \\\"a\\\"\"\n");
            assert_eq!(error_of_log_lines(&said).as_deref(), Some("no \"a\""), "{said}");
        }
        assert_eq!(error_of_log_lines("Error: in a \"command failed\" err=\"b\""), None);
    }

    #[test]
    fn the_prefix_of_a_log_line_is_left_out() {
        for (line, expected) in [
            ("W1127 04:00:00.123456   12345 warn.go:17] `patchesJson6902` is old", "`patchesJson6902` is old"),
            ("Error: [a] b", "Error: [a] b"),
            ("E1127 is a name [x] y", "E1127 is a name [x] y"),
            ("Ende", "Ende"),
        ] {
            assert_eq!(without_log_prefix(line), expected);
        }
        let prefix = "E1127 04:00:00.123456   12345 run.go:72] \"command failed\" err=";
        for (error, expected) in
            [("\"no \\\"a\\\"\"", Some("no \"a\"")), ("<\n\tno a\n >\n", Some("\n\tno a\n ")), ("no", None)]
        {
            assert_eq!(error_of_log_lines(&format!("{prefix}{error}")).as_deref(), expected);
        }
    }
}
