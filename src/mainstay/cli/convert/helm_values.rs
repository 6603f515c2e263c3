//! The options of Helm in an Application.

use serde_json::{Map, Value};

use mainstay_manifest::{Limits, read_value};

use super::converted::Converted;
use super::document::Document;
use super::fields::Fields;

const AT: &str = "spec.source.helm";

pub(super) fn convert(made: &mut Converted, fields: &mut Fields, document: &Document) {
    if document.object["spec"]["source"]["helm"].is_null() {
        return;
    }
    let at = |field: &str| format!("{AT}.{field}");
    if let Some(name) = fields.take(&at("releaseName")) {
        made.set("render.helm.releaseName", name, document, &at("releaseName"));
    }
    let (elsewhere, files): (Vec<Value>, Vec<Value>) = fields
        .list(&at("valueFiles"))
        .into_iter()
        .partition(|file| file.as_str().is_some_and(|file| file.contains("://") || file.starts_with('$')));
    if !elsewhere.is_empty() {
        fields.lost(
            &at("valueFiles"),
            "only values files in the repository of the chart are supported: copy the others there",
        );
    }
    if !files.is_empty() {
        made.set("render.helm.valuesFiles", files, document, &at("valueFiles"));
    }
    let mut values = match fields.text(&at("values")).filter(|text| !text.trim().is_empty()) {
        Some(text) => read(&text, fields),
        None => Map::new(),
    };
    let own = fields.map(&at("valuesObject"));
    if !own.is_empty() {
        values = own;
    }
    for parameter in fields.list(&at("parameters")) {
        let (name, value) = (parameter["name"].as_str().unwrap_or_default(), &parameter["value"]);
        let is_text = parameter["forceString"] == true;
        if is_parsed(value) {
            fields.lost(
                &at("parameters"),
                format!("{name} is a list or has a backslash: write it into `render.helm.values`"),
            );
        } else if !set(&mut values, name, typed(value, is_text)) {
            fields.lost(&at("parameters"), format!("{name} is not a path of keys: write it into `render.helm.values`"));
        }
    }
    if !values.is_empty() {
        made.set("render.helm.values", values, document, &at("valuesObject"));
    }
    if fields.flag(&at("skipCrds")) == Some(true) {
        made.set("render.helm.includeCRDs", false, document, &at("skipCrds"));
    }
    fields.drop_lost(&at("fileParameters"), "write the values into a file of `render.helm.valuesFiles`");
    fields.drop_lost(&at("ignoreMissingValueFiles"), "a missing file with values is a problem");
    fields.drop_unneeded(&[&at("version"), &at("passCredentials"), &at("skipTests"), &at("skipSchemaValidation")]);
    fields.differs(AT, "a chart with hooks is refused; to apply it without its hooks, set `render.helm.hooks: Omit`");
}

fn read(text: &str, fields: &mut Fields) -> Map<String, Value> {
    read_value(text, &Limits::new(mainstay_git::thread_time)).unwrap_or_else(|why| {
        fields.lost(&format!("{AT}.values"), format!("it is not valid YAML: {why}"));
        Map::new()
    })
}

/// Returns the value of a parameter as `helm --set` parses it.
fn typed(value: &Value, is_text: bool) -> Value {
    let Some(text) = value.as_str().filter(|_| !is_text) else { return value.clone() };
    let is = |word: &str| text.eq_ignore_ascii_case(word);
    if is("true") || is("false") {
        return is("true").into();
    }
    if is("null") {
        return Value::Null;
    }
    // A commit id or a date with a leading zero is a text.
    let number = text.parse::<i64>().ok().filter(|_| text == "0" || !text.starts_with(['0', '+']));
    number.map_or_else(|| text.into(), Value::from)
}

/// Whether `helm --set` parses a value to something else than its text: a list, or characters after a backslash.
fn is_parsed(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with('{') || text.contains('\\'))
}

/// Sets a value by its dotted path; `\.` is a dot in a key. Returns whether the path consists of keys only.
fn set(values: &mut Map<String, Value>, path: &str, value: Value) -> bool {
    let keys: Vec<String> = path.replace("\\.", "\u{0}").split('.').map(|key| key.replace('\u{0}', ".")).collect();
    if keys.iter().any(|key| key.is_empty() || key.contains(['[', '{'])) {
        return false;
    }
    let Some((last, above)) = keys.split_last() else { return false };
    let mut map = values;
    for key in above {
        let next = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
        if !next.is_object() {
            *next = Value::Object(Map::new());
        }
        let Value::Object(inner) = next else { return false };
        map = inner;
    }
    map.insert(last.clone(), value);
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parameters_are_set_as_helm_sets_them() {
        let mut values = json!({"image": "a", "b": {"c": 1}}).as_object().unwrap().clone();
        for (name, value, is_text) in [
            ("image.tag", "1.2", false),
            ("b.d", "true", false),
            ("b.e", "7", true),
            ("a\\.b/c", "x", false),
            ("n", "7", false),
            ("commit", "0123456", false),
            ("zero", "0", false),
            ("no", "False", false),
            ("nothing", "NULL", false),
        ] {
            assert!(set(&mut values, name, typed(&value.into(), is_text)), "{name}");
        }
        assert!(!set(&mut values, "list[0]", json!(1)) && !set(&mut values, "a..b", json!(1)));
        let expected = json!({"image": {"tag": "1.2"}, "b": {"c": 1, "d": true, "e": "7"}, "a.b/c": "x", "n": 7,
            "commit": "0123456", "zero": 0, "no": false, "nothing": null});
        assert_eq!(Value::Object(values), expected);
        assert!(is_parsed(&json!("{a,b}")) && is_parsed(&json!("a\\,b")) && !is_parsed(&json!("a{b}")));
    }
}
