//! Parses literals, names, fields, calls and macros.

use regex::{Regex, RegexBuilder};

use super::error::Fault;
use super::functions::{Called, Uncallable, find, is_space};
use super::limits::PATTERN_BYTES;
use super::parser::{Parser, node};
use super::token::Token;
use super::tree::{Fold, How, Kind, Node};
use crate::pattern::pattern_fault;

/// Macros over elements.
const MACROS: [&str; 6] = ["all", "exists", "exists_one", "existsOne", "map", "filter"];

impl<'s> Parser<'s> {
    /// Parses an operand with the fields, elements and calls after it.
    pub(super) fn member(&mut self) -> Result<Node, Fault> {
        let mut of = self.primary()?;
        loop {
            let at = self.at();
            if self.takes(".") {
                of = self.after_dot(of)?;
            } else if self.takes("[") {
                let optional = self.takes("?");
                let index = Box::new(self.expression()?);
                self.expect("]")?;
                of = node(at, Kind::Index { of: Box::new(of), index, optional })?;
            } else {
                return Ok(of);
            }
        }
    }

    fn after_dot(&mut self, of: Node) -> Result<Node, Fault> {
        let optional = self.takes("?");
        let at = self.at();
        let name = match self.take() {
            Token::Name(name) | Token::Quoted(name) => name,
            Token::Sign("?") => return Err(Fault::new(at, "an optional field is written `.?name`")),
            _ => return Err(Fault::new(at, "expected the name of a field after `.`")),
        };
        if !optional && self.takes("(") {
            return self.method(of, name, at);
        }
        node(at, Kind::Field { of: Box::new(of), name: name.into(), optional })
    }

    /// Parses a method call after its opening bracket.
    fn method(&mut self, of: Node, name: &'s str, at: usize) -> Result<Node, Fault> {
        if let Kind::Variable(space) = &of.kind
            && is_space(space)
            && !self.is_bound(space)
        {
            let full = format!("{space}.{name}");
            let arguments = self.arguments(")")?;
            return call(&full, Called::Globally, arguments, at);
        }
        if MACROS.contains(&name) {
            return self.fold(of, name, at);
        }
        let mut arguments = vec![of];
        arguments.extend(self.arguments(")")?);
        if name == "matches" {
            return matches(arguments, at);
        }
        call(name, Called::OnObject, arguments, at)
    }

    /// Parses a macro over the elements of `of`, after its opening bracket.
    fn fold(&mut self, of: Node, name: &str, at: usize) -> Result<Node, Fault> {
        let place = self.at();
        let Token::Name(variable) = self.take() else {
            return Err(Fault::new(place, format!("the first argument of `{name}` must be a name for the element")));
        };
        self.expect(",")?;
        self.bound.push(variable);
        let mut parts = self.arguments(")")?;
        self.bound.pop();
        let last = parts.pop();
        let condition = parts.pop();
        let (how, condition, result) = match (name, condition, last, parts.is_empty()) {
            ("all", None, last @ Some(_), true) => (How::All, last, None),
            ("exists", None, last @ Some(_), true) => (How::Exists, last, None),
            ("exists_one" | "existsOne", None, last @ Some(_), true) => (How::ExistsOne, last, None),
            ("filter", None, last @ Some(_), true) => (How::Collect, last, None),
            ("map", condition, last @ Some(_), true) => (How::Collect, condition, last),
            _ => return Err(Fault::new(at, format!("`{name}` does not take so many arguments"))),
        };
        node(at, Kind::Fold(Box::new(Fold { how, of, variable: variable.into(), condition, result })))
    }

    /// Parses a comma-separated list of expressions, up to the closing bracket.
    fn arguments(&mut self, end: &str) -> Result<Vec<Node>, Fault> {
        let mut arguments = Vec::new();
        while !self.takes(end) {
            arguments.push(self.expression()?);
            if !self.takes(",") {
                self.expect(end)?;
                break;
            }
        }
        Ok(arguments)
    }

    fn primary(&mut self) -> Result<Node, Fault> {
        let at = self.at();
        let kind = match self.peek().clone() {
            Token::Name("true") => Kind::Bool(true),
            Token::Name("false") => Kind::Bool(false),
            Token::Name("null") => Kind::Null,
            Token::Uint(whole) => Kind::Uint(whole),
            Token::Double(double) => Kind::Double(double),
            Token::Text(text) => Kind::Text(text.into()),
            Token::Int(whole) => {
                Kind::Int(i64::try_from(whole).map_err(|_| Fault::new(at, "the number is out of range"))?)
            }
            Token::Name(name) if name != "in" => return self.name(name, at),
            Token::Sign("(") => {
                self.take();
                let inside = self.expression()?;
                self.expect(")")?;
                return Ok(inside);
            }
            Token::Sign("[") => return self.list(at),
            Token::Sign("{") => return self.map(at),
            _ => return Err(self.unexpected("a value")),
        };
        self.take();
        node(at, kind)
    }

    fn name(&mut self, name: &'s str, at: usize) -> Result<Node, Fault> {
        self.take();
        if self.takes("(") {
            return match name {
                "has" => self.has(at),
                "matches" => {
                    let arguments = self.arguments(")")?;
                    matches(arguments, at)
                }
                _ => {
                    let arguments = self.arguments(")")?;
                    call(name, Called::Globally, arguments, at)
                }
            };
        }
        if *self.peek() == Token::Sign("{") {
            return Err(Fault::new(at, "messages are not supported here; write a map"));
        }
        let is_space = is_space(name) && *self.peek() == Token::Sign(".");
        if !is_space {
            self.check_variable(at, name)?;
        }
        node(at, Kind::Variable(name.into()))
    }

    /// Parses `has(…)`, after its opening bracket.
    fn has(&mut self, at: usize) -> Result<Node, Fault> {
        let inside = self.expression()?;
        self.expect(")")?;
        match inside.kind {
            Kind::Field { of, name, optional: false } => node(at, Kind::Has { of, name }),
            _ => Err(Fault::new(at, "`has` takes a field, such as `has(status.phase)`")),
        }
    }

    fn list(&mut self, at: usize) -> Result<Node, Fault> {
        self.expect("[")?;
        let mut items = Vec::new();
        while !self.takes("]") {
            let optional = self.takes("?");
            items.push((self.expression()?, optional));
            if !self.takes(",") {
                self.expect("]")?;
                break;
            }
        }
        node(at, Kind::List(items))
    }

    fn map(&mut self, at: usize) -> Result<Node, Fault> {
        self.expect("{")?;
        let mut entries = Vec::new();
        while !self.takes("}") {
            let optional = self.takes("?");
            let key = self.expression()?;
            self.expect(":")?;
            entries.push((key, self.expression()?, optional));
            if !self.takes(",") {
                self.expect("}")?;
                break;
            }
        }
        node(at, Kind::Map(entries))
    }
}

fn call(name: &str, called: Called, arguments: Vec<Node>, at: usize) -> Result<Node, Fault> {
    match find(name, called, arguments.len()) {
        Ok(function) => node(at, Kind::Call(function, arguments)),
        Err(Uncallable::Unknown) => Err(Fault::new(at, unknown(name))),
        Err(Uncallable::Takes(least, most)) => {
            let count = if least == most { least.to_string() } else { format!("{least} or {most}") };
            Err(Fault::new(at, format!("`{name}` takes {count} arguments")))
        }
    }
}

fn matches(arguments: Vec<Node>, at: usize) -> Result<Node, Fault> {
    let Ok([of, pattern]) = <[Node; 2]>::try_from(arguments) else {
        return Err(Fault::new(at, "`matches` takes a string and a pattern"));
    };
    let Kind::Text(text) = &pattern.kind else {
        return Err(Fault::new(pattern.at, "the pattern of `matches` must be a string literal"));
    };
    let pattern = compile(text).map_err(|why| Fault::new(pattern.at, why))?;
    node(at, Kind::Matches(Box::new(of), Box::new(pattern)))
}

/// Returns the pattern with ASCII `\d`, `\s` and `\w`, as in CEL's RE2. The Unicode classes are large.
fn with_ascii_classes(pattern: &str) -> String {
    let (mut read, mut chars) = (String::with_capacity(pattern.len()), pattern.chars());
    while let Some(next) = chars.next() {
        if next != '\\' {
            read.push(next);
            continue;
        }
        match chars.next() {
            Some('d') => read.push_str("[0-9]"),
            Some('D') => read.push_str("[^0-9]"),
            Some('s') => read.push_str("[\\t\\n\\f\\r ]"),
            Some('S') => read.push_str("[^\\t\\n\\f\\r ]"),
            Some('w') => read.push_str("[0-9A-Za-z_]"),
            Some('W') => read.push_str("[^0-9A-Za-z_]"),
            other => read.extend(std::iter::once('\\').chain(other)),
        }
    }
    read
}

fn compile(pattern: &str) -> Result<Regex, String> {
    let compiled =
        RegexBuilder::new(&with_ascii_classes(pattern)).size_limit(PATTERN_BYTES).dfa_size_limit(PATTERN_BYTES).build();
    compiled.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => "the pattern is too large".to_owned(),
        _ => match pattern_fault(pattern) {
            Some(fault) => format!("this is not a regular expression: in it, {fault}"),
            None => "this is not a regular expression".to_owned(),
        },
    })
}

/// Returns the message for an unknown function.
fn unknown(name: &str) -> String {
    let advice = match name {
        "timestamp" | "duration" | "type" | "bytes" => ": times, durations, types and bytes are not supported here",
        "base64.encode" | "base64.decode" => ": bytes are not supported here",
        _ => "",
    };
    format!("there is no function `{name}`{advice}")
}
