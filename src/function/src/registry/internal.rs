//! The registry in the cluster that `mainstay install` brings: its login, and the Secret that builds and nodes have it from.
//!
//! A Secret of the agent's namespace asks for a login by its label (`api::names::GENERATE`). It names the addresses in
//! annotations, and holds `username`, `password` and, for the registry's pod, `htpasswd`.
//!
//! Invariant: a login that is there is kept: whoever stored one has chosen it.
//! Invariant: no password is in a problem.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::choice::{Problem, text};
use super::docker_config::{Login, docker_config_of};
use super::{Address, SecretData};
use mainstay_api::names::{CONFIG, CREDENTIALS, DEFAULT_REGISTRY_SECRET, PULL_ADDRESS, PUSH_ADDRESS};
use mainstay_object::Secret;

const USERNAME: &str = "username";
const PASSWORD: &str = "password";
const HTPASSWD: &str = "htpasswd";
/// Characters of a user name and a password, as many as Kyma's have.
const LENGTHS: [usize; 2] = [20, 40];
const SALT_BYTES: usize = 16;
/// Random bytes that a login is made of.
pub const SEED_BYTES: usize = LENGTHS[0] + LENGTHS[1] + SALT_BYTES;
/// Two to the power of so many rounds. Guessing forty random characters takes no more of them, and each request of a node or a
/// build computes them.
const BCRYPT_COST: u32 = 5;

/// What a Secret says that asks for a login.
#[derive(Debug, PartialEq, Eq)]
pub struct InternalRegistry {
    /// The address for builds.
    push: Address,
    /// Whether builds reach it over TLS.
    is_tls: bool,
    /// The address for nodes.
    pull: Address,
    login: Option<Login>,
    htpasswd: Option<String>,
}

impl InternalRegistry {
    /// Reads the Secret that asks.
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
                what: format!("its annotation {annotation} is no registry address: {error}"),
                hint: "it is HOST:PORT, such as 127.0.0.1:32137".to_owned(),
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
                    what: "it has no username and password that belong together".to_owned(),
                    hint: format!("store both, a {USERNAME} without colons, or remove both, and new ones are made"),
                });
            }
        };
        let htpasswd = of(HTPASSWD).map(str::to_owned);
        let is_tls = given(PUSH_ADDRESS).trim().starts_with("https://");
        Ok(Self { push: address(PUSH_ADDRESS)?, is_tls, pull: address(PULL_ADDRESS)?, login, htpasswd })
    }

    /// The names for its certificate, of which builds and nodes use one each; `None` if it is asked for over plain HTTP.
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

    /// The `data` that the Secret lacks for the registry to let its login in; `None` if it lacks nothing. A login that is not
    /// there is made of `seed`, which is random.
    pub fn missing(&self, seed: &Secret<[u8; SEED_BYTES]>) -> Option<BTreeMap<&'static str, ByteString>> {
        let (characters, salt) = seed.expose().split_at(LENGTHS[0] + LENGTHS[1]);
        let (username, password) = characters.split_at(LENGTHS[0]);
        let login = self
            .login
            .clone()
            .unwrap_or_else(|| Login { username: readable(username), password: Secret::new(readable(password)) });
        if self.login.is_some() && self.htpasswd.as_deref().is_some_and(|file| lets_in(file, &login)) {
            return None;
        }
        let salt = <[u8; SALT_BYTES]>::try_from(salt).ok()?;
        let hash = bcrypt::hash_with_salt(login.password.expose(), BCRYPT_COST, salt).ok()?;
        let line = format!("{}:{}\n", login.username, hash.format_for_version(bcrypt::Version::TwoY));
        let mut missing = BTreeMap::from([(HTPASSWD, ByteString(line.into_bytes()))]);
        if self.login.is_none() {
            missing.insert(PASSWORD, ByteString(login.password.expose().clone().into_bytes()));
            missing.insert(USERNAME, ByteString(login.username.into_bytes()));
        }
        Some(missing)
    }

    /// The Secret `serverless-registry-config-default` with this login, which goes when `asking` goes; `None` without a login.
    /// `authorities` are those that builds trust, as PEM; without any, they use plain HTTP.
    pub fn default_secret(&self, asking: &Value, authorities: Option<&str>) -> Option<Value> {
        let login = self.login.as_ref()?;
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
        if let Some(authorities) = authorities {
            secret["data"]["ca.crt"] = encoded(authorities).into();
        }
        Some(secret)
    }
}

/// Whether the file of passwords has this login.
fn lets_in(file: &str, login: &Login) -> bool {
    let mut hashes = file.lines().filter_map(|line| line.split_once(':'));
    hashes.any(|(name, hash)| {
        name == login.username && bcrypt::verify(login.password.expose(), hash.trim()).unwrap_or_default()
    })
}

/// Random bytes as characters that need no quotes anywhere: 6 bits of each.
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
        let annotations = json!({PUSH_ADDRESS: "r.svc:5000", PULL_ADDRESS: "127.0.0.1:32137"});
        let metadata = json!({"name": "r", "namespace": "home", "uid": "1", "annotations": annotations});
        json!({"metadata": metadata, "data": data})
    }

    fn given(data: &BTreeMap<&'static str, ByteString>, key: &str) -> String {
        String::from_utf8(data[key].0.clone()).unwrap()
    }

    #[test]
    fn a_login_is_made_once() {
        let made = InternalRegistry::read(&asking(&[])).unwrap().missing(&seed()).unwrap();
        assert_eq!(made.keys().copied().collect::<Vec<_>>(), [HTPASSWD, PASSWORD, USERNAME]);
        let all: Vec<(&str, String)> = made.keys().map(|key| (*key, given(&made, key))).collect();
        let all: Vec<(&str, &str)> = all.iter().map(|(key, text)| (*key, &**text)).collect();
        assert_eq!((given(&made, USERNAME).len(), given(&made, PASSWORD).len()), (20, 40));
        let kept = InternalRegistry::read(&asking(&all)).unwrap();
        assert_eq!(kept.missing(&seed()), None);
        assert!(InternalRegistry::read(&asking(&[])).unwrap().default_secret(&asking(&[]), None).is_none());
        let secret = kept.default_secret(&asking(&all), None).unwrap();
        let data: SecretData = serde_json::from_value(secret["data"].clone()).unwrap();
        let chosen = crate::registry::choose(None, Some(&data)).unwrap();
        assert_eq!((chosen.push.to_string(), chosen.pull.to_string()), ("r.svc:5000".into(), "127.0.0.1:32137".into()));
        assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "1");
    }

    #[test]
    fn a_login_that_somebody_chose_is_let_in() {
        let registry = InternalRegistry::read(&asking(&[("username", "me"), ("password", "mine")])).unwrap();
        let missing = registry.missing(&seed()).unwrap();
        assert_eq!(missing.len(), 1);
        let file = given(&missing, HTPASSWD);
        assert!(file.starts_with("me:$2y$05$"), "{file}");
        let other = asking(&[("username", "me"), ("password", "another"), ("htpasswd", &file)]);
        assert!(InternalRegistry::read(&other).unwrap().missing(&seed()).is_some(), "the password was changed");
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        let problem = |secret: &Value| InternalRegistry::read(secret).unwrap_err().to_string();
        let half = problem(&asking(&[("password", "hunter2")]));
        assert!(half.contains("store both") && !half.contains("hunter2"), "{half}");
        assert!(problem(&asking(&[("username", "a:b"), ("password", "hunter2")])).contains("without colons"));
        let mut nowhere = asking(&[]);
        nowhere["metadata"]["annotations"] = json!({PUSH_ADDRESS: "r.svc:5000"});
        assert!(problem(&nowhere).contains(PULL_ADDRESS), "{}", problem(&nowhere));
    }
}
