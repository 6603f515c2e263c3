//! The environment variables of a container, and references to them.
//!
//! As in the kubelet, `envFrom` precedes `env`, `$(NAME)` refers to an earlier variable, `$$` is a dollar sign, and an
//! unknown reference stays. Error messages are the kubelet's.
//!
//! Not here: variables of Services (`enableServiceLinks`), because addresses change more often here.

use std::sync::Arc;

use serde_json::Value;

use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::text;

/// Sources of values.
pub(super) struct ValueSources<'a> {
    pub(super) pod: &'a Value,
    pub(super) address: String,
    pub(super) host: String,
    /// Returns a ConfigMap of the pod's namespace.
    pub(super) config_map: &'a dyn Fn(&str) -> Option<Arc<Value>>,
    /// Returns a Secret of the pod's namespace.
    pub(super) secret: &'a dyn Fn(&str) -> Option<Arc<Value>>,
}

/// One variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
    /// Whether the value contains data of a Secret.
    pub(super) secret: bool,
}

/// Resolves the variables of a container. `Err` is the kubelet's message for a missing object or key.
pub(super) fn resolve(container: &Value, values: &ValueSources<'_>) -> Result<Vec<Variable>, String> {
    let mut found: Vec<Variable> = Vec::new();
    for source in container["envFrom"].as_array().into_iter().flatten() {
        let prefix = text(source, "/prefix");
        for (name, value, secret) in whole(source, values)? {
            set(&mut found, Variable { name: format!("{prefix}{name}"), value, secret });
        }
    }
    for entry in container["env"].as_array().into_iter().flatten() {
        let name = text(entry, "/name").to_owned();
        if let Some(source) = entry.get("valueFrom").filter(|source| source.is_object()) {
            if let Some((value, secret)) = from(source, container, values)? {
                set(&mut found, Variable { name, value, secret });
            }
        } else {
            let (value, secret) = expand_from(text(entry, "/value"), &found);
            set(&mut found, Variable { name, value, secret });
        }
    }
    Ok(found)
}

fn set(found: &mut Vec<Variable>, variable: Variable) {
    found.retain(|known| known.name != variable.name);
    found.push(variable);
}

/// Returns all entries of an `envFrom` source.
fn whole(source: &Value, values: &ValueSources<'_>) -> Result<Vec<(String, String, bool)>, String> {
    let (kind, field) =
        if source["secretRef"].is_object() { ("secret", "secretRef") } else { ("configmap", "configMapRef") };
    let name = text(source, &format!("/{field}/name")).to_owned();
    let secret = kind == "secret";
    let object = if secret { (values.secret)(&name) } else { (values.config_map)(&name) };
    let Some(object) = object else {
        let optional = source[field]["optional"] == true;
        return if optional { Ok(Vec::new()) } else { Err(format!("{kind} \"{name}\" not found")) };
    };
    let data = object["data"].as_object().into_iter().flatten();
    Ok(data.filter_map(|(key, value)| Some((key.clone(), entry(value, secret)?, secret))).collect())
}

/// Returns an entry of a ConfigMap or Secret as text.
fn entry(value: &Value, secret: bool) -> Option<String> {
    use base64::Engine as _;
    let text = value.as_str()?;
    if !secret {
        return Some(text.to_owned());
    }
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Resolves a `valueFrom`, and whether it is secret; `None` if it is optional and missing.
fn from(source: &Value, container: &Value, values: &ValueSources<'_>) -> Result<Option<(String, bool)>, String> {
    if source["fieldRef"].is_object() {
        return Ok(Some((field(text(source, "/fieldRef/fieldPath"), values), false)));
    }
    if source["resourceFieldRef"].is_object() {
        return Ok(Some((resource(&source["resourceFieldRef"], container, values), false)));
    }
    let secret = source["secretKeyRef"].is_object();
    let (kind, shown, reference) = if secret {
        ("secret", "Secret", &source["secretKeyRef"])
    } else {
        ("configmap", "ConfigMap", &source["configMapKeyRef"])
    };
    let (name, key) = (text(reference, "/name"), text(reference, "/key"));
    let optional = reference["optional"] == true;
    let object = if secret { (values.secret)(name) } else { (values.config_map)(name) };
    let Some(object) = object else {
        return if optional { Ok(None) } else { Err(format!("{kind} \"{name}\" not found")) };
    };
    match object["data"].get(key).and_then(|value| entry(value, secret)) {
        Some(value) => Ok(Some((value, secret))),
        None if optional => Ok(None),
        None => {
            let namespace = text(values.pod, "/metadata/namespace");
            Err(format!("couldn't find key {key} in {shown} {namespace}/{name}"))
        }
    }
}

/// Returns a field of the pod.
pub(super) fn field(path: &str, values: &ValueSources<'_>) -> String {
    let pod = values.pod;
    let entry = |list: &str| -> Option<String> {
        let key = path.strip_prefix(&format!("metadata.{list}['"))?.strip_suffix("']")?;
        Some(pod["metadata"][list][key].as_str().unwrap_or_default().to_owned())
    };
    match path {
        "status.podIP" | "status.podIPs" => values.address.clone(),
        "status.hostIP" | "status.hostIPs" => values.host.clone(),
        _ => entry("labels").or_else(|| entry("annotations")).unwrap_or_else(|| {
            let pointer = format!("/{}", path.replace('.', "/"));
            text(pod, &pointer).to_owned()
        }),
    }
}

/// Returns a limit or request in units of the divisor. The default is the node's capacity.
fn resource(reference: &Value, container: &Value, values: &ValueSources<'_>) -> String {
    let (list, name) = text(reference, "/resource").split_once('.').unwrap_or_default();
    let wanted = text(reference, "/containerName");
    let containers = values.pod["spec"]["containers"].as_array().into_iter().flatten();
    let named = containers.into_iter().find(|c| !wanted.is_empty() && c["name"] == wanted).unwrap_or(container);
    let divisor = hooks::quantity(&reference["divisor"]).filter(|divisor| *divisor > 0).unwrap_or(1_000_000_000);
    let given = hooks::quantity(&named["resources"][list][name]);
    let capacity = match (list, name) {
        ("limits", "cpu") => "64",
        ("limits", "memory") => "256Gi",
        ("limits", "ephemeral-storage") => "1Ti",
        _ => "0",
    };
    let amount = given.or_else(|| hooks::quantity(&capacity.into())).unwrap_or(0);
    (amount + divisor - 1).div_euclid(divisor).to_string()
}

/// Replaces references to variables.
pub(super) fn expand(text: &str, variables: &[Variable]) -> String {
    expand_from(text, variables).0
}

/// Like `expand`; also returns whether a secret value was used.
fn expand_from(text: &str, variables: &[Variable]) -> (String, bool) {
    let (mut out, mut secret, mut rest) = (String::with_capacity(text.len()), false, text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match variables.iter().find(|variable| variable.name == name) {
                Some(variable) => {
                    out.push_str(&variable.value);
                    secret |= variable.secret;
                }
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    (out, secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn variables(container: &Value) -> Result<Vec<String>, String> {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app.kubernetes.io/name": "x"}},
            "spec": {"nodeName": "node", "containers": [{"name": "c", "resources": {"limits": {"memory": "64Mi", "cpu": "250m"}}}]},
        });
        let map = Arc::new(json!({"data": {"A": "a", "B": "b"}}));
        let hidden = Arc::new(json!({"data": {"PASSWORD": "cHc="}}));
        let values = ValueSources {
            pod: &pod,
            address: "127.2.0.1".into(),
            host: "127.0.0.1".into(),
            config_map: &|name| (name == "map").then(|| map.clone()),
            secret: &|name| (name == "hidden").then(|| hidden.clone()),
        };
        let found = resolve(container, &values)?;
        Ok(found.iter().map(|v| format!("{}={}{}", v.name, v.value, if v.secret { " secret" } else { "" })).collect())
    }

    fn check(container: Value, expected: Result<&[&str], &str>) {
        let expected = expected.map(|list| list.iter().map(|&s| s.to_owned()).collect()).map_err(str::to_owned);
        assert_eq!(variables(&container), expected);
    }

    #[test]
    fn later_variables_win_and_refer_to_earlier_ones() {
        check(
            json!({
                "envFrom": [{"configMapRef": {"name": "map"}, "prefix": "P_"}, {"secretRef": {"name": "hidden"}}],
                "env": [
                    {"name": "X", "value": "$(P_A)-$(Y)-$$(P_A)-$"}, {"name": "P_A", "value": "own"},
                    {"name": "Y", "value": "$(PASSWORD)"},
                ],
            }),
            Ok(&["P_B=b", "PASSWORD=pw secret", "X=a-$(Y)-$(P_A)-$", "P_A=own", "Y=pw secret"]),
        );
    }

    #[test]
    fn fields_and_resources_come_from_the_pod() {
        let of = |path: &str| json!({"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}});
        for (path, expected) in [
            ("metadata.name", "X=p"),
            ("metadata.labels['app.kubernetes.io/name']", "X=x"),
            ("metadata.annotations['absent']", "X="),
            ("spec.nodeName", "X=node"),
            ("status.podIP", "X=127.2.0.1"),
        ] {
            check(json!({"env": [of(path)]}), Ok(&[expected]));
        }
        let limit = |resource: &str, divisor: &str| {
            let reference = json!({"containerName": "c", "resource": resource, "divisor": divisor});
            json!({"env": [{"name": "X", "valueFrom": {"resourceFieldRef": reference}}]})
        };
        check(limit("limits.memory", "1Mi"), Ok(&["X=64"]));
        check(limit("limits.cpu", "0"), Ok(&["X=1"]));
        check(limit("limits.cpu", "1m"), Ok(&["X=250"]));
    }

    #[test]
    fn missing_references_have_the_words_of_the_kubelet() {
        let of = |source: Value| json!({"env": [{"name": "X", "valueFrom": source}]});
        check(of(json!({"configMapKeyRef": {"name": "no", "key": "k"}})), Err("configmap \"no\" not found"));
        check(of(json!({"secretKeyRef": {"name": "no", "key": "k"}})), Err("secret \"no\" not found"));
        check(
            of(json!({"configMapKeyRef": {"name": "map", "key": "k"}})),
            Err("couldn't find key k in ConfigMap n/map"),
        );
        check(
            of(json!({"secretKeyRef": {"name": "hidden", "key": "k"}})),
            Err("couldn't find key k in Secret n/hidden"),
        );
        check(of(json!({"secretKeyRef": {"name": "no", "key": "k", "optional": true}})), Ok(&[]));
        check(json!({"envFrom": [{"configMapRef": {"name": "no"}}]}), Err("configmap \"no\" not found"));
    }
}
