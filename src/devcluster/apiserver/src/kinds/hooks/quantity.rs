//! Quantities (`500m`, `1Gi`) in canonical form.
//!
//! In a stored resource list (`limits`, `requests`, `capacity`, `hard`, …) quantities are rounded up to thousandths and
//! canonical: `1000m` → `1`, `1024Mi` → `1Gi`, `0.5` → `500m`.
//!
//! Not here: quantities outside resource lists. The API stores those as written.

use serde_json::Value;

use super::fill::Object;

/// A quantity and its suffix format.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantity {
    /// In billionths.
    nanos: i128,
    form: Form,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Binary,
    Decimal,
    Exponent,
}

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// Creates a quantity from an integer.
    pub(crate) fn whole(number: i64) -> Self {
        Self { nanos: i128::from(number) * NANO, form: Form::Decimal }
    }

    /// Parses a quantity; `None` if invalid.
    pub(crate) fn read(value: &Value) -> Option<Self> {
        read(value)
    }

    /// Returns the sum, in the format of this quantity, or in the format of `other` if this quantity is zero.
    pub(crate) fn plus(self, other: Self) -> Self {
        let form = if self.nanos == 0 { other.form } else { self.form };
        Self { nanos: self.nanos.saturating_add(other.nanos), form }
    }

    /// Returns the difference.
    pub(crate) fn minus(self, other: Self) -> Self {
        self.plus(Self { nanos: -other.nanos, form: other.form })
    }

    /// Returns whether this quantity is larger than the other.
    pub(crate) fn exceeds(self, other: Self) -> bool {
        self.nanos > other.nanos
    }

    /// Returns whether the quantity is larger than zero.
    pub(crate) fn is_positive(self) -> bool {
        self.nanos > 0
    }

    /// Returns the larger quantity.
    pub(crate) fn max(self, other: Self) -> Self {
        if other.exceeds(self) { other } else { self }
    }

    /// Returns the canonical text.
    pub(crate) fn text(self) -> String {
        write(self)
    }
}

/// The decoder's message for an invalid quantity.
pub(super) const NONSENSE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

/// Returns the quantity in billionths, for comparisons; `None` if invalid.
pub(super) fn nanos(value: &Value) -> Option<i128> {
    read(value).map(|q| q.nanos)
}

/// Returns whether `value` is a quantity.
pub(super) fn is_quantity(value: &Value) -> bool {
    read(value).is_some()
}

/// Returns the canonical text of a quantity, rounded up to thousandths; `None` if invalid.
pub(crate) fn canonical(value: &Value) -> Option<String> {
    let mut quantity = read(value)?;
    let milli = NANO / 1000;
    quantity.nanos =
        quantity.nanos.div_euclid(milli) * milli + if quantity.nanos.rem_euclid(milli) > 0 { milli } else { 0 };
    Some(write(quantity))
}

/// Normalises every quantity of a resource list. Invalid quantities stay unchanged.
pub(super) fn normalise(list: Option<&mut Object>) {
    let Some(list) = list else { return };
    for value in list.values_mut() {
        if let Some(text) = canonical(value)
            && value.as_str() != Some(&text)
        {
            *value = text.into();
        }
    }
}

fn read(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => parse(text.trim()),
        Value::Number(number) => parse(&number.to_string()),
        _ => None,
    }
}

fn parse(text: &str) -> Option<Quantity> {
    let end = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if (whole.is_empty() && fraction.is_empty()) || !(whole.bytes().chain(fraction.bytes())).all(|b| b.is_ascii_digit())
    {
        return None;
    }
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok().filter(|m| *m < i128::from(i64::MAX))?;
    let scale = i32::try_from(fraction.len()).ok()?;
    let (form, factor, exponent) = match suffix {
        s if s.ends_with('i') => {
            let power = BINARY.iter().position(|b| *b == s)?;
            (Form::Binary, 1024_i128.pow(u32::try_from(power).ok()?), 0)
        }
        s if s.len() > 1 && (s.starts_with('e') || s.starts_with('E')) => {
            (Form::Exponent, 1, s[1..].parse::<i32>().ok()?)
        }
        s => (Form::Decimal, 1, DECIMAL.iter().find(|(d, _)| *d == s)?.1),
    };
    let power = exponent - scale + 9;
    let scaled = mantissa.checked_mul(factor)?;
    let nanos = if power >= 0 {
        scaled.checked_mul(10_i128.checked_pow(u32::try_from(power).ok()?)?)?
    } else {
        let divisor = 10_i128.checked_pow(power.unsigned_abs())?;
        scaled / divisor + i128::from(scaled % divisor > 0)
    };
    Some(Quantity { nanos: if negative { -nanos } else { nanos }, form })
}

fn write(quantity: Quantity) -> String {
    let Quantity { nanos, form } = quantity;
    if nanos == 0 {
        return "0".to_owned();
    }
    let whole = nanos % NANO == 0;
    if form == Form::Binary && whole && (nanos / NANO).abs() >= 1024 {
        let (mut mantissa, mut power) = (nanos / NANO, 0);
        while mantissa % 1024 == 0 && power + 1 < BINARY.len() {
            mantissa /= 1024;
            power += 1;
        }
        return format!("{mantissa}{}", BINARY[power]);
    }
    let (mut mantissa, mut exponent) = (nanos, -9);
    while mantissa % 1000 == 0 && exponent < 18 {
        mantissa /= 1000;
        exponent += 3;
    }
    let suffix = match form {
        Form::Exponent if exponent == 0 => String::new(),
        Form::Exponent => format!("e{exponent}"),
        _ => DECIMAL.iter().find(|(_, e)| *e == exponent).map(|(s, _)| (*s).to_owned()).unwrap_or_default(),
    };
    format!("{mantissa}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_quantities_as_the_api_stores_them() {
        for (text, expected) in [
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("0.5", "500m"),
            ("1.5", "1500m"),
            ("1.5Gi", "1536Mi"),
            ("100000", "100k"),
            ("2000", "2k"),
            ("512", "512"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("100n", "1m"),
            ("0", "0"),
            ("0Mi", "0"),
            ("-1000m", "-1"),
            ("+1", "1"),
            ("128Mi", "128Mi"),
            ("10G", "10G"),
        ] {
            assert_eq!(canonical(&text.into()).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(canonical(&4.into()).as_deref(), Some("4"));
        assert_eq!(canonical(&serde_json::json!(0.25)).as_deref(), Some("250m"));
    }

    #[test]
    fn knows_nonsense() {
        for text in ["", "abc", "1x", "1.2.3", "--1", "1Mii", "e3", "Gi"] {
            assert_eq!(canonical(&text.into()), None, "{text}");
        }
    }
}
