//! Chooses the registry of a namespace from its Secrets: the addresses for pushing and pulling.
//!
//! Not here: credentials. The agent does not connect to the registry; builds and nodes use the Secret.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;

use super::Address;
use super::guard::LOGINS;
use mainstay_api::names::{DEFAULT_REGISTRY_SECRET, EXTERNAL_REGISTRY_SECRET, PER_NAMESPACE};

/// The `data` of a Secret.
pub type SecretData = BTreeMap<String, ByteString>;

/// The registry of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    /// Name of the chosen Secret.
    pub secret: &'static str,
    /// The address for builds.
    pub push: Address,
    /// The address for nodes.
    pub pull: Address,
}

/// Why there is no registry, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The problem. It may contain keys, but no values.
    pub what: String,
    /// How to fix it.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.hint)
    }
}

/// Chooses the registry. The user's Secret takes precedence over the default one.
///
/// `external` and `default` are the data of `serverless-registry-config` and `serverless-registry-config-default`;
/// `None` if the Secret does not exist. With `isInternal: "true"`, the default Secret has separate addresses for
/// pushing (`registryAddress` or `pushRegAddr`) and pulling (`serverAddress` or `pullRegAddr`). An invalid Secret is a
/// problem; the other Secret is not used instead.
pub fn choose(external: Option<&SecretData>, default: Option<&SecretData>) -> Result<Registry, Problem> {
    if let Some(data) = external {
        let push = address(EXTERNAL_REGISTRY_SECRET, data, &["registryAddress"])?;
        return Ok(Registry { secret: EXTERNAL_REGISTRY_SECRET, pull: push.clone(), push });
    }
    let Some(data) = default else {
        return Err(Problem {
            what: format!(
                "Docker registry configuration not found, none of configuration secrets ({DEFAULT_REGISTRY_SECRET}, \
                 {EXTERNAL_REGISTRY_SECRET}) found in function namespace"
            ),
            hint: format!(
                "create a Secret {EXTERNAL_REGISTRY_SECRET} with username, password, serverAddress and registryAddress"
            ),
        });
    };
    let push = address(DEFAULT_REGISTRY_SECRET, data, &["registryAddress", "pushRegAddr"])?;
    let pull = if is_internal(data) {
        address(DEFAULT_REGISTRY_SECRET, data, &["serverAddress", "pullRegAddr"])?
    } else {
        push.clone()
    };
    Ok(Registry { secret: DEFAULT_REGISTRY_SECRET, push, pull })
}

/// Whether the registry is inside the cluster and may use plain HTTP.
pub(super) fn is_internal(data: &SecretData) -> bool {
    text(data, "isInternal").is_some_and(|text| text == "true")
}

/// Whether the login is limited to the repositories of the Secret's namespace.
pub(crate) fn is_of_namespace(data: &SecretData) -> bool {
    text(data, LOGINS).is_some_and(|text| text == PER_NAMESPACE)
}

/// Returns a value as a string, without the newline that `echo` adds.
pub(super) fn text<'a>(data: &'a SecretData, key: &str) -> Option<&'a str> {
    data.get(key).and_then(|value| std::str::from_utf8(&value.0).ok()).map(str::trim)
}

fn address(secret: &str, data: &SecretData, keys: &[&str]) -> Result<Address, Problem> {
    let key = keys[0];
    let Some(text) = keys.iter().filter_map(|key| text(data, key)).find(|text| !text.is_empty()) else {
        return Err(Problem {
            what: format!("the Secret {secret} has no {key}"),
            hint: format!("add the key {key}: the registry that images are named after, such as gcr.io/project"),
        });
    };
    Address::parse(text).map_err(|error| Problem {
        what: format!("{key} in the Secret {secret} is not a registry address: {error}"),
        hint: "it must be HOST, HOST:PORT or HOST/PATH, such as gcr.io/project".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(pairs: &[(&str, &str)]) -> SecretData {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
    }

    #[track_caller]
    fn check(external: Option<&[(&str, &str)]>, default: Option<&[(&str, &str)]>, expected: &str) {
        let (external, default) = (external.map(secret), default.map(secret));
        let got = match choose(external.as_ref(), default.as_ref()) {
            Ok(registry) => format!("{} {} {}", registry.secret, registry.push, registry.pull),
            Err(problem) => problem.what,
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn takes_the_users_secret_first() {
        let (mine, theirs) = ([("registryAddress", "mine.io/x")], [("registryAddress", "theirs.io")]);
        check(Some(&mine), Some(&theirs), "serverless-registry-config mine.io/x mine.io/x");
        check(None, Some(&theirs), "serverless-registry-config-default theirs.io theirs.io");
    }

    #[test]
    fn an_internal_registry_is_pulled_from_another_address() {
        let internal =
            [("registryAddress", "r.svc:5000"), ("serverAddress", "registry.example.com"), ("isInternal", "true")];
        check(None, Some(&internal), "serverless-registry-config-default r.svc:5000 registry.example.com");
        let later = [("pushRegAddr", "r.svc:5000"), ("pullRegAddr", "localhost:32137"), ("isInternal", "true\n")];
        check(None, Some(&later), "serverless-registry-config-default r.svc:5000 localhost:32137");
        let external = [("registryAddress", "gcr.io/p"), ("serverAddress", "gcr.io"), ("isInternal", "false")];
        check(None, Some(&external), "serverless-registry-config-default gcr.io/p gcr.io/p");
    }

    #[test]
    fn says_what_is_missing_and_what_to_do() {
        let registry = [("registryAddress", "theirs.io")];
        check(
            Some(&[("username", "u")]),
            Some(&registry),
            "the Secret serverless-registry-config has no registryAddress",
        );
        let half = [("registryAddress", "r.svc:5000"), ("isInternal", "true")];
        check(None, Some(&half), "the Secret serverless-registry-config-default has no serverAddress");
        let neither = choose(None, None).unwrap_err();
        assert!(neither.what.starts_with("Docker registry configuration not found"), "{neither}");
        assert!(neither.hint.contains("registryAddress"), "{neither}");
        let wrong = secret(&[("registryAddress", "https://user:hunter2@h.io")]);
        let problem = choose(Some(&wrong), None).unwrap_err().to_string();
        assert!(problem.contains("HOST:PORT") && !problem.contains("hunter2"), "{problem}");
    }
}
