//! A repository's `auth` and the Secret that it names become [`Credentials`].
//!
//! Deliberately not here: reading the text of an SSH key (`ssh_key`); reading the Secret from the cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::ByteString;

use super::address::RemoteUrl;
use super::error::{Error, Fault};
use super::ssh_fault::SshFault;
use super::ssh_key::SshIdentity;
use crate::api::git_repository::{AuthType, RepositoryAuth};
use crate::object::Secret;

/// How to authenticate to a remote.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Credentials {
    /// None.
    Anonymous,
    /// HTTP basic authentication; a token is a password.
    Basic {
        /// User name; most servers ignore it beside a token.
        username: String,
        /// Password or token.
        password: Secret<String>,
    },
    /// SSH key.
    Key(Arc<SshIdentity>),
}

/// The credentials for a repository's `auth`, from the `data` of the Secret that it names (`None` if the Secret is
/// missing).
///
/// For the type `key`, the private key is under `key`, `ssh-privatekey` or `identity`, its passphrase under `password`,
/// and host keys under `known_hosts`. For `basic`, the keys `username` and `password` must both exist and may be empty.
/// The Secret's type does not matter. One trailing line break, which `echo` leaves in many Secrets, is not part of a
/// value.
pub fn credentials(
    auth: Option<&RepositoryAuth>,
    secret: Option<&BTreeMap<String, ByteString>>,
) -> Result<Credentials, Error> {
    read(auth, secret).map_err(|cause| Error::Authenticate { cause: Arc::new(cause) })
}

/// Whether a repository at this address supports this kind of authentication, independent of the Secret.
pub fn supported(url: &RemoteUrl, auth: Option<&RepositoryAuth>) -> Result<(), Error> {
    let fault = match (url.ssh().is_some(), auth.map(|auth| auth.kind)) {
        (true, None) => SshFault::NoKey,
        (true, Some(AuthType::Basic)) => SshFault::NotKey,
        (false, Some(AuthType::Key)) => SshFault::NotSsh,
        (true, Some(AuthType::Key)) | (false, None | Some(AuthType::Basic)) => return Ok(()),
    };
    Err(Error::Authenticate { cause: Arc::new(fault.into()) })
}

fn read(auth: Option<&RepositoryAuth>, secret: Option<&BTreeMap<String, ByteString>>) -> Result<Credentials, Fault> {
    let Some(auth) = auth else { return Ok(Credentials::Anonymous) };
    let data = secret.ok_or(Fault::MissingSecret)?;
    match auth.kind {
        AuthType::Basic => Ok(Credentials::Basic {
            username: field(data, "username")?,
            password: Secret::new(field(data, "password")?),
        }),
        AuthType::Key => Ok(Credentials::Key(Arc::new(SshIdentity::read(data)?))),
    }
}

fn field(data: &BTreeMap<String, ByteString>, key: &'static str) -> Result<String, Fault> {
    let bytes = &data.get(key).ok_or(Fault::MissingKey { key })?.0;
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Fault::Malformed { why: "`username` and `password` of the Secret are UTF-8 text" })?;
    let text = text.strip_suffix('\n').map_or(text, |rest| rest.strip_suffix('\r').unwrap_or(rest));
    if text.chars().any(char::is_control) {
        return Err(Fault::Malformed { why: "`username` and `password` of the Secret are one line each" });
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(kind: AuthType, data: &[(&str, &[u8])], expected: &str) {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.to_vec()))).collect();
        let auth = RepositoryAuth { kind, secret_name: "s".into() };
        let got = match credentials(Some(&auth), Some(&data)) {
            Ok(Credentials::Basic { username, password }) => format!("{username}:{}", password.expose()),
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
    fn says_what_the_secret_lacks() {
        let field = |key| format!("missing field {key}: the Secret needs it (it may be empty)");
        check(AuthType::Basic, &[("username", b"u")], &field("password"));
        check(AuthType::Basic, &[("password", b"p")], &field("username"));
        check(
            AuthType::Basic,
            &[("username", b"\xff"), ("password", b"")],
            "`username` and `password` of the Secret are UTF-8 text",
        );
        let auth = RepositoryAuth { kind: AuthType::Basic, secret_name: "s".into() };
        assert!(credentials(Some(&auth), None).unwrap_err().fault().to_string().contains("does not exist"));
        assert_eq!(credentials(None, None).unwrap(), Credentials::Anonymous);
    }

    #[test]
    fn shows_no_password() {
        let hidden = Credentials::Basic { username: "u".into(), password: Secret::new("hunter2".into()) };
        assert!(!format!("{hidden:?} {}", Secret::new("hunter2")).contains("hunter2"));
    }
}
