//! The JSONPath subset of printer columns: `.spec.size`, `.metadata.labels.a\.b`, `['x']`, `[0]`, `[*]`,
//! `[?(@.type=="Ready")]`.
//!
//! Not here: recursive descent, slices and ranges. A column with them stays empty.

use serde_json::Value;

/// Returns the values at `path` in `object`, in order.
pub(super) fn find<'a>(object: &'a Value, path: &str) -> Vec<&'a Value> {
    let mut found = vec![object];
    let mut rest = path.trim().trim_start_matches('{').trim_end_matches('}').trim_start_matches('$');
    while !rest.is_empty() {
        let Some((step, after)) = next(rest) else { return Vec::new() };
        found = found.into_iter().flat_map(|value| take(value, &step)).collect();
        rest = after;
    }
    found
}

/// One step of a path.
enum Step<'a> {
    Field(String),
    Index(usize),
    All,
    Where(Vec<String>, &'a str),
}

fn next(rest: &str) -> Option<(Step<'_>, &str)> {
    if let Some(inner) = rest.strip_prefix('[') {
        if let Some(filter) = inner.strip_prefix("?(@") {
            let (path, after) = filter.split_once("==")?;
            let (value, after) = after.split_once(")]")?;
            let fields = path.trim().split('.').filter(|f| !f.is_empty()).map(str::to_owned).collect();
            return Some((Step::Where(fields, value.trim().trim_matches(['"', '\''])), after));
        }
        let (text, after) = inner.split_once(']')?;
        let step = match text.trim() {
            "*" => Step::All,
            quoted if quoted.starts_with(['\'', '"']) => {
                Step::Field(quoted.trim_matches(['"', '\'']).replace("\\.", "."))
            }
            number => Step::Index(number.parse().ok()?),
        };
        return Some((step, after));
    }
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    if rest.starts_with('[') {
        return next(rest);
    }
    let (mut name, mut escaped, mut end) = (String::new(), false, rest.len());
    for (place, c) in rest.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => {
                end = place;
                break;
            }
            c => {
                name.push(c);
                escaped = false;
            }
        }
    }
    let step = match name.as_str() {
        "" => return None,
        "*" => Step::All,
        _ => Step::Field(name),
    };
    Some((step, &rest[end..]))
}

fn take<'a>(value: &'a Value, step: &Step<'_>) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => value.get(*index).into_iter().collect(),
        Step::All => match value {
            Value::Array(list) => list.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        },
        Step::Where(fields, wanted) => {
            let fits = |item: &&Value| {
                let found = fields.iter().fold(*item, |value, field| &value[field.as_str()]);
                super::text::scalar(found) == *wanted
            };
            value.as_array().into_iter().flatten().filter(fits).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds_what_printer_columns_ask_for() {
        let object = json!({
            "spec": {"size": 3, "list": [{"n": "a"}, {"n": "b"}]},
            "metadata": {"labels": {"a.b/c": "x"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
        });
        for (path, expected) in [
            (".spec.size", json!([3])),
            (".spec.list[1].n", json!(["b"])),
            (".spec.list[*].n", json!(["a", "b"])),
            (".metadata.labels.a\\.b/c", json!(["x"])),
            (".metadata.labels['a\\.b/c']", json!(["x"])),
            (".status.conditions[?(@.type==\"Ready\")].status", json!(["True"])),
            (".status.conditions[?(@.type=='Other')].status", json!(["False"])),
            (".spec.none.deeper", json!([])),
            ("", json!([object.clone()])),
            (".spec[", json!([])),
        ] {
            assert_eq!(json!(find(&object, path)), expected, "{path}");
        }
    }
}
