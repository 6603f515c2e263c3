//! The path elements of list items: their keys or their values.

use std::fmt::Write as _;

use serde_json::Value;

use super::fields::Element;
use crate::schema::node::List;

/// Returns the path element of a list item. The error describes the item.
pub(crate) fn element(list: &List, item: &Value) -> Result<Element, String> {
    match list {
        List::Map(keys) => by_keys(keys, item),
        List::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
            scalar => Ok(Element::Item(scalar.to_string())),
        },
        List::Atomic => Err("the items of an atomic list have no identity".into()),
    }
}

fn by_keys(keys: &[(String, Option<Value>)], item: &Value) -> Result<Element, String> {
    let Value::Object(fields) = item else {
        let what = if item.is_null() { "a null element" } else { "non-map elements" };
        return Err(format!("associative list with keys may not have {what}"));
    };
    let mut text = String::with_capacity(32);
    for (name, default) in keys {
        let Some(value) = fields.get(name).or(default.as_ref()) else {
            return Err(format!(
                "associative list with keys has an element that omits key field \"{name}\" (and doesn't have default value)"
            ));
        };
        text.push(if text.is_empty() { '{' } else { ',' });
        // Writing to a String cannot fail, and key names need no escaping.
        let _ = write!(text, "\"{name}\":{value}");
    }
    text.push('}');
    Ok(Element::Key(text))
}

/// Returns the items of a list with their elements. Items without an element are skipped.
pub(crate) fn elements<'a>(list: &List, items: &'a [Value]) -> Vec<(Element, &'a Value)> {
    items.iter().filter_map(|item| Some((element(list, item).ok()?, item))).collect()
}
