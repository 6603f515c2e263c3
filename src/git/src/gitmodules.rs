//! Parses `.gitmodules` and `.lfsconfig`, which have the syntax of Git's configuration files.
//!
//! Invariant: the file is read as Git reads it from a commit: no setting can include another file.
//! Not here: libgit2's own reader, which reads only files on disk and follows their `include.path`; and the meaning
//! of the settings (`submodules`).

use std::iter::Peekable;
use std::str::Chars;

const SECTION: &str = "a section of .gitmodules must have the form [submodule \"name\"]";
const LINE: &str = "a line of .gitmodules must have the form key = value";

/// A setting of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Section of the setting, as in `submodule.name`. The first part is in lower case.
    pub(super) section: String,
    /// The key, in lower case.
    pub(super) key: String,
    /// The value; `None` without an equals sign.
    pub(super) value: Option<String>,
}

/// Iterates over the settings of a file. It ends after the first error.
pub(super) struct Settings<'t> {
    rest: Characters<'t>,
    section: String,
}

impl<'t> Settings<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { rest: Characters(text.chars().peekable()), section: String::new() }
    }

    fn read(&mut self) -> Result<Option<Setting>, &'static str> {
        while let Some(character) = self.rest.next() {
            match character {
                '#' | ';' => self.rest.skip_line(),
                '[' => self.section = section(&mut self.rest).ok_or(SECTION)?,
                blank if blank.is_ascii_whitespace() => {}
                first if first.is_ascii_alphabetic() => {
                    let (key, value) = setting(first, &mut self.rest)?;
                    return Ok(Some(Setting { section: self.section.clone(), key, value }));
                }
                _ => return Err(LINE),
            }
        }
        Ok(None)
    }
}

impl Iterator for Settings<'_> {
    type Item = Result<Setting, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        if read.is_err() {
            self.rest = Characters("".chars().peekable());
        }
        read.transpose()
    }
}

/// Characters with normalized line ends.
struct Characters<'t>(Peekable<Chars<'t>>);

impl Iterator for Characters<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        match self.0.next() {
            Some('\r') if self.0.peek() == Some(&'\n') => self.0.next(),
            other => other,
        }
    }
}

impl Characters<'_> {
    fn skip_line(&mut self) {
        let _ = self.find(|character| *character == '\n');
    }
}

fn is_key(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '-'
}

/// Reads a section header after `[`.
fn section(rest: &mut Characters<'_>) -> Option<String> {
    let mut name = String::new();
    loop {
        match rest.next()? {
            ']' => return Some(name),
            ' ' | '\t' => break,
            letter if is_key(letter) || letter == '.' => name.push(letter.to_ascii_lowercase()),
            _ => return None,
        }
    }
    let quote = rest.find(|character| !matches!(character, ' ' | '\t'))?;
    if quote != '"' {
        return None;
    }
    name.push('.');
    loop {
        match rest.next()? {
            '\n' => return None,
            '"' => break,
            '\\' => name.push(rest.next().filter(|escaped| *escaped != '\n')?),
            other => name.push(other),
        }
    }
    (rest.next()? == ']').then_some(name)
}

/// Reads a setting. `first` is the first character of its key.
fn setting(first: char, rest: &mut Characters<'_>) -> Result<(String, Option<String>), &'static str> {
    let mut key = String::from(first.to_ascii_lowercase());
    let mut next = rest.next();
    while let Some(letter) = next.filter(|letter| is_key(*letter)) {
        key.push(letter.to_ascii_lowercase());
        next = rest.next();
    }
    while matches!(next, Some(' ' | '\t')) {
        next = rest.next();
    }
    match next {
        None | Some('\n') => Ok((key, None)),
        Some('=') => value(rest).map(|value| (key, Some(value))),
        Some(_) => Err(LINE),
    }
}

/// Reads a value, and removes quotes, escapes and comments.
fn value(rest: &mut Characters<'_>) -> Result<String, &'static str> {
    let (mut text, mut is_quoted) = (String::new(), false);
    // Leading and trailing blanks belong to the value only inside of quotes.
    let mut kept = 0;
    while let Some(character) = rest.next() {
        match character {
            '\n' if is_quoted => break,
            '\n' => {
                text.truncate(kept);
                return Ok(text);
            }
            blank if blank.is_ascii_whitespace() && !is_quoted => {
                if !text.is_empty() {
                    text.push(blank);
                }
                continue;
            }
            '#' | ';' if !is_quoted => {
                rest.skip_line();
                break;
            }
            '"' => is_quoted = !is_quoted,
            '\\' => match rest.next() {
                // The value continues on the next line.
                Some('\n') => continue,
                Some('n') => text.push('\n'),
                Some('t') => text.push('\t'),
                Some('b') => text.push('\u{8}'),
                Some(other @ ('"' | '\\')) => text.push(other),
                _ => return Err("a value in .gitmodules has an unknown escape"),
            },
            other => text.push(other),
        }
        kept = text.len();
    }
    if is_quoted {
        return Err("a value in .gitmodules has no closing quote");
    }
    text.truncate(kept);
    Ok(text)
}
