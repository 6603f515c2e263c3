//! The configuration and manifest of an image, from its layers.
//!
//! Invariant: the base's fields are kept, except those that the runtime sets: command, user, working directory. For
//! this reason, documents are handled as JSON values: `ImageConfiguration` of `oci-spec` 0.10 drops unknown fields such
//! as `Shell`.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::{CONFIG, Descriptor, LayerOf, MANIFEST, Platform};
use crate::registry::Digest;
use crate::runtimes::{CODE_DIR, CODE_DIR_ENV, Runtime};

/// The fixed creation time of images.
const NO_TIME: &str = "1970-01-01T00:00:00Z";
/// User and group of containers.
const USER: &str = "1000:1000";

/// Returns the configuration: the base's configuration (`Null` if there is none) with this build's layers on top.
pub(in crate::build) fn configuration(
    base: &Value,
    base_layers: &[LayerOf],
    ours: &[LayerOf],
    runtime: &Runtime,
    platform: &Platform,
) -> Bytes {
    let mut config = base["config"].as_object().cloned().unwrap_or_default();
    for gone in ["Cmd", "Healthcheck", "OnBuild", "ArgsEscaped", "Image"] {
        config.remove(gone);
    }
    let of_base = config.get("Env").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let prefix = format!("{CODE_DIR_ENV}=");
    let mut env: Vec<String> = of_base.filter(|entry| !entry.starts_with(&prefix)).map(str::to_owned).collect();
    env.push(format!("{prefix}{CODE_DIR}"));
    config.insert("Env".to_owned(), json!(env));
    config.insert("User".to_owned(), json!(USER));
    config.insert("WorkingDir".to_owned(), json!(CODE_DIR));
    config.insert("Entrypoint".to_owned(), json!(runtime.entrypoint()));
    let diff_ids: Vec<&Digest> = base_layers.iter().chain(ours).map(|layer| &layer.diff_id).collect();
    let mut document = Map::new();
    document.insert("created".to_owned(), json!(NO_TIME));
    document.insert("architecture".to_owned(), json!(platform.architecture));
    document.insert("os".to_owned(), json!(platform.os));
    for kept in ["variant", "os.version", "os.features"] {
        if let Some(value) = base.get(kept) {
            document.insert(kept.to_owned(), value.clone());
        }
    }
    document.insert("config".to_owned(), Value::Object(config));
    document.insert("rootfs".to_owned(), json!({"type": "layers", "diff_ids": diff_ids}));
    if let Some(history) = history(base, base_layers.len(), ours.len()) {
        document.insert("history".to_owned(), history);
    }
    Bytes::from(Value::Object(document).to_string())
}

/// Returns the base's history with an entry for each layer of this build; `None` if the history does not match the
/// base's layers.
fn history(base: &Value, below: usize, ours: usize) -> Option<Value> {
    let mut lines = base["history"].as_array().cloned().unwrap_or_default();
    if lines.iter().filter(|line| line["empty_layer"] != true).count() != below {
        return None;
    }
    lines.extend(std::iter::repeat_n(json!({"created": NO_TIME, "created_by": "mainstay build"}), ours));
    Some(Value::Array(lines))
}

/// Returns the manifest.
pub(in crate::build) fn manifest(config: &Bytes, layers: &[&LayerOf]) -> Bytes {
    let layers: Vec<&Descriptor> = layers.iter().map(|layer| &layer.descriptor).collect();
    let config = json!({"mediaType": CONFIG, "digest": Digest::of(config), "size": config.len()});
    let document = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
    Bytes::from(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes;

    fn layer(text: &str) -> LayerOf {
        let descriptor = Descriptor {
            media_type: super::super::LAYER.into(),
            digest: Digest::of(text.as_bytes()),
            size: 1,
            annotations: [].into(),
            urls: Vec::new(),
        };
        LayerOf { descriptor, diff_id: Digest::of(text.as_bytes()) }
    }

    #[test]
    fn keeps_the_environment_of_the_base_and_not_its_command() {
        let base = json!({
            "variant": "v8",
            "author": "someone",
            "config": {"Env": ["PATH=/bin", "KUBELESS_INSTALL_VOLUME=/x"], "Cmd": ["node"], "User": "root", "StopSignal": "SIGINT"},
            "history": [{"created_by": "a"}, {"created_by": "b", "empty_layer": true}],
        });
        let platform = "linux/arm64".parse().unwrap();
        let runtime = runtimes::find("nodejs22").unwrap();
        let bytes = configuration(&base, &[layer("a")], &[layer("b")], runtime, &platform);
        let document: Value = serde_json::from_slice(&bytes).unwrap();
        let expected = json!({
            "Env": ["PATH=/bin", "KUBELESS_INSTALL_VOLUME=/kubeless"],
            "User": "1000:1000",
            "WorkingDir": "/kubeless",
            "Entrypoint": ["node", "--max-semi-space-size=2", "/kubeless_rt/server.js"],
            "StopSignal": "SIGINT",
        });
        assert_eq!(document["config"], expected);
        assert_eq!(document["history"].as_array().unwrap().len(), 3);
        assert_eq!(document["rootfs"]["diff_ids"], json!([Digest::of(b"a"), Digest::of(b"b")]));
        assert_eq!((&document["architecture"], &document["variant"]), (&json!("arm64"), &json!("v8")));
        assert_eq!(document.get("author"), None);
    }

    #[test]
    fn no_history_is_better_than_one_that_does_not_fit() {
        let base = json!({"history": [{"created_by": "a"}]});
        let platform = "linux/amd64".parse().unwrap();
        let bytes = configuration(&base, &[], &[layer("b")], runtimes::find("python312").unwrap(), &platform);
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap().get("history"), None);
    }
}
