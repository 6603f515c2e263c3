//! Parses and compares quantities such as `500m`, `1Gi` and `1e3` exactly.
//!
//! The rules are those of the API's `resource.Quantity`. Sums are not supported.

/// The message of the API server for an invalid quantity.
pub(super) const RULE: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMG]*[-+]?[0-9]*)$'";

/// Maximum length of a quantity.
const LONGEST: usize = 64;

/// A quantity in billionths, limited to the range of `i128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quantity(i128);

impl Quantity {
    /// Parses a quantity.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let (negative, rest) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || whole.len() + fraction.len() == 0 {
            return None;
        }
        let (factor, exponent) = unit(suffix)?;
        let exponent = exponent.saturating_add(9).saturating_sub(i32::try_from(fraction.len()).ok()?);
        let size = scaled(&format!("{whole}{fraction}"), factor, exponent);
        Some(Self(if negative { -size } else { size }))
    }

    /// Whether the quantity is zero.
    pub(super) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Whether the quantity is negative.
    pub(super) fn is_negative(self) -> bool {
        self.0 < 0
    }
}

/// Returns the binary factor and the decimal exponent of a suffix.
fn unit(suffix: &str) -> Option<(i128, i32)> {
    let plain = |exponent| Some((1, exponent));
    match suffix {
        "" => plain(0),
        "n" => plain(-9),
        "u" => plain(-6),
        "m" => plain(-3),
        "k" => plain(3),
        "M" => plain(6),
        "G" => plain(9),
        "T" => plain(12),
        "P" => plain(15),
        "E" => plain(18),
        "Ki" => Some((1 << 10, 0)),
        "Mi" => Some((1 << 20, 0)),
        "Gi" => Some((1 << 30, 0)),
        "Ti" => Some((1 << 40, 0)),
        "Pi" => Some((1 << 50, 0)),
        "Ei" => Some((1 << 60, 0)),
        _ => {
            let digits = suffix.strip_prefix(['e', 'E'])?;
            let bare = digits.strip_prefix(['-', '+']).unwrap_or(digits);
            if bare.is_empty() || !bare.bytes().all(|b| b.is_ascii_digit()) || bare.len() > 4 {
                return None;
            }
            plain(digits.parse().ok()?)
        }
    }
}

/// Returns `digits * factor * 10^exponent`, rounded up like the API does, and limited to the range of `i128`.
fn scaled(digits: &str, factor: i128, exponent: i32) -> i128 {
    let Ok(mut number) = digits
        .trim_start_matches('0')
        .parse::<i128>()
        .or_else(|_| if digits.bytes().all(|b| b == b'0') { Ok(0) } else { Err(()) })
    else {
        return i128::MAX;
    };
    number = number.saturating_mul(factor);
    let mut left = exponent;
    while left > 0 && number != 0 && number != i128::MAX {
        number = number.saturating_mul(10);
        left -= 1;
    }
    while left < 0 && number > 1 {
        number = number / 10 + i128::from(number % 10 != 0);
        left += 1;
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    const NANO: i128 = 1_000_000_000;

    fn nano(text: &str) -> Option<i128> {
        Quantity::parse(text).map(|q| q.0)
    }

    #[test]
    fn reads_every_notation_of_the_api() {
        for (text, expected) in [
            ("0", 0),
            ("1", NANO),
            ("+1", NANO),
            ("-1", -NANO),
            ("1.5", 1_500_000_000),
            (".5", 500_000_000),
            ("5.", 5 * NANO),
            ("500m", 500_000_000),
            ("1n", 1),
            ("0.1n", 1),
            ("1u", 1000),
            ("1k", 1000 * NANO),
            ("1Ki", 1024 * NANO),
            ("1.5Gi", 1_610_612_736 * NANO),
            ("1e3", 1000 * NANO),
            ("1E3", 1000 * NANO),
            ("1E", 1_000_000_000_000_000_000 * NANO),
            ("1e-3", 1_000_000),
            ("0e999", 0),
            ("00010m", 10_000_000),
        ] {
            assert_eq!(nano(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn refuses_what_the_api_refuses() {
        for text in ["", ".", "-", "m", "1.2.3", "1 ", " 1", "1mi", "1KI", "1e", "1ee3", "0x10", "½", "1e1.5", "NaN"] {
            assert_eq!(nano(text), None, "{text}");
        }
        assert_eq!(nano(&"1".repeat(65)), None);
    }

    #[test]
    fn compares_across_notations_and_beyond_all_bounds() {
        let q = |text| Quantity::parse(text).unwrap();
        assert!(q("1Gi") > q("1G") && q("1000m") == q("1") && q("1024Mi") == q("1Gi"));
        assert!(q("9e9999") >= q("9Ei") && q("1e-9999") > q("0") && q("-1") < q("0"));
        assert!(q(&"9".repeat(64)) > q("1E"));
    }
}
