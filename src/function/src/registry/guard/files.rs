//! Reads the files of the registry's Secret, and checks logins against them.
//!
//! Invariant: no error contains the content of a file.

use std::io;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::header::{self, HeaderMap};
use mainstay_cluster::certificate::certified;
use mainstay_object::Secret;
use ring::{hmac, rand};

use super::logins::{NAMESPACE_KEY, NamespaceKey};
use super::verdict::Visitor;
use crate::registry::Login;

/// Maximum size in bytes of a file of the Secret.
const MAX_FILE: u64 = 1 << 20;

/// Why the guard cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A file of the Secret is missing or unreadable.
    #[error("the file {path} of the registry's Secret cannot be read")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The certificate or its key is invalid, or the two do not match.
    #[error(
        "{directory}/tls.crt and tls.key are not a certificate and its key; the agent makes them when both are removed from the Secret"
    )]
    Certificate {
        /// The directory.
        directory: PathBuf,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls,
}

/// The files of the Secret.
#[derive(PartialEq, Eq)]
pub(super) struct Files {
    directory: PathBuf,
    username: String,
    password: Secret<String>,
    namespace_key: Secret<String>,
    certificate: String,
    key: Secret<String>,
}

impl Files {
    pub(super) fn certificate(&self) -> Result<rustls::sign::CertifiedKey, ServeError> {
        let directory = || ServeError::Certificate { directory: self.directory.clone() };
        certified(&self.certificate, &self.key).ok_or_else(directory)
    }

    pub(super) fn logins(&self) -> Logins {
        let login = Login { username: self.username.clone(), password: self.password.clone() };
        Logins { registry: login, namespaces: NamespaceKey::new(&self.namespace_key) }
    }
}

pub(super) fn read(directory: &Path) -> Result<Files, ServeError> {
    let text = |name: &str| {
        let path = directory.join(name);
        let text = read_file(&path).map_err(|cause| ServeError::File { path: path.clone(), cause })?;
        if text.is_empty() {
            return Err(ServeError::File { path, cause: io::Error::other("it is empty") });
        }
        Ok(text)
    };
    Ok(Files {
        directory: directory.to_owned(),
        username: text("username")?,
        password: Secret::new(text("password")?),
        namespace_key: Secret::new(text(NAMESPACE_KEY)?),
        certificate: text("tls.crt")?,
        key: Secret::new(text("tls.key")?),
    })
}

fn read_file(path: &Path) -> io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

/// The accepted logins.
pub(super) struct Logins {
    registry: Login,
    namespaces: NamespaceKey,
}

impl Logins {
    pub(super) fn visitor(&self, headers: &HeaderMap) -> Visitor {
        let Some(login) = given(headers) else { return Visitor::Unknown };
        if is_equal(&login, &self.registry) {
            Visitor::Registry
        } else if self.namespaces.lets_in(&login) {
            Visitor::Namespace(login.username)
        } else {
            Visitor::Unknown
        }
    }
}

/// Whether two logins are equal, in constant time.
fn is_equal(one: &Login, other: &Login) -> bool {
    let text = |login: &Login| format!("{}:{}", login.username, login.password.expose());
    let Ok(key) = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new()) else { return false };
    hmac::verify(&key, text(one).as_bytes(), hmac::sign(&key, text(other).as_bytes()).as_ref()).is_ok()
}

/// Returns the login of a request.
fn given(headers: &HeaderMap) -> Option<Login> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Login { username: username.to_owned(), password: Secret::new(password.to_owned()) })
}
