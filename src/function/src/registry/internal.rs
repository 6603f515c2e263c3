//! The in-cluster registry of `mainstay install`: its login, and the Secret with that login for builds and nodes.
//!
//! A Secret in the agent's namespace requests a login by its label (`api::names::GENERATE`). The Secret's annotations
//! contain the addresses. The Secret's data contains `username`, `password` and, with one login per namespace, the key
//! for these logins.
//!
//! Invariant: an existing login or key is kept, because a user may have chosen it. Invariant: no message of a problem
//! contains a password.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::choice::{Problem, text};
use super::docker_config::{Login, docker_config_of};
use super::guard::NAMESPACE_KEY;
use super::{Address, SecretData};
use mainstay_api::names::{
    CONFIG, CREDENTIALS, DEFAULT_REGISTRY_SECRET, PER_NAMESPACE, PULL_ADDRESS, PUSH_ADDRESS, REGISTRY_LOGINS,
};
use mainstay_object::Secret;

const USERNAME: &str = "username";
const PASSWORD: &str = "password";
/// Lengths in characters of the user name and the password, as in Kyma, and of the key for logins of namespaces.
const LENGTHS: [usize; 3] = [20, 40, 43];
/// Number of random bytes for a login and a key.
pub const SEED_BYTES: usize = LENGTHS[0] + LENGTHS[1] + LENGTHS[2];

/// The contents of a Secret that requests a login.
#[derive(Debug, PartialEq, Eq)]
pub struct InternalRegistry {
    /// The address for builds.
    push: Address,
    /// Whether builds use TLS.
    is_tls: bool,
    /// The address for nodes.
    pull: Address,
    login: Option<Login>,
    /// Whether each namespace gets its own login.
    is_per_namespace: bool,
    namespace_key: Option<Secret<String>>,
}

impl InternalRegistry {
    /// Parses the Secret.
    pub fn read(secret: &Value) -> Result<Self, Problem> {
        let data: SecretData = match &secret["data"] {
            Value::Null => BTreeMap::new(),
            data => serde_json::from_value(data.clone()).map_err(|_| Problem {
                what: "its data cannot be read".to_owned(),
                hint: "delete the Secret and install again".to_owned(),
            })?,
        };
        let given = |annotation: &str| secret["metadata"]["annotations"][annotation].as_str().unwrap_or_default();
        let address = |annotation: &str| {
            Address::parse(given(annotation)).map_err(|error| Problem {
                what: format!("its annotation {annotation} is not a registry address: {error}"),
                hint: "it must be HOST:PORT, such as 127.0.0.1:32137".to_owned(),
            })
        };
        let of = |key: &str| text(&data, key).filter(|text| !text.is_empty());
        let login = match (of(USERNAME), of(PASSWORD)) {
            (None, None) => None,
            (Some(username), Some(password)) if !username.contains([':', '\n']) => {
                Some(Login { username: username.to_owned(), password: Secret::new(password.to_owned()) })
            }
            _ => {
                return Err(Problem {
                    what: "it must have both a username without colons and a password, or neither".to_owned(),
                    hint: "store both, or remove both to have the agent make new ones".to_owned(),
                });
            }
        };
        let is_per_namespace = given(REGISTRY_LOGINS) == PER_NAMESPACE;
        let namespace_key = of(NAMESPACE_KEY).map(|key| Secret::new(key.to_owned()));
        let is_tls = given(PUSH_ADDRESS).trim().starts_with("https://");
        let (push, pull) = (address(PUSH_ADDRESS)?, address(PULL_ADDRESS)?);
        Ok(Self { push, is_tls, pull, login, is_per_namespace, namespace_key })
    }

    /// Returns the host names for the registry's certificate, one for builds and one for nodes; `None` with plain HTTP.
    pub fn names(&self) -> Option<Vec<String>> {
        let name = |address: &Address| {
            let host = address.host();
            match host.strip_prefix('[') {
                Some(rest) => rest.split(']').next().unwrap_or_default().to_owned(),
                None => host.rsplit_once(':').map_or(host, |(name, _)| name).to_owned(),
            }
        };
        let mut names = vec![name(&self.push), name(&self.pull)];
        names.dedup();
        self.is_tls.then_some(names)
    }

    /// Returns the `data` that the Secret lacks; empty if the Secret is complete. A missing login or key is derived
    /// from the random `seed`.
    pub fn missing(&self, seed: &Secret<[u8; SEED_BYTES]>) -> BTreeMap<&'static str, ByteString> {
        let (username, rest) = seed.expose().split_at(LENGTHS[0]);
        let (password, key) = rest.split_at(LENGTHS[1]);
        let lacks_key = self.is_per_namespace && self.namespace_key.is_none();
        let made = [
            (USERNAME, username, self.login.is_none()),
            (PASSWORD, password, self.login.is_none()),
            (NAMESPACE_KEY, key, lacks_key),
        ];
        let lacking = made.into_iter().filter(|(.., is_lacking)| *is_lacking);
        lacking.map(|(name, bytes, _)| (name, ByteString(readable(bytes).into_bytes()))).collect()
    }

    /// Returns the Secret `serverless-registry-config-default` with this login and the key for the logins of its
    /// copies. `asking`, the Secret that requests the login, becomes the owner. Returns `None` without a login, or
    /// without a required key. `authorities` are the CA certificates for builds in PEM format; without any, builds use
    /// plain HTTP.
    pub fn default_secret(&self, asking: &Value, authorities: Option<&str>) -> Option<Value> {
        let login = self.login.as_ref()?;
        let key = if self.is_per_namespace { Some(self.namespace_key.as_ref()?) } else { None };
        let (push, pull) = (self.push.to_string(), self.pull.to_string());
        let config = docker_config_of([&*push, &*pull], login);
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let metadata = &asking["metadata"];
        let owner = json!({"apiVersion": "v1", "kind": "Secret", "name": metadata["name"], "uid": metadata["uid"]});
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {
                "name": DEFAULT_REGISTRY_SECRET, "namespace": metadata["namespace"], "labels": {CONFIG: CREDENTIALS},
                "ownerReferences": [owner],
            },
            "data": {
                "username": encoded(&login.username), "password": encoded(login.password.expose()),
                "registryAddress": encoded(&push), "serverAddress": encoded(&pull), "isInternal": encoded("true"),
                ".dockerconfigjson": encoded(&config),
            },
        });
        if let Some(key) = key {
            secret["data"][NAMESPACE_KEY] = encoded(key.expose()).into();
        }
        if let Some(authorities) = authorities {
            secret["data"]["ca.crt"] = encoded(authorities).into();
        }
        Some(secret)
    }
}

/// Encodes random bytes as characters that need no quoting, 6 bits per byte.
fn readable(bytes: &[u8]) -> String {
    const CHARACTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    bytes.iter().map(|byte| char::from(CHARACTERS[usize::from(byte % 64)])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed() -> Secret<[u8; SEED_BYTES]> {
        Secret::new(std::array::from_fn(|at| u8::try_from(at).unwrap()))
    }

    fn asking(data: &[(&str, &str)]) -> Value {
        let data: SecretData =
            data.iter().map(|(key, value)| ((*key).to_owned(), ByteString((*value).into()))).collect();
        let annotations = json!({
            PUSH_ADDRESS: "r.svc:5000", PULL_ADDRESS: "127.0.0.1:32137", REGISTRY_LOGINS: PER_NAMESPACE,
        });
        let metadata = json!({"name": "r", "namespace": "home", "uid": "1", "annotations": annotations});
        json!({"metadata": metadata, "data": data})
    }

    fn given(data: &BTreeMap<&'static str, ByteString>, key: &str) -> String {
        String::from_utf8(data[key].0.clone()).unwrap()
    }

    #[test]
    fn a_login_and_a_key_are_made_once() {
        let made = InternalRegistry::read(&asking(&[])).unwrap().missing(&seed());
        assert_eq!(made.keys().copied().collect::<Vec<_>>(), [NAMESPACE_KEY, PASSWORD, USERNAME]);
        let all: Vec<(&str, String)> = made.keys().map(|key| (*key, given(&made, key))).collect();
        let all: Vec<(&str, &str)> = all.iter().map(|(key, text)| (*key, &**text)).collect();
        let lengths = [USERNAME, PASSWORD, NAMESPACE_KEY].map(|key| given(&made, key).len());
        assert_eq!(lengths, LENGTHS);
        let kept = InternalRegistry::read(&asking(&all)).unwrap();
        assert_eq!(kept.missing(&seed()), BTreeMap::new());
        assert!(InternalRegistry::read(&asking(&[])).unwrap().default_secret(&asking(&[]), None).is_none());
        let secret = kept.default_secret(&asking(&all), None).unwrap();
        let data: SecretData = serde_json::from_value(secret["data"].clone()).unwrap();
        let chosen = crate::registry::choose(None, Some(&data)).unwrap();
        assert_eq!((chosen.push.to_string(), chosen.pull.to_string()), ("r.svc:5000".into(), "127.0.0.1:32137".into()));
        assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "1");
        assert_ne!(secret["data"][NAMESPACE_KEY], Value::Null);
    }

    #[test]
    fn a_login_that_somebody_chose_is_kept_and_gets_a_key() {
        let chosen = [("username", "me"), ("password", "mine")];
        let registry = InternalRegistry::read(&asking(&chosen)).unwrap();
        assert_eq!(registry.missing(&seed()).keys().copied().collect::<Vec<_>>(), [NAMESPACE_KEY]);
        assert!(registry.default_secret(&asking(&chosen), None).is_none(), "copies wait for the key");
        let mut of_old = asking(&chosen);
        of_old["metadata"]["annotations"][REGISTRY_LOGINS] = Value::Null;
        let registry = InternalRegistry::read(&of_old).unwrap();
        assert_eq!(registry.missing(&seed()), BTreeMap::new());
        assert_eq!(registry.default_secret(&of_old, None).unwrap()["data"][NAMESPACE_KEY], Value::Null);
    }

    #[test]
    fn errors_are_reported_without_the_password() {
        let problem = |secret: &Value| InternalRegistry::read(secret).unwrap_err().to_string();
        let half = problem(&asking(&[("password", "hunter2")]));
        assert!(half.contains("store both") && !half.contains("hunter2"), "{half}");
        assert!(problem(&asking(&[("username", "a:b"), ("password", "hunter2")])).contains("without colons"));
        let mut nowhere = asking(&[]);
        nowhere["metadata"]["annotations"] = json!({PUSH_ADDRESS: "r.svc:5000"});
        assert!(problem(&nowhere).contains(PULL_ADDRESS), "{}", problem(&nowhere));
    }
}
