//! Amounts of CPU, memory and other resources as written: `500m`, `1Gi`, or a bare number.
//!
//! Invariant: any text is accepted here and validated where it is used, so that one wrong value is reported as a
//! violation and does not make the whole resource unreadable.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// An amount as text. YAML's bare numbers (`cpu: 1`, `cpu: 0.5`) are taken like their text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Amount(pub String);

impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::String(text) => text,
            other => other.to_string(),
        }))
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    /// No type: a schema can say "integer or string", but that would refuse `cpu: 0.5`, which pods accept. What holds
    /// something is no amount; and nobody can nest more into it than parsers read.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true, "maxProperties": 0, "maxItems": 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_whatever_stands_there() {
        for (json, text) in [
            (r#""500m""#, "500m"),
            ("1", "1"),
            ("0.5", "0.5"),
            ("true", "true"),
            (r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            ("null", "null"),
        ] {
            assert_eq!(serde_json::from_str::<Amount>(json).unwrap(), Amount::from(text), "{json}");
        }
        assert_eq!(serde_json::to_string(&Amount::from("1")).unwrap(), r#""1""#);
    }
}
