//! Evaluates a tree to true or false, or to JSON.
//!
//! As in CEL, an error on one side of `||` or `&&` is ignored if the other side determines the result. `all` and
//! `exists` do the same.

use serde_json::{Number, Value as Json};

use super::error::Fault;
use super::limits::{DEEPEST, PATTERN_STEPS, STEPS};
use super::operators;
use super::steps::{Halt, Steps};
use super::tree::{Fold, How, Kind, Node};
use super::value::{Map, Text, Value};

/// Evaluates an expression; see [`Expression::holds`](super::Expression::holds).
pub(super) fn holds<'v>(
    root: &'v Node,
    variable: &dyn Fn(&str) -> Option<&'v Json>,
    steps: &mut Steps,
) -> Result<bool, Fault> {
    let mut evaluation = Evaluation { variable, bound: Vec::new(), steps };
    match evaluation.value(root)? {
        Value::Bool(bool) => Ok(bool),
        other => {
            Err(Fault::new(root.at, format!("the expression must be true or false, but is {}", other.type_name())))
        }
    }
}

/// Evaluates an expression; see [`Expression::result`](super::Expression::result).
pub(super) fn result<'v>(
    root: &'v Node,
    variable: &dyn Fn(&str) -> Option<&'v Json>,
    steps: &mut Steps,
) -> Result<Json, Fault> {
    let mut evaluation = Evaluation { variable, bound: Vec::new(), steps };
    let value = evaluation.value(root)?;
    json(&value, evaluation.steps, 0).map_err(at(root.at))
}

struct Evaluation<'e, 'v> {
    variable: &'e dyn Fn(&str) -> Option<&'v Json>,
    /// Variables bound by macros, innermost last.
    bound: Vec<(&'v str, Value<'v>)>,
    steps: &'e mut Steps,
}

type Evaluated<'v> = Result<Value<'v>, Fault>;

fn at(at: usize) -> impl Fn(Halt) -> Fault {
    move |halt| match halt {
        Halt::Because(what) => Fault::new(at, what),
        Halt::Exhausted => {
            let what = format!("the expression takes more than {STEPS} steps with this object");
            Fault { is_final: true, ..Fault::new(at, what) }
        }
    }
}

impl<'v> Evaluation<'_, 'v> {
    fn value(&mut self, node: &'v Node) -> Evaluated<'v> {
        let here = at(node.at);
        self.steps.spend(1).map_err(&here)?;
        match &node.kind {
            Kind::Null => Ok(Value::Null),
            Kind::Bool(bool) => Ok(Value::Bool(*bool)),
            Kind::Int(whole) => Ok(Value::Int(*whole)),
            Kind::Uint(whole) => Ok(Value::Uint(*whole)),
            Kind::Double(double) => Ok(Value::Double(*double)),
            Kind::Text(text) => Ok(Value::Text(Text::Given(text))),
            Kind::Variable(name) => self.variable(name).map_err(here),
            Kind::Field { of, name, optional } => {
                let of = self.holder(of)?;
                if *optional || matches!(of, Value::Optional(_)) {
                    return operators::optional(&of, &mut |of| operators::field(of, name)).map_err(here);
                }
                operators::field(&of, name).map_err(here)
            }
            Kind::Has { of, name } => Ok(Value::Bool(has(&self.holder(of)?, name).map_err(here)?)),
            Kind::Index { of, index, optional } => {
                let (of, index) = (self.value(of)?, self.value(index)?);
                let steps = &mut *self.steps;
                if *optional || matches!(of, Value::Optional(_)) {
                    return operators::optional(&of, &mut |of| operators::element(of, &index, steps)).map_err(here);
                }
                operators::element(&of, &index, steps).map_err(here)
            }
            Kind::List(items) => self.list(items),
            Kind::Map(entries) => self.map(entries),
            Kind::Not(of) => Ok(Value::Bool(!self.bool(of)?)),
            Kind::Negate(of) => negate(&self.value(of)?).map_err(here),
            Kind::All(parts) => self.connect(parts, false),
            Kind::Any(parts) => self.connect(parts, true),
            Kind::Binary(operator, left, right) => {
                let (left, right) = (self.value(left)?, self.value(right)?);
                operators::binary(*operator, &left, &right, self.steps).map_err(here)
            }
            Kind::Conditional(condition, then, other) => {
                if self.bool(condition)? {
                    self.value(then)
                } else {
                    self.value(other)
                }
            }
            Kind::Call(function, arguments) => {
                let arguments = arguments.iter().map(|argument| self.value(argument)).collect::<Result<Vec<_>, _>>()?;
                operators::call(*function, &arguments, self.steps).map_err(here)
            }
            Kind::Matches(of, pattern) => match self.value(of)? {
                Value::Text(text) => {
                    self.steps.spend(text.len().saturating_mul(PATTERN_STEPS)).map_err(here)?;
                    Ok(Value::Bool(pattern.is_match(&text)))
                }
                other => Err(here(Halt::because(format!("`matches` does not take {}", other.type_name())))),
            },
            Kind::Fold(fold) => self.fold(fold, node.at),
        }
    }

    /// Evaluates the operand of a field access. A map built by the expression is searched linearly.
    fn holder(&mut self, node: &'v Node) -> Evaluated<'v> {
        let value = self.value(node)?;
        if let Value::Map(Map::Made(entries)) = &value {
            self.steps.spend(entries.len()).map_err(at(node.at))?;
        }
        Ok(value)
    }

    fn bool(&mut self, node: &'v Node) -> Result<bool, Fault> {
        match self.value(node)? {
            Value::Bool(bool) => Ok(bool),
            other => Err(Fault::new(node.at, format!("this must be true or false, but is {}", other.type_name()))),
        }
    }

    fn variable(&mut self, name: &str) -> Result<Value<'v>, Halt> {
        if let Some((_, value)) = self.bound.iter().rev().find(|(bound, _)| *bound == name) {
            return Ok(value.clone());
        }
        let found = (self.variable)(name).map(Value::of);
        found.ok_or_else(|| Halt::because(format!("the object has no field `{name}`")))
    }

    /// Evaluates operands until one equals `decisive`, which determines the result.
    fn connect(&mut self, parts: &'v [Node], decisive: bool) -> Evaluated<'v> {
        let mut failed = None;
        for part in parts {
            match self.bool(part) {
                Ok(bool) if bool == decisive => return Ok(Value::Bool(decisive)),
                Ok(_) => {}
                Err(fault) if fault.is_final => return Err(fault),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decisive)), Err)
    }

    fn list(&mut self, items: &'v [(Node, bool)]) -> Evaluated<'v> {
        let mut list = Vec::with_capacity(items.len());
        for (item, optional) in items {
            list.extend(self.present(item, *optional)?);
        }
        Ok(Value::list(list))
    }

    fn map(&mut self, entries: &'v [(Node, Node, bool)]) -> Evaluated<'v> {
        let mut map: Vec<(Value<'v>, Value<'v>)> = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let here = at(key.at);
            let key = self.value(key)?;
            if !matches!(key, Value::Text(_) | Value::Int(_) | Value::Uint(_) | Value::Bool(_)) {
                return Err(here(Halt::because(format!("{} cannot be a key of a map", key.type_name()))));
            }
            for (known, _) in &map {
                if operators::equal(known, &key, self.steps).map_err(&here)? {
                    return Err(here(Halt::because("the map has this key twice")));
                }
            }
            let value = self.present(value, *optional)?;
            map.extend(value.map(|value| (key, value)));
        }
        Ok(Value::Map(Map::Made(map.into())))
    }

    /// Evaluates an element. It is omitted if it is `optional` and has no value.
    fn present(&mut self, node: &'v Node, optional: bool) -> Result<Option<Value<'v>>, Fault> {
        match self.value(node)? {
            value if !optional => Ok(Some(value)),
            Value::Optional(value) => Ok(value.map(|value| Value::clone(&value))),
            other => Err(Fault::new(node.at, format!("after `?`, {} is not an optional value", other.type_name()))),
        }
    }

    fn fold(&mut self, fold: &'v Fold, place: usize) -> Evaluated<'v> {
        let list = match self.value(&fold.of)? {
            Value::List(list) => list,
            Value::Map(map) => {
                self.steps.spend(map.len()).map_err(at(place))?;
                super::value::List::Made(map.keys().into())
            }
            other => return Err(Fault::new(place, format!("{} has no elements", other.type_name()))),
        };
        let (mut count, mut collected, mut failed) = (0_usize, Vec::new(), None);
        for item in list.iter() {
            self.steps.spend(1).map_err(at(place))?;
            self.bound.push((&fold.variable, item.clone()));
            let taken = self.element(fold, item);
            self.bound.pop();
            match (fold.how, taken) {
                (How::All, Ok(None)) => return Ok(Value::Bool(false)),
                (How::Exists, Ok(Some(_))) => return Ok(Value::Bool(true)),
                (How::Collect, Ok(value)) => collected.extend(value),
                (_, Ok(value)) => count += usize::from(value.is_some()),
                (How::All | How::Exists, Err(fault)) if !fault.is_final => failed = failed.or(Some(fault)),
                (_, Err(fault)) => return Err(fault),
            }
        }
        match (fold.how, failed) {
            (_, Some(fault)) => Err(fault),
            (How::All, None) => Ok(Value::Bool(true)),
            (How::Exists, None) => Ok(Value::Bool(false)),
            (How::ExistsOne, None) => Ok(Value::Bool(count == 1)),
            (How::Collect, None) => Ok(Value::list(collected)),
        }
    }

    /// Returns the result for an element; `None` if the condition is false.
    fn element(&mut self, fold: &'v Fold, item: Value<'v>) -> Result<Option<Value<'v>>, Fault> {
        if let Some(condition) = &fold.condition
            && !self.bool(condition)?
        {
            return Ok(None);
        }
        fold.result.as_ref().map_or(Ok(item), |result| self.value(result)).map(Some)
    }
}

fn has(of: &Value<'_>, name: &str) -> Result<bool, Halt> {
    match of {
        Value::Map(map) => Ok(map.field(name).is_some()),
        Value::Optional(None) => Ok(false),
        Value::Optional(Some(of)) => has(of, name),
        _ => Err(Halt::because(format!("{} has no field `{name}`", of.type_name()))),
    }
}

fn negate<'v>(value: &Value<'v>) -> Result<Value<'v>, Halt> {
    match value {
        Value::Int(whole) => {
            whole.checked_neg().map(Value::Int).ok_or_else(|| Halt::because("the result is out of range"))
        }
        Value::Double(double) => Ok(Value::Double(-double)),
        other => Err(Halt::because(format!("{} cannot be negated", other.type_name()))),
    }
}

/// Copies a value. Each value and each part of a text takes a step.
fn json(value: &Value<'_>, steps: &mut Steps, depth: u16) -> Result<Json, Halt> {
    if depth > DEEPEST {
        return Err(Halt::because(format!("the result is nested deeper than {DEEPEST} levels")));
    }
    steps.spend(1)?;
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(bool) => Json::Bool(*bool),
        Value::Int(whole) => (*whole).into(),
        Value::Uint(whole) => (*whole).into(),
        Value::Double(double) => Number::from_f64(*double)
            .map(Json::Number)
            .ok_or_else(|| Halt::because("the result is a number that is not finite"))?,
        Value::Text(text) => {
            steps.spend_text(text.len())?;
            Json::String(text.to_string())
        }
        Value::List(list) => {
            Json::Array(list.iter().map(|item| json(&item, steps, depth + 1)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let mut entries = serde_json::Map::new();
            for key in map.keys() {
                let Value::Text(name) = &key else {
                    return Err(Halt::because(format!("the result has a map with {} as a key", key.type_name())));
                };
                // A map built by the expression is searched linearly.
                steps.spend(1 + if matches!(map, Map::Made(_)) { map.len() } else { 0 })?;
                steps.spend_text(name.len())?;
                if let Some(value) = map.field(name) {
                    entries.insert(name.to_string(), json(&value, steps, depth + 1)?);
                }
            }
            Json::Object(entries)
        }
        Value::Optional(_) => return Err(Halt::because("the result is an optional value")),
    })
}
