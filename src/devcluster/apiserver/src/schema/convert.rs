//! Converts untyped values of built-in objects (after a strategic merge patch or an apply) to the types of their
//! fields.
//!
//! Not here: bodies, which are decoded into their types (`types`).

use serde_json::Value;

use super::node::{Scalar, Schema, Shape, View};

/// Converts whole fractions (`1.0`) to integers. The error names the failed conversion:
/// `cannot convert float64 to int32`.
pub fn convert(schema: &Schema, value: &mut Value) -> Result<(), String> {
    convert_at(schema.view(), value)
}

fn convert_at(view: View<'_>, value: &mut Value) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    match &view.node.shape {
        Shape::Any | Shape::Opaque => Ok(()),
        Shape::Scalar(scalar) => convert_scalar(*scalar, value),
        Shape::Array(array) => match value {
            Value::Array(items) => items.iter_mut().try_for_each(|item| convert_at(view.at(array.items), item)),
            other => Err(format!("cannot restore slice from {}", go_kind(other))),
        },
        Shape::Object(object) => {
            let Value::Object(fields) = value else {
                let found = go_kind(value);
                let map = object.name.is_none() && object.additional.is_some();
                return Err(if map {
                    format!("cannot restore map from {found}")
                } else {
                    format!("cannot restore struct from: {found}")
                });
            };
            for (key, child) in fields {
                if let Some(id) = object.properties.get(key).copied().or(object.additional) {
                    convert_at(view.at(id), child)?;
                }
            }
            Ok(())
        }
    }
}

fn convert_scalar(scalar: Scalar, value: &mut Value) -> Result<(), String> {
    let wanted = match scalar {
        Scalar::Int32 => "int32",
        Scalar::Int64 => "int64",
        Scalar::Boolean => "bool",
        Scalar::String => "string",
        // Values of these types parse their own text.
        _ => return Ok(()),
    };
    match (scalar, &*value) {
        (Scalar::Boolean, Value::Bool(_)) | (Scalar::String, Value::String(_)) => Ok(()),
        (Scalar::Int32 | Scalar::Int64, Value::Number(number)) => {
            let Some(whole) = number.as_i64().or_else(|| number.as_f64().and_then(whole)) else {
                return Err(format!("cannot convert float64 to {wanted}"));
            };
            *value = whole.into();
            Ok(())
        }
        _ => Err(format!("unrecognized type: {wanted}")),
    }
}

/// Returns the integer value of a whole fraction, within the range that floats represent exactly.
fn whole(number: f64) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole, and in the range")]
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

/// Returns Go's name for the type of a JSON value.
fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}
