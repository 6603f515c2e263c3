//! Amounts of CPU, memory and other resources as written: `500m`, `1Gi`, or a bare number.
//!
//! Invariant: any string is accepted here and validated where it is used. So a wrong value is reported as an invalid
//! field, and the rest of the resource can still be read.

use std::collections::BTreeMap;
use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// An amount as text. Bare numbers in YAML (`cpu: 1`, `cpu: 0.5`) are read as their text.
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

    /// The schema has no type, because "integer or string" would reject `cpu: 0.5`, which pods accept. Maps and lists
    /// must be empty, so the field cannot contain nested values.
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "x-kubernetes-preserve-unknown-fields": true, "maxProperties": 0, "maxItems": 0 })
    }
}

/// Amounts by resource, ordered by name. A sorted list uses little memory for few entries; each Function has four.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Amount>", into = "BTreeMap<String, Amount>")]
pub struct Amounts(Vec<(String, Amount)>);

impl Amounts {
    /// Returns the amount of a resource.
    pub fn get(&self, name: &str) -> Option<&Amount> {
        let at = self.find(name).ok()?;
        self.0.get(at).map(|(_, amount)| amount)
    }

    /// Returns all amounts by resource.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Amount)> {
        self.0.iter().map(|(name, amount)| (&**name, amount))
    }

    /// Returns whether there are no amounts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the amount of a resource.
    pub fn insert(&mut self, name: &str, amount: Amount) {
        match self.find(name) {
            Ok(at) => self.0[at].1 = amount,
            Err(at) => self.0.insert(at, (name.to_owned(), amount)),
        }
    }

    /// Removes and returns the amount of a resource.
    pub fn remove(&mut self, name: &str) -> Option<Amount> {
        self.find(name).ok().map(|at| self.0.remove(at).1)
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(known, _)| known.as_str().cmp(name))
    }
}

impl From<BTreeMap<String, Amount>> for Amounts {
    fn from(map: BTreeMap<String, Amount>) -> Self {
        Self(map.into_iter().collect())
    }
}

impl From<Amounts> for BTreeMap<String, Amount> {
    fn from(amounts: Amounts) -> Self {
        amounts.0.into_iter().collect()
    }
}

impl JsonSchema for Amounts {
    fn schema_name() -> Cow<'static, str> {
        BTreeMap::<String, Amount>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, Amount>::json_schema(generator)
    }

    fn inline_schema() -> bool {
        BTreeMap::<String, Amount>::inline_schema()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_a_map() {
        let mut amounts: Amounts = serde_json::from_str(r#"{"memory": "1Gi", "cpu": 1, "memory": "2Gi"}"#).unwrap();
        amounts.insert("gpu", "1".into());
        amounts.insert("cpu", "2".into());
        assert_eq!(amounts.remove("absent"), None);
        assert_eq!(serde_json::to_string(&amounts).unwrap(), r#"{"cpu":"2","gpu":"1","memory":"2Gi"}"#);
        assert_eq!((amounts.remove("gpu"), amounts.get("memory")), (Some("1".into()), Some(&"2Gi".into())));
        assert_eq!(amounts.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["cpu", "memory"]);
    }

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
