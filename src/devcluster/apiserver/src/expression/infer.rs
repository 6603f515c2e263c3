//! Infers the type of an expression, as far as possible without an object.
//!
//! Invariant: a real server refuses every expression that is refused here. Undecidable expressions are accepted.
//!
//! Not here: overloads of functions by their arguments.

use super::{at_field, located};
use cel::{
    Program,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators},
};
use std::fmt;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// A simple named type: `bool`, `int`, `string`, ….
    Plain(&'static str),
    /// A list.
    List(Box<Type>),
    /// A map with string keys.
    Map(Box<Type>),
    /// An object with declared fields.
    Object(&'static str),
    /// A dynamic type, known only for a value.
    Dyn,
    /// A type that is not tracked here.
    Unknown,
}

/// The expected type of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Any type.
    Any,
    /// A boolean.
    Bool,
    /// A string.
    Text,
}

/// The type `bool`.
pub(crate) const BOOL: Type = Type::Plain("bool");
const INT: Type = Type::Plain("int");
/// The type `string`.
pub(crate) const STRING: Type = Type::Plain("string");

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) | Self::Object(name) => f.write_str(name),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(item) => write!(f, "map(string, {item})"),
            Self::Dyn | Self::Unknown => f.write_str("dyn"),
        }
    }
}

impl Type {
    /// Formats the type of an expression's result, where null is `null_type`.
    pub(crate) fn spelled(&self) -> String {
        if *self == Self::Plain("null") { "null_type".to_owned() } else { self.to_string() }
    }

    /// Returns whether the type is known only for a value.
    fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Unknown)
    }

    fn is_scalar(&self) -> bool {
        matches!(self, Self::Plain("bool" | "int" | "uint" | "double" | "string" | "bytes" | "null"))
    }
}

/// Declarations in addition to the standard library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Declared {
    /// The type of a variable.
    pub(crate) variable: fn(&str) -> Option<Type>,
    /// The type of a field of an object type.
    pub(crate) field: fn(&str, &str) -> Option<Type>,
    /// The return type of a function.
    pub(crate) function: fn(&str) -> Option<Type>,
}

/// Returns the type of a compiled expression. Errors are those of a real server.
pub(crate) fn type_of(source: &str, program: &Program, declared: Declared) -> Result<Type, String> {
    Inference { source, program, declared, bound: Vec::new() }.of(program.expression())
}

struct Inference<'a> {
    source: &'a str,
    program: &'a Program,
    declared: Declared,
    bound: Vec<(String, Type)>,
}

impl Inference<'_> {
    fn of(&mut self, expression: &IdedExpr) -> Result<Type, String> {
        match &expression.expr {
            Expr::Literal(literal) => Ok(literal_type(literal)),
            Expr::Ident(name) => {
                let bound = self.bound.iter().rev().find(|(known, _)| known == name).map(|(_, bound)| bound.clone());
                Ok(bound.or_else(|| (self.declared.variable)(name)).unwrap_or(Type::Unknown))
            }
            Expr::Select(select) => self.select(select),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
            Expr::List(list) => {
                let mut item = Type::Dyn;
                for element in &list.elements {
                    item = self.of(element)?;
                }
                Ok(Type::List(Box::new(item)))
            }
            Expr::Map(map) => {
                let mut item = Type::Dyn;
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        item = self.of(&entry.value)?;
                    }
                }
                Ok(Type::Map(Box::new(item)))
            }
            Expr::Struct(_) | Expr::Unspecified => Ok(Type::Unknown),
        }
    }

    fn select(&mut self, select: &SelectExpr) -> Result<Type, String> {
        let found = match self.of(&select.operand)? {
            Type::Object(object) => match (self.declared.field)(object, &select.field) {
                Some(field) => field,
                None => return Err(self.wrong(self.at_selection(&select.field), &undefined(&select.field))),
            },
            Type::Map(item) => *item,
            open if open.is_open() => open,
            closed => {
                let why = format!("type '{closed}' does not support field selection");
                return Err(self.wrong(self.at_selection(&select.field), &why));
            }
        };
        Ok(if select.test { BOOL } else { found })
    }

    fn call(&mut self, call: &CallExpr) -> Result<Type, String> {
        let name = call.func_name.as_str();
        if let Some(target) = &call.target {
            self.of(target)?;
        }
        let mut args = Vec::new();
        for arg in &call.args {
            args.push(self.of(arg)?);
        }
        match (name, args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, _) => {
                let wrong = args.iter().position(|arg| !arg.is_open() && *arg != BOOL);
                let Some(wrong) = wrong else { return Ok(BOOL) };
                let at = self.start_of(&call.args[wrong]);
                Err(self.wrong(at, &format!("expected type 'bool' but found '{}'", args[wrong])))
            }
            (operators::LOGICAL_NOT, [arg]) if !arg.is_open() && *arg != BOOL => self.no_overload("!", name, &args),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let differ = yes.is_scalar() && no.is_scalar() && yes != no;
                if differ || !condition.is_open() && *condition != BOOL {
                    return self.no_overload("?", name, &args);
                }
                Ok(if yes.is_open() { yes.clone() } else { no.clone() })
            }
            (
                operators::EQUALS
                | operators::NOT_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS,
                [left, right],
            ) => {
                let known = left.is_scalar() && right.is_scalar();
                if known && left != right { self.no_overload(symbol(name), name, &args) } else { Ok(BOOL) }
            }
            (operators::LOGICAL_NOT | operators::IN | operators::NOT_STRICTLY_FALSE, _) => Ok(BOOL),
            (operators::INDEX, [Type::List(item) | Type::Map(item), _]) => Ok((**item).clone()),
            (operators::INDEX, _) => Ok(Type::Dyn),
            (
                operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
                [left, right],
            ) => {
                if left.is_scalar() && right.is_scalar() && left != right {
                    return self.no_overload(symbol(name), name, &args);
                }
                let open = left.is_open() || *left == Type::List(Box::new(Type::Dyn));
                Ok(if open { right.clone() } else { left.clone() })
            }
            (operators::NEGATE, [arg]) => Ok(arg.clone()),
            _ => Ok((self.declared.function)(name).or_else(|| library(name)).unwrap_or(Type::Unknown)),
        }
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Result<Type, String> {
        let (range, start) = (self.of(&comprehension.iter_range)?, self.of(&comprehension.accu_init)?);
        let item = match range {
            Type::List(item) => *item,
            // Iterating over a map yields its keys.
            Type::Map(_) => STRING,
            _ => Type::Dyn,
        };
        let before = self.bound.len();
        self.bound.push((comprehension.iter_var.clone(), item));
        if let Some(second) = &comprehension.iter_var2 {
            self.bound.push((second.clone(), Type::Dyn));
        }
        self.bound.push((comprehension.accu_var.clone(), start));
        self.of(&comprehension.loop_cond)?;
        let step = self.of(&comprehension.loop_step)?;
        if matches!(step, Type::List(_)) {
            // The accumulated list has the type of the appended list.
            self.bound.push((comprehension.accu_var.clone(), step));
        }
        let result = self.of(&comprehension.result);
        self.bound.truncate(before);
        result
    }

    fn wrong(&self, at: usize, what: &str) -> String {
        located(self.source, at, what)
    }

    fn no_overload(&self, sign: &str, name: &str, args: &[Type]) -> Result<Type, String> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let why = format!("found no matching overload for '{name}' applied to '({})'", args.join(", "));
        Err(self.wrong(self.source.find(sign).unwrap_or(0), &why))
    }

    fn start_of(&self, expression: &IdedExpr) -> usize {
        let offset = self.program.source_info().offset_for(expression.id);
        offset.and_then(|(start, _)| usize::try_from(start).ok()).unwrap_or(0)
    }

    /// Returns the position of a selection's dot. For `has`, returns the position of its bracket.
    fn at_selection(&self, field: &str) -> usize {
        let dot = at_field(self.source, field);
        match self.source[..dot].rfind("has(") {
            Some(has) if !self.source[has..dot].contains(')') => has + 3,
            _ => dot,
        }
    }
}

fn undefined(field: &str) -> String {
    format!("undefined field '{field}'")
}

fn literal_type(literal: &LiteralValue) -> Type {
    Type::Plain(match literal {
        LiteralValue::Boolean(_) => "bool",
        LiteralValue::Bytes(_) => "bytes",
        LiteralValue::Double(_) => "double",
        LiteralValue::Int(_) => "int",
        LiteralValue::Null => "null",
        LiteralValue::String(_) => "string",
        LiteralValue::UInt(_) => "uint",
    })
}

/// Returns the sign of a binary operator.
fn symbol(name: &str) -> &str {
    name.trim_matches('_')
}

/// Returns the result type of a library function, if it does not depend on the arguments.
fn library(name: &str) -> Option<Type> {
    Some(match name {
        "startsWith" | "endsWith" | "contains" | "matches" | "bool" | "hasValue" => BOOL,
        "size" | "int" | "indexOf" | "lastIndexOf" => INT,
        "uint" => Type::Plain("uint"),
        "double" => Type::Plain("double"),
        "bytes" => Type::Plain("bytes"),
        "string" | "charAt" | "lowerAscii" | "upperAscii" | "replace" | "substring" | "trim" | "join" | "format"
        | "quote" | "strings.quote" => STRING,
        "split" => Type::List(Box::new(STRING)),
        "dyn" => Type::Dyn,
        "type" => Type::Plain("type(dyn)"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::{Scope, compile};

    fn variable(name: &str) -> Option<Type> {
        match name {
            "object" => Some(Type::Dyn),
            "request" => Some(Type::Object("kubernetes.AdmissionRequest")),
            _ => None,
        }
    }

    fn field(_: &str, name: &str) -> Option<Type> {
        match name {
            "name" => Some(STRING),
            "groups" => Some(Type::List(Box::new(STRING))),
            _ => None,
        }
    }

    /// Checks the type of an expression, or the text and position of its error.
    fn check(source: &str, expected: &str) {
        let program = compile(source, Scope { variables: &["object", "request"], functions: &[] }).unwrap();
        let declared = Declared { variable, field, function: |_| None };
        let found = type_of(source, &program, declared);
        let text = match found {
            Ok(found) => found.to_string(),
            Err(why) => why.lines().next().unwrap().trim_start_matches("compilation failed: ERROR: <input>:").into(),
        };
        assert_eq!(text, expected, "{source}");
    }

    #[test]
    fn knows_what_an_expression_comes_to() {
        check("object.a.b == 1", "bool");
        check("object.a", "dyn");
        check("object.a + 1", "int");
        check("size(object.a)", "int");
        check("request.groups[0]", "string");
        check("request.groups.map(g, g)", "list(string)");
        check("object.a.map(x, 1)", "list(int)");
        check("object.a.exists_one(x, x == 1)", "bool");
        check("object.a.filter(x, x == 1)", "list(dyn)");
        check("object.a ? true : false", "bool");
        check("{'a': 1}", "map(string, int)");
    }

    #[test]
    fn says_what_does_not_fit() {
        check("request.bogus == 'x'", "1:8: undefined field 'bogus'");
        check("has(request.bogus)", "1:4: undefined field 'bogus'");
        check("request.name.foo", "1:13: type 'string' does not support field selection");
        check("true && 1", "1:9: expected type 'bool' but found 'int'");
        check("object.x.all(y, 'a')", "1:17: expected type 'bool' but found 'string'");
        check("'a' == 1", "1:5: found no matching overload for '_==_' applied to '(string, int)'");
        check("request.name == null", "1:14: found no matching overload for '_==_' applied to '(string, null)'");
        check("1 < 'a'", "1:3: found no matching overload for '_<_' applied to '(int, string)'");
        check("1 + 'a'", "1:3: found no matching overload for '_+_' applied to '(int, string)'");
        check("!1", "1:1: found no matching overload for '!_' applied to '(int)'");
        check("object.x ? 1 : 'a'", "1:10: found no matching overload for '_?_:_' applied to '(dyn, int, string)'");
    }
}
