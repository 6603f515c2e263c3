//! Recognises a syntax error of the handler in the log of the container `install`, and returns its location in the
//! source.
//!
//! The syntax check is the first command of the container, so its output begins the log. Packages can write to the log
//! too, so the result determines only a message and a delay.

use crate::log_tail::log_tail;

/// The errors with which Python refuses to parse a file. Node.js uses the first one, too.
const ERRORS: [&str; 3] = ["SyntaxError: ", "IndentationError: ", "TabError: "];
/// The first line of an error in Python.
const TRACEBACK: &str = "Traceback (most recent call last):";
/// Directory of the source in the workspace.
const SOURCE: &str = "src/";

/// Returns a syntax error of the handler with its location, such as `handler.js:3: SyntaxError: Unexpected token ')'`.
/// `None` if the log does not begin with one.
pub(super) fn of_log(log: &str) -> Option<String> {
    let mut lines = log.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let first = lines.next()?;
    let place = match first {
        TRACEBACK => lines.by_ref().map_while(frame).filter_map(place_in_python).last()?,
        line => place_in_node(line)?,
    };
    let error = lines.find(|line| ERRORS.iter().any(|error| line.starts_with(error)))?;
    Some(format!("{place}: {}", log_tail(error)))
}

/// Returns the line of a traceback that names a file.
fn frame(line: &str) -> Option<&str> {
    line.strip_prefix("  File \"")
}

/// Converts the location in a traceback line of Python, which is the rest after the opening quote: `src/handler.py",
/// line 3`.
fn place_in_python(frame: &str) -> Option<String> {
    let (file, number) = frame.split_once("\", line ")?;
    named(file, number)
}

/// Converts the first line of an error in Node.js, `/workspace/src/handler.js:3`.
fn place_in_node(line: &str) -> Option<String> {
    let (path, number) = line.rsplit_once(':')?;
    named(path, number)
}

fn named(path: &str, number: &str) -> Option<String> {
    let (_, file) = path.rsplit_once(SOURCE).filter(|(before, _)| before.is_empty() || before.ends_with('/'))?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_handler = file.starts_with("handler.") && !file.contains('/');
    (is_number && is_handler).then(|| format!("{file}:{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_syntax_error_has_its_place_in_one_line() {
        for (log, expected) in [
            (
                "/tmp/a/workspace/src/handler.js:2\n\n\n\nSyntaxError: Unexpected end of input\n    at wrapSafe (node:x:1)\n\n\
                 Node.js v20.20.2\n",
                "handler.js:2: SyntaxError: Unexpected end of input",
            ),
            (
                "/workspace/src/handler.js:3\nexport const main = (;\n                     ^\n\nSyntaxError: Unexpected token ';'\n",
                "handler.js:3: SyntaxError: Unexpected token ';'",
            ),
            (
                "Traceback (most recent call last):\n  File \"<stdin>\", line 44, in <module>\n  File \"src/handler.py\", line 3\n    \
                 y\n     ^\nIndentationError: unindent does not match any outer indentation level\n",
                "handler.py:3: IndentationError: unindent does not match any outer indentation level",
            ),
        ] {
            assert_eq!(of_log(log).as_deref(), Some(expected), "{log}");
        }
    }

    #[test]
    fn another_log_is_no_syntax_error() {
        for log in [
            "",
            "npm error code E404\n/workspace/src/handler.js:2\nSyntaxError: Unexpected end of input\n",
            "/workspace/deps/node_modules/x/index.js:1\nSyntaxError: Unexpected end of input\n",
            "/workspace/src/handler.js:2\nnpm error code E404\n",
            "/workspace/src/handler.js\nSyntaxError: Unexpected end of input\n",
            "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nSyntaxError: source code string cannot \
             contain null bytes\n",
        ] {
            assert_eq!(of_log(log), None, "{log}");
        }
    }

    #[test]
    fn an_error_with_a_credential_is_left_out() {
        let log = "/workspace/src/handler.js:2\n\nSyntaxError: Invalid token: hunter2\n";
        assert!(!of_log(log).unwrap().contains("hunter2"));
    }
}
