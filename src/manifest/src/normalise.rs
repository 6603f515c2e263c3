//! Normalises a document, so that all of its fields can be owned and compared with the live object.
//!
//! Secret `stringData` is folded into `data`. Fields that the server sets are removed, and so are empty placeholders of
//! fields that the cluster fills in. If a field cannot be normalised, the error names the field, not its value.
//!
//! Not here: `status`, whose removal needs discovery ([`mainstay_object::strip_status`]).

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Map, Value};

use mainstay_api::names;
use mainstay_object::{Flaw, Step, path_text, split_api_version};

/// As in Kubernetes, padding is required and trailing bits are ignored.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Maximum number of invalid entries that are reported for one map.
const MAX_ENTRIES: usize = 50;

/// Metadata that the server sets.
const SERVER_METADATA: &[&str] = &[
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// Fields with metadata of other objects. Generators leave `creationTimestamp: null` in them.
const TEMPLATES: &[&str] =
    &["/spec/template/metadata", "/spec/jobTemplate/metadata", "/spec/jobTemplate/spec/template/metadata"];

/// Normalises the object in place. Returns the errors.
pub(super) fn normalise(object: &mut Map<String, Value>) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    metadata(object, &mut flaws);
    templates(object);
    match (split_api_version(&api_version).0, &*kind) {
        ("", "Secret") => secret(object, &mut flaws),
        ("", "Service") => service(object),
        ("", "PersistentVolumeClaim") => strip(object.get_mut("spec"), &["volumeName"]),
        ("rbac.authorization.k8s.io", "ClusterRole") => aggregated(object),
        ("apiregistration.k8s.io", "APIService") => strip(object.get_mut("spec"), &["caBundle"]),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            let spec = object.get_mut("spec");
            let config = spec.and_then(|spec| spec.pointer_mut("/conversion/webhook/clientConfig"));
            strip(config, &["caBundle"]);
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            for webhook in items(object.get_mut("webhooks")) {
                strip(webhook.get_mut("clientConfig"), &["caBundle"]);
            }
        }
        _ => {}
    }
    flaws
}

fn items(list: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

fn metadata(object: &mut Map<String, Value>, flaws: &mut Vec<Flaw>) {
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else { return };
    for field in SERVER_METADATA {
        metadata.remove(*field);
    }
    for field in ["namespace", "labels", "annotations", "finalizers", "ownerReferences", "generateName"] {
        if metadata.get(field).is_some_and(|value| value.is_null() || value.as_str() == Some("")) {
            metadata.remove(field);
        }
    }
    // The agent sets the label of the GitSync itself, and reserves the label of inventories.
    if let Some(Value::Object(labels)) = metadata.get_mut("labels") {
        labels.remove(names::SYNC_LABEL);
        if labels.contains_key(names::INVENTORY_LABEL) {
            let hint = Some("remove the label: only the agent's own inventories carry it");
            flaws.push(reserved("labels", names::INVENTORY_LABEL, hint));
        }
    }
    if let Some(Value::Object(annotations)) = metadata.get("annotations") {
        for name in [names::RECONCILE, names::UNTIL] {
            if annotations.contains_key(name) {
                let hint = Some("remove it: a pause is set on the live object, with `mainstay pause`");
                flaws.push(reserved("annotations", name, hint));
            }
        }
        // A value that is not a string is reported by a different check.
        let replace = annotations.get(names::REPLACE).and_then(Value::as_str);
        if replace.is_some_and(|value| ![names::ENABLED, names::DISABLED].contains(&value)) {
            let path = ["metadata", "annotations", names::REPLACE].map(|step| Step::Key(step.into())).to_vec();
            let what = format!("{} is neither enabled nor disabled", path_text(&path));
            let hint = Some("enabled allows the replacement of the object when an immutable field changes");
            flaws.push(Flaw::new(path, what, hint));
        }
    }
}

fn reserved(field: &str, name: &str, hint: Option<&'static str>) -> Flaw {
    let path = vec![Step::Key("metadata".into()), Step::Key(field.into()), Step::Key(name.into())];
    let what = format!("{} does not belong in a repository", path_text(&path));
    Flaw::new(path, what, hint)
}

fn templates(object: &mut Map<String, Value>) {
    let Some(spec) = object.get_mut("spec") else { return };
    for pointer in TEMPLATES {
        let pointer = pointer.strip_prefix("/spec").unwrap_or(pointer);
        strip(spec.pointer_mut(pointer), &["creationTimestamp"]);
    }
    for claim in items(spec.get_mut("volumeClaimTemplates")) {
        strip(claim.get_mut("metadata"), &["creationTimestamp"]);
    }
}

/// Removes fields that contain only a placeholder.
fn strip(map: Option<&mut Value>, fields: &[&str]) {
    let Some(Value::Object(map)) = map else { return };
    for field in fields {
        if map.get(*field).is_some_and(|value| placeholder(field, value)) {
            map.remove(*field);
        }
    }
}

fn placeholder(field: &str, value: &Value) -> bool {
    match value {
        Value::Null => true,
        // Generators write an encoded line break as a placeholder.
        Value::String(text) => text.is_empty() || field == "caBundle" && text == "Cg==",
        Value::Array(items) => items.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Object(_) | Value::Bool(_) => false,
    }
}

fn service(object: &mut Map<String, Value>) {
    let Some(spec) = object.get_mut("spec") else { return };
    strip(Some(spec), &["clusterIP", "clusterIPs", "healthCheckNodePort", "ipFamilies"]);
    for port in items(spec.get_mut("ports")) {
        strip(Some(port), &["nodePort"]);
    }
}

fn aggregated(object: &mut Map<String, Value>) {
    if object.get("aggregationRule").is_some_and(Value::is_object)
        && object.get("rules").is_some_and(|rules| placeholder("rules", rules))
    {
        object.remove("rules");
    }
}

fn secret(object: &mut Map<String, Value>, flaws: &mut Vec<Flaw>) {
    let mut plain = object.remove("stringData").unwrap_or_default();
    check_entries("stringData", &plain, flaws, |_| true);
    if object.get("data").is_some_and(Value::is_null) {
        object.remove("data");
    }
    check_entries("data", object.get("data").unwrap_or(&Value::Null), flaws, |text| {
        BASE64.decode(text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect::<String>()).is_ok()
    });
    let Some(plain) = plain.as_object_mut().filter(|plain| !plain.is_empty()) else { return };
    let Value::Object(data) = object.entry("data").or_insert_with(|| Value::Object(Map::new())) else { return };
    for (key, value) in plain.iter().filter_map(|(key, value)| Some((key, value.as_str()?))) {
        data.insert(key.clone(), Value::String(BASE64.encode(value)));
    }
}

fn check_entries(field: &str, entries: &Value, flaws: &mut Vec<Flaw>, well_formed: fn(&str) -> bool) {
    let entries = match entries {
        Value::Null => return,
        Value::Object(entries) => entries,
        _ => return flaws.push(Flaw::new(vec![Step::Key(field.into())], format!("{field} is not a map"), None)),
    };
    let wrong = entries.iter().filter_map(|(key, value)| match value {
        Value::String(text) if well_formed(text) => None,
        Value::String(_) => Some((key, "is not base64", "write plain text under stringData")),
        _ => Some((key, "is not a string", "put the value in quotes")),
    });
    for (key, wrong, hint) in wrong.take(MAX_ENTRIES) {
        let path = vec![Step::Key(field.into()), Step::Key(key.clone())];
        let what = format!("{} {wrong}", path_text(&path));
        flaws.push(Flaw::new(path, what, Some(hint)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(written: &str, expected: &str) {
        let mut value: Value = serde_yaml::from_str(written).unwrap();
        let flaws = normalise(value.as_object_mut().unwrap());
        let shown = if flaws.is_empty() {
            value.to_string()
        } else {
            flaws.iter().fold(String::new(), |text, flaw| text + &flaw.what + ". ")
        };
        let expected = serde_yaml::from_str::<Value>(expected)
            .ok()
            .filter(Value::is_object)
            .map_or(expected.to_owned(), |value| value.to_string());
        assert_eq!(shown, expected, "{written}");
    }

    #[test]
    fn folds_plain_text_of_secrets_into_data() {
        check(
            "{apiVersion: v1, kind: Secret, data: {a: eA==, b: eQ==}, stringData: {a: hunter2}}",
            "{apiVersion: v1, kind: Secret, data: {a: aHVudGVyMg==, b: eQ==}}",
        );
        check("{apiVersion: v1, kind: Secret, stringData: {}}", "{apiVersion: v1, kind: Secret}");
        check(
            "{apiVersion: x/v1, kind: Secret, stringData: {a: b}}",
            "{apiVersion: x/v1, kind: Secret, stringData: {a: b}}",
        );
    }

    #[test]
    fn names_the_wrong_fields_of_a_secret_and_never_their_values() {
        check(
            "{apiVersion: v1, kind: Secret, data: {a: hunter2, b: 7}, stringData: {c: 8}}",
            "stringData.c is not a string. data.a is not base64. data.b is not a string. ",
        );
        check("{apiVersion: v1, kind: Secret, stringData: [hunter2]}", "stringData is not a map. ");
    }

    #[test]
    fn strips_what_the_server_sets() {
        check(
            "{apiVersion: v1, kind: X, metadata: {name: a, uid: b, resourceVersion: '1', creationTimestamp: null, managedFields: [], namespace: '', annotations: null, labels: {mainstay.dev/sync: a.b}}}",
            "{apiVersion: v1, kind: X, metadata: {name: a, labels: {}}}",
        );
        check(
            "{apiVersion: apps/v1, kind: Deployment, spec: {template: {metadata: {creationTimestamp: null}}}}",
            "{apiVersion: apps/v1, kind: Deployment, spec: {template: {metadata: {}}}}",
        );
    }

    #[test]
    fn strips_empty_placeholders_of_what_the_cluster_fills_and_keeps_what_somebody_meant() {
        check(
            "{apiVersion: v1, kind: Service, spec: {clusterIP: '', clusterIPs: [], ipFamilies: null, healthCheckNodePort: 0, ports: [{port: 1, nodePort: 0}, {port: 2, nodePort: 30000}]}}",
            "{apiVersion: v1, kind: Service, spec: {ports: [{port: 1}, {port: 2, nodePort: 30000}]}}",
        );
        check(
            "{apiVersion: v1, kind: Service, spec: {clusterIP: None}}",
            "{apiVersion: v1, kind: Service, spec: {clusterIP: None}}",
        );
        check(
            "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: [{clientConfig: {caBundle: Cg==}}]}",
            "{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, webhooks: [{clientConfig: {}}]}",
        );
        check(
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, aggregationRule: {}, rules: []}",
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, aggregationRule: {}}",
        );
        check(
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, rules: []}",
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, rules: []}",
        );
    }

    #[test]
    fn refuses_break_glass_and_forged_inventories() {
        check(
            "{apiVersion: v1, kind: X, metadata: {annotations: {mainstay.dev/reconcile: disabled, mainstay.dev/until: x, mainstay.dev/prune: disabled}, labels: {mainstay.dev/inventory: a.b}}}",
            "metadata.labels[\"mainstay.dev/inventory\"] does not belong in a repository. metadata.annotations[\"mainstay.dev/reconcile\"] does not belong in a repository. metadata.annotations[\"mainstay.dev/until\"] does not belong in a repository. ",
        );
    }
}
