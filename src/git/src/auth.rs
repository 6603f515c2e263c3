//! Turns a repository's `auth` and the referenced Secret into [`Access`]: credentials and connection settings.
//!
//! Not here: parsing SSH keys (`ssh_key`) and certificates (`tls`), and reading the Secret from the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;

use super::access_fault::AccessFault;
use super::address::RemoteUrl;
use super::cloud::{CloudFault, CloudIdentity};
use super::connection::Connection;
use super::error::{Error, Fault, Sent};
use super::github_app::{self, GithubApp};
use super::pinning::Pinning;
use super::proxy::{self, Proxy};
use super::secret_field::field;
use super::ssh_fault::SshFault;
use super::ssh_key::{self, SshIdentity};
use super::tls;
use mainstay_api::GitRepository;
use mainstay_api::git_repository::{AuthType, GitRepositorySpec, RepositoryAuth};
use mainstay_object::Secret;

const USERNAME: &str = "username";
const PASSWORD: &str = "password";
const TOKEN: &str = "bearerToken";

/// How to authenticate to a remote.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Credentials {
    /// No authentication.
    Anonymous,
    /// HTTP basic authentication. A token is used as a password.
    Basic {
        /// User name. With a token, most servers ignore it.
        username: String,
        /// Password or token.
        password: Secret<String>,
    },
    /// HTTP bearer token.
    Bearer(Secret<String>),
    /// A GitHub App. Its tokens are sent as passwords.
    App(Arc<GithubApp>),
    /// An identity of a cloud. Its logins are valid for a short time.
    Cloud(Arc<CloudIdentity>),
    /// SSH key.
    Key(Arc<SshIdentity>),
}

/// How to open a remote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// How to authenticate.
    pub credentials: Credentials,
    /// The settings of the connection.
    pub connection: Connection,
}

/// Returns the access for a repository's `auth` and the `data` of its Secret (`None` if the Secret is missing). The
/// Secret's type does not matter. One trailing line break is removed from each value.
///
/// - Type `key` reads the private key from `key`, `ssh-privatekey` or `identity`, its passphrase from `password`, and
///   host keys from `known_hosts`
/// - Type `basic` reads `bearerToken`, else a GitHub App (`githubAppID`, `githubAppInstallationID`,
///   `githubAppPrivateKey`), else `username` and `password`; both must exist and may be empty
/// - Type `basic` also reads `ca.crt`, and `tls.crt` with `tls.key`; each of them is enough without credentials
pub fn access(auth: Option<&RepositoryAuth>, secret: Option<&BTreeMap<String, ByteString>>) -> Result<Access, Error> {
    read(auth, secret).map_err(|cause| Error::Authenticate { cause: Arc::new(cause) })
}

impl Access {
    /// Adds the proxy from the `data` of the Secret in the repository's `proxySecretRef`.
    pub fn through_proxy(mut self, secret: &BTreeMap<String, ByteString>) -> Result<Self, Error> {
        let proxy = Proxy::read(secret).map_err(|fault| Error::Proxy { cause: Arc::new(fault.into()) })?;
        self.connection.proxy = Some(Arc::new(proxy));
        Ok(self)
    }
}

impl Access {
    /// Adds the host keys that the GitRepository has pinned, if it pins keys.
    #[must_use]
    pub fn with_pins(mut self, repository: &GitRepository, url: &RemoteUrl) -> Self {
        if let Credentials::Key(identity) = &mut self.credentials {
            let host = url.known_hosts_name();
            Arc::make_mut(identity).pinning = host.and_then(|host| Pinning::of(repository, &host));
        }
        self
    }
}

impl Access {
    /// Replaces the credentials by the identity of a cloud in `spec.provider`, if the GitRepository names one. `namespace`
    /// is the namespace of the GitRepository.
    ///
    /// # Errors
    /// The provider is unknown, the address does not belong to it, or the GitRepository names a Secret, too.
    pub fn with_identity(mut self, spec: &GitRepositorySpec, namespace: &str, url: &RemoteUrl) -> Result<Self, Error> {
        if let Some(identity) = identity(spec, namespace, url, &self.credentials).map_err(unusable)? {
            self.credentials = Credentials::Cloud(Arc::new(identity));
        }
        Ok(self)
    }
}

fn unusable(why: String) -> Error {
    Error::Authenticate { cause: Arc::new(CloudFault::Field { why }.into()) }
}

/// The provider whose credentials are a GitHub App in the Secret.
const GITHUB: &str = "github";

/// Returns whether a GitRepository is opened with an identity of a cloud.
pub fn needs_identity(spec: &GitRepositorySpec) -> bool {
    !matches!(spec.provider.as_deref(), None | Some("generic" | GITHUB))
}

fn identity(
    spec: &GitRepositorySpec,
    namespace: &str,
    url: &RemoteUrl,
    given: &Credentials,
) -> Result<Option<CloudIdentity>, String> {
    if spec.provider.as_deref() == Some(GITHUB) {
        return match given {
            Credentials::App(_) if spec.service_account_name.is_none() => Ok(None),
            Credentials::App(_) => Err("spec.serviceAccountName: has no effect with spec.provider github".to_owned()),
            _ => Err("spec.provider: github needs a GitHub App in the Secret of spec.auth".to_owned()),
        };
    }
    let identity = CloudIdentity::read(spec.provider.as_deref(), spec.service_account_name.as_deref(), namespace)?;
    let Some(identity) = identity else { return Ok(None) };
    let address = url.http().ok_or("spec.provider: needs an address that begins with https://")?;
    identity.check_repository(address)?;
    if spec.auth.is_some() {
        let provider = identity.provider_name();
        return Err(format!("spec.auth: must not be set with spec.provider {provider}; remove one of them"));
    }
    Ok(Some(identity))
}

/// Returns the fields of a proxy Secret that are read.
pub fn proxy_fields() -> impl Iterator<Item = &'static str> {
    proxy::FIELDS.into_iter()
}

/// Returns the fields of a Secret that are read for this kind of authentication.
pub fn fields(kind: AuthType) -> impl Iterator<Item = &'static str> {
    let lists: [&[_]; 3] = match kind {
        AuthType::Basic => [&[USERNAME, PASSWORD, TOKEN], &tls::FIELDS, &github_app::FIELDS],
        AuthType::Key => [&ssh_key::KEY_FIELDS, &[], &[]],
    };
    lists.into_iter().flatten().copied()
}

/// Checks, without the Secret, whether a repository at this address supports the authentication of the spec. An address
/// with credentials is refused.
pub fn supported(url: &RemoteUrl, spec: &GitRepositorySpec) -> Result<(), Error> {
    let auth = spec.auth.as_ref();
    // A user name alone may be a token. It is accepted together with a login, because some hosts show addresses with a
    // user name.
    let has_login = auth.is_some() || needs_identity(spec);
    if url.holds_password() || url.holds_credentials() && !has_login {
        let why = "the address holds a user name or password, which every reader of the GitRepository sees; put them \
                   into a \
                   Secret with the keys username and password, and name it in spec.auth";
        return Err(Error::Authenticate { cause: Arc::new(Fault::Malformed { why }) });
    }
    if url.git().is_some() && auth.is_some() {
        let what = "authentication at a git:// address";
        let cause = Fault::Unsupported { what, instead: "give the repository's https:// or ssh:// address" };
        return Err(Error::Authenticate { cause: Arc::new(cause) });
    }
    let fault = match (url.ssh().is_some(), auth.map(|auth| auth.kind)) {
        (true, None) => SshFault::NoKey,
        (true, Some(AuthType::Basic)) => SshFault::NotKey,
        (false, Some(AuthType::Key)) => SshFault::NotSsh,
        (true, Some(AuthType::Key)) | (false, None | Some(AuthType::Basic)) => return Ok(()),
    };
    Err(Error::Authenticate { cause: Arc::new(fault.into()) })
}

/// Returns the invalid fields of a GitRepository in this namespace, except those that only the values of its Secrets
/// decide.
pub fn repository_problems(spec: &GitRepositorySpec, namespace: &str) -> Vec<String> {
    let url = match RemoteUrl::parse(&spec.url) {
        Ok(url) => url,
        Err(error) => return vec![format!("spec.url: {}", error.fault())],
    };
    let supported = supported(&url, spec).err().map(|error| {
        let field = if matches!(error.fault(), Fault::Malformed { .. }) { "spec.url" } else { "spec.auth" };
        format!("{field}: {}", error.fault())
    });
    let refused = needs_identity(spec).then(|| identity(spec, namespace, &url, &Credentials::Anonymous).err());
    supported.into_iter().chain(refused.flatten()).collect()
}

impl Credentials {
    /// Returns the strings that a server's message must not repeat, in plain and in encoded form.
    pub(super) fn secrets(&self) -> Vec<String> {
        match self {
            Self::Basic { username, password } if !password.expose().is_empty() => {
                // The user of CodeCommit contains the token of a session after its key.
                let session = username.split_once('%').map(|(_, session)| session.to_owned());
                [password.expose().clone(), basic(username, password)].into_iter().chain(session).collect()
            }
            Self::Bearer(token) => vec![token.expose().clone()],
            Self::Anonymous | Self::Basic { .. } | Self::App(_) | Self::Cloud(_) | Self::Key(_) => Vec::new(),
        }
    }

    /// Returns which credentials are sent to an HTTP server.
    pub(super) fn sent(&self, connection: &Connection) -> Sent {
        match self {
            Self::Anonymous | Self::Key(_) if connection.client.is_some() => Sent::WithCertificate,
            Self::Anonymous | Self::Key(_) if connection.authorities.is_some() => Sent::AnonymouslyWithSecret,
            Self::Anonymous | Self::Key(_) => Sent::Anonymously,
            Self::Cloud(_) => Sent::WithIdentity,
            Self::Basic { .. } | Self::Bearer(_) | Self::App(_) => Sent::WithCredentials,
        }
    }
}

/// Returns the value for HTTP basic authentication.
fn basic(username: &str, password: &Secret<String>) -> String {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    BASE64_STANDARD.encode(format!("{username}:{}", password.expose()))
}

fn read(auth: Option<&RepositoryAuth>, secret: Option<&BTreeMap<String, ByteString>>) -> Result<Access, Fault> {
    let Some(auth) = auth else {
        return Ok(Access { credentials: Credentials::Anonymous, connection: Connection::default() });
    };
    let data = secret.ok_or(Fault::MissingSecret)?;
    match auth.kind {
        AuthType::Basic => {
            let connection = Connection::read(data)?;
            Ok(Access { credentials: over_http(data, &connection)?, connection })
        }
        AuthType::Key => Ok(Access {
            credentials: Credentials::Key(Arc::new(SshIdentity::read(data)?)),
            connection: Connection::default(),
        }),
    }
}

fn over_http(data: &BTreeMap<String, ByteString>, connection: &Connection) -> Result<Credentials, AccessFault> {
    let has = |key| data.contains_key(key);
    if has(TOKEN) {
        let token = field(data, TOKEN)?;
        let is_plain = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
        return if is_plain {
            Ok(Credentials::Bearer(Secret::new(token)))
        } else {
            Err(AccessFault::UnusableField { field: TOKEN, why: "a token must not be empty or contain blanks" })
        };
    }
    if let Some(app) = GithubApp::read(data)? {
        return Ok(Credentials::App(Arc::new(app)));
    }
    if !has(USERNAME) && !has(PASSWORD) && *connection != Connection::default() {
        return Ok(Credentials::Anonymous);
    }
    if !has(USERNAME) && has(PASSWORD) {
        return Err(AccessFault::MissingUsername);
    }
    Ok(Credentials::Basic { username: field(data, USERNAME)?, password: Secret::new(field(data, PASSWORD)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: AuthType, data: &[(&str, &[u8])], expected: &str) {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect();
        let auth = RepositoryAuth { kind, secret_name: "s".into() };
        let got = match access(Some(&auth), Some(&data)).map(|access| access.credentials) {
            Ok(Credentials::Basic { username, password }) => format!("{username}:{}", password.expose()),
            Ok(Credentials::Bearer(token)) => format!("bearer {}", token.expose()),
            Ok(other) => format!("{other:?}"),
            Err(error) => error.fault().to_string(),
        };
        assert_eq!(got, expected);
    }

    #[test]
    fn takes_user_name_and_password_whatever_the_type_of_the_secret() {
        check(AuthType::Basic, &[("username", b"u"), ("password", b"p")], "u:p");
        check(AuthType::Basic, &[("username", b""), ("password", b"token\n")], ":token");
        check(AuthType::Basic, &[("username", b"u\r\n"), ("password", b"")], "u:");
    }

    #[test]
    fn a_bearer_token_wins_over_a_password() {
        check(AuthType::Basic, &[("bearerToken", b"t\n")], "bearer t");
        check(AuthType::Basic, &[("username", b"u"), ("password", b"p"), ("bearerToken", b"t")], "bearer t");
        let blank = "bearerToken of the Secret cannot be used: a token must not be empty or contain blanks";
        check(AuthType::Basic, &[("bearerToken", b"")], blank);
        check(AuthType::Basic, &[("bearerToken", b"a b")], blank);
    }

    #[test]
    fn says_what_the_secret_lacks() {
        let field = |key| format!("missing field {key}: the Secret needs it (it may be empty)");
        check(AuthType::Basic, &[("username", b"u")], &field("password"));
        check(AuthType::Basic, &[], &field("username"));
        let beside = "missing field username: the Secret needs it beside password; beside a token most hosts take any \
                      name, such \
                      as git (Bitbucket: x-token-auth)";
        check(AuthType::Basic, &[("password", b"p")], beside);
        let unusable = |field: &str, why: &str| format!("{field} of the Secret cannot be used: {why}");
        let username = |value| [("username", value), ("password", &b""[..])];
        check(AuthType::Basic, &username(b"\xff"), &unusable("username", "it is not UTF-8 text"));
        check(AuthType::Basic, &username(b"a\nb"), &unusable("username", "it has more than one line"));
        let long = vec![b'x'; super::super::secret_field::MAX_BYTES + 1];
        check(AuthType::Basic, &username(&long), &unusable("username", "it is longer than 16 KiB"));
        let auth = RepositoryAuth { kind: AuthType::Basic, secret_name: "s".into() };
        assert!(access(Some(&auth), None).unwrap_err().fault().to_string().contains("does not exist"));
        assert_eq!(access(None, None).unwrap().credentials, Credentials::Anonymous);
    }

    #[test]
    fn credentials_in_an_address_are_refused_and_not_shown() {
        let basic = Some(RepositoryAuth { kind: AuthType::Basic, secret_name: "s".into() });
        let auth = GitRepositorySpec { auth: basic, ..GitRepositorySpec::default() };
        let cloud = GitRepositorySpec { provider: Some("azure".into()), ..GitRepositorySpec::default() };
        let none = GitRepositorySpec::default();
        let refused = |url: &str, spec: &GitRepositorySpec| {
            let error = supported(&RemoteUrl::parse(url).unwrap(), spec).err()?;
            assert!(!format!("{error} {error:?} {}", error.fault()).contains("hunter2"));
            Some(error.fault().to_string())
        };
        for url in [
            "https://u:hunter2@git.example.com/x",
            "https://:hunter2@git.example.com/x",
            "https://hunter2@git.example.com/x",
        ] {
            let said = refused(url, &none).unwrap_or_else(|| panic!("{url}"));
            assert!(said.contains("name it in spec.auth"), "{said}");
        }
        assert!(refused("https://u:hunter2@git.example.com/x", &auth).is_some());
        assert!(refused("https://u:hunter2@dev.azure.com/x", &cloud).is_some());
        assert_eq!(refused("https://org@dev.azure.com/x", &auth), None);
        assert_eq!(refused("https://org@dev.azure.com/x", &cloud), None);
        assert_eq!(refused("https://git.example.com/x", &none), None);
    }

    #[test]
    fn shows_no_password() {
        let hidden = Credentials::Basic { username: "u".into(), password: Secret::new("hunter2".into()) };
        let bearer = Credentials::Bearer(Secret::new("hunter2".into()));
        assert!(!format!("{hidden:?} {bearer:?} {}", Secret::new("hunter2")).contains("hunter2"));
    }
}
