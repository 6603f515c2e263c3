//! Values: borrowed from the object, or built by an expression.

use std::ops::Deref;
use std::rc::Rc;

use serde_json::Value as Json;

/// A value. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) enum Value<'v> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Text<'v>),
    List(List<'v>),
    Map(Map<'v>),
    Optional(Option<Rc<Value<'v>>>),
}

#[derive(Clone, Debug)]
pub(super) enum Text<'v> {
    Given(&'v str),
    Made(Rc<str>),
}

#[derive(Clone, Debug)]
pub(super) enum List<'v> {
    Given(&'v [Json]),
    Made(Rc<Vec<Value<'v>>>),
}

#[derive(Clone, Debug)]
pub(super) enum Map<'v> {
    Given(&'v serde_json::Map<String, Json>),
    Made(Rc<Vec<(Value<'v>, Value<'v>)>>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Given(text) => text,
            Self::Made(text) => text,
        }
    }
}

impl<'v> Value<'v> {
    /// Returns a value of an object.
    pub(super) fn of(json: &'v Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(bool) => Self::Bool(*bool),
            Json::Number(number) => match number.as_i64() {
                Some(whole) => Self::Int(whole),
                None => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::Text(Text::Given(text)),
            Json::Array(items) => Self::List(List::Given(items)),
            Json::Object(entries) => Self::Map(Map::Given(entries)),
        }
    }

    pub(super) fn text(made: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Made(made.into()))
    }

    pub(super) fn list(made: Vec<Self>) -> Self {
        Self::List(List::Made(Rc::new(made)))
    }

    pub(super) fn some(value: Self) -> Self {
        Self::Optional(Some(Rc::new(value)))
    }

    pub(super) fn optional(value: Option<Self>) -> Self {
        value.map_or(Self::Optional(None), Self::some)
    }

    /// Returns the name of the type for messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Uint(_) => "an unsigned integer",
            Self::Double(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Optional(_) => "an optional value",
        }
    }
}

impl<'v> List<'v> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Given(items) => items.len(),
            Self::Made(items) => items.len(),
        }
    }

    pub(super) fn get(&self, at: usize) -> Option<Value<'v>> {
        match self {
            Self::Given(items) => items.get(at).map(Value::of),
            Self::Made(items) => items.get(at).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Value<'v>> + '_ {
        (0..self.len()).filter_map(|at| self.get(at))
    }
}

impl<'v> Map<'v> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Given(entries) => entries.len(),
            Self::Made(entries) => entries.len(),
        }
    }

    /// Returns the keys as a list.
    pub(super) fn keys(&self) -> Vec<Value<'v>> {
        match self {
            Self::Given(entries) => entries.keys().map(|key| Value::Text(Text::Given(key))).collect(),
            Self::Made(entries) => entries.iter().map(|(key, _)| key.clone()).collect(),
        }
    }

    /// Returns the value of a string key.
    pub(super) fn field(&self, name: &str) -> Option<Value<'v>> {
        match self {
            Self::Given(entries) => entries.get(name).map(Value::of),
            Self::Made(entries) => {
                let is_named = |key: &Value<'_>| matches!(key, Value::Text(text) if **text == *name);
                entries.iter().find(|(key, _)| is_named(key)).map(|(_, value)| value.clone())
            }
        }
    }
}
