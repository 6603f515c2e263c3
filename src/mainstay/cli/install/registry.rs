//! The registry for Functions' images: an in-cluster registry, or an existing one, with the commands for storing its
//! login.

use std::str::FromStr;

use mainstay_api::names::{CONFIG, CREDENTIALS, EXTERNAL_REGISTRY_SECRET};
use mainstay_function::registry::Address;

/// The value of `--registry`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Registry {
    /// An in-cluster registry, which is part of the installation.
    #[default]
    Internal,
    /// No registry, or one that is already configured.
    None,
    /// The existing registry at this address.
    Existing(Address),
}

impl FromStr for Registry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "internal" => Ok(Self::Internal),
            "none" => Ok(Self::None),
            address if address.contains('@') => {
                Err("credentials belong into a Secret; give the address alone".to_owned())
            }
            address if !address.contains(['.', ':', '/']) => {
                Err("must be `internal`, `none`, or an address such as ghcr.io/team".to_owned())
            }
            address => Address::parse(address).map(Self::Existing).map_err(|error| error.to_string()),
        }
    }
}

/// Logins of known registries: a suffix of the host, the address for the login if it differs from the host, the user
/// name, and the kind of password.
const LOGINS: [(&str, Option<&str>, &str, &str); 6] = [
    ("docker.io", Some("https://index.docker.io/v1/"), "ACCOUNT", "an access token that may write"),
    ("ghcr.io", None, "ACCOUNT", "a personal access token with write:packages"),
    ("gcr.io", None, "_json_key", "the JSON key of a service account with the role Artifact Registry Writer"),
    ("-docker.pkg.dev", None, "_json_key", "the JSON key of a service account with the role Artifact Registry Writer"),
    (
        ".amazonaws.com",
        None,
        "AWS",
        "the output of `aws ecr get-login-password`, valid for twelve hours: a CronJob has to renew it",
    ),
    (".azurecr.io", None, "CLIENT_ID", "the secret of a service principal with the role AcrPush"),
];
const OTHER: (Option<&str>, &str, &str) = (None, "USERNAME", "such as that of a robot account");

impl Registry {
    /// Returns the instructions for an existing registry.
    pub(super) fn note(&self, namespace: &str) -> Option<String> {
        let Self::Existing(address) = self else { return None };
        let address = address.to_string();
        let host = address.split('/').next().unwrap_or_default();
        let known = LOGINS.into_iter().find(|(end, ..)| host.ends_with(end));
        let (server, user, password) = known.map_or(OTHER, |(_, server, user, password)| (server, user, password));
        let (server, secret) = (server.unwrap_or(host), EXTERNAL_REGISTRY_SECRET);
        Some(format!(
            "store the login of the registry {address} for all namespaces; the password is {password}:\n  \
             kubectl create secret docker-registry {secret} -n {namespace} --docker-server={server} --docker-username={user} \
             --docker-password=PASSWORD\n  \
             kubectl patch secret {secret} -n {namespace} -p '{{\"stringData\":{{\"registryAddress\":\"{address}\"}}}}'\n  \
             kubectl label secret {secret} -n {namespace} {CONFIG}={CREDENTIALS}"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_the_login_of_a_registry_is_stored() {
        let note = |text: &str| text.parse::<Registry>().unwrap().note("home").unwrap_or_default();
        assert_eq!((note("internal"), note("none")), (String::new(), String::new()));
        for (address, expected) in [
            ("docker.io/team", "--docker-server=https://index.docker.io/v1/ --docker-username=ACCOUNT"),
            ("ghcr.io/team", "--docker-server=ghcr.io --docker-username=ACCOUNT"),
            ("europe-docker.pkg.dev/p/r", "--docker-server=europe-docker.pkg.dev --docker-username=_json_key"),
            ("1.dkr.ecr.eu-central-1.amazonaws.com", "aws ecr get-login-password"),
            ("shop.azurecr.io", "--docker-username=CLIENT_ID"),
            ("harbor.example.com:8443/shop", "--docker-server=harbor.example.com:8443 --docker-username=USERNAME"),
        ] {
            let note = note(address);
            assert!(note.contains(expected) && note.contains(&format!("\"registryAddress\":\"{address}\"")), "{note}");
        }
        for wrong in ["interal", "me:hunter2@h.io", "h.io/A B"] {
            let said = wrong.parse::<Registry>().unwrap_err();
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
