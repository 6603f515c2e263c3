//! Checks the field types of a built-in object, with the messages of Go's decoder.

use serde_json::Value;

use super::node::{Scalar, Schema, Shape, View};

/// Checks the type of every field of a built-in object. The error is that of Go's decoder:
/// `json: cannot unmarshal number into Go struct field ConfigMap.data of type string`.
pub fn check_types(schema: &Schema, value: &Value, kind: &str) -> Result<(), String> {
    check(schema.view(), value, &mut Place { owner: kind.to_owned(), path: Vec::new() })
}

/// The position of the decoder: the current struct and the path to it.
struct Place {
    owner: String,
    path: Vec<String>,
}

impl Place {
    fn mismatch(&self, value: &Value, wanted: &str) -> String {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        if self.path.is_empty() {
            return format!("json: cannot unmarshal {found} into Go value of type {wanted}");
        }
        let path = self.path.join(".");
        format!("json: cannot unmarshal {found} into Go struct field {}.{path} of type {wanted}", self.owner)
    }
}

fn check(view: View<'_>, value: &Value, place: &mut Place) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    match &view.node.shape {
        Shape::Any | Shape::Opaque => Ok(()),
        Shape::Scalar(scalar) => check_scalar(*scalar, value, place),
        Shape::Array(array) => {
            let Value::Array(items) = value else { return Err(place.mismatch(value, &go_type(view))) };
            items.iter().try_for_each(|item| check(view.at(array.items), item, place))
        }
        Shape::Object(object) => {
            let Value::Object(map) = value else { return Err(place.mismatch(value, &go_type(view))) };
            let outer = place.owner.clone();
            if let Some(name) = object.name.as_deref().filter(|_| !place.path.is_empty()) {
                name.clone_into(&mut place.owner);
            }
            for (key, child) in map {
                if let Some(id) = object.properties.get(key) {
                    place.path.push(key.clone());
                    check(view.at(*id), child, place)?;
                    place.path.pop();
                } else if let Some(id) = object.additional {
                    check(view.at(id), child, place)?;
                }
            }
            place.owner = outer;
            Ok(())
        }
    }
}

fn check_scalar(scalar: Scalar, value: &Value, place: &Place) -> Result<(), String> {
    let integer = |low: i64, high: i64| value.as_i64().is_some_and(|n| (low..=high).contains(&n));
    match (scalar, value) {
        (Scalar::String | Scalar::IntOrString, Value::String(_))
        | (Scalar::Number | Scalar::Quantity, Value::Number(_))
        | (Scalar::Boolean, Value::Bool(_)) => Ok(()),
        (Scalar::Int32 | Scalar::IntOrString, Value::Number(_)) if integer(i32::MIN.into(), i32::MAX.into()) => Ok(()),
        (Scalar::Int64, Value::Number(_)) if integer(i64::MIN, i64::MAX) => Ok(()),
        (Scalar::Int32 | Scalar::Int64, Value::Number(n)) => {
            let text = place.mismatch(value, scalar_type(scalar));
            Err(text.replacen("unmarshal number", &format!("unmarshal number {n}"), 1))
        }
        (Scalar::Bytes, Value::String(text)) => check_base64(text),
        (Scalar::Time | Scalar::MicroTime, Value::String(text)) => check_time(scalar, text),
        (Scalar::Quantity, Value::String(text)) => check_quantity(text),
        _ => Err(place.mismatch(value, scalar_type(scalar))),
    }
}

fn check_base64(text: &str) -> Result<(), String> {
    use base64::Engine as _;
    match base64::engine::general_purpose::STANDARD.decode(text.replace(['\r', '\n'], "")) {
        Ok(_) => Ok(()),
        Err(base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        Err(_) => Err(format!("illegal base64 data at input byte {}", text.len() / 4 * 4)),
    }
}

fn check_time(scalar: Scalar, text: &str) -> Result<(), String> {
    let layout = if scalar == Scalar::Time { "2006-01-02T15:04:05Z07:00" } else { "2006-01-02T15:04:05.000000Z07:00" };
    let refused = |rest: &str, part: &str| {
        Err(format!("parsing time \"{text}\" as \"{layout}\": cannot parse \"{rest}\" as \"{part}\""))
    };
    if text.parse::<jiff::Timestamp>().is_err() || !text.contains('T') {
        return refused(text, "2006");
    }
    if scalar == Scalar::Time {
        return Ok(());
    }
    let after_seconds = text.get(19..).unwrap_or_default();
    let digits = after_seconds.strip_prefix('.').map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count());
    if digits == 6 { Ok(()) } else { refused(after_seconds, ".000000") }
}

fn check_quantity(text: &str) -> Result<(), String> {
    let refused =
        || "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let suffix = digits.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &digits[..digits.len() - suffix.len()];
    if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
        return Err(refused());
    }
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|e| !e.is_empty() && e.parse::<i32>().is_ok());
    let known = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if exponent || known.contains(&suffix) { Ok(()) } else { Err(refused()) }
}

fn scalar_type(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::String | Scalar::IntOrString | Scalar::Quantity | Scalar::Time | Scalar::MicroTime => "string",
        Scalar::Bytes => "[]uint8",
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Number => "float64",
        Scalar::Boolean => "bool",
    }
}

/// Returns the Go type of a field, as the decoder prints it.
fn go_type(view: View<'_>) -> String {
    match &view.node.shape {
        Shape::Any | Shape::Opaque => "interface {}".into(),
        Shape::Scalar(scalar) => scalar_type(*scalar).into(),
        Shape::Array(array) => format!("[]{}", go_type(view.at(array.items))),
        Shape::Object(object) => match (&object.name, object.additional) {
            (None, Some(id)) => format!("map[string]{}", go_type(view.at(id))),
            (Some(name), _) => format!("v1.{name}"),
            (None, None) => "struct".into(),
        },
    }
}
