//! Replaces expressions in a text by values: `${name}`, and `${name}` with operators, as in Flux (`envsubst`).
//!
//! Invariant: the text is processed once. Expressions in values are not replaced.
//! Invariant: no text or value causes a panic. Time and output are bounded by the length of the input and the limits
//! below.
//! Invariant: an error shows the beginning of an expression up to its operator, never a value or default.
//!
//! Not here: the origin of values, and the conversion of an object into the text ([`normal_form`](super::normal_form)).

use std::collections::BTreeSet;

use super::pattern::{Steps, Which, without_beginning};

/// Maximum total output of the expressions in one text, including nested ones, in bytes.
const MOST: usize = 3 << 20;
/// Maximum nesting of expressions.
const DEPTH: usize = 50;
/// Maximum character comparisons for the patterns in one text.
const STEPS: u32 = 5_000_000;
/// Maximum number of undefined variables that are reported for one text.
const NAMED: usize = 20;
/// Maximum length of a displayed expression, in characters.
const SHOWN: usize = 60;

/// The handling of `${name}` if `name` is undefined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefined {
    /// The expression is an error.
    Refused,
    /// The expression becomes an empty string.
    Empty,
}

/// A text after substitution.
#[derive(Clone, PartialEq, Eq)]
pub struct Substituted {
    /// The text.
    pub text: String,
    /// The defined variables that the expressions use.
    pub used: BTreeSet<String>,
}

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionFault {
    /// The beginning of the expression.
    pub expression: String,
    /// The description of the error.
    pub what: &'static str,
}

const NOT_DEFINED: &str = "the variable is not defined";
const NO_NAME: &str = "the name of the variable is missing (write `$${` for a plain `${`)";
const NOT_CLOSED: &str = "the closing brace is missing, or an invalid operator follows the name";
const NO_OPERAND: &str = "nothing follows the operator, or the closing brace is missing";
const NOT_AN_EXPRESSION: &str = "unexpected characters follow the operator";
const NO_SECOND_SLASH: &str = "the second `/` is missing";
const OUT_OF_BOUNDS: &str = "the length is negative, or it would cut a character in two";
const TOO_DEEP: &str = "expressions are nested too deeply";
const TOO_LARGE: &str = "it becomes too large";
const TOO_LONG: &str = "its pattern takes too long";

/// Replaces the expressions in a text by their values.
///
/// # Errors
/// All undefined variables, or the first invalid expression.
pub fn substitute<'v>(
    text: &str,
    value: &dyn Fn(&str) -> Option<&'v str>,
    undefined: Undefined,
) -> Result<Substituted, Vec<ExpressionFault>> {
    let mut reader = Reader {
        text,
        at: 0,
        begins: 0,
        value,
        undefined,
        used: BTreeSet::new(),
        faults: Vec::new(),
        room: MOST,
        depth: 0,
        steps: Steps::new(STEPS),
    };
    match reader.all() {
        Ok(text) if reader.faults.is_empty() => Ok(Substituted { text, used: reader.used }),
        Ok(_) => Err(reader.faults),
        Err(what) => {
            let fault = ExpressionFault { expression: shown(&text[reader.begins..]), what };
            reader.faults.push(fault);
            Err(reader.faults)
        }
    }
}

/// Returns whether the text may contain expressions.
pub fn may_hold_expressions(text: &[u8]) -> bool {
    text.contains(&b'$')
}

type Read<T> = Result<T, &'static str>;

struct Reader<'t, 'r, 'v> {
    text: &'t str,
    at: usize,
    /// Start of the innermost expression that is being read.
    begins: usize,
    value: &'r dyn Fn(&str) -> Option<&'v str>,
    undefined: Undefined,
    used: BTreeSet<String>,
    faults: Vec<ExpressionFault>,
    /// Remaining bytes of output.
    room: usize,
    depth: usize,
    steps: Steps,
}

/// Returns the beginning of an expression, up to its operator, for messages.
fn shown(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let operator = |(at, c): &(usize, char)| {
        *at > 2 && matches!(c, ':' | '=' | '-' | '+' | '?' | '/' | '#' | '%' | ',' | '^' | '}' | '"' | '\'')
    };
    let found = line.char_indices().take(SHOWN).find(operator);
    match found {
        Some((at, '}')) => line[..=at].to_owned(),
        Some((at, operator)) => format!("{}{operator}…}}", &line[..at]),
        None if line.chars().count() > SHOWN => format!("{}…", line.chars().take(SHOWN).collect::<String>()),
        None => line.to_owned(),
    }
}

fn is_of_name(c: char) -> bool {
    c.is_alphabetic() || c.is_numeric() || c == '_'
}

impl<'t> Reader<'t, '_, '_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn is_at(&self, text: &str) -> bool {
        self.text[self.at..].starts_with(text)
    }

    /// Consumes characters while `is_taken` is true, at most `most`.
    fn take_while(&mut self, most: usize, is_taken: impl Fn(char) -> bool) -> &'t str {
        let rest = &self.text[self.at..];
        let end =
            rest.char_indices().take(most).take_while(|(_, c)| is_taken(*c)).map(|(at, c)| at + c.len_utf8()).last();
        let end = end.unwrap_or_default();
        self.at += end;
        &rest[..end]
    }

    fn close(&mut self) -> Read<()> {
        if self.take_while(1, |c| c == '}').is_empty() { Err(NOT_AN_EXPRESSION) } else { Ok(()) }
    }

    /// Takes bytes from the limit for output.
    fn make_room(&mut self, bytes: usize) -> Read<()> {
        self.room = self.room.checked_sub(bytes).ok_or(TOO_LARGE)?;
        Ok(())
    }

    fn all(&mut self) -> Read<String> {
        let mut all = String::with_capacity(self.text.len());
        while let Some(dollar) = self.text[self.at..].find('$') {
            all.push_str(&self.text[self.at..self.at + dollar]);
            self.at += dollar;
            if self.is_at("${") {
                all.push_str(&self.expression()?);
            } else {
                self.at += if self.is_at("$$") { 2 } else { 1 };
                all.push('$');
            }
        }
        all.push_str(&self.text[self.at..]);
        Ok(all)
    }

    /// Evaluates the expression at the current position.
    fn expression(&mut self) -> Read<String> {
        let outer = std::mem::replace(&mut self.begins, self.at);
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(TOO_DEEP);
        }
        self.at += "${".len();
        let found = self.inner()?;
        self.depth -= 1;
        self.begins = outer;
        Ok(found)
    }

    fn inner(&mut self) -> Read<String> {
        if !self.take_while(1, |c| c == '#').is_empty() {
            let name = self.take_while(usize::MAX, is_of_name).to_owned();
            if name.is_empty() {
                return Err(NOT_AN_EXPRESSION);
            }
            self.close()?;
            return self.with_value(&name, |_, value| Ok(value.len().to_string()));
        }
        let name = self.take_while(usize::MAX, is_of_name).to_owned();
        if name.is_empty() {
            return Err(NO_NAME);
        }
        match self.peek() {
            Some(':') if [":=", ":-", ":?", ":+"].iter().any(|operator| self.is_at(operator)) => self.default(&name, 2),
            Some(':') => self.part(&name),
            Some('=') => self.default(&name, 1),
            Some(',' | '^') => self.cases(&name),
            Some('/') => self.replace(&name),
            Some(mark @ ('#' | '%')) => self.remove(&name, mark),
            Some('}') => {
                self.at += 1;
                self.with_value(&name, |_, value| Ok(value.to_owned()))
            }
            _ => Err(NOT_CLOSED),
        }
    }

    /// Applies an operator (`make`) to the value of a variable.
    fn with_value(&mut self, name: &str, make: impl FnOnce(&mut Self, &str) -> Read<String>) -> Read<String> {
        let value = (self.value)(name);
        if value.is_some() {
            self.used.insert(name.to_owned());
        } else if self.undefined == Undefined::Refused && self.faults.len() < NAMED {
            let fault = ExpressionFault { expression: shown(&self.text[self.begins..self.at]), what: NOT_DEFINED };
            if !self.faults.contains(&fault) {
                self.faults.push(fault);
            }
        }
        let made = make(self, value.unwrap_or_default())?;
        self.make_room(made.len())?;
        Ok(made)
    }

    /// Reads an operand, which is either text up to a character for which `ends` is true, or one expression.
    fn operand(&mut self, ends: impl Fn(char) -> bool, escapes: bool) -> Read<String> {
        if self.is_at("${") {
            return self.expression();
        }
        let mut operand = String::new();
        let begins = self.at;
        while let Some(c) = self.peek().filter(|_| !self.is_at("${")) {
            if escapes && (self.is_at("$$") || self.is_at("\\/") || self.is_at("\\\\")) {
                self.at += 1;
                operand.extend(self.peek());
                self.at += 1;
                continue;
            }
            if ends(c) {
                break;
            }
            operand.push(c);
            self.at += c.len_utf8();
        }
        if self.at == begins { Err(NO_OPERAND) } else { Ok(operand) }
    }

    /// Evaluates `${name:-default}` and the equivalent operators.
    fn default(&mut self, name: &str, operator: usize) -> Read<String> {
        self.at += operator;
        let mut default = String::new();
        while !self.is_at("}") {
            default.push_str(&self.operand(|c| c == '}', false)?);
        }
        self.at += 1;
        let value = (self.value)(name);
        if value.is_some() {
            self.used.insert(name.to_owned());
        }
        let made = value.filter(|value| !value.is_empty()).map_or(default, str::to_owned);
        self.make_room(made.len())?;
        Ok(made)
    }

    /// Evaluates `${name:offset}` and `${name:offset:length}`, in bytes.
    fn part(&mut self, name: &str) -> Read<String> {
        self.at += 1;
        let offset = self.operand(|c| c == ':' || c == '}', false)?;
        let length = match self.peek() {
            Some('}') => None,
            Some(':') => {
                self.take_while(usize::MAX, |c| c == ':');
                Some(self.operand(|c| c == '}', false)?)
            }
            _ => return Err(NOT_AN_EXPRESSION),
        };
        self.close()?;
        self.with_value(name, |_, value| part(value, &offset, length.as_deref()).ok_or(OUT_OF_BOUNDS))
    }

    /// Evaluates `${name^}`, `${name^^}`, `${name,}` and `${name,,}`.
    fn cases(&mut self, name: &str) -> Read<String> {
        let operator = self.take_while(2, |c| matches!(c, ',' | '^')).to_owned();
        self.close()?;
        self.with_value(name, |_, value| {
            Ok(match &*operator {
                "^" => value.chars().take(1).map(upper).chain(value.chars().skip(1)).collect(),
                "^^" => value.chars().map(upper).collect(),
                "," => value.chars().take(1).map(lower).chain(value.chars().skip(1)).collect(),
                ",," => value.chars().map(lower).collect(),
                _ => value.to_owned(),
            })
        })
    }

    /// Evaluates `${name#pattern}`, `${name##pattern}`, `${name%pattern}` and `${name%%pattern}`.
    fn remove(&mut self, name: &str, mark: char) -> Read<String> {
        let which = if self.take_while(2, |c| c == mark).len() == 1 { Which::Shortest } else { Which::Longest };
        let pattern = self.operand(|c| c == '}', false)?;
        self.close()?;
        self.with_value(name, |reader, value| {
            let (mut value, mut pattern): (Vec<char>, Vec<char>) = (value.chars().collect(), pattern.chars().collect());
            if mark == '%' {
                value.reverse();
                pattern.reverse();
            }
            let rest = without_beginning(&value, &pattern, which, &mut reader.steps).map_err(|_| TOO_LONG)?;
            Ok(if mark == '%' { rest.iter().rev().collect() } else { rest.iter().collect() })
        })
    }

    /// Evaluates `${name/text/by}`, `${name//text/by}`, `${name/#text/by}` and `${name/%text/by}`.
    fn replace(&mut self, name: &str) -> Read<String> {
        self.at += 1;
        let kind = self.take_while(1, |c| matches!(c, '/' | '#' | '%')).chars().next();
        let text = self.operand(|c| c == '/' || c == '}', true)?;
        if self.take_while(usize::MAX, |c| c == '/').is_empty() {
            return Err(NO_SECOND_SLASH);
        }
        let by = if self.is_at("}") { None } else { Some(self.operand(|c| c == '}', true)?) };
        self.close()?;
        self.with_value(name, |reader, value| {
            let grows = by.as_ref().map_or(0, String::len).saturating_sub(text.len());
            let most = if kind == Some('/') { value.matches(&*text).count() } else { 1 };
            if grows.saturating_mul(most).saturating_add(value.len()) > reader.room {
                return Err(TOO_LARGE);
            }
            Ok(match (kind, &by) {
                (Some('/'), by) => value.replace(&*text, by.as_deref().unwrap_or_default()),
                (None, by) => value.replacen(&*text, by.as_deref().unwrap_or_default(), 1),
                (Some('#'), Some(by)) => {
                    value.strip_prefix(&*text).map(|rest| format!("{by}{rest}")).unwrap_or(value.into())
                }
                (Some(_), Some(by)) => {
                    value.strip_suffix(&*text).map(|rest| format!("{rest}{by}")).unwrap_or(value.into())
                }
                (Some(_), None) => value.to_owned(),
            })
        })
    }
}

/// Returns a part of a value; `None` if the part is out of range. If a number is invalid, the whole value is returned.
fn part(value: &str, offset: &str, length: Option<&str>) -> Option<String> {
    let (Ok(offset), Ok(size)) = (offset.parse::<i64>(), i64::try_from(value.len())) else {
        return Some(value.to_owned());
    };
    let begin = if offset < 0 { size.saturating_add(offset).max(0) } else { offset };
    let end = match length.map(str::parse::<i64>) {
        None => size,
        Some(Err(_)) => return Some(value.to_owned()),
        Some(Ok(length)) => begin.saturating_add(length).min(size),
    };
    if begin >= size && end >= size {
        return Some(String::new());
    }
    value.get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?).map(str::to_owned)
}

/// Returns the upper case of a character. As in Go, a character whose upper case has several characters is unchanged.
fn upper(c: char) -> char {
    let mut all = c.to_uppercase();
    all.next().filter(|_| all.next().is_none()).unwrap_or(c)
}

fn lower(c: char) -> char {
    let mut all = c.to_lowercase();
    all.next().filter(|_| all.next().is_none()).unwrap_or(c)
}

#[cfg(test)]
mod tests;
