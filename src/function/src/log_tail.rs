//! Returns the end of a package manager's log, without credentials. Scripts of packages can print any text to the log.
//!
//! Invariant: a line that may contain a credential is not shown.

use std::fmt::Write as _;

/// Maximum number of lines.
const LINES: usize = 12;
/// Maximum length of a line in bytes.
const LINE: usize = 300;
/// Words of lines that may contain a credential, in lower case.
const SECRETIVE: [&str; 10] = [
    "_auth",
    "authorization:",
    "password",
    "passwd",
    "bearer ",
    "token=",
    "token:",
    "secret=",
    "secret:",
    "private key",
];
/// The replacement for a line that may contain a credential.
const LEFT_OUT: &str = "(a line that may hold a credential is left out)";

/// Returns the last lines of a log, without credentials.
pub(super) fn log_tail(log: &str) -> String {
    let lines = log.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect::<Vec<_>>();
    let mut shown: Vec<String> = Vec::new();
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        let line = clean(line);
        if line != LEFT_OUT || shown.last().is_none_or(|last| last != LEFT_OUT) {
            shown.push(line);
        }
    }
    shown.join("\n")
}

fn clean(line: &str) -> String {
    let lower = line.to_lowercase();
    if SECRETIVE.iter().any(|word| lower.contains(word)) {
        return LEFT_OUT.to_owned();
    }
    let line = mainstay_api::conditions::cut(line, LINE);
    let mut text = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        text.push_str(before);
        let end = after.find(|c: char| c == '/' || c.is_whitespace() || c == '"').unwrap_or(after.len());
        let authority = &after[..end];
        if let Some((_, host)) = authority.rsplit_once('@') {
            let _ = write!(text, "…@{host}");
        } else {
            text.push_str(authority);
        }
        rest = &after[end..];
    }
    text.push_str(rest);
    text.chars().filter(|c| !c.is_control() || *c == '\t').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_last_lines() {
        let log = (1..=20).map(|n| format!("line {n}\n")).collect::<Vec<_>>().join("\n");
        assert_eq!(log_tail(&log).lines().collect::<Vec<_>>()[..2], ["line 9", "line 10"]);
        assert_eq!(log_tail("npm error 404 Not Found"), "npm error 404 Not Found");
        assert_eq!(log_tail(""), "");
    }

    #[test]
    fn shows_no_credentials() {
        let log = "GET https://user:hunter2@registry.example.org/left-pad\n//r.example/:_authToken=hunter2\n\
                   Authorization: Basic hunter2\nnpm error \u{1b}[31mcode\u{1b}[0m E404";
        let shown = log_tail(log);
        assert!(!shown.contains("hunter2"), "{shown}");
        let expected = format!("GET https://…@registry.example.org/left-pad\n{LEFT_OUT}\nnpm error [31mcode[0m E404");
        assert_eq!(shown, expected);
    }
}
