//! The programs of a simulated container: a few programs, and a shell for one line.
//!
//! Simulated programs neither run nor read anything on this machine.
//!
//! Not here: files, pipes, variables and quotes inside words of the shell. Unknown programs are not found, as in an
//! image without them.

use std::time::Duration;

/// Maximum duration of `sleep`.
const LONGEST_SLEEP: Duration = Duration::from_secs(24 * 3600);
/// Exit code of a shell that cannot find a program.
const NOT_FOUND: i64 = 127;

/// One step of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Writes to standard output.
    Out(String),
    /// Writes to standard error.
    Error(String),
    /// Copies standard input to standard output.
    Copy,
    /// Waits.
    Wait(Duration),
    /// Ends with this exit code.
    End(i64),
}

/// Returns the steps of a command in a pod. The error is that of a container runtime that cannot find the program.
pub(super) fn plan(words: &[String], pod: &str) -> Result<Vec<Step>, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["sh" | "/bin/sh" | "bash" | "/bin/bash", "-c", script, ..] => Ok(shell(script, pod)),
        ["sh" | "/bin/sh" | "bash" | "/bin/bash"] => Ok(vec![Step::Copy]),
        _ => program(&words, pod).ok_or_else(|| {
            let name = words.first().copied().unwrap_or_default();
            format!("exec: {name:?}: executable file not found in $PATH")
        }),
    }
}

fn program(words: &[&str], pod: &str) -> Option<Vec<Step>> {
    let (name, arguments) = words.split_first()?;
    let name = name.strip_prefix("/usr/bin/").or_else(|| name.strip_prefix("/bin/")).unwrap_or(name);
    Some(match (name, arguments) {
        ("true", _) => vec![],
        ("false", _) => vec![Step::End(1)],
        ("echo", words) => vec![Step::Out(words.join(" ") + "\n")],
        ("cat", [] | ["-"]) => vec![Step::Copy],
        ("cat", [file, ..]) => vec![Step::Error(format!("cat: {file}: No such file or directory\n")), Step::End(1)],
        ("hostname", []) => vec![Step::Out(format!("{pod}\n"))],
        ("pwd", []) => vec![Step::Out("/\n".to_owned())],
        ("env" | "printenv", []) => vec![Step::Out(format!(
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nHOSTNAME={pod}\nHOME=/root\n"
        ))],
        ("sleep", [seconds]) => {
            let time = seconds.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            match time {
                Some(time) => vec![Step::Wait(time.min(LONGEST_SLEEP))],
                None => vec![Step::Error(format!("sleep: invalid time interval '{seconds}'\n")), Step::End(1)],
            }
        }
        _ => return None,
    })
}

/// Returns the steps of a shell line: commands separated by `;`, `&&` and `||`, with `>&2` at their ends, and `exit`.
fn shell(script: &str, pod: &str) -> Vec<Step> {
    let spaced = ["&&", "||", ";", "\n"].iter().fold(script.to_owned(), |text, sign| {
        text.replace(sign, &format!(" {} ", if *sign == "\n" { ";" } else { sign }))
    });
    let (mut steps, mut command, mut code, mut wanted) = (Vec::new(), Vec::new(), 0, true);
    for word in spaced.split_whitespace().chain([";"]) {
        if !matches!(word, "&&" | "||" | ";") {
            command.push(word.trim_matches(['"', '\'']));
            continue;
        }
        if wanted && !command.is_empty() {
            if let ["exit", number @ ..] = command.as_slice() {
                code = number.first().map_or(code, |number| number.parse().map_or(2, |code: i64| code & 0xff));
                steps.push(Step::End(code));
                return steps;
            }
            code = one(&command, pod, &mut steps);
        }
        command.clear();
        wanted = match word {
            "&&" => code == 0,
            "||" => code != 0,
            _ => true,
        };
    }
    steps.push(Step::End(code));
    steps
}

/// Adds the steps of one shell command. Returns its exit code.
fn one(command: &[&str], pod: &str, steps: &mut Vec<Step>) -> i64 {
    let to_error = command.iter().any(|word| matches!(*word, ">&2" | "1>&2"));
    let words: Vec<&str> = command.iter().copied().filter(|word| !matches!(*word, ">&2" | "1>&2")).collect();
    let Some(done) = program(&words, pod) else {
        steps.push(Step::Error(format!("sh: 1: {}: not found\n", words.first().copied().unwrap_or_default())));
        return NOT_FOUND;
    };
    for step in done {
        match step {
            Step::End(code) => return code,
            Step::Out(text) if to_error => steps.push(Step::Error(text)),
            step => steps.push(step),
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(words: &[&str], expected: Result<Vec<Step>, &str>) {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(plan(&words, "web-1"), expected.map_err(str::to_owned), "{words:?}");
    }

    fn out(text: &str) -> Step {
        Step::Out(text.to_owned())
    }

    #[test]
    fn knows_a_handful_of_programs() {
        check(&["echo", "a", "b"], Ok(vec![out("a b\n")]));
        check(&["/bin/cat"], Ok(vec![Step::Copy]));
        check(&["hostname"], Ok(vec![out("web-1\n")]));
        check(&["false"], Ok(vec![Step::End(1)]));
        check(&["sleep", "0.5"], Ok(vec![Step::Wait(Duration::from_millis(500))]));
        check(&["rm", "-rf", "/"], Err("exec: \"rm\": executable file not found in $PATH"));
        check(&[""], Err("exec: \"\": executable file not found in $PATH"));
    }

    #[test]
    fn runs_a_line_of_a_shell() {
        check(&["sh", "-c", "exit 3"], Ok(vec![Step::End(3)]));
        check(&["sh", "-c", "echo a; echo b >&2; exit 4"], {
            Ok(vec![out("a\n"), Step::Error("b\n".to_owned()), Step::End(4)])
        });
        check(&["sh", "-c", "false && echo no || echo yes"], Ok(vec![out("yes\n"), Step::End(0)]));
        let missing = Step::Error("sh: 1: rm: not found\n".to_owned());
        check(&["sh", "-c", "rm -rf /"], Ok(vec![missing, Step::End(NOT_FOUND)]));
        check(&["sh", "-c", ";;&&||"], Ok(vec![Step::End(0)]));
        check(&["sh", "-c", "sleep 1e300"], {
            Ok(vec![Step::Error("sleep: invalid time interval '1e300'\n".to_owned()), Step::End(1)])
        });
    }
}
