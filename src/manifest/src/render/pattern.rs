//! Matches patterns of `${name#pattern}` and similar operators as in Flux (Go's `path.Match`, but `*` also matches
//! `/`).
//!
//! Invariant: a match costs at most its [`Steps`], for any pattern.

/// The remaining steps of a match, because a pattern with many stars is slow on a long text.
#[derive(Debug)]
pub(super) struct Steps(u32);

/// The reason that a match has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// The pattern is invalid.
    BadPattern,
    /// The match takes too many steps.
    TakesTooLong,
}

impl Steps {
    /// Returns a limit on the number of compared characters.
    pub(super) fn new(steps: u32) -> Self {
        Self(steps)
    }

    fn take(&mut self) -> Result<(), NoAnswer> {
        self.0 = self.0.checked_sub(1).ok_or(NoAnswer::TakesTooLong)?;
        Ok(())
    }
}

/// The prefix to remove if several prefixes match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Shortest,
    Longest,
}

/// Removes the matching prefix of a text. The empty prefix never matches. With an invalid pattern, the text is
/// unchanged.
pub(super) fn without_beginning<'t>(
    text: &'t [char],
    pattern: &[char],
    which: Which,
    steps: &mut Steps,
) -> Result<&'t [char], NoAnswer> {
    let mut shortest = None;
    for end in (1..=text.len()).rev() {
        match matches(pattern, &text[..end], steps) {
            Ok(true) if which == Which::Longest => return Ok(&text[end..]),
            Ok(true) => shortest = Some(end),
            Ok(false) => {}
            Err(NoAnswer::BadPattern) => return Ok(text),
            Err(spent) => return Err(spent),
        }
    }
    Ok(shortest.map_or(text, |end| &text[end..]))
}

/// Returns whether the pattern matches the whole text. As in Go, each star ends at the first match of the next part.
fn matches(mut pattern: &[char], mut text: &[char], steps: &mut Steps) -> Result<bool, NoAnswer> {
    'pattern: while !pattern.is_empty() {
        steps.take()?;
        let Chunk { after_star, text: chunk, rest } = Chunk::first(pattern, steps)?;
        pattern = rest;
        if after_star && chunk.is_empty() {
            return Ok(true);
        }
        if let Some(left) = begins_with(text, chunk, steps)?
            && (left.is_empty() || !pattern.is_empty())
        {
            text = left;
            continue;
        }
        if after_star {
            for skipped in 1..=text.len() {
                let Some(left) = begins_with(&text[skipped..], chunk, steps)? else { continue };
                if pattern.is_empty() && !left.is_empty() {
                    continue;
                }
                text = left;
                continue 'pattern;
            }
        }
        return Ok(false);
    }
    Ok(text.is_empty())
}

/// A part of a pattern without stars.
struct Chunk<'p> {
    after_star: bool,
    text: &'p [char],
    rest: &'p [char],
}

impl<'p> Chunk<'p> {
    fn first(pattern: &'p [char], steps: &mut Steps) -> Result<Self, NoAnswer> {
        let stars = pattern.iter().take_while(|c| **c == '*').count();
        let pattern = &pattern[stars..];
        let (mut at, mut in_class) = (0, false);
        while let Some(c) = pattern.get(at) {
            steps.take()?;
            match c {
                '\\' if at + 1 < pattern.len() => at += 1,
                '[' => in_class = true,
                ']' => in_class = false,
                '*' if !in_class => break,
                _ => {}
            }
            at += 1;
        }
        Ok(Self { after_star: stars > 0, text: &pattern[..at], rest: &pattern[at..] })
    }
}

/// Returns the text after the chunk; `None` if the text does not begin with the chunk.
fn begins_with<'t>(
    mut text: &'t [char],
    mut chunk: &[char],
    steps: &mut Steps,
) -> Result<Option<&'t [char]>, NoAnswer> {
    while let Some((first, mut rest)) = chunk.split_first() {
        steps.take()?;
        let Some((c, after)) = text.split_first() else { return Ok(None) };
        let is_match = match first {
            '[' => {
                let (is_in, behind) = class(*c, rest, steps)?;
                rest = behind;
                is_in
            }
            '?' => true,
            '\\' => {
                let (escaped, behind) = rest.split_first().ok_or(NoAnswer::BadPattern)?;
                rest = behind;
                escaped == c
            }
            plain => plain == c,
        };
        if !is_match {
            return Ok(None);
        }
        (text, chunk) = (after, rest);
    }
    Ok(Some(text))
}

/// Returns whether a character is in the class at the start of `rest`, and the pattern after the class.
fn class<'p>(c: char, mut rest: &'p [char], steps: &mut Steps) -> Result<(bool, &'p [char]), NoAnswer> {
    let is_negated = rest.first() == Some(&'^');
    rest = &rest[usize::from(is_negated)..];
    let (mut is_in, mut ranges) = (false, 0);
    loop {
        steps.take()?;
        if rest.first() == Some(&']') && ranges > 0 {
            return Ok((is_in != is_negated, &rest[1..]));
        }
        let (low, behind) = of_class(rest)?;
        let (high, behind) = if behind[0] == '-' { of_class(&behind[1..])? } else { (low, behind) };
        is_in |= low <= c && c <= high;
        (rest, ranges) = (behind, ranges + 1);
    }
}

/// Returns the character at one end of a range in a class, and the rest of the pattern, which is never empty.
fn of_class(rest: &[char]) -> Result<(char, &[char]), NoAnswer> {
    let (c, rest) = match rest {
        ['\\', escaped, rest @ ..] => (*escaped, rest),
        [] | ['-' | ']' | '\\', ..] => return Err(NoAnswer::BadPattern),
        [c, rest @ ..] => (*c, rest),
    };
    if rest.is_empty() { Err(NoAnswer::BadPattern) } else { Ok((c, rest)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, pattern: &str, which: Which) -> String {
        let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
        without_beginning(&text, &pattern, which, &mut Steps::new(10_000)).unwrap().iter().collect()
    }

    #[test]
    fn stars_cross_slashes_and_the_empty_beginning_never_matches() {
        assert_eq!(check("path/to/file", "*/", Which::Shortest), "to/file");
        assert_eq!(check("path/to/file", "*/", Which::Longest), "file");
        assert_eq!(check("abc", "*", Which::Shortest), "bc");
        assert_eq!(check("abc", "[a-b]?", Which::Shortest), "c");
        assert_eq!(check("abc", "[^a]*", Which::Longest), "abc");
        assert_eq!(check("a*c", "a\\*", Which::Longest), "c");
        assert_eq!(check("abc", "[]a]", Which::Longest), "abc", "a bad pattern");
        assert_eq!(check("äöü", "?", Which::Shortest), "öü");
    }

    #[test]
    fn no_pattern_takes_for_ever() {
        let text = vec!['a'; 100_000];
        let pattern: Vec<char> = "*a*a*a*a*a*b".chars().collect();
        let answer = without_beginning(&text, &pattern, Which::Longest, &mut Steps::new(1_000_000));
        assert_eq!(answer, Err(NoAnswer::TakesTooLong));
    }
}
