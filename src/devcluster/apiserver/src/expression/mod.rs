//! Expressions in the Common Expression Language, for rules of definitions, match conditions of webhooks, and policies.
//!
//! [`compile`] parses an expression and refuses unknown names. [`infer`] determines its type, as far as possible
//! without declarations of objects. [`walk`] visits its parts.
//!
//! Invariant: compilation fails on unknown functions and unknown variables.
//!
//! Not here: cost limits (length and nesting are limited instead), times, durations, and the Kubernetes libraries for
//! quantities, addresses and URLs.

pub(crate) mod condition;
pub(crate) mod infer;
pub(crate) mod policy;
pub(crate) mod walk;

use cel::{Env, ExecutionError, Program, Value, extensions, objects::Key};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

/// Maximum length of an expression, in bytes.
const LONGEST: usize = 16 * 1024;
/// Maximum nesting of brackets in an expression.
const DEEPEST: usize = 48;

/// The standard library with the extensions of Kubernetes.
pub(crate) static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut env = Env::stdlib();
    for extension in [extensions::strings, extensions::lists, extensions::math] {
        env.add_extension(extension).expect("the extensions declare different functions");
    }
    Arc::new(env)
});

/// The variables and functions of an expression, besides the standard library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope<'a> {
    /// Variables.
    pub(crate) variables: &'a [&'a str],
    /// Functions.
    pub(crate) functions: &'a [&'a str],
}

/// Compiles an expression. Errors are those of a real server, except for the limits of this server.
pub(crate) fn compile(source: &str, scope: Scope<'_>) -> Result<Program, String> {
    if source.len() > LONGEST {
        return Err(format!("must not be longer than {LONGEST} bytes"));
    }
    let mut depth = 0_usize;
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > DEEPEST {
            return Err(format!("must not nest deeper than {DEEPEST} brackets"));
        }
    }
    let program = ENVIRONMENT.compile(source).map_err(|errors| format!("compilation failed: {errors}"))?;
    let references = program.references();
    let undeclared = |name: &str| format!("undeclared reference to '{name}' (in container '')");
    let functions = references.functions();
    if let Some(name) = functions.iter().find(|f| !is_known(f) && !scope.functions.contains(f)) {
        return Err(located(source, at_call(source, name), &undeclared(name)));
    }
    let mut bound = Vec::new();
    walk::binders(program.expression(), &mut bound);
    let types = ["int", "uint", "double", "string", "bool", "bytes", "list", "map", "null_type", "type"];
    let spaces = ["math", "strings", "lists", "optional"];
    let mut unknown = references.variables().into_iter().filter(|v| {
        !scope.variables.contains(v) && !types.contains(v) && !spaces.contains(v) && !bound.iter().any(|b| b == v)
    });
    match unknown.next() {
        Some(name) => Err(located(source, at_word(source, name), &undeclared(name))),
        None => Ok(program),
    }
}

/// Formats a compilation error, with a mark below its position.
pub(crate) fn located(source: &str, at: usize, what: &str) -> String {
    let before = source.get(..at).unwrap_or_default();
    let line = before.matches('\n').count();
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count();
    let text = source.split('\n').nth(line).unwrap_or_default();
    let number = line + 1;
    format!("compilation failed: ERROR: <input>:{number}:{}: {what}\n | {text}\n | {}^", column + 1, ".".repeat(column))
}

/// Returns the first position of a word as an identifier.
fn at_word(source: &str, word: &str) -> usize {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = source.match_indices(word).map(|(at, _)| at).filter(|at| {
        let (before, after) = (&source[..*at], &source[at + word.len()..]);
        !before.ends_with(|c: char| part(c) || c == '.') && !after.starts_with(part)
    });
    found.next().unwrap_or(0)
}

/// Returns the position of a call's opening bracket.
fn at_call(source: &str, function: &str) -> usize {
    let mut found = source.match_indices(function).map(|(at, _)| at + function.len());
    found.find(|at| source[*at..].trim_start().starts_with('(')).unwrap_or(0)
}

/// Returns the position of a field selection.
pub(crate) fn at_field(source: &str, field: &str) -> usize {
    source.find(&format!(".{field}")).unwrap_or(0)
}

/// Returns whether a function is in the library or an operator. Names of operators are not identifiers.
fn is_known(function: &str) -> bool {
    const KNOWN: [&str; 41] = [
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "string",
        "int",
        "uint",
        "double",
        "bool",
        "bytes",
        "type",
        "dyn",
        "charAt",
        "indexOf",
        "lastIndexOf",
        "lowerAscii",
        "upperAscii",
        "replace",
        "split",
        "substring",
        "trim",
        "join",
        "format",
        "reverse",
        "quote",
        "slice",
        "flatten",
        "sort",
        "distinct",
        "range",
        "first",
        "last",
        "min",
        "max",
        "in",
        "hasValue",
        "value",
        "or",
        "orValue",
        "sortBy",
    ];
    KNOWN.contains(&function)
        || ["math.", "lists.", "strings.", "optional."].iter().any(|space| function.starts_with(space))
        || !function.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Converts a JSON value without a schema.
pub(crate) fn value_of(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(b) => Value::Bool(*b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(int), _) => Value::Int(int),
            (None, float) => Value::Float(float.unwrap_or_default()),
        },
        serde_json::Value::String(text) => Value::String(Arc::new(text.clone())),
        serde_json::Value::Array(items) => Value::List(Arc::new(items.iter().map(value_of).collect())),
        serde_json::Value::Object(map) => {
            let entries = map.iter().map(|(key, item)| (Key::String(Arc::new(key.clone())), value_of(item)));
            Value::Map(cel::objects::Map { map: Arc::new(entries.collect::<HashMap<_, _>>()) })
        }
    }
}

/// Formats an evaluation error in the words of a real server.
pub(crate) fn explain(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::IndexOutOfBounds(Value::Int(index)) => format!("index out of bounds: {index}"),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::NoSuchOverload(_)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedIndex(..)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::NotSupportedAsMethod { .. } => "no such overload".to_owned(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        let scope = Scope { variables: &["object"], functions: &[] };
        assert_eq!(compile(source, scope).unwrap_err(), expected, "{source}");
    }

    #[test]
    fn says_where_a_name_is_not_known() {
        check(
            "obj.x",
            "compilation failed: ERROR: <input>:1:1: undeclared reference to 'obj' (in container '')\n | obj.x\n | ^",
        );
        check(
            "foo(object)",
            "compilation failed: ERROR: <input>:1:4: undeclared reference to 'foo' (in container '')\n | foo(object)\n | ...^",
        );
        check(
            "true ||\n object.all(y, z)",
            "compilation failed: ERROR: <input>:2:16: undeclared reference to 'z' (in container '')\n |  object.all(y, z)\n | ...............^",
        );
    }

    #[test]
    fn refuses_what_is_too_deep() {
        let scope = Scope { variables: &[], functions: &[] };
        let deep = format!("{}1{}", "(".repeat(60), ")".repeat(60));
        assert!(compile(&deep, scope).is_err());
    }
}
