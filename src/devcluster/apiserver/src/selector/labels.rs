//! Parses a label selector into tokens and then requirements, with the error messages of a real server.
//!
//! Not here: matching of labels (`selector`).

use crate::kinds::hooks::metadata::{label_value_faults, qualified_faults};

/// One condition on labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Greater(String, i64),
    Less(String, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word<'a> {
    End,
    /// A key, a value, `in` or `notin`.
    Text(&'a str),
    /// `=`, `==`, `!=`, `!`, `<`, `>`, `(`, `)`, `,`.
    Sign(&'a str),
}

impl Word<'_> {
    fn literal(&self) -> &str {
        match self {
            Self::End => "",
            Self::Text(text) | Self::Sign(text) => text,
        }
    }
}

/// Parses a selector. All of its requirements must hold.
pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, String> {
    let mut parser = Parser { words: words(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            Word::Text(_) | Word::Sign("!") => {}
            Word::End => return Ok(requirements),
            Word::Sign(sign) => return Err(format!("found '{sign}', expected: !, identifier, or 'end of string'")),
        }
        requirements.push(parser.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?);
        match parser.next() {
            Word::End => return Ok(requirements),
            Word::Sign(",") => {
                if !matches!(parser.peek(), Word::Text(_) | Word::Sign("!")) {
                    return Err(format!("found '{}', expected: identifier after ','", parser.peek().literal()));
                }
            }
            other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.literal())),
        }
    }
}

fn is_sign(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else { break };
        let length = if !is_sign(first) {
            rest.find(|c| is_sign(c) || matches!(c, ' ' | '\t' | '\r' | '\n')).unwrap_or(rest.len())
        } else if rest.starts_with("==") || rest.starts_with("!=") {
            2
        } else {
            1
        };
        let (word, after) = rest.split_at(length);
        words.push(if is_sign(first) { Word::Sign(word) } else { Word::Text(word) });
        rest = after;
    }
    words
}

struct Parser<'a> {
    words: Vec<Word<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Word<'a> {
        self.words.get(self.at).copied().unwrap_or(Word::End)
    }

    fn next(&mut self) -> Word<'a> {
        let word = self.peek();
        self.at += 1;
        word
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Word::Sign("!");
        if absent {
            self.next();
        }
        let key = match self.next() {
            Word::Text(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.literal())),
        };
        let faults: Vec<String> = qualified_faults(key)
            .iter()
            .map(|why| why.replace("a qualified name must", "a valid label key must"))
            .collect();
        if !faults.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", faults.join("; ")));
        }
        let key = key.to_owned();
        // As on a real server, an operator after `!a` is parsed next and then refused.
        if absent {
            return Ok(Requirement::Absent(key));
        }
        if matches!(self.peek(), Word::End | Word::Sign(",")) {
            return Ok(Requirement::Exists(key));
        }
        match self.next() {
            Word::Text("in") => Ok(Requirement::In(key.clone(), checked(&key, self.values()?)?)),
            Word::Text("notin") => Ok(Requirement::NotIn(key.clone(), checked(&key, self.values()?)?)),
            Word::Sign("=" | "==") => Ok(Requirement::In(key.clone(), checked(&key, vec![self.value()?])?)),
            Word::Sign("!=") => Ok(Requirement::NotIn(key.clone(), checked(&key, vec![self.value()?])?)),
            Word::Sign(sign @ (">" | "<")) => {
                let value = self.value()?;
                let number = value.parse::<i64>().ok();
                let mut faults: Vec<String> = Vec::new();
                if number.is_none() {
                    let why = "for 'Gt', 'Lt' operators, the value must be an integer";
                    faults.push(format!("values[0]: Invalid value: {value:?}: {why}"));
                }
                faults.extend(value_faults(&key, 0, &value));
                match (number, sign) {
                    (Some(than), ">") if faults.is_empty() => Ok(Requirement::Greater(key, than)),
                    (Some(than), _) if faults.is_empty() => Ok(Requirement::Less(key, than)),
                    _ => Err(joined(faults)),
                }
            }
            other => Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.literal())),
        }
    }

    /// Parses the value after `=`.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.peek(), Word::End | Word::Sign(",")) {
            return Ok(String::new());
        }
        match self.next() {
            Word::Text(value) => Ok(value.to_owned()),
            other => Err(format!("found '{}', expected: identifier", other.literal())),
        }
    }

    /// Parses `(a,b)` into sorted, unique values.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Word::Sign("(") {
            return Err(format!("found '{}' expected: '('", open.literal()));
        }
        let mut values = std::collections::BTreeSet::new();
        match self.peek() {
            Word::Sign(")") => {
                self.next();
                values.insert("");
            }
            Word::Text(_) | Word::Sign(",") => self.listed(&mut values)?,
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.literal())),
        }
        Ok(values.into_iter().map(ToOwned::to_owned).collect())
    }

    fn listed(&mut self, values: &mut std::collections::BTreeSet<&'a str>) -> Result<(), String> {
        loop {
            match self.next() {
                Word::Text(value) => {
                    values.insert(value);
                    match self.peek() {
                        Word::Sign(",") => {}
                        Word::Sign(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.literal())),
                    }
                }
                Word::Sign(",") => {
                    if values.is_empty() || self.peek() == Word::Sign(",") {
                        values.insert("");
                    }
                    if self.peek() == Word::Sign(")") {
                        values.insert("");
                        break;
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.literal())),
            }
        }
        self.next();
        Ok(())
    }
}

fn checked(key: &str, values: Vec<String>) -> Result<Vec<String>, String> {
    let faults: Vec<String> =
        values.iter().enumerate().filter_map(|(at, value)| value_faults(key, at, value)).collect();
    if faults.is_empty() { Ok(values) } else { Err(joined(faults)) }
}

fn value_faults(key: &str, at: usize, value: &str) -> Option<String> {
    let faults = label_value_faults(value);
    (!faults.is_empty()).then(|| format!("values[{at}][{key}]: Invalid value: {value:?}: {}", faults.join("; ")))
}

fn joined(faults: Vec<String>) -> String {
    if let [one] = faults.as_slice() { one.clone() } else { format!("[{}]", faults.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    }

    #[test]
    fn says_what_makes_no_sense() {
        check("i in (1", "unable to parse requirement: found '', expected: ',' or ')'");
        check("a=b=c", "found '=', expected: ',' or 'end of string'");
        check("!", "unable to parse requirement: found '', expected: identifier");
        check(",", "found ',', expected: !, identifier, or 'end of string'");
        check("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
        check("a,", "found '', expected: identifier after ','");
    }

    #[test]
    fn takes_keywords_as_keys_and_values() {
        let all = parse("in in (notin,,in),notin=in").unwrap();
        assert_eq!(
            all,
            [
                Requirement::In("in".to_owned(), vec![String::new(), "in".to_owned(), "notin".to_owned()]),
                Requirement::In("notin".to_owned(), vec!["in".to_owned()]),
            ]
        );
    }
}
