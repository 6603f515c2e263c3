//! A GitHub App in a Secret: with its private key it asks for a token that opens the repositories of an installation.
//!
//! Invariant: no error and no `Debug` shows anything of the key.
//! Invariant: what the key signs is sent over TLS only.
//!
//! Deliberately not here: clocks, and asking for the token (`transport::app_token`).

use std::collections::BTreeMap;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use k8s_openapi::ByteString;
use reqwest::Url;
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;

use super::access_fault::AccessFault;
use super::connection::digest;
use super::link_local;
use super::secret_field::field;
use crate::object::Secret;

const ID: &str = "githubAppID";
const INSTALLATION: &str = "githubAppInstallationID";
const OWNER: &str = "githubAppInstallationOwner";
const KEY: &str = "githubAppPrivateKey";
const BASE: &str = "githubAppBaseURL";
/// All fields of a Secret that are read.
pub(super) const FIELDS: [&str; 5] = [ID, INSTALLATION, OWNER, KEY, BASE];
/// Maximum bytes of the private key.
const KEY_BYTES: usize = 16 << 10;
/// Seconds that the clocks of both sides may differ.
const SKEW: i64 = 60;
/// Seconds that a signed request is valid; GitHub allows 600.
const VALID: i64 = 540;

/// A GitHub App and its installation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GithubApp {
    id: String,
    installation: String,
    key: Secret<String>,
    /// Address of the API, if it is not that of the repository's host.
    base: Option<Url>,
}

impl GithubApp {
    /// Reads the data of a Secret; `None` if it has no App.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Option<Self>, AccessFault> {
        if !data.contains_key(ID) {
            return Ok(None);
        }
        let unusable = |field, why| AccessFault::UnusableField { field, why };
        if data.contains_key(OWNER) && !data.contains_key(INSTALLATION) {
            return Err(unusable(OWNER, "an installation is named by its number, under githubAppInstallationID"));
        }
        let (id, installation) = (field(data, ID)?, field(data, INSTALLATION)?);
        for (key, value) in [(ID, &id), (INSTALLATION, &installation)] {
            let is_plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
            if value.is_empty() || value.len() > 64 || !is_plain {
                return Err(unusable(key, "it is a number, as GitHub shows it"));
            }
        }
        let base = if data.contains_key(BASE) { Some(api(&field(data, BASE)?)?) } else { None };
        let key = &data.get(KEY).ok_or(AccessFault::MissingKey { key: KEY })?.0;
        let key = Some(key).filter(|key| key.len() <= KEY_BYTES).and_then(|key| std::str::from_utf8(key).ok());
        let key = key.ok_or(unusable(KEY, NO_KEY))?;
        key_pair(key)?;
        Ok(Some(Self { id, installation, key: Secret::new(key.to_owned()), base }))
    }

    /// Where the token is asked for, for a repository at this address.
    pub(super) fn token_url(&self, repository: &Url) -> Option<Url> {
        let mut url = self.base.clone().unwrap_or_else(|| repository.clone());
        if self.base.is_none() {
            // Their own host has another name for the API, and servers of others have another path.
            let is_public = repository.host_str() == Some("github.com");
            if is_public {
                url.set_host(Some("api.github.com")).ok()?;
            }
            url.set_path(if is_public { "" } else { "/api/v3" });
            url.set_scheme("https").ok()?;
        }
        let base = url.path().trim_end_matches('/').to_owned();
        url.set_path(&format!("{base}/app/installations/{}/access_tokens", self.installation));
        Some(url)
    }

    /// What asks for a token at this time, in seconds since 1970.
    pub(super) fn signed_request(&self, now: i64) -> Result<Secret<String>, AccessFault> {
        let claims = serde_json::json!({ "iat": now - SKEW, "exp": now + VALID, "iss": self.id });
        let part = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", part(r#"{"alg":"RS256","typ":"JWT"}"#), part(&claims.to_string()));
        let pair = key_pair(self.key.expose())?;
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), signed.as_bytes(), &mut signature)
            .map_err(|_| AccessFault::UnusableField { field: KEY, why: "it cannot sign" })?;
        Ok(Secret::new(format!("{signed}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))))
    }

    /// What distinguishes an App and the API that gives its tokens, without anything of its key.
    pub(super) fn digest(&self, token_url: &Url) -> [u8; 32] {
        digest(self.parts().into_iter().chain([token_url.as_str()]))
    }

    /// The parts that distinguish Apps.
    pub(super) fn parts(&self) -> [&str; 5] {
        let base = self.base.as_ref().map_or("", Url::as_str);
        ["github app", &self.id, &self.installation, base, self.key.expose()]
    }
}

const NO_KEY: &str = "it is no RSA private key in PEM form of at least 2048 bits, as GitHub makes it";

fn key_pair(text: &str) -> Result<RsaKeyPair, AccessFault> {
    let read = match PrivateKeyDer::from_pem_slice(text.as_bytes()) {
        Ok(PrivateKeyDer::Pkcs1(der)) => RsaKeyPair::from_der(der.secret_pkcs1_der()).ok(),
        Ok(PrivateKeyDer::Pkcs8(der)) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).ok(),
        _ => None,
    };
    read.ok_or(AccessFault::UnusableField { field: KEY, why: NO_KEY })
}

fn api(text: &str) -> Result<Url, AccessFault> {
    let unusable = |why| AccessFault::UnusableField { field: BASE, why };
    let url = Url::parse(text).ok().filter(|url| {
        let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        url.scheme() == "https" && is_bare && url.fragment().is_none() && url.host_str().is_some()
    });
    let url = url.ok_or(unusable("it has the form https://host/api/v3"))?;
    if url.host_str().is_some_and(link_local::is_link_local_host) {
        return Err(unusable(link_local::REFUSED));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(base: Option<&str>) -> GithubApp {
        let base = base.map(|base| Url::parse(base).unwrap());
        GithubApp { id: "1".into(), installation: "2".into(), key: Secret::new("hunter2".into()), base }
    }

    #[test]
    fn asks_the_api_of_the_repositorys_host_for_the_token() {
        let check = |base: Option<&str>, repository: &str, expected: &str| {
            let url = app(base).token_url(&Url::parse(repository).unwrap()).unwrap();
            assert_eq!(url.as_str(), format!("{expected}/app/installations/2/access_tokens"));
        };
        check(None, "https://github.com/a/b", "https://api.github.com");
        check(None, "https://git.corp:8443/a/b", "https://git.corp:8443/api/v3");
        check(None, "http://git.corp/a/b", "https://git.corp/api/v3");
        check(Some("https://api.corp/"), "https://github.com/a/b", "https://api.corp");
        assert!(!format!("{:?}", app(None)).contains("hunter2"));
    }

    #[test]
    fn says_what_is_wrong_with_an_app() {
        let check = |data: &[(&str, &str)], expected: &str| {
            let data =
                data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
            assert_eq!(GithubApp::read(&data).unwrap_err().to_string(), expected);
        };
        assert_eq!(GithubApp::read(&BTreeMap::new()), Ok(None));
        let unusable = |field: &str, why: &str| format!("{field} of the Secret cannot be used: {why}");
        check(&[(ID, "1")], "missing field githubAppInstallationID: the Secret needs it (it may be empty)");
        check(&[(ID, "1"), (INSTALLATION, "2/3")], &unusable(INSTALLATION, "it is a number, as GitHub shows it"));
        check(
            &[(ID, "1"), (INSTALLATION, "2")],
            "missing field githubAppPrivateKey: the Secret needs it (it may be empty)",
        );
        check(&[(ID, "1"), (INSTALLATION, "2"), (KEY, "x")], &unusable(KEY, NO_KEY));
        let owner = "an installation is named by its number, under githubAppInstallationID";
        check(&[(ID, "1"), (OWNER, "o")], &unusable(OWNER, owner));
        let base = |base| [(ID, "1"), (INSTALLATION, "2"), (BASE, base)];
        check(&base("http://api"), &unusable(BASE, "it has the form https://host/api/v3"));
        check(&base("https://169.254.169.254"), &unusable(BASE, link_local::REFUSED));
    }
}
