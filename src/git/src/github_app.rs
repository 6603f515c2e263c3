//! A GitHub App in a Secret. Requests that are signed with its private key return a token for the repositories of an
//! installation.
//!
//! Invariant: no error and no `Debug` shows any part of the key.
//! Invariant: signed requests and tokens are sent over TLS only.
//! Invariant: a token is sent only to the origin that belongs to the API that issued it, so to no other port.
//!
//! Not here: clocks, and the request itself (`transport::http`).

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use reqwest::Url;
use ring::signature::RsaKeyPair;

use super::access_fault::AccessFault;
use super::address::plain_host;
use super::connection::digest;
use super::jwt;
use super::secret_field::field;
use mainstay_object::Secret;
use mainstay_object::egress::{METADATA_REFUSED, is_metadata_host};

const ID: &str = "githubAppID";
const INSTALLATION: &str = "githubAppInstallationID";
const OWNER: &str = "githubAppInstallationOwner";
const KEY: &str = "githubAppPrivateKey";
const BASE: &str = "githubAppBaseURL";
/// The fields of a Secret that are read.
pub(super) const FIELDS: [&str; 5] = [ID, INSTALLATION, OWNER, KEY, BASE];
/// The API of `github.com`.
const PUBLIC_API: &str = "https://api.github.com/";
/// Maximum bytes of the private key.
const KEY_BYTES: usize = 16 << 10;
/// Allowed clock difference between both sides, in seconds.
const SKEW: i64 = 60;
/// Validity of a signed request, in seconds. GitHub allows 600.
const VALID: i64 = 540;

/// The installation of an App.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Installation {
    Number(String),
    /// A user or organization. The API returns its installation.
    Owner(String),
}

/// A GitHub App and its installation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct GithubApp {
    id: String,
    installation: Installation,
    key: Secret<String>,
    /// Address of the API, unless it is that of `github.com`.
    base: Option<Url>,
}

/// An API that issues tokens for the host of a repository. Only [`GithubApp::issuer`] creates one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Issuer(Url);

impl Issuer {
    /// Returns the API if it belongs to the repository's origin: scheme, host and port. GitHub serves the API at
    /// `https://HOST/api/v3` or `https://api.HOST`.
    fn new(api: Url, repository: &Url) -> Result<Self, AccessFault> {
        if api.scheme() != "https" || !belongs(&api, repository) {
            return Err(AccessFault::ForeignApi { field: BASE });
        }
        Ok(Self(api))
    }

    /// Returns the address of the API.
    pub(super) fn url(&self) -> &Url {
        &self.0
    }
}

impl GithubApp {
    /// Reads the data of a Secret; `None` if it has no App.
    pub(super) fn read(data: &BTreeMap<String, ByteString>) -> Result<Option<Self>, AccessFault> {
        if !data.contains_key(ID) {
            return Ok(None);
        }
        let unusable = |field, why| AccessFault::UnusableField { field, why };
        let id = number(data, ID)?;
        // An installation number takes precedence over the owner, because it saves one request.
        let installation = if data.contains_key(OWNER) && !data.contains_key(INSTALLATION) {
            let owner = field(data, OWNER)?;
            let is_plain = owner.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
            if owner.is_empty() || owner.len() > 64 || !is_plain {
                return Err(unusable(OWNER, "it must be the name of a user or an organization"));
            }
            Installation::Owner(owner)
        } else {
            Installation::Number(number(data, INSTALLATION)?)
        };
        let base = if data.contains_key(BASE) { Some(api(&field(data, BASE)?)?) } else { None };
        let key = &data.get(KEY).ok_or(AccessFault::MissingKey { key: KEY })?.0;
        let key = Some(key).filter(|key| key.len() <= KEY_BYTES).and_then(|key| std::str::from_utf8(key).ok());
        let key = key.ok_or(unusable(KEY, NO_KEY))?;
        key_pair(key)?;
        Ok(Some(Self { id, installation, key: Secret::new(key.to_owned()), base }))
    }

    /// Returns the API that issues tokens for a repository at this address. With a signed request, a server can get a
    /// token of the App, so the request is sent only to GitHub's own API or to the API in the Secret. A token can read
    /// all repositories of the installation, so only the host of the API receives it.
    ///
    /// # Errors
    /// If the repository is not at `https://github.com` and the Secret contains no API, or the API of a different host.
    pub(super) fn issuer(&self, repository: &Url) -> Result<Issuer, AccessFault> {
        if let Some(base) = &self.base {
            return Issuer::new(base.clone(), repository);
        }
        let missing = AccessFault::MissingApi { field: BASE };
        let public = Url::parse(PUBLIC_API).map_err(|_| missing.clone())?;
        Issuer::new(public, repository).map_err(|_| missing)
    }

    /// Returns the address for looking up the owner's installation; `None` if its number is known.
    pub(super) fn installation_url(&self, api: &Issuer) -> Option<Url> {
        match &self.installation {
            Installation::Number(_) => None,
            // This path works for users and organizations.
            Installation::Owner(owner) => Some(below(api.url(), &format!("users/{owner}/installation"))),
        }
    }

    /// Returns the address for requesting a token. `found` is the installation of the owner.
    pub(super) fn token_url(&self, api: &Issuer, found: Option<u64>) -> Url {
        let number = match &self.installation {
            Installation::Number(number) => number.clone(),
            Installation::Owner(_) => found.unwrap_or_default().to_string(),
        };
        below(api.url(), &format!("app/installations/{number}/access_tokens"))
    }

    /// Returns the signed request for a token. `now` is in seconds since 1970.
    pub(super) fn signed_request(&self, now: i64) -> Result<Secret<String>, AccessFault> {
        let claims = serde_json::json!({ "iat": now - SKEW, "exp": now + VALID, "iss": self.id });
        let header = serde_json::json!({ "alg": "RS256", "typ": "JWT" });
        let signed = jwt::rs256(&key_pair(self.key.expose())?, &header, &claims);
        signed.map(Secret::new).ok_or(AccessFault::UnusableField { field: KEY, why: "it cannot sign" })
    }

    /// Returns a digest that distinguishes an App and its API, and reveals nothing of the key.
    pub(super) fn digest(&self, api: &Issuer) -> [u8; 32] {
        digest(self.parts().into_iter().chain([api.url().as_str()]))
    }

    /// Returns the parts that distinguish Apps.
    pub(super) fn parts(&self) -> Vec<&str> {
        let base = self.base.as_ref().map_or("", Url::as_str);
        let (installation, is_owner) = match &self.installation {
            Installation::Number(number) => (number, None),
            Installation::Owner(owner) => (owner, Some("owner")),
        };
        let parts = ["github app", &self.id, installation, base, self.key.expose()];
        parts.into_iter().chain(is_owner).collect()
    }
}

/// Reads a number from a Secret.
fn number(data: &BTreeMap<String, ByteString>, key: &'static str) -> Result<String, AccessFault> {
    let number = field(data, key)?;
    let is_plain = number.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    if number.is_empty() || number.len() > 64 || !is_plain {
        return Err(AccessFault::UnusableField { field: key, why: "it must be a number, as GitHub shows it" });
    }
    Ok(number)
}

/// Returns whether an API issues tokens for the origin of a repository.
fn belongs(api: &Url, repository: &Url) -> bool {
    let mut parent = api.clone();
    let is_of_parent = api
        .host_str()
        .and_then(|host| host.strip_prefix("api."))
        .is_some_and(|host| parent.set_host(Some(host)).is_ok());
    let origin = repository.origin();
    api.origin() == origin || (is_of_parent && parent.origin() == origin)
}

/// Returns the address of a path below `api`.
fn below(api: &Url, path: &str) -> Url {
    let mut url = api.clone();
    url.set_path(&format!("{}/{path}", api.path().trim_end_matches('/')));
    url
}

const NO_KEY: &str = "it must be an RSA private key in PEM form of at least 2048 bits, as GitHub generates it";

fn key_pair(text: &str) -> Result<RsaKeyPair, AccessFault> {
    jwt::rsa_key(text).ok_or(AccessFault::UnusableField { field: KEY, why: NO_KEY })
}

fn api(text: &str) -> Result<Url, AccessFault> {
    let unusable = |why| AccessFault::UnusableField { field: BASE, why };
    let url = Url::parse(text).ok().filter(|url| {
        let is_bare = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        url.scheme() == "https" && is_bare && url.fragment().is_none() && url.host_str().is_some()
    });
    let url = url.ok_or(unusable("it must have the form https://host/api/v3"))?;
    if !plain_host::is_plain_in(text) {
        return Err(unusable(plain_host::REFUSED));
    }
    if url.host_str().is_some_and(is_metadata_host) {
        return Err(unusable(METADATA_REFUSED));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(base: Option<&str>) -> GithubApp {
        let base = base.map(|base| Url::parse(base).unwrap());
        GithubApp {
            id: "1".into(),
            installation: Installation::Number("2".into()),
            key: Secret::new("hunter2".into()),
            base,
        }
    }

    #[test]
    fn asks_the_api_that_the_secret_names_or_that_of_github_for_the_token() {
        let check = |base: Option<&str>, repository: &str, expected: &str| {
            let api = app(base).issuer(&Url::parse(repository).unwrap()).unwrap();
            let url = app(base).token_url(&api, None);
            assert_eq!(url.as_str(), format!("{expected}/app/installations/2/access_tokens"));
            assert_eq!(app(base).installation_url(&api), None);
            let of_owner = GithubApp { installation: Installation::Owner("team".into()), ..app(base) };
            assert_eq!(
                of_owner.installation_url(&api).unwrap().as_str(),
                format!("{expected}/users/team/installation")
            );
            let url = of_owner.token_url(&api, Some(7));
            assert_eq!(url.as_str(), format!("{expected}/app/installations/7/access_tokens"));
        };
        check(None, "https://github.com/a/b", "https://api.github.com");
        check(Some("https://api.github.com"), "https://github.com/a/b", "https://api.github.com");
        check(Some("https://api.corp.ghe.com/"), "https://corp.ghe.com/a/b", "https://api.corp.ghe.com");
        check(Some("https://git.corp/api/v3"), "https://git.corp:443/a/b", "https://git.corp/api/v3");
        check(Some("https://git.corp:8443/api/v3"), "https://git.corp:8443/a/b", "https://git.corp:8443/api/v3");
        check(Some("https://api.git.corp:8443"), "https://git.corp:8443/a/b", "https://api.git.corp:8443");
        check(Some("https://10.0.0.5/api/v3"), "https://10.0.0.5/a/b", "https://10.0.0.5/api/v3");
        assert!(!format!("{:?}", app(None)).contains("hunter2"));
    }

    #[test]
    fn sends_a_signed_request_to_no_host_that_only_the_repository_names() {
        for repository in [
            "https://git.corp/a/b",
            "https://github.com.evil.example/a/b",
            "https://gist.github.com/a",
            "http://github.com/a/b",
            "https://github.com:444/a/b",
        ] {
            let refused = app(None).issuer(&Url::parse(repository).unwrap()).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "missing field githubAppBaseURL: a GitHub App for a repository that is not at https://github.com/ needs the address \
                 of the API in the Secret, such as https://HOST/api/v3",
                "{repository}"
            );
        }
    }

    #[test]
    fn a_token_goes_to_no_host_that_does_not_belong_to_the_api_that_issues_it() {
        for (base, repository) in [
            ("https://api.github.com", "https://evil.example/a/b"),
            ("https://api.github.com", "https://github.com.evil.example/a/b"),
            ("https://api.github.com", "https://com/a/b"),
            ("https://api.github.com", "http://github.com/a/b"),
            ("https://git.corp/api/v3", "https://github.com/a/b"),
            ("https://git.corp/api/v3", "https://api.git.corp/a/b"),
            ("https://git.corp/api/v3", "http://git.corp/a/b"),
            ("https://git.corp/api/v3", "https://git.corp:8443/a/b"),
            ("https://git.corp:8443/api/v3", "https://git.corp/a/b"),
            ("https://api.git.corp", "https://git.corp:8443/a/b"),
            ("https://api.github.com", "https://github.com:444/a/b"),
        ] {
            let refused = app(Some(base)).issuer(&Url::parse(repository).unwrap()).unwrap_err();
            assert_eq!(
                refused.to_string(),
                "githubAppBaseURL of the Secret is not the API of the repository's host: the repository needs the address \
                 https://HOST/…, and the Secret https://HOST/api/v3 or https://api.HOST with the same host and port",
                "{base} {repository}"
            );
        }
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
        check(&[(ID, "1"), (INSTALLATION, "2/3")], &unusable(INSTALLATION, "it must be a number, as GitHub shows it"));
        check(
            &[(ID, "1"), (INSTALLATION, "2")],
            "missing field githubAppPrivateKey: the Secret needs it (it may be empty)",
        );
        check(&[(ID, "1"), (INSTALLATION, "2"), (KEY, "x")], &unusable(KEY, NO_KEY));
        let owner = "it must be the name of a user or an organization";
        check(&[(ID, "1"), (OWNER, "o/../x")], &unusable(OWNER, owner));
        let base = |base| [(ID, "1"), (INSTALLATION, "2"), (BASE, base)];
        check(&base("http://api"), &unusable(BASE, "it must have the form https://host/api/v3"));
        check(&base("https://169.254.169.254"), &unusable(BASE, METADATA_REFUSED));
    }
}
