//! Operators and functions on values.

use std::cmp::Ordering;
use std::rc::Rc;

use super::functions::Function;
use super::steps::{Halt, Steps};
use super::text;
use super::tree::Operator;
use super::value::{List, Map, Value};

type Answer<'v> = Result<Value<'v>, Halt>;

/// Applies an operator to two values.
pub(super) fn binary<'v>(operator: Operator, left: &Value<'v>, right: &Value<'v>, steps: &mut Steps) -> Answer<'v> {
    use Operator as O;
    let ordered = |accept: fn(Ordering) -> bool, steps: &mut Steps| {
        Ok(Value::Bool(order(left, right, steps)?.is_some_and(accept)))
    };
    match operator {
        O::Equal => Ok(Value::Bool(equal(left, right, steps)?)),
        O::Unequal => Ok(Value::Bool(!equal(left, right, steps)?)),
        O::Less => ordered(Ordering::is_lt, steps),
        O::LessOrEqual => ordered(Ordering::is_le, steps),
        O::Greater => ordered(Ordering::is_gt, steps),
        O::GreaterOrEqual => ordered(Ordering::is_ge, steps),
        O::In => Ok(Value::Bool(is_in(left, right, steps)?)),
        O::Add => match (left, right) {
            (Value::Text(one), Value::Text(other)) => {
                steps.spend_text(one.len() + other.len())?;
                Ok(Value::text(format!("{}{}", &**one, &**other)))
            }
            (Value::List(one), Value::List(other)) => {
                steps.spend(one.len() + other.len())?;
                Ok(Value::list(one.iter().chain(other.iter()).collect()))
            }
            _ => calculate(operator, left, right),
        },
        O::Subtract | O::Multiply | O::Divide | O::Remainder => calculate(operator, left, right),
    }
}

/// An arithmetic operator for each type of number.
type Arithmetic = (fn(i64, i64) -> Option<i64>, fn(u64, u64) -> Option<u64>, fn(f64, f64) -> f64);

fn calculate<'v>(operator: Operator, left: &Value<'v>, right: &Value<'v>) -> Answer<'v> {
    use Operator as O;
    let (whole, unsigned, double): Arithmetic = match operator {
        O::Add => (i64::checked_add, u64::checked_add, |a, b| a + b),
        O::Subtract => (i64::checked_sub, u64::checked_sub, |a, b| a - b),
        O::Multiply => (i64::checked_mul, u64::checked_mul, |a, b| a * b),
        O::Divide => (i64::checked_div, u64::checked_div, |a, b| a / b),
        _ => (i64::checked_rem, u64::checked_rem, |_, _| f64::NAN),
    };
    let range = || Halt::because("the result is out of range, or the divisor is 0");
    match (left, right) {
        (Value::Int(one), Value::Int(other)) => Ok(Value::Int(whole(*one, *other).ok_or_else(range)?)),
        (Value::Uint(one), Value::Uint(other)) => Ok(Value::Uint(unsigned(*one, *other).ok_or_else(range)?)),
        (Value::Double(one), Value::Double(other)) if operator != O::Remainder => {
            Ok(Value::Double(double(*one, *other)))
        }
        _ => {
            let (one, other) = (left.type_name(), right.type_name());
            Err(Halt::because(format!("this operator does not take {one} and {other}")))
        }
    }
}

/// Returns whether two values are equal. Numbers of different types are compared by value.
pub(super) fn equal(left: &Value<'_>, right: &Value<'_>, steps: &mut Steps) -> Result<bool, Halt> {
    steps.spend(1)?;
    Ok(match (left, right) {
        (Value::Null, Value::Null) | (Value::Optional(None), Value::Optional(None)) => true,
        (Value::Bool(one), Value::Bool(other)) => one == other,
        (Value::Text(one), Value::Text(other)) => {
            let is_long = one.len() == other.len();
            if is_long {
                steps.spend_text(one.len())?;
            }
            is_long && **one == **other
        }
        (Value::List(one), Value::List(other)) => {
            if one.len() != other.len() {
                return Ok(false);
            }
            for (one, other) in one.iter().zip(other.iter()) {
                if !equal(&one, &other, steps)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(one), Value::Map(other)) => {
            if one.len() != other.len() {
                return Ok(false);
            }
            steps.spend(one.len())?;
            for key in one.keys() {
                let same = match (at_key(one, &key, steps)?, at_key(other, &key, steps)?) {
                    (Some(one), Some(other)) => equal(&one, &other, steps)?,
                    _ => false,
                };
                if !same {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Optional(Some(one)), Value::Optional(Some(other))) => equal(one, other, steps)?,
        _ => number_order(left, right).is_some_and(Ordering::is_eq),
    })
}

/// Returns the order of two values; `None` if one is NaN.
fn order(left: &Value<'_>, right: &Value<'_>, steps: &mut Steps) -> Result<Option<Ordering>, Halt> {
    match (left, right) {
        (Value::Text(one), Value::Text(other)) => {
            steps.spend_text(one.len().min(other.len()))?;
            Ok(Some((**one).cmp(&**other)))
        }
        (Value::Bool(one), Value::Bool(other)) => Ok(Some(one.cmp(other))),
        _ if is_number(left) && is_number(right) => Ok(number_order(left, right)),
        _ => {
            let (one, other) = (left.type_name(), right.type_name());
            Err(Halt::because(format!("{one} and {other} cannot be compared")))
        }
    }
}

fn is_number(value: &Value<'_>) -> bool {
    matches!(value, Value::Int(_) | Value::Uint(_) | Value::Double(_))
}

fn number_order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    let whole = |value: &Value<'_>| match value {
        Value::Int(whole) => Some(i128::from(*whole)),
        Value::Uint(whole) => Some(i128::from(*whole)),
        _ => None,
    };
    match (left, right) {
        (Value::Double(one), Value::Double(other)) => one.partial_cmp(other),
        (Value::Double(one), other) => double_order(*one, whole(other)?),
        (one, Value::Double(other)) => double_order(*other, whole(one)?).map(Ordering::reverse),
        (one, other) => Some(whole(one)?.cmp(&whole(other)?)),
    }
}

/// Returns the exact order of a floating-point number and an integer of at most 64 bits.
fn double_order(double: f64, whole: i128) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // Numbers that are too large saturate, which keeps the order.
    #[expect(clippy::cast_possible_truncation, reason = "what is after the point is compared next")]
    let floor = double.floor() as i128;
    let above = if double.fract() == 0.0 { Ordering::Equal } else { Ordering::Greater };
    Some(floor.cmp(&whole).then(above))
}

fn is_in(item: &Value<'_>, of: &Value<'_>, steps: &mut Steps) -> Result<bool, Halt> {
    match of {
        Value::List(list) => {
            for other in list.iter() {
                if equal(item, &other, steps)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Value::Map(map) => Ok(at_key(map, item, steps)?.is_some()),
        _ => Err(Halt::because(format!("{} has no elements", of.type_name()))),
    }
}

fn at_key<'v>(map: &Map<'v>, key: &Value<'_>, steps: &mut Steps) -> Result<Option<Value<'v>>, Halt> {
    match (map, key) {
        (Map::Given(_), Value::Text(name)) => Ok(map.field(name)),
        (Map::Given(_), _) => Ok(None),
        (Map::Made(entries), _) => {
            for (known, value) in entries.iter() {
                if equal(known, key, steps)? {
                    return Ok(Some(value.clone()));
                }
            }
            Ok(None)
        }
    }
}

/// Returns the element of a list or map at an index.
pub(super) fn element<'v>(of: &Value<'v>, index: &Value<'_>, steps: &mut Steps) -> Answer<'v> {
    match of {
        Value::Map(map) => at_key(map, index, steps)?.ok_or_else(|| match index {
            Value::Text(_) => Halt::because("the map has no such key"),
            _ => Halt::because(format!("the map has no key that is {}", index.type_name())),
        }),
        Value::List(list) => {
            let at = match index {
                Value::Int(at) => usize::try_from(*at).ok(),
                Value::Uint(at) => usize::try_from(*at).ok(),
                _ => return Err(Halt::because(format!("{} cannot be an index of a list", index.type_name()))),
            };
            let found = at.and_then(|at| list.get(at));
            found.ok_or_else(|| {
                Halt::because(format!("the list has {} elements, so the index is out of range", list.len()))
            })
        }
        _ => Err(Halt::because(format!("{} has no elements", of.type_name()))),
    }
}

/// Returns the field of a map.
pub(super) fn field<'v>(of: &Value<'v>, name: &str) -> Answer<'v> {
    match of {
        Value::Map(map) => map.field(name).ok_or_else(|| Halt::because(format!("there is no field `{name}`"))),
        _ => Err(Halt::because(format!("{} has no field `{name}`", of.type_name()))),
    }
}

/// Calls a function.
pub(super) fn call<'v>(function: Function, arguments: &[Value<'v>], steps: &mut Steps) -> Answer<'v> {
    use Function as F;
    match (function, arguments) {
        (F::Dyn, [value]) => Ok(value.clone()),
        (F::Size, [Value::List(list)]) => count(list.len()),
        (F::Size, [Value::Map(map)]) => count(map.len()),
        (F::First, [Value::List(list)]) => Ok(Value::optional(list.get(0))),
        (F::Last, [Value::List(list)]) => Ok(Value::optional(list.len().checked_sub(1).and_then(|at| list.get(at)))),
        (F::OptionalNone, []) => Ok(Value::Optional(None)),
        (F::OptionalOf, [value]) => Ok(Value::some(value.clone())),
        (F::OptionalOfNonZero, [value]) => Ok(Value::optional(Some(value.clone()).filter(|value| !is_zero(value)))),
        (F::HasValue, [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        (F::Value, [Value::Optional(value)]) => {
            let value = value.as_ref().ok_or_else(|| Halt::because("the optional value is missing"))?;
            Ok(Value::clone(value))
        }
        (F::Or, [first @ Value::Optional(one), second @ Value::Optional(_)]) => {
            Ok(if one.is_some() { first.clone() } else { second.clone() })
        }
        (F::OrValue, [Value::Optional(one), other]) => {
            Ok(one.as_ref().map_or_else(|| other.clone(), |value| Value::clone(value)))
        }
        (F::SetsContains, [Value::List(all), Value::List(some)]) => Ok(Value::Bool(contains_all(all, some, steps)?)),
        (F::SetsEquivalent, [Value::List(one), Value::List(other)]) => {
            Ok(Value::Bool(contains_all(one, other, steps)? && contains_all(other, one, steps)?))
        }
        (F::SetsIntersects, [one @ Value::List(_), Value::List(other)]) => {
            for item in other.iter() {
                if is_in(&item, one, steps)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        (F::Int | F::Uint | F::Double | F::Text | F::Bool, [value]) => text::convert(function, value, steps),
        _ => text::call(function, arguments, steps),
    }
}

fn count<'v>(length: usize) -> Answer<'v> {
    i64::try_from(length).map(Value::Int).map_err(|_| Halt::because("the size is out of range"))
}

fn is_zero(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Optional(None) | Value::Bool(false) | Value::Int(0) | Value::Uint(0) => true,
        Value::Double(double) => *double == 0.0,
        Value::Text(text) => text.is_empty(),
        Value::List(list) => list.len() == 0,
        Value::Map(map) => map.len() == 0,
        _ => false,
    }
}

fn contains_all(all: &List<'_>, some: &List<'_>, steps: &mut Steps) -> Result<bool, Halt> {
    let all = Value::List(all.clone());
    for item in some.iter() {
        if !is_in(&item, &all, steps)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a field or element as an optional value. The operand may be optional, too.
pub(super) fn optional<'v>(of: &Value<'v>, get: &mut dyn FnMut(&Value<'v>) -> Answer<'v>) -> Answer<'v> {
    let of = match of {
        Value::Optional(None) => return Ok(Value::Optional(None)),
        Value::Optional(Some(of)) => Rc::clone(of),
        of => Rc::new(of.clone()),
    };
    match get(&of) {
        Ok(value) => Ok(Value::some(value)),
        Err(Halt::Exhausted) => Err(Halt::Exhausted),
        Err(Halt::Because(_)) if matches!(*of, Value::Map(_) | Value::List(_)) => Ok(Value::Optional(None)),
        Err(because) => Err(because),
    }
}
