//! Functions on strings, and conversions.

use super::functions::Function;
use super::steps::{Halt, Steps};
use super::value::{List, Text, Value};

type Answer<'v> = Result<Value<'v>, Halt>;

/// Calls a function on a string or on a list of strings.
pub(super) fn call<'v>(function: Function, arguments: &[Value<'v>], steps: &mut Steps) -> Answer<'v> {
    use Function as F;
    for argument in arguments {
        if let Value::Text(text) = argument {
            steps.spend_text(text.len())?;
        }
    }
    match (function, arguments) {
        (F::Size, [Value::Text(text)]) => position(Some(text.chars().count())),
        (F::Contains, [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.contains(&**part))),
        (F::StartsWith, [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.starts_with(&**part))),
        (F::EndsWith, [Value::Text(text), Value::Text(part)]) => Ok(Value::Bool(text.ends_with(&**part))),
        (F::LowerAscii, [Value::Text(text)]) => Ok(Value::text(text.to_ascii_lowercase())),
        (F::UpperAscii, [Value::Text(text)]) => Ok(Value::text(text.to_ascii_uppercase())),
        (F::Trim, [Value::Text(text)]) => Ok(Value::text(text.trim())),
        (F::IndexOf, [Value::Text(text), Value::Text(part)]) => {
            position(text.find(&**part).map(|at| text[..at].chars().count()))
        }
        (F::LastIndexOf, [Value::Text(text), Value::Text(part)]) => {
            position(text.rfind(&**part).map(|at| text[..at].chars().count()))
        }
        (F::CharAt, [Value::Text(text), Value::Int(at)]) => char_at(text, *at),
        (F::Substring, [Value::Text(text), Value::Int(from)]) => substring(text, *from, None),
        (F::Substring, [Value::Text(text), Value::Int(from), Value::Int(to)]) => substring(text, *from, Some(*to)),
        (F::Split, [Value::Text(text), Value::Text(by)]) => split(text, by, steps),
        (F::Replace, [Value::Text(text), Value::Text(from), Value::Text(to)]) => {
            let count = if from.is_empty() { text.len() + 1 } else { text.matches(&**from).count() };
            steps.spend_text(text.len().saturating_add(count.saturating_mul(to.len())))?;
            Ok(Value::text(text.replace(&**from, to)))
        }
        (F::Join, [Value::List(list)]) => join(list, "", steps),
        (F::Join, [Value::List(list), Value::Text(by)]) => join(list, by, steps),
        _ => {
            let types: Vec<_> = arguments.iter().map(Value::type_name).collect();
            Err(Halt::because(format!("this function does not take {}", types.join(" and "))))
        }
    }
}

fn position<'v>(at: Option<usize>) -> Answer<'v> {
    let at = at.map_or(Ok(-1), i64::try_from);
    at.map(Value::Int).map_err(|_| Halt::because("the position is out of range"))
}

/// Returns the byte offset of a character, or of the end of the text.
fn byte_of(text: &str, character: i64) -> Result<usize, Halt> {
    let beyond = || Halt::because("the position is not in the string");
    let character = usize::try_from(character).map_err(|_| beyond())?;
    let mut bytes = text.char_indices().map(|(at, _)| at).chain(std::iter::once(text.len()));
    bytes.nth(character).ok_or_else(beyond)
}

fn char_at<'v>(text: &Text<'v>, at: i64) -> Answer<'v> {
    let found = text[byte_of(text, at)?..].chars().next();
    Ok(Value::text(found.map(String::from).unwrap_or_default()))
}

fn substring<'v>(text: &Text<'v>, from: i64, to: Option<i64>) -> Answer<'v> {
    let (from, to) = (byte_of(text, from)?, to.map_or(Ok(text.len()), |to| byte_of(text, to))?);
    let part = text.get(from..to).ok_or_else(|| Halt::because("the substring ends before it begins"))?;
    Ok(Value::text(part))
}

fn split<'v>(text: &Text<'v>, by: &str, steps: &mut Steps) -> Answer<'v> {
    if by.is_empty() {
        steps.spend(text.len())?;
        return Ok(Value::list(text.chars().map(|c| Value::text(String::from(c))).collect()));
    }
    steps.spend(text.matches(by).count())?;
    Ok(Value::list(text.split(by).map(Value::text).collect()))
}

fn join<'v>(list: &List<'v>, by: &str, steps: &mut Steps) -> Answer<'v> {
    let mut joined = String::new();
    for (at, item) in list.iter().enumerate() {
        let Value::Text(text) = item else {
            return Err(Halt::because(format!("`join` takes a list of strings, not of {}", item.type_name())));
        };
        steps.spend_text(text.len() + by.len())?;
        if at > 0 {
            joined.push_str(by);
        }
        joined.push_str(&text);
    }
    Ok(Value::text(joined))
}

/// Converts a value to another type.
pub(super) fn convert<'v>(to: Function, value: &Value<'v>, steps: &mut Steps) -> Answer<'v> {
    use Function as F;
    if let Value::Text(text) = value {
        steps.spend_text(text.len())?;
    }
    let converted = match (to, value) {
        (F::Int, Value::Int(_))
        | (F::Uint, Value::Uint(_))
        | (F::Double, Value::Double(_))
        | (F::Text, Value::Text(_))
        | (F::Bool, Value::Bool(_)) => Some(value.clone()),
        (F::Int, Value::Uint(whole)) => i64::try_from(*whole).ok().map(Value::Int),
        (F::Int, Value::Double(double)) => truncated(*double).and_then(|whole| whole.try_into().ok()).map(Value::Int),
        (F::Int, Value::Text(text)) => text.parse().ok().map(Value::Int),
        (F::Uint, Value::Int(whole)) => u64::try_from(*whole).ok().map(Value::Uint),
        (F::Uint, Value::Double(double)) => truncated(*double).and_then(|whole| whole.try_into().ok()).map(Value::Uint),
        (F::Uint, Value::Text(text)) => text.parse().ok().map(Value::Uint),
        (F::Double, Value::Int(whole)) => Some(Value::Double(*whole as f64)),
        (F::Double, Value::Uint(whole)) => Some(Value::Double(*whole as f64)),
        (F::Double, Value::Text(text)) => text.parse().ok().map(Value::Double),
        (F::Text, Value::Int(whole)) => Some(Value::text(whole.to_string())),
        (F::Text, Value::Uint(whole)) => Some(Value::text(whole.to_string())),
        (F::Text, Value::Double(double)) => Some(Value::text(double.to_string())),
        (F::Text, Value::Bool(bool)) => Some(Value::text(bool.to_string())),
        (F::Bool, Value::Text(text)) => match &**text {
            "1" | "t" | "true" | "T" | "TRUE" | "True" => Some(Value::Bool(true)),
            "0" | "f" | "false" | "F" | "FALSE" | "False" => Some(Value::Bool(false)),
            _ => None,
        },
        _ => None,
    };
    let name = match to {
        F::Int => "an integer",
        F::Uint => "an unsigned integer",
        F::Double => "a number",
        F::Text => "a string",
        _ => "a boolean",
    };
    converted.ok_or_else(|| Halt::because(format!("this {} cannot be converted to {name}", short(value))))
}

/// Truncates toward zero; `None` if the number is not finite.
fn truncated(double: f64) -> Option<i128> {
    #[expect(clippy::cast_possible_truncation, reason = "what is after the point is to be left out")]
    let whole = double.trunc() as i128;
    double.is_finite().then_some(whole)
}

/// Returns the name of a type without its article.
fn short<'t>(value: &'t Value<'_>) -> &'t str {
    let name = value.type_name();
    name.split_once(' ').map_or(name, |(_, name)| name)
}
