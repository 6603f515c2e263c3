//! Durations in Kubernetes' notation: `30s`, `1m`, `1h30m`.

use std::{borrow::Cow, fmt, str::FromStr, time::Duration};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time in Go's notation: decimal numbers with the units `ms`, `s`, `m`, `h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// Why a text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotADuration {
    /// A number without a unit.
    #[error("the unit is missing: write {0}s, {0}m or {0}h")]
    NoUnit(String),
    /// Anything else.
    #[error("a duration must have a form such as 30s, 1m or 1h30m")]
    Unreadable,
}

const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
/// Maximum duration, in seconds (ten years). Longer ones would overflow times.
const LONGEST: f64 = 315_360_000.0;
/// Maximum number of digits that a message repeats.
const LONGEST_NUMBER: usize = 9;

impl FromStr for Span {
    type Err = NotADuration;

    fn from_str(text: &str) -> Result<Self, NotADuration> {
        let mut rest = text;
        let mut seconds = 0.0;
        if !text.is_empty() && text.len() <= LONGEST_NUMBER && text.chars().all(|c| c.is_ascii_digit()) {
            return Err(NotADuration::NoUnit(text.to_owned()));
        }
        if rest.is_empty() {
            return Err(NotADuration::Unreadable);
        }
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(NotADuration::Unreadable)?;
            let number: f64 = rest[..digits].parse().map_err(|_| NotADuration::Unreadable)?;
            rest = &rest[digits..];
            let (unit, factor) =
                UNITS.iter().find(|(unit, _)| rest.starts_with(unit)).ok_or(NotADuration::Unreadable)?;
            rest = &rest[unit.len()..];
            seconds += number * factor;
        }
        if seconds > LONGEST {
            return Err(NotADuration::Unreadable);
        }
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| NotADuration::Unreadable)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        if millis == 0 {
            return f.write_str("0s");
        }
        let (hours, minutes, seconds, rest) =
            (millis / 3_600_000, millis / 60_000 % 60, millis / 1000 % 60, millis % 1000);
        for (number, unit) in [(hours, "h"), (minutes, "m"), (seconds, "s"), (rest, "ms")] {
            if number > 0 {
                write!(f, "{number}{unit}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_what_people_write() {
        for (text, millis, again) in [
            ("1m", 60_000, "1m"),
            ("90s", 90_000, "1m30s"),
            ("1h30m", 5_400_000, "1h30m"),
            ("1.5s", 1500, "1s500ms"),
            ("0s", 0, "0s"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!((span.0.as_millis(), span.to_string().as_str()), (millis, again), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_no_duration() {
        for text in ["", "m", "1d", "-1s", "1m ", "1..2s", "99999999999999h"] {
            assert_eq!(text.parse::<Span>(), Err(NotADuration::Unreadable), "{text}");
        }
        let without_unit = "5".parse::<Span>().unwrap_err();
        assert_eq!(without_unit.to_string(), "the unit is missing: write 5s, 5m or 5h");
    }
}
