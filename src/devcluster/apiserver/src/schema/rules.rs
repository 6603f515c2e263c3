//! Rules in the Common Expression Language (`x-kubernetes-validations`).
//!
//! Invariant: a rule never passes silently. A rule that cannot be compiled is refused with its definition (unknown
//! function, unknown field). A rule that cannot be evaluated fails the object.
//!
//! Not here: parsing of expressions and their functions (`expression`).

use std::collections::HashMap;
use std::sync::Arc;

use cel::Context;
use cel::common::ast::{Expr, IdedExpr};
use cel::objects::Key;
use serde_json::Value;

use super::identity::Before;
use super::node::{Scalar, Shape, View};
use super::path::child;
use super::rule::Rule;
use crate::expression::walk::visit_parts;
use crate::expression::{ENVIRONMENT, at_field, located};
use crate::status::Cause;

impl Rule {
    /// Returns the error of an expression that selects an undeclared field.
    pub(crate) fn undefined(&self, view: View<'_>) -> Option<Cause> {
        let mut missing = None;
        select(self.program.expression(), &mut |path| {
            let mut at = view;
            for name in path {
                if at.object().is_none() {
                    return;
                }
                let Some((below, _)) = at.key(name) else {
                    missing.get_or_insert_with(|| name.clone());
                    return;
                };
                at = below;
            }
        });
        let missing = missing?;
        let at = at_field(&self.text, &missing);
        let why = located(&self.text, at, &format!("undefined field '{missing}'"));
        Some(Cause::new("FieldValueInvalid", &self.place, format!("Invalid value: {}: {why}", self.shown)))
    }

    fn failure(&self, path: &str, detail: &str) -> Cause {
        let place = match self.field_path.strip_prefix('.') {
            Some(below) => child(path, below),
            None if self.field_path.is_empty() => path.to_owned(),
            None => format!("{path}{}", self.field_path),
        };
        let place = if place.is_empty() { "<nil>".to_owned() } else { place };
        let kind = match self.reason.as_str() {
            "FieldValueForbidden" => "Forbidden",
            "FieldValueRequired" => "Required value",
            "FieldValueDuplicate" => "Duplicate value",
            _ => "Invalid value",
        };
        Cause::new(&self.reason, place, format!("{kind}: {detail}"))
    }

    fn check(&self, view: View<'_>, value: &Value, old: Option<&Value>, path: &str) -> Option<Cause> {
        if self.transition && old.is_none() && !self.optional_old {
            return None;
        }
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.add_variable_from_value("self", convert(view, value));
        if self.transition {
            let old = old.map_or(cel::Value::Null, |old| convert(view, old));
            context.add_variable_from_value("oldSelf", old);
        }
        match self.program.execute(&context) {
            Ok(cel::Value::Bool(true)) => None,
            Ok(cel::Value::Bool(false)) => Some(self.failure(path, &self.text_of_failure(&context))),
            Ok(_) => Some(self.failure(path, &format!("rule {:?} did not evaluate to a bool", self.text))),
            Err(error) => Some(self.failure(path, &format!("{error} evaluating rule: {}", self.stated()))),
        }
    }

    fn text_of_failure(&self, context: &Context<'_, '_>) -> String {
        let computed = self.message_expression.as_ref().and_then(|program| match program.execute(context) {
            Ok(cel::Value::String(text)) => Some(text.trim().to_owned()).filter(|t| !t.is_empty()),
            _ => None,
        });
        computed.unwrap_or_else(|| self.stated())
    }

    fn stated(&self) -> String {
        self.message.as_deref().map_or_else(|| format!("failed rule: {}", self.text.trim()), |m| m.trim().to_owned())
    }
}

/// Returns whether rules apply to a value or to a part of it.
pub(super) fn any_below(view: View<'_>, value: &Value) -> bool {
    view.node.facets.as_ref().is_some_and(|f| !f.rules.is_empty())
        || match (&view.node.shape, value) {
            (Shape::Object(_), Value::Object(map)) => {
                map.iter().any(|(key, item)| view.key(key).is_some_and(|(below, _)| any_below(below, item)))
            }
            (Shape::Array(array), Value::Array(items)) => {
                items.iter().any(|item| any_below(view.at(array.items), item))
            }
            _ => false,
        }
}

/// Evaluates all rules on a value and its parts.
pub(super) fn check(view: View<'_>, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    let unchanged = old == Some(value);
    if let Some(facets) = view.node.facets.as_deref().filter(|_| !value.is_null()) {
        // Unchanged values are checked only by transition rules.
        let due = facets.rules.iter().filter(|rule| !unchanged || rule.transition);
        causes.extend(due.filter_map(|rule| rule.check(view, value, old, path)));
    }
    match (&view.node.shape, value) {
        (Shape::Object(_), Value::Object(map)) => {
            for (key, item) in map {
                if let Some((below, _)) = view.key(key) {
                    check(below, item, old.and_then(|o| o.get(key)), &child(path, key), causes);
                }
            }
        }
        (Shape::Array(array), Value::Array(items)) => {
            let before = Before::of(&array.list, old);
            for (i, item) in items.iter().enumerate() {
                check(view.at(array.items), item, before.get(&array.list, item), &format!("{path}[{i}]"), causes);
            }
        }
        _ => {}
    }
}

/// Converts a JSON value for rules. Numbers get the type of the schema.
fn convert(view: View<'_>, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(b) => cel::Value::Bool(*b),
        Value::Number(n) if matches!(view.node.shape, Shape::Scalar(Scalar::Number)) => {
            cel::Value::Float(n.as_f64().unwrap_or_default())
        }
        Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(int), _) => cel::Value::Int(int),
            (None, float) => cel::Value::Float(float.unwrap_or_default()),
        },
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => {
            let item = view.item();
            cel::Value::List(Arc::new(items.iter().map(|i| convert(item, i)).collect()))
        }
        Value::Object(map) => {
            let entries = map.iter().map(|(key, item)| {
                let below = view.key(key).map_or(View::any(), |(below, _)| below);
                (Key::String(Arc::new(escaped(view, key))), convert(below, item))
            });
            cel::Value::Map(cel::objects::Map { map: Arc::new(entries.collect::<HashMap<_, _>>()) })
        }
    }
}

/// Returns the spelling of a declared field in rules. Names that are not identifiers are escaped.
fn escaped(view: View<'_>, name: &str) -> String {
    const RESERVED: [&str; 22] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
        "__",
    ];
    if view.object().is_none_or(|o| !o.properties.contains_key(name)) {
        return name.to_owned();
    }
    if RESERVED.contains(&name) {
        return format!("__{name}__");
    }
    name.replace("__", "__underscores__").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__")
}

/// Calls `each` with every path of fields selected from `self` or `oldSelf`.
fn select(expression: &IdedExpr, each: &mut impl FnMut(&[String])) {
    if let Some(path) = path_of(&expression.expr) {
        each(&path);
        return;
    }
    visit_parts(&expression.expr, &mut |part| select(part, each));
}

fn path_of(expression: &Expr) -> Option<Vec<String>> {
    match expression {
        Expr::Ident(name) if name == "self" || name == "oldSelf" => Some(Vec::new()),
        Expr::Select(select) => {
            let mut path = path_of(&select.operand.expr)?;
            path.push(unescaped(&select.field));
            Some(path)
        }
        _ => None,
    }
}

fn unescaped(name: &str) -> String {
    let plain = name
        .replace("__underscores__", "__")
        .replace("__dot__", ".")
        .replace("__dash__", "-")
        .replace("__slash__", "/");
    match plain.strip_prefix("__").and_then(|p| p.strip_suffix("__")) {
        Some(reserved) => reserved.to_owned(),
        None => plain,
    }
}
