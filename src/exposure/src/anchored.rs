//! Checks that the expression of a path cannot match the host.
//!
//! Oathkeeper matches host and path as one string without a separator. With the host `shop.ex`, the expression
//! `ample.com/.*` would match requests to `shop.example.com`.
//!
//! Invariant: in doubt, a path is refused, for example if Istio, Oathkeeper and Rust interpret its expression
//! differently.

/// Maximum nesting depth of groups.
const DEEPEST: usize = 50;

/// Returns why a path is refused, in the words of the message.
pub(super) fn why_not(path: &str) -> Option<&'static str> {
    if path.contains(['<', '>']) {
        return Some("it must not contain < or >, which end an expression in an access rule");
    }
    let mut rest = Rest { text: path, at: 0 };
    match rest.alternatives(0) {
        Err(why) => Some(why),
        Ok(_) if rest.at < path.len() => Some("a parenthesis is closed that was not opened"),
        Ok(Begins::Slash) => None,
        Ok(Begins::Other) => {
            Some("every alternative must begin with /, or it would match the rest of another host's name")
        }
    }
}

/// The first character of every string that an expression matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    Slash,
    Other,
}

struct Rest<'p> {
    text: &'p str,
    at: usize,
}

impl Rest<'_> {
    fn left(&self) -> &str {
        &self.text[self.at..]
    }

    fn next(&mut self) -> Option<char> {
        let next = self.left().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    /// Parses alternatives up to the end or to the closing parenthesis of the group.
    fn alternatives(&mut self, depth: usize) -> Result<Begins, &'static str> {
        if depth > DEEPEST {
            return Err("its groups are nested too deeply");
        }
        let mut all = Begins::Slash;
        loop {
            // The first character is unknown until an item of this alternative consumes one.
            let mut begins = None;
            while !self.left().is_empty() && !self.left().starts_with(['|', ')']) {
                let first = self.item(depth)?;
                begins = begins.or(first);
            }
            if begins != Some(Begins::Slash) {
                all = Begins::Other;
            }
            if !self.left().starts_with('|') {
                return Ok(all);
            }
            self.at += 1;
        }
    }

    /// Parses one character, class or group. Returns `None` if the item consumes no character.
    fn item(&mut self, depth: usize) -> Result<Option<Begins>, &'static str> {
        let begins = match self.next() {
            Some('/') => Begins::Slash,
            Some('\\') => self.escape()?,
            Some('[') => self.class()?,
            Some('(') => {
                let looks = ["?=", "?!"].iter().any(|look| self.left().starts_with(look));
                if looks || self.left().starts_with("?:") {
                    self.at += 2;
                } else if self.left().starts_with('?') {
                    return Err("of the groups that begin with (?, only (?:, (?= and (?! are supported");
                }
                let inner = self.alternatives(depth + 1)?;
                if self.next() != Some(')') {
                    return Err("a parenthesis is not closed");
                }
                if looks {
                    return Ok(None);
                }
                inner
            }
            _ => Begins::Other,
        };
        Ok(Some(if self.may_be_absent() { Begins::Other } else { begins }))
    }

    /// Whether the next characters make the previous item optional.
    fn may_be_absent(&self) -> bool {
        let left = self.left();
        let counts = || left[1..].starts_with(|c: char| c.is_ascii_digit() || c == ',' || c == ' ');
        left.starts_with(['?', '*']) || (left.starts_with('{') && counts())
    }

    fn escape(&mut self) -> Result<Begins, &'static str> {
        match self.next() {
            Some('/') => Ok(Begins::Slash),
            // The regular expression engines differ in quotations, and in escapes for groups or control characters.
            Some('Q' | 'E' | 'c' | 'k' | 'g' | 'N') | None => Err("it has an escape that is not understood"),
            Some(_) => Ok(Begins::Other),
        }
    }

    fn class(&mut self) -> Result<Begins, &'static str> {
        let strange = Err("it has a class of characters that is not understood; write \\[ and \\] within one");
        if self.left().starts_with('^') {
            self.at += 1;
        }
        let mut is_first = true;
        loop {
            match self.next() {
                Some(']') if !is_first => return Ok(Begins::Other),
                Some(']') | None => return strange,
                Some('\\') => {
                    self.escape()?;
                }
                Some('[') => {
                    // The item may be a class such as `[[:alpha:]]`.
                    let named = self.left().strip_prefix(':').and_then(|left| left.split_once(":]"));
                    match named {
                        Some((name, _)) if name.chars().all(|c| c.is_ascii_alphabetic()) => self.at += name.len() + 3,
                        _ => return strange,
                    }
                }
                Some(_) => {}
            }
            is_first = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: bool) {
        assert_eq!(why_not(path).is_none(), expected, "{path}: {:?}", why_not(path));
    }

    #[test]
    fn a_path_begins_with_a_slash_in_each_of_its_alternatives() {
        for good in [
            "/",
            "/.*",
            "/post",
            "/a|/b",
            "(/a|/b)",
            "/(a|.*)",
            "(?:/a|(/b|/c)x)",
            "(?!/x)/.*",
            "/+a",
            "\\/a",
            "/[|(]a",
            "/{id}",
            "/a?",
            "/[^/]+",
            "/[[:alpha:]]*",
            "(/a)+",
            "/é|/ü",
        ] {
            check(good, true);
        }
        for bad in [
            "",
            ".*",
            "ample.com/.*",
            "a",
            "/a|.*",
            ".*|/a",
            "(/a|.*)",
            "/a|",
            "|/a",
            "(/a)?b",
            "(/a)*",
            "/?a",
            "/*a",
            "/{0}a",
            "/{0,1}a",
            "/{,1}a",
            "()/a|x",
            "[/.]a",
            "(/|(/|.))a",
            "(?!/x).*",
            "(?=/)",
            "\\.a",
        ] {
            check(bad, false);
        }
    }

    #[test]
    fn an_ambiguous_path_is_refused() {
        for bad in [
            "/a)|(.*",
            "/(",
            "(",
            ")",
            "/a(?x)#(\n|.*#)\n",
            "(?i)/a",
            "/(?P<n>a)",
            "/(?<n>a)",
            "/\\Q(\\E|.*\\Q)\\E",
            "/\\",
            "/[",
            "/[]|(]",
            "/[^]a]",
            "/[a[b]|.*]",
            "/a>x<b",
            "/\\c(|.*\\c)",
        ] {
            check(bad, false);
        }
        check(&"(".repeat(100_000), false);
        check(&format!("{}/{}", "(".repeat(40), ")".repeat(40)), true);
    }

    #[test]
    fn an_accepted_pattern_matches_paths_only() {
        let alphabet = ["/", "a", ".*", "|", "(", ")", "?", "*", "[a/]", "\\", "(?:", "{0}"];
        let mut let_through = 0;
        // Tests all combinations of four of these parts.
        for number in 0..alphabet.len().pow(4) {
            let part = |place: u32| alphabet[number / alphabet.len().pow(place) % alphabet.len()];
            let path = (0..4).map(part).collect::<String>();
            if why_not(&path).is_some() {
                continue;
            }
            // Some combinations are not valid in Rust, which does not support look-ahead.
            let Ok(whole) = regex::Regex::new(&format!("^({path})$")) else { continue };
            let_through += 1;
            for other in ["", "a", ".x/", "aa/a", "(", "|"] {
                assert!(!whole.is_match(other), "{path} matches {other}");
            }
        }
        assert!(let_through > 300, "{let_through}");
    }
}
