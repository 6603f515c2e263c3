//! Validates a CustomResourceDefinition: names, versions, and the structure of its schemas.
//!
//! Not here: name conflicts with other definitions, which registration checks.

use serde_json::Value;

use super::{structural, structure};
use crate::status::Cause;

/// Groups of Kubernetes, which need an approval annotation.
const PROTECTED: [&str; 2] = ["k8s.io", "kubernetes.io"];

/// Validates a definition whose defaults are set. A schema that is not structural is not compiled, so its patterns and
/// rules are not validated yet.
pub fn validate_definition(definition: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &definition["spec"];
    let mut causes = Vec::new();
    if old.is_none() {
        named_after_resource(definition, spec, &mut causes);
    }
    names(definition, spec, &mut causes);
    versions(spec, &mut causes);
    if spec["preserveUnknownFields"] == true {
        let why =
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
        causes.push(Cause::invalid("spec.preserveUnknownFields", &true.into(), why));
    }
    match spec["conversion"]["strategy"].as_str() {
        None | Some("None") => {}
        Some("Webhook") if spec["conversion"]["webhook"].is_object() => {}
        Some("Webhook") => {
            let why = "required when strategy is set to Webhook";
            causes.push(Cause::required("spec.conversion.webhook", why));
        }
        Some(other) => {
            causes.push(Cause::not_supported("spec.conversion.strategy", &other.into(), &["None", "Webhook"]));
        }
    }
    if let Some(old) = old {
        immutable(spec, old, &mut causes);
    }
    causes
}

/// Validates the immutable fields: group and plural always, scope and kind once established.
fn immutable(spec: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let conditions = old["status"]["conditions"].as_array().into_iter().flatten();
    let established = conditions.into_iter().any(|c| c["type"] == "Established" && c["status"] == "True");
    let fields: &[&str] =
        if established { &["scope", "names/kind", "group", "names/plural"] } else { &["group", "names/plural"] };
    for field in fields {
        let (new, old) = (spec.pointer(&format!("/{field}")), old["spec"].pointer(&format!("/{field}")));
        if new != old {
            let at = format!("spec.{}", field.replace('/', "."));
            causes.push(Cause::invalid(at, new.unwrap_or(&Value::Null), "field is immutable"));
        }
    }
}

fn named_after_resource(definition: &Value, spec: &Value, causes: &mut Vec<Cause>) {
    let name = text(&definition["metadata"], "name");
    if name != format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group")) {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(Cause::invalid("metadata.name", &name.into(), why));
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn names(definition: &Value, spec: &Value, causes: &mut Vec<Cause>) {
    let (group, names) = (text(spec, "group"), &spec["names"]);
    let approved = !text(&definition["metadata"]["annotations"], "api-approved.kubernetes.io").is_empty();
    let protected = PROTECTED.iter().any(|p| group == *p || group.ends_with(&format!(".{p}")));
    if protected && !approved {
        let why = "protected groups must have approval annotation \"api-approved.kubernetes.io\", \
                   see https://github.com/kubernetes/enhancements/pull/1111";
        causes.push(Cause::required("metadata.annotations[api-approved.kubernetes.io]", why));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        causes.push(Cause::invalid("spec.group", &group.into(), "should be a domain with at least one dot"));
    } else if !group.split('.').all(is_label) {
        causes.push(Cause::invalid("spec.group", &group.into(), SUBDOMAIN));
    }
    match text(spec, "scope") {
        "Cluster" | "Namespaced" => {}
        "" => causes.push(Cause::required("spec.scope", "")),
        other => causes.push(Cause::not_supported("spec.scope", &other.into(), &["Cluster", "Namespaced"])),
    }
    for field in ["plural", "singular", "kind", "listKind"] {
        let value = text(names, field);
        let at = format!("spec.names.{field}");
        if value.is_empty() {
            causes.push(Cause::required(at, ""));
        } else if !value.is_empty() && !is_word(&value.to_lowercase()) {
            causes.push(Cause::invalid(at, &value.into(), LABEL));
        }
    }
    if !text(names, "kind").is_empty() && text(names, "kind") == text(names, "listKind") {
        let why = "kind and listKind may not be the same";
        causes.push(Cause::invalid("spec.names.listKind", &names["listKind"], why));
    }
    for (field, values) in [("shortNames", &names["shortNames"]), ("categories", &names["categories"])] {
        for (i, value) in values.as_array().into_iter().flatten().enumerate() {
            if !value.as_str().is_some_and(is_word) {
                causes.push(Cause::invalid(format!("spec.names.{field}[{i}]"), value, LABEL));
            }
        }
    }
}

const LABEL: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
    and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn is_label(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.len() <= 63 && text.starts_with(edge) && text.ends_with(edge) && text.chars().all(|c| edge(c) || c == '-')
}

fn is_word(text: &str) -> bool {
    is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn versions(spec: &Value, causes: &mut Vec<Cause>) {
    let empty = Vec::new();
    let versions = spec["versions"].as_array().unwrap_or(&empty);
    let stored = versions.iter().filter(|v| v["storage"] == true).count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(Cause::invalid("spec.versions", &spec["versions"], why));
    }
    if versions.iter().enumerate().any(|(i, v)| versions[..i].iter().any(|o| o["name"] == v["name"])) {
        causes.push(Cause::invalid("spec.versions", &spec["versions"], "must contain unique version names"));
    }
    let same = versions.windows(2).all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    for (i, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{i}]");
        if !is_word(text(version, "name")) {
            causes.push(Cause::invalid(format!("{path}.name"), &version["name"], LABEL));
        }
        let declared = &version["schema"]["openAPIV3Schema"];
        let own = format!("{path}.schema.openAPIV3Schema");
        match (declared.is_object(), same) {
            (false, _) => causes.push(Cause::required(own, "schemas are required")),
            // A schema shared by all versions counts as the definition's schema.
            (true, true) if i == 0 => schema(declared, "spec.validation.openAPIV3Schema", causes),
            (true, true) => {}
            (true, false) => schema(declared, &own, causes),
        }
        columns(version, &path, causes);
        scale(version, &path, causes);
    }
}

fn schema(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let before = causes.len();
    structure::check(schema, path, causes);
    if causes.len() == before {
        match structural::load(schema, false, path) {
            Err(found) => causes.extend(found),
            Ok(compiled) => structure::check_defaults(&compiled, schema, path, causes),
        }
    }
}

fn columns(version: &Value, path: &str, causes: &mut Vec<Cause>) {
    for (i, column) in version["additionalPrinterColumns"].as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.additionalPrinterColumns[{i}]");
        for field in ["name", "type", "jsonPath"].into_iter().filter(|f| text(column, f).is_empty()) {
            causes.push(Cause::required(format!("{path}.{field}"), ""));
        }
        let types = ["boolean", "date", "integer", "number", "string"];
        if !text(column, "type").is_empty() && !types.contains(&text(column, "type")) {
            let why = format!("must be one of {}", types.join(","));
            causes.push(Cause::invalid(format!("{path}.type"), &column["type"], &why));
        }
    }
}

fn scale(version: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(scale) = version.pointer("/subresources/scale") else { return };
    for (field, root) in [("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")] {
        let at = format!("{path}.subresources.scale.{field}");
        match text(scale, field) {
            "" => causes.push(Cause::required(at, "")),
            value if value.starts_with(root) => {}
            value => {
                let why = format!("should be a json path under {}", root.trim_end_matches('.'));
                causes.push(Cause::invalid(at, &value.into(), &why));
            }
        }
    }
}
