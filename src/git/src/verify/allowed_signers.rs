//! Parses trusted SSH keys: lines of an `allowed_signers` file (ssh-keygen(1)), or plain public keys.
//!
//! Invariant: an unknown option makes a line unusable, because options only restrict what a key may do.

use jiff::civil::DateTime;
use jiff::{Timestamp, tz::TimeZone};
use russh::keys::ssh_key::PublicKey;

/// Signature namespace of Git. `namespaces` must allow it.
pub(super) const NAMESPACE: &str = "git";

/// A trusted key.
#[derive(Debug)]
pub(super) struct SshSigner {
    pub(super) key: PublicKey,
    /// The line's principals; empty for a plain key.
    pub(super) principals: String,
    pub(super) valid_after: Option<Timestamp>,
    pub(super) valid_before: Option<Timestamp>,
    /// Whether the key may sign for Git.
    pub(super) for_git: bool,
}

/// Parses the keys. The error contains the line.
pub(super) fn read(text: &str) -> Result<Vec<SshSigner>, String> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(at, line)| signer(line).map_err(|why| format!("line {}: {why}", at + 1))).collect()
}

fn signer(line: &str) -> Result<SshSigner, &'static str> {
    const NO_KEY: &str =
        "it is neither a public key, such as `ssh-ed25519 AAAA…`, nor a line of an allowed_signers file";
    const TWICE: &str = "an option appears twice";
    if let Ok(key) = PublicKey::from_openssh(line) {
        return Ok(SshSigner { key, principals: String::new(), valid_after: None, valid_before: None, for_git: true });
    }
    let (principals, rest) = field(line);
    let mut rest = rest.trim_start();
    let (mut valid_after, mut valid_before, mut for_git) = (None, None, None);
    // A key begins with its type, and no option has that form.
    let key = loop {
        if let Ok(key) = PublicKey::from_openssh(rest) {
            break key;
        }
        let (options, after) = field(rest);
        if after.is_empty() || is_key_type(options) {
            return Err(NO_KEY);
        }
        for option in split(options) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = value.trim_matches('"');
            match name.to_ascii_lowercase().as_str() {
                "namespaces" if for_git.is_some() => return Err(TWICE),
                "valid-after" if valid_after.is_some() => return Err(TWICE),
                "valid-before" if valid_before.is_some() => return Err(TWICE),
                "namespaces" => for_git = Some(allows_git(value)),
                "valid-after" => valid_after = Some(time(value).ok_or("its valid-after is not a time like 20300131")?),
                "valid-before" => {
                    valid_before = Some(time(value).ok_or("its valid-before is not a time like 20300131")?);
                }
                "cert-authority" => return Err("cert-authority is not supported; list the keys themselves"),
                _ if after.trim_start().is_empty() || !option.contains('=') => return Err(NO_KEY),
                _ => return Err("it has an option that is not known"),
            }
        }
        rest = after.trim_start();
    };
    Ok(SshSigner {
        key,
        principals: principals.trim_matches('"').to_owned(),
        valid_after,
        valid_before,
        for_git: for_git.unwrap_or(true),
    })
}

/// Returns whether patterns allow Git's namespace: at least one matches, and no negated one does.
fn allows_git(patterns: &str) -> bool {
    let negated = |pattern: &str| pattern.trim().strip_prefix('!').is_some_and(|pattern| matches(pattern, NAMESPACE));
    !patterns.split(',').any(negated) && patterns.split(',').any(|pattern| matches(pattern, NAMESPACE))
}

fn is_key_type(word: &str) -> bool {
    ["ssh-", "ecdsa-", "sk-"].iter().any(|beginning| word.starts_with(beginning))
}

/// Splits the string at the first blank outside of quotes.
fn field(text: &str) -> (&str, &str) {
    let mut quoted = false;
    let end = text.find(|c: char| {
        quoted ^= c == '"';
        !quoted && (c == ' ' || c == '\t')
    });
    text.split_at(end.unwrap_or(text.len()))
}

/// Splits the string at commas outside of quotes.
fn split(text: &str) -> Vec<&str> {
    let mut quoted = false;
    text.split(|c: char| {
        quoted ^= c == '"';
        !quoted && c == ','
    })
    .collect()
}

/// Returns whether a pattern with `*` and `?` matches. Patterns are short, and matching backtracks at most once per
/// star.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.trim().chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, t) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Parses `YYYYMMDD`, `YYYYMMDDHHMM` or `YYYYMMDDHHMMSS`, with or without a `Z`. The agent's time zone is UTC.
fn time(text: &str) -> Option<Timestamp> {
    let digits = text.strip_suffix(['Z', 'z']).unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) || ![8, 12, 14].contains(&digits.len()) {
        return None;
    }
    let number = |from: usize, to: usize| digits.get(from..to).map_or(Some(0), |part| part.parse::<i8>().ok());
    let year = digits[..4].parse().ok()?;
    let time = DateTime::new(year, number(4, 6)?, number(6, 8)?, number(8, 10)?, number(10, 12)?, number(12, 14)?, 0);
    Some(time.ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti";

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let got = match read(line) {
            Ok(signers) => {
                let shown = signers.iter().map(|s| {
                    let times =
                        [s.valid_after, s.valid_before].map(|at| at.map_or("-".to_owned(), |at| at.to_string()));
                    format!("{:?} {} {}", s.principals, times.join(" "), s.for_git)
                });
                shown.collect::<Vec<_>>().join("; ")
            }
            Err(why) => why,
        };
        assert_eq!(got, expected, "{line}");
    }

    #[test]
    fn reads_plain_keys_and_lines_with_options() {
        check(KEY, r#""" - - true"#);
        check(&format!("# people\n\n{KEY} alice\n*@b.c,d@e {KEY} bob"), r#""" - - true; "*@b.c,d@e" - - true"#);
        let options = format!("a@b namespaces=\"file,g*\",valid-after=\"20200102Z\",VALID-BEFORE=20300405060708 {KEY}");
        check(&options, r#""a@b" 2020-01-02T00:00:00Z 2030-04-05T06:07:08Z true"#);
        check(&format!("\"a b\" namespaces=\"file\" {KEY}"), r#""a b" - - false"#);
        check(&format!("a@b namespaces=\"*,!git\" {KEY}"), r#""a@b" - - false"#);
        check(&format!("a@b namespaces=\"!file,g*\" {KEY}"), r#""a@b" - - true"#);
    }

    #[test]
    fn names_the_line_that_it_does_not_understand() {
        let no_key = "it is neither a public key, such as `ssh-ed25519 AAAA…`, nor a line of an allowed_signers file";
        check(&format!("{KEY}\nhello"), &format!("line 2: {no_key}"));
        check("a@b ssh-ed25519 AAAA", &format!("line 1: {no_key}"));
        check(&format!("a@b touch=no {KEY}"), "line 1: it has an option that is not known");
        let twice = "line 1: an option appears twice";
        check(&format!("a@b namespaces=file,namespaces=git {KEY}"), twice);
        check(&format!("a@b valid-before=20200101 valid-before=20900101 {KEY}"), twice);
        check(
            &format!("a@b cert-authority {KEY}"),
            "line 1: cert-authority is not supported; list the keys themselves",
        );
        check(&format!("a@b valid-before=soon {KEY}"), "line 1: its valid-before is not a time like 20300131");
        check(&format!("a@b valid-after=20301301 {KEY}"), "line 1: its valid-after is not a time like 20300131");
    }

    proptest! {
        #[test]
        fn reads_any_text_without_panic(text: String, line in "[a@*\" ,=Z0-9-]{0,60}", pattern in "[g*?it]{0,8}") {
            let _ = (read(&text), read(&format!("{line} {KEY}")), time(&line), matches(&pattern, NAMESPACE));
        }
    }
}
