//! Checks of a configuration beyond the table of its fields.

use std::path::Path;

use serde_json::Value;

use super::shape::Reading;
use mainstay_function::runtimes;
use mainstay_object::syntax::shown;

/// Fields below `source` that apply to only one source type.
const INLINE: [&str; 3] = ["sourcePath", "sourceHandlerName", "depsHandlerName"];
const GIT: [&str; 6] = ["url", "repository", "reference", "baseDir", "credentialsSecretName", "credentialsType"];

/// Checks rules that the table cannot express, and fills in defaults.
pub(super) fn check(value: &mut Value, namespace: Option<&str>, reading: &mut Reading) {
    if value.get("name").is_none() {
        reading.wrong("", "name is missing");
    }
    match (value["namespace"].as_str(), namespace) {
        (None, None) => reading.wrong("", "namespace is missing; write it, or use --namespace"),
        (None, Some(given)) => value["namespace"] = given.into(),
        (Some(own), Some(given)) if own != given => {
            let what = format!("namespace is {}, and --namespace says {}", shown(own), shown(given));
            reading.wrong("namespace", what);
        }
        _ => {}
    }
    if value.get("runtime").is_none() {
        value["runtime"] = runtimes::DEFAULT.into();
    }
    let runtime = value["runtime"].as_str().unwrap_or_default();
    if runtimes::find(runtime).is_none() {
        reading.wrong("runtime", format!("'{}' invalid runtime; {}", shown(runtime), supported()));
    }
    check_source(value, reading);
    for (name, own) in value["labels"].as_object().into_iter().flatten() {
        let other = &value["runtimeLabels"][name];
        if !other.is_null() && other != own {
            reading.wrong("runtimeLabels", format!("labels has a different value for {}", shown(name)));
        }
    }
    check_variables(value, reading);
    check_events(value, reading);
    for (at, rule) in value["apiRules"].as_array().into_iter().flatten().enumerate() {
        let rules = rule["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
        if rules.is_empty() {
            reading.wrong(&format!("apiRules[{at}]"), "rules are missing");
        }
        for (of, rule) in rules.iter().enumerate() {
            if rule["methods"].as_array().is_none_or(Vec::is_empty) {
                reading.wrong(&format!("apiRules[{at}].rules[{of}]"), "methods are missing, such as [\"GET\"]");
            }
        }
    }
}

/// Returns a message with the allowed values of `runtime`.
pub(super) fn supported() -> String {
    let names: Vec<_> = runtimes::all().iter().map(|runtime| runtime.name).collect();
    format!("supported are {}", names.join(", "))
}

fn check_source(value: &mut Value, reading: &mut Reading) {
    if value.get("source").is_none() {
        return reading.wrong("", "source is missing");
    }
    let source = &value["source"];
    let foreign: &[&str] = match source["sourceType"].as_str() {
        None => return reading.wrong("source", "sourceType is missing; it must be inline or git"),
        Some("inline") => &GIT,
        Some("git") => &INLINE,
        Some(other) => {
            let what = format!("unsupported source {}; sourceType must be inline or git", shown(other));
            return reading.wrong("source.sourceType", what);
        }
    };
    let kind = source["sourceType"].as_str().unwrap_or_default();
    for name in foreign.iter().filter(|name| source.get(**name).is_some()) {
        reading.wrong(&format!("source.{name}"), format!("{name} has no meaning with sourceType {kind}"));
    }
    if let Some(runtime) = value["runtime"].as_str().and_then(runtimes::find) {
        let named = |name: &str, default: &'static str| Path::new(source[name].as_str().unwrap_or(default)).to_owned();
        let handler = named("sourceHandlerName", runtime.handler_file());
        let dependencies = named("depsHandlerName", runtime.dependency_file());
        let config = Path::new("config.yaml");
        if handler == dependencies || handler == config || dependencies == config {
            reading.wrong("source", "config.yaml, the handler and the dependency file must be different files");
        }
    }
    if kind == "git" {
        if source.get("url").is_none() && source["repository"].as_str().is_none_or(str::is_empty) {
            reading.wrong("source", "url is missing");
        }
        match source["credentialsType"].as_str() {
            None | Some("basic" | "key") => {}
            Some(other) => {
                let what = format!("credentialsType {} is neither basic nor key", shown(other));
                reading.wrong("source.credentialsType", what);
            }
        }
        if source.get("credentialsType").is_some() && source.get("credentialsSecretName").is_none() {
            reading.wrong("source.credentialsType", "credentialsSecretName is missing");
        }
        if source.get("credentialsSecretName").is_some() && source.get("url").is_none() {
            reading.wrong(
                "source.credentialsSecretName",
                "url is missing; without it, the existing GitRepository keeps its own credentials",
            );
        }
    }
}

fn check_variables(value: &Value, reading: &mut Reading) {
    for (at, variable) in value["env"].as_array().into_iter().flatten().enumerate() {
        let path = format!("env[{at}]");
        if variable.get("name").is_none() {
            reading.wrong(&path, "name is missing");
        }
        let Some(from) = variable.get("valueFrom") else { continue };
        if variable.get("value").is_some() {
            reading.wrong(&path, "it has both value and valueFrom; remove one");
        }
        let references: Vec<_> = from.as_object().into_iter().flatten().collect();
        if references.len() != 1 {
            reading.wrong(&format!("{path}.valueFrom"), "it must have either configMapKeyRef or secretKeyRef");
        }
        for (of, reference) in references {
            for name in ["name", "key"].iter().filter(|name| reference.get(**name).is_none()) {
                reading.wrong(&format!("{path}.valueFrom.{of}"), format!("{name} is missing"));
            }
        }
    }
}

fn check_events(value: &Value, reading: &mut Reading) {
    for (at, trigger) in value["triggers"].as_array().into_iter().flatten().enumerate() {
        for name in ["source", "type"].iter().filter(|name| trigger.get(**name).is_none()) {
            reading.wrong(&format!("triggers[{at}]"), format!("{name} is missing"));
        }
    }
    let schema = value["schemaVersion"].as_str();
    if let Some(other) = schema.filter(|schema| !["v0", "v1"].contains(schema)) {
        reading.wrong("schemaVersion", format!("unexpected schema version {}; it must be v0 or v1", shown(other)));
    }
    let (own, required, foreign): (_, &[&str], &[&str]) = match schema {
        Some("v1") => ("v1", &["source", "types"], &["protocol", "filter"]),
        _ => ("v0", &["filter"], &["typeMatching", "source", "types"]),
    };
    for (at, subscription) in value["subscriptions"].as_array().into_iter().flatten().enumerate() {
        let path = format!("subscriptions[{at}]");
        for name in foreign.iter().filter(|name| subscription.get(**name).is_some()) {
            let other = if own == "v0" { "v1" } else { "v0" };
            let what = format!("{name} is of schemaVersion {other}, and this is {own}");
            reading.wrong(&format!("{path}.{name}"), what);
        }
        for name in required.iter().filter(|name| subscription.get(**name).is_none()) {
            reading.wrong(&path, format!("{name} is missing"));
        }
    }
}
