//! The values that SOPS reads from unencrypted scalars. The MAC of SOPS covers the values, not their text.
//!
//! Invariant: scalars are resolved as in version 3 of Go's YAML library, not as in `kubectl`: `yes` is a string.

use std::borrow::Cow;

use base64::Engine as _;

/// A scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    /// A null value is neither encrypted nor covered by the MAC.
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    /// A time, in the form that the MAC covers.
    Time(String),
}

impl Scalar {
    /// Returns the bytes that the MAC covers.
    pub(super) fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Null => Cow::Borrowed(b""),
            Self::Bool(true) => Cow::Borrowed(b"True"),
            Self::Bool(false) => Cow::Borrowed(b"False"),
            Self::Int(int) => int.to_string().into_bytes().into(),
            Self::Float(float) => float_text(*float).into_bytes().into(),
            Self::Text(text) | Self::Time(text) => Cow::Borrowed(text.as_bytes()),
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// Returns the name of the type, for messages that expect an encrypted value.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) | Self::Bytes(_) => "a string",
            Self::Time(_) => "a time",
        }
    }
}

/// Formats a float with the fewest digits, without an exponent.
pub(super) fn float_text(float: f64) -> String {
    match float {
        f if f.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        float => format!("{float}"),
    }
}

/// Resolves a YAML scalar; `None` if SOPS does not accept the scalar. `tag` is the suffix of a `tag:yaml.org,2002:`
/// tag.
pub(super) fn resolve(text: &str, is_plain: bool, tag: Option<&str>) -> Option<Scalar> {
    match tag {
        None if !is_plain => Some(Scalar::Text(text.to_owned())),
        Some("binary") => {
            let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            base64::engine::general_purpose::STANDARD.decode(compact).ok().map(Scalar::Bytes)
        }
        Some("float") => match plain(text)? {
            #[expect(clippy::cast_precision_loss, reason = "so it is read by SOPS")]
            Scalar::Int(int) => Some(Scalar::Float(int as f64)),
            float @ Scalar::Float(_) => Some(float),
            _ => None,
        },
        None | Some("int" | "bool" | "null" | "timestamp") => plain(text),
        Some(_) => Some(Scalar::Text(text.to_owned())),
    }
}

fn plain(text: &str) -> Option<Scalar> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Scalar::Null),
        "true" | "True" | "TRUE" => return Some(Scalar::Bool(true)),
        "false" | "False" | "FALSE" => return Some(Scalar::Bool(false)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Some(Scalar::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Some(Scalar::Float(f64::NEG_INFINITY)),
        ".nan" | ".NaN" | ".NAN" => return Some(Scalar::Float(f64::NAN)),
        _ => {}
    }
    let is_numeric = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    if !is_numeric || text.len() > 512 {
        return Some(Scalar::Text(text.to_owned()));
    }
    if text.starts_with('.') {
        let float = is_float(text).then(|| text.parse().ok()).flatten();
        return Some(float.map_or_else(|| Scalar::Text(text.to_owned()), Scalar::Float));
    }
    if let Some(time) = time(text) {
        return Some(Scalar::Time(time));
    }
    let compact = text.replace('_', "");
    match whole(&compact) {
        Some(Ok(int)) => return Some(Scalar::Int(int)),
        // SOPS fails for integers that do not fit into 64 bits with a sign.
        Some(Err(TooLarge)) => return None,
        None => {}
    }
    let float = is_float(&compact).then(|| compact.parse::<f64>().ok().filter(|f| f.is_finite())).flatten();
    Some(float.map_or_else(|| Scalar::Text(text.to_owned()), Scalar::Float))
}

struct TooLarge;

/// Parses an integer like Go's `ParseInt` with base 0, after removing underscores.
fn whole(text: &str) -> Option<Result<i64, TooLarge>> {
    let (is_negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let Ok(magnitude) = i128::from_str_radix(digits, radix) else { return None };
    let signed = if is_negative { -magnitude } else { magnitude };
    match i64::try_from(signed) {
        Ok(int) => Some(Ok(int)),
        Err(_) if !is_negative && u64::try_from(magnitude).is_ok() => Some(Err(TooLarge)),
        Err(_) => None,
    }
}

/// Matches `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    is_number && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

/// Parses a time in one of YAML's forms, and returns the time in RFC 3339; `None` if the string is not a time.
fn time(text: &str) -> Option<String> {
    let is_dated = text.len() > 4 && text.as_bytes()[..4].iter().all(u8::is_ascii_digit) && text.as_bytes()[4] == b'-';
    if !is_dated {
        return None;
    }
    let (date, rest) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some((text.as_bytes()[at], &text[at + 1..]))),
        None => (text, None),
    };
    let number = |text: &str, most: usize| -> Option<u8> {
        let is_number = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?.parse::<i16>().ok()?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let is_day = i8::try_from(month)
        .is_ok_and(|month| i8::try_from(day).is_ok_and(|day| jiff::civil::Date::new(year, month, day).is_ok()));
    if parts.next().is_some() || !is_day {
        return None;
    }
    let date = format!("{year:04}-{month:02}-{day:02}");
    let Some((separator, rest)) = rest else { return Some(format!("{date}T00:00:00Z")) };
    let zone_at = rest.find(['Z', '+', '-']);
    let (clock, zone) = match (separator, zone_at) {
        (b' ', None) => (rest, "Z"),
        (b'T' | b't', Some(at)) => rest.split_at(at),
        _ => return None,
    };
    let zone = if zone == "Z" { "Z".to_owned() } else { offset(zone)? };
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = whole.split(':');
    let (hour, minute, second) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|b| b.is_ascii_digit());
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 || !is_fraction {
        return None;
    }
    let fraction = fraction.trim_end_matches('0');
    let fraction = if fraction.is_empty() { String::new() } else { format!(".{fraction}") };
    Some(format!("{date}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}"))
}

/// Returns `+02:00`, or `Z` for a zero offset.
fn offset(zone: &str) -> Option<String> {
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(hours) || !is_number(minutes) {
        return None;
    }
    Some(if hours == "00" && minutes == "00" { "Z".to_owned() } else { zone.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_over_the_value_and_not_over_the_text() {
        let cases = [
            ("0x1F", "31"),
            ("010", "8"),
            ("0o17", "15"),
            ("1_000", "1000"),
            ("-0b11", "-3"),
            ("1.0", "1"),
            ("1e21", "1000000000000000000000"),
            ("+.inf", "+Inf"),
            (".5", "0.5"),
            ("2024-01-02", "2024-01-02T00:00:00Z"),
            ("2024-1-2T3:04:05.120+02:00", "2024-01-02T03:04:05.12+02:00"),
            ("2024-01-02 03:04:05", "2024-01-02T03:04:05Z"),
            ("2024-13-02", "2024-13-02"),
            ("2024-01-02T03:04:05", "2024-01-02T03:04:05"),
            ("yes", "yes"),
            ("true", "True"),
            ("FALSE", "False"),
            ("~", ""),
            ("0899", "899"),
            ("12e34567", "12e34567"),
            ("-", "-"),
            ("1.2.3", "1.2.3"),
        ];
        for (text, expected) in cases {
            let bytes = plain(text).map(|scalar| String::from_utf8(scalar.bytes().into_owned()).unwrap());
            assert_eq!(bytes.as_deref(), Some(expected), "{text}");
        }
        assert_eq!(plain("18446744073709551615"), None);
        assert_eq!(resolve("5", false, None), Some(Scalar::Text("5".to_owned())));
        assert_eq!(resolve("1", true, Some("float")), Some(Scalar::Float(1.0)));
        assert_eq!(resolve("aGVs bG8=", true, Some("binary")), Some(Scalar::Bytes(b"hello".to_vec())));
    }
}
