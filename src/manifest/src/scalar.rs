//! Resolves YAML scalars, as values or as keys.
//!
//! Invariant: scalars are resolved as in `kubectl` (YAML 1.1 with Go's numbers), not as in YAML 1.2: `on` is true,
//! `0777` is 511, `1_000` is 1000, `12e34567` is a string. A test compares the table with `kubectl` itself.

use std::borrow::Cow;

use serde_json::{Number, Value};

/// A resolved scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar<'a> {
    Null,
    Bool(bool),
    Int(i64),
    /// An integer that does not fit into `i64`.
    Large(u64),
    Float(f64),
    Text(Cow<'a, str>),
}

/// The reason that a scalar is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Infinite or not a number. JSON does not support such values.
    NotFinite,
    /// The text does not match its tag.
    Tag,
    /// Not a valid JSON key.
    Key,
}

impl Unusable {
    pub(super) fn what(self) -> &'static str {
        match self {
            Self::NotFinite => "infinity and not-a-number cannot be written in a manifest",
            Self::Tag => "the value does not match its tag",
            Self::Key => "a key must be a string, a number or a boolean",
        }
    }
}

/// The part of a scalar that determines its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TypedBy<'t> {
    /// The scalar's text, because the scalar is plain and has no tag.
    Text,
    /// The scalar's quotes.
    Quotes,
    /// The suffix of a `tag:yaml.org,2002:` tag.
    Tag(&'t str),
    /// A tag that YAML does not define.
    ForeignTag,
}

/// Resolves a scalar.
pub(super) fn resolve<'a>(text: Cow<'a, str>, by: TypedBy<'_>) -> Result<Scalar<'a>, Unusable> {
    match by {
        TypedBy::Text => Ok(resolve_plain(text)),
        TypedBy::Tag("binary") => binary(&text),
        TypedBy::Tag(tag @ ("int" | "float" | "bool" | "null")) => match (tag, resolve_plain(text)) {
            ("int", scalar @ (Scalar::Int(_) | Scalar::Large(_)))
            | ("float", scalar @ Scalar::Float(_))
            | ("bool", scalar @ Scalar::Bool(_))
            | ("null", scalar @ Scalar::Null) => Ok(scalar),
            ("float", Scalar::Int(int)) => Ok(Scalar::Float(int as f64)),
            _ => Err(Unusable::Tag),
        },
        TypedBy::Quotes | TypedBy::Tag(_) | TypedBy::ForeignTag => Ok(Scalar::Text(text)),
    }
}

fn binary(text: &str) -> Result<Scalar<'static>, Unusable> {
    use base64::Engine as _;
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = base64::engine::general_purpose::STANDARD.decode(compact).map_err(|_| Unusable::Tag)?;
    String::from_utf8(bytes).map(|text| Scalar::Text(Cow::Owned(text))).map_err(|_| Unusable::Tag)
}

fn resolve_plain(text: Cow<'_, str>) -> Scalar<'_> {
    match &*text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Scalar::Bool(false);
        }
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => return Scalar::Float(f64::NEG_INFINITY),
        ".nan" | ".NaN" | ".NAN" => return Scalar::Float(f64::NAN),
        _ => {}
    }
    // A string longer than any useful float is not parsed as a number. The limit keeps parsing linear.
    if text.len() > 512 || !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Scalar::Text(text);
    }
    let compact: Cow<'_, str> = if text.contains('_') { text.replace('_', "").into() } else { Cow::Borrowed(&*text) };
    // With a leading dot, underscores are allowed only between digits.
    let misplaced = text.starts_with('.') && !underscores_between_digits(&text);
    if !misplaced {
        if let Some(number) = whole(&compact) {
            return number;
        }
        if is_float(&compact)
            && let Ok(float) = compact.parse::<f64>()
            && float.is_finite()
        {
            return Scalar::Float(float);
        }
    }
    Scalar::Text(text)
}

fn underscores_between_digits(text: &str) -> bool {
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_digit);
    bytes.iter().enumerate().filter(|(_, b)| **b == b'_').all(|(at, _)| digit(at.checked_sub(1)) && digit(Some(at + 1)))
}

/// Parses an integer like Go's `ParseInt` with base 0, then `ParseUint`.
fn whole(text: &str) -> Option<Scalar<'static>> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'-' => (Some(b'-'), &text[1..]),
        b'+' => (Some(b'+'), &text[1..]),
        _ => (None, text),
    };
    let (radix, digits) = match rest.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &rest[2..]),
        [b'0', b'o' | b'O', ..] => (8, &rest[2..]),
        [b'0', b'b' | b'B', ..] => (2, &rest[2..]),
        [b'0', _, ..] => (8, &rest[1..]),
        _ => (10, rest),
    };
    if digits.is_empty() || digits.starts_with(['+', '-']) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    match (sign, i64::try_from(magnitude)) {
        (Some(b'-'), Ok(int)) => Some(Scalar::Int(-int)),
        (Some(b'-'), Err(_)) if magnitude == 1 << 63 => Some(Scalar::Int(i64::MIN)),
        (_, Ok(int)) => Some(Scalar::Int(int)),
        (None, Err(_)) => Some(Scalar::Large(magnitude)),
        (Some(_), Err(_)) => None,
    }
}

/// Matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let digits = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let before = digits(text);
    let mut rest = &text[before..];
    if let Some(fraction) = rest.strip_prefix('.') {
        let after = digits(fraction);
        if before + after == 0 {
            return false;
        }
        rest = &fraction[after..];
    } else if before == 0 {
        return false;
    }
    match rest.strip_prefix(['e', 'E']) {
        Some(exponent) => {
            let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            !exponent.is_empty() && digits(exponent) == exponent.len()
        }
        None => rest.is_empty(),
    }
}

impl Scalar<'_> {
    /// Converts the scalar to a value. A whole number that fits into an integer becomes an integer in any notation,
    /// because integer fields of Kubernetes refuse `1000.0`.
    pub(super) fn into_value(self) -> Result<Value, Unusable> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(bool) => Value::Bool(bool),
            Self::Int(int) => Value::Number(int.into()),
            Self::Large(large) => float_value(large as f64)?,
            Self::Float(float) => float_value(float)?,
            Self::Text(text) => Value::String(text.into_owned()),
        })
    }

    /// Converts the scalar to a key.
    pub(super) fn into_key(self) -> Result<String, Unusable> {
        match self {
            Self::Text(text) => Ok(text.into_owned()),
            Self::Bool(bool) => Ok(bool.to_string()),
            Self::Int(int) => Ok(int.to_string()),
            Self::Float(float) => go_general(float).ok_or(Unusable::Key),
            Self::Null | Self::Large(_) => Err(Unusable::Key),
        }
    }
}

fn float_value(float: f64) -> Result<Value, Unusable> {
    // 2^63 itself does not fit.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    #[expect(clippy::cast_possible_truncation, reason = "the float is whole and in range")]
    if float.fract() == 0.0 && (-BEYOND..BEYOND).contains(&float) {
        return Ok(Value::Number((float as i64).into()));
    }
    Number::from_f64(float).map(Value::Number).ok_or(Unusable::NotFinite)
}

/// Formats a float key like Go's `FormatFloat(float, 'g', -1, 32)`.
fn go_general(float: f64) -> Option<String> {
    #[expect(clippy::cast_possible_truncation, reason = "the name of the key has single precision")]
    let float = float as f32;
    if !float.is_finite() {
        return None;
    }
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e')?;
    let exponent: i32 = exponent.parse().ok()?;
    if (-4..6).contains(&exponent) {
        return Some(format!("{float}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    Some(format!("{mantissa}e{sign}{:02}", exponent.abs()))
}
