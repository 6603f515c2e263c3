//! Tokens of a sequence of JSON documents.
//!
//! Invariant: columns count the bytes of a line, from 1.

use std::borrow::Cow;

use super::limits::larger_than;
use super::scalar::Scalar;
use super::tokens::{Fault, Mark, Token, Tokens};

/// Prefix of every syntax error.
pub(super) const INVALID: &str = "invalid JSON: ";

/// Returns whether a file contains JSON, by its extension.
pub(super) fn is_json(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension.eq_ignore_ascii_case("json"))
}

/// The allowed next tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    /// A value, or the end of an empty list.
    FirstItem,
    Key,
    /// A key, or the end of an empty map.
    FirstKey,
    Colon,
    /// A comma, or the end of the open list or map.
    More,
}

/// A tokenizer for JSON documents.
pub(super) struct Json<'t> {
    text: &'t str,
    at: usize,
    line: u32,
    line_start: usize,
    start: usize,
    longest: usize,
    expect: Expect,
    /// For each open list or map, whether it is a map.
    open: Vec<bool>,
    begun: bool,
}

impl<'t> Json<'t> {
    /// Returns a tokenizer for documents of at most `longest` bytes.
    pub(super) fn new(text: &'t str, longest: usize) -> Self {
        Self {
            text,
            at: 0,
            line: 1,
            line_start: 0,
            start: 0,
            longest,
            expect: Expect::Value,
            open: Vec::new(),
            begun: false,
        }
    }

    /// Moves to the next document. Returns whether there is one.
    pub(super) fn next_document(&mut self) -> bool {
        self.skip_space();
        self.begun = false;
        self.expect = Expect::Value;
        self.open.clear();
        self.start = self.at;
        self.at < self.text.len()
    }

    /// Returns the current byte offset and position.
    pub(super) fn here(&self) -> (usize, Mark) {
        (self.at, self.mark())
    }

    /// Moves to a position that [`Json::here`] returned.
    pub(super) fn go_to(&mut self, (at, mark): (usize, Mark)) {
        self.at = at;
        self.line = mark.line;
        self.line_start = at.saturating_sub(mark.column.saturating_sub(1) as usize);
        self.next_document();
    }

    fn mark(&self) -> Mark {
        Mark { line: self.line, column: u32::try_from(self.at - self.line_start + 1).unwrap_or(u32::MAX) }
    }

    fn skip_space(&mut self) {
        for byte in &self.text.as_bytes()[self.at..] {
            match byte {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\n' => {
                    self.at += 1;
                    self.line = self.line.saturating_add(1);
                    self.line_start = self.at;
                }
                _ => break,
            }
        }
    }

    fn fault(&self, what: &str) -> Fault {
        Fault::new(self.mark(), format!("{INVALID}{what}"))
    }

    /// Reads the string that begins here.
    fn string(&mut self) -> Result<Cow<'t, str>, Fault> {
        let bytes = self.text.as_bytes();
        let mut end = self.at + 1;
        let mut escaped = false;
        loop {
            match bytes.get(end) {
                None | Some(b'\n') => return Err(self.fault("the quote is not closed")),
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    end += 2;
                }
                Some(0..0x20) => return Err(self.fault("a control character in a string is not escaped")),
                Some(_) => end += 1,
            }
        }
        // The quote is ASCII, so both ends are character boundaries.
        let text = if escaped {
            let quoted = self.text.get(self.at..=end).unwrap_or_default();
            Cow::Owned(serde_json::from_str(quoted).map_err(|_| self.fault("a wrong escape in a string"))?)
        } else {
            Cow::Borrowed(self.text.get(self.at + 1..end).unwrap_or_default())
        };
        self.at = end + 1;
        Ok(text)
    }

    fn number(&mut self) -> Result<Scalar<'t>, Fault> {
        let rest = &self.text[self.at..];
        let length = rest.bytes().take_while(|b| b.is_ascii_digit() || b"+-.eE".contains(b)).count();
        let digits = &rest[..length];
        let number: serde_json::Number = serde_json::from_str(digits).map_err(|_| {
            self.fault(if length == 0 { "unexpected character" } else { "a wrong or too large number" })
        })?;
        self.at += length;
        Ok(match (number.as_i64(), number.as_f64()) {
            (Some(int), _) => Scalar::Int(int),
            (None, float) => Scalar::Float(float.unwrap_or(f64::NAN)),
        })
    }

    fn literal(&mut self, word: &str, scalar: Scalar<'t>) -> Result<Scalar<'t>, Fault> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.fault("unexpected word"));
        }
        self.at += word.len();
        Ok(scalar)
    }

    fn value(&mut self, byte: u8) -> Result<Token<'t>, Fault> {
        let scalar = match byte {
            b'{' | b'[' => {
                let map = byte == b'{';
                self.at += 1;
                self.open.push(map);
                self.expect = if map { Expect::FirstKey } else { Expect::FirstItem };
                return Ok(if map { Token::Map { anchor: 0 } } else { Token::List { anchor: 0 } });
            }
            b'"' => Scalar::Text(self.string()?),
            b't' => self.literal("true", Scalar::Bool(true))?,
            b'f' => self.literal("false", Scalar::Bool(false))?,
            b'n' => self.literal("null", Scalar::Null)?,
            _ => self.number()?,
        };
        self.expect = Expect::More;
        Ok(Token::Scalar { value: Ok(scalar), anchor: 0, merge: false })
    }

    fn close(&mut self) -> Token<'t> {
        self.at += 1;
        self.open.pop();
        self.expect = Expect::More;
        Token::End
    }
}

impl<'t> Tokens<'t> for Json<'t> {
    fn next(&mut self) -> Result<Option<(Token<'t>, Mark)>, Fault> {
        loop {
            if self.open.is_empty() && self.begun {
                return Ok(None);
            }
            self.skip_space();
            if self.at - self.start > self.longest {
                return Err(Fault::new(self.mark(), format!("the document is {}", larger_than(self.longest))));
            }
            let mark = self.mark();
            let byte = self.text.as_bytes().get(self.at).copied();
            let Some(byte) = byte else { return Err(self.fault("it ends too early")) };
            self.begun = true;
            let token = match (self.expect, byte, self.open.last()) {
                (Expect::FirstItem | Expect::More, b']', Some(false))
                | (Expect::FirstKey | Expect::More, b'}', Some(true)) => self.close(),
                (Expect::Value | Expect::FirstItem, ..) => self.value(byte)?,
                (Expect::Key | Expect::FirstKey, b'"', _) => {
                    let key = self.string()?;
                    self.expect = Expect::Colon;
                    Token::Scalar { value: Ok(Scalar::Text(key)), anchor: 0, merge: false }
                }
                (Expect::Key | Expect::FirstKey, ..) => return Err(self.fault("a key must stand in double quotes")),
                (Expect::Colon, b':', _) => {
                    self.at += 1;
                    self.expect = Expect::Value;
                    continue;
                }
                (Expect::Colon, ..) => return Err(self.fault("a colon is missing")),
                (Expect::More, b',', Some(map)) => {
                    self.expect = if *map { Expect::Key } else { Expect::Value };
                    self.at += 1;
                    continue;
                }
                (Expect::More, ..) => return Err(self.fault("a comma or a closing bracket is missing")),
            };
            return Ok(Some((token, mark)));
        }
    }
}
