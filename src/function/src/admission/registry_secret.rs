//! Fills `.dockerconfigjson` of a registry Secret from its other keys.
//!
//! Invariant: only that key is written, and only if its value differs. No message contains a value of the Secret.
//!
//! Not here: the selection of Secrets. The webhook selects by the label `serverless.kyma-project.io/remote-registry`.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::json;

use super::review::Verdict;
use crate::Settings;
use crate::registry::{Login, docker_config};
use mainstay_api::names::{MANAGED_BY, USER};
use mainstay_object::Secret;

/// The needed fields of a Secret.
#[derive(Deserialize)]
pub(super) struct RegistrySecret {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    data: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    deletion_timestamp: Option<String>,
}

const DOCKER_CONFIG: &str = ".dockerconfigjson";

/// Completes a registry Secret.
pub(super) fn secret(secret: &RegistrySecret) -> Verdict {
    if secret.metadata.deletion_timestamp.is_some() {
        return Verdict::Allowed;
    }
    let denied = |text: String| Verdict::Denied { code: 400, text };
    let data = secret.data.clone().unwrap_or_default();
    let mut texts = Vec::new();
    for key in ["username", "password", "serverAddress"] {
        let Some(encoded) = data.get(key) else { return denied(format!("{key} field not found")) };
        let decoded = BASE64_STANDARD.decode(encoded.as_deref().unwrap_or_default()).ok();
        let Some(text) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            return denied(format!("{key} is not text"));
        };
        texts.push(text);
    }
    let [username, password, server] = &texts[..] else { return Verdict::Allowed };
    let login = Login { username: username.clone(), password: Secret::new(password.clone()) };
    let file = BASE64_STANDARD.encode(docker_config(server, &login));
    if data.get(DOCKER_CONFIG).is_some_and(|live| live.as_deref() == Some(&file)) {
        return Verdict::Allowed;
    }
    Verdict::Patched(vec![json!({"op": "add", "path": format!("/data/{DOCKER_CONFIG}"), "value": file})])
}

/// Explains how a new Secret replaces an existing copy of the same name. The cluster is not read, so the warning is
/// given for every new Secret with such a name. If the copy exists, the API server itself refuses the Secret.
pub(super) fn explain_copy(secret: &RegistrySecret, settings: &Settings) -> Verdict {
    let Metadata { name, namespace, .. } = &secret.metadata;
    if !settings.secrets().contains(&&**name) {
        return Verdict::Allowed;
    }
    Verdict::Explained(format!(
        "if the agent has copied a Secret of this name here, take the copy over and apply yours: kubectl label secret {name} -n \
         {namespace} {MANAGED_BY}={USER}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn judge(data: &Value) -> Verdict {
        secret(&serde_json::from_value(json!({"metadata": {"name": "s"}, "data": data})).unwrap())
    }

    #[test]
    fn a_secret_in_the_place_of_a_copy_says_how_to_take_it_over() {
        let explained = |name: &str| {
            let secret = serde_json::from_value(json!({"metadata": {"name": name, "namespace": "shop"}})).unwrap();
            explain_copy(&secret, &Settings::default())
        };
        let Verdict::Explained(text) = explained("serverless-registry-config") else { panic!("not explained") };
        let command =
            "kubectl label secret serverless-registry-config -n shop serverless.kyma-project.io/managed-by=user";
        assert!(text.ends_with(command) && text.len() < 256, "API servers may cut longer ones: {text}");
        assert_eq!(explained("other"), Verdict::Allowed);
    }

    #[test]
    fn fills_in_the_login_for_the_server_address() {
        let mut data =
            json!({"username": "dQ==", "password": "cDpx", "serverAddress": "aHR0cHM6Ly9oLmlv", "x": "eA=="});
        let Verdict::Patched(patch) = judge(&data) else { panic!("not patched") };
        assert_eq!((patch.len(), &patch[0]["path"]), (1, &json!("/data/.dockerconfigjson")));
        let file = BASE64_STANDARD.decode(patch[0]["value"].as_str().unwrap()).unwrap();
        assert_eq!(String::from_utf8(file).unwrap(), r#"{"auths":{"https://h.io":{"auth":"dTpwOnE="}}}"#);
        data[DOCKER_CONFIG] = patch[0]["value"].clone();
        assert_eq!(judge(&data), Verdict::Allowed, "nothing is written twice");
        data[DOCKER_CONFIG] = "e30=".into();
        assert!(matches!(judge(&data), Verdict::Patched(_)), "what a user wrote there is replaced");
    }

    #[test]
    fn says_which_key_is_missing() {
        let text = |data: Value| match judge(&data) {
            Verdict::Denied { code: 400, text } => text,
            other => format!("{other:?}"),
        };
        assert_eq!(text(Value::Null), "username field not found");
        assert_eq!(text(json!({"username": ""})), "password field not found");
        assert_eq!(text(json!({"username": "", "password": ""})), "serverAddress field not found");
        assert_eq!(text(json!({"username": "/w==", "password": "", "serverAddress": ""})), "username is not text");
        let empty = judge(&json!({"username": "", "password": null, "serverAddress": ""}));
        assert!(matches!(empty, Verdict::Patched(_)), "present is enough");
    }
}
