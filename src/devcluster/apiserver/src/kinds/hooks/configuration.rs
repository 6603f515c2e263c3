//! ConfigMaps, Secrets and ServiceAccounts.
//!
//! Invariant: causes and errors never contain a value of a Secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::fill::{Fill, Object, text};
use crate::status::Cause;

/// Maximum size of an object's data, in bytes.
const DATA_LIMIT: usize = 1024 * 1024;
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const FROZEN: &str = "field is immutable when `immutable` is set";

/// Removes empty maps, which are not stored.
pub(super) fn default_config_map(object: &mut Object) {
    object.drop_zero(&["data", "binaryData"]);
}

/// Sets `type: Opaque` and merges `stringData` into `data`.
pub(super) fn default_secret(object: &mut Object) {
    object.text("type", "Opaque");
    if let Some(Value::Object(plain)) = object.remove("stringData")
        && let Some(data) = object.object("data")
    {
        for (key, value) in plain {
            let text = value.as_str().unwrap_or_default();
            data.insert(key, STANDARD.encode(text).into());
        }
    }
    object.drop_zero(&["data"]);
}

/// Checks base64 values, with the errors of Go's decoder.
pub(super) fn check_base64(object: &Value, fields: &[&str]) -> Result<(), String> {
    let maps = fields.iter().filter_map(|field| object[*field].as_object());
    for text in maps.flat_map(|map| map.values()).filter_map(Value::as_str) {
        let compact: Vec<u8> = text.bytes().filter(|b| !matches!(b, b'\n' | b'\r')).collect();
        if STANDARD.decode(&compact).is_err() {
            let fits = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
            let place = text
                .bytes()
                .position(|b| !fits(&b) && !matches!(b, b'\n' | b'\r'))
                .unwrap_or_else(|| text.len() / 4 * 4);
            return Err(format!("illegal base64 data at input byte {place}"));
        }
    }
    Ok(())
}

pub(super) fn validate_config_map(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let size = keys("data", object, causes) + keys("binaryData", object, causes);
    for key in object["data"].as_object().into_iter().flat_map(|m| m.keys()) {
        if object["binaryData"].get(key).is_some() {
            let why = format!("duplicate of key present in data: {key}");
            causes.push(Cause::invalid(format!("binaryData[{key}]"), &key.as_str().into(), &why));
        }
    }
    if size > DATA_LIMIT {
        causes.push(too_long("[]"));
    }
    frozen(object, old, &["data", "binaryData"], causes);
}

pub(super) fn validate_secret(object: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    if keys("data", object, causes) / 4 * 3 > DATA_LIMIT {
        causes.push(too_long("data"));
    }
    let kind = text(object, &["type"]);
    let has = |key: &str| object["data"].get(key).is_some();
    let wanted: &[&str] = match kind {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => &["username", "password"],
        _ => &[],
    };
    for key in wanted.iter().filter(|key| !has(key)) {
        causes.push(Cause::required(format!("data[{key}]"), ""));
    }
    if let [key] = wanted
        && key.starts_with(".docker")
        && let Some(content) = object["data"].get(*key).and_then(Value::as_str)
        && STANDARD.decode(content).ok().and_then(|b| serde_json::from_slice::<Value>(&b).ok()).is_none()
    {
        let redacted = Value::from("<secret contents redacted>");
        causes.push(Cause::invalid(format!("data[{key}]"), &redacted, "invalid character in JSON"));
    }
    let account = "kubernetes.io/service-account.name";
    if kind == "kubernetes.io/service-account-token" && text(object, &["metadata", "annotations", account]).is_empty() {
        causes.push(Cause::required(format!("metadata.annotations[{account}]"), ""));
    }
    if old.is_some_and(|old| old["type"] != object["type"]) {
        causes.push(Cause::invalid("type", &object["type"], "field is immutable"));
    }
    frozen(object, old, &["data"], causes);
}

fn keys(field: &str, object: &Value, causes: &mut Vec<Cause>) -> usize {
    let mut size = 0;
    for (key, value) in object[field].as_object().into_iter().flatten() {
        let legal = key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        let place = || format!("{field}[{key}]");
        if key.is_empty() || !legal {
            causes.push(Cause::invalid(place(), &key.as_str().into(), KEY));
        } else if key == "." || key == ".." {
            causes.push(Cause::invalid(place(), &key.as_str().into(), &format!("must not be '{key}'")));
        } else if key.len() > 253 {
            causes.push(Cause::invalid(place(), &key.as_str().into(), "must be no more than 253 bytes"));
        }
        size += value.as_str().map_or(0, str::len);
    }
    size
}

fn too_long(field: &str) -> Cause {
    Cause::new("FieldValueTooLong", field, format!("Too long: may not be more than {DATA_LIMIT} bytes"))
}

fn frozen(object: &Value, old: Option<&Value>, fields: &[&str], causes: &mut Vec<Cause>) {
    let Some(old) = old.filter(|old| old["immutable"] == true) else { return };
    if object["immutable"] != true {
        causes.push(Cause::forbidden("immutable", FROZEN));
    }
    for field in fields.iter().filter(|field| old[**field] != object[**field]) {
        causes.push(Cause::forbidden(*field, FROZEN));
    }
}

/// Removes empty lists, which are not stored.
pub(super) fn default_service_account(object: &mut Object) {
    object.drop_zero(&["secrets", "imagePullSecrets"]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keeps_what_is_marked_immutable() {
        let old = json!({"immutable": true, "data": {"a": "b"}});
        let mut causes = Vec::new();
        validate_config_map(&json!({"data": {"a": "c"}}), Some(&old), &mut causes);
        let fields: Vec<&str> = causes.iter().map(|c| c.field.as_str()).collect();
        assert_eq!(fields, ["immutable", "data"]);
        assert_eq!(causes[0].message, "Forbidden: field is immutable when `immutable` is set");
    }

    #[test]
    fn asks_well_known_secrets_for_their_keys() {
        let mut causes = Vec::new();
        validate_secret(&json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "YQ=="}}), None, &mut causes);
        assert_eq!(causes, [Cause::required("data[tls.key]", "")]);
    }

    #[test]
    fn says_where_base64_breaks() {
        let secret = json!({"data": {"a": "not base64!"}});
        assert_eq!(check_base64(&secret, &["data"]), Err("illegal base64 data at input byte 3".into()));
        assert_eq!(check_base64(&json!({"data": {"a": "Yg=="}}), &["data"]), Ok(()));
    }
}
