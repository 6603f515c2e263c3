//! `mainstay dev token`: prints a token of the issuer that the embedded cluster's gateway trusts.
//!
//! Invariant: only the owner of the key's file can read the key. The file is beside the kubeconfig, which already
//! grants administrator access.

use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use devcluster::gateway::{Issuer, issuer::Wanted};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::local_directory;

/// Name of the file with the key.
const FILE: &str = "issuer.key";
/// Maximum size of a key file, in bytes.
const MOST: u64 = 16 << 10;

/// Arguments of `dev token`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Scopes of the token, separated by commas; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    scopes: Vec<String>,
    /// Audiences of the token, separated by commas; may be repeated
    #[arg(long = "audience", value_name = "AUDIENCE", value_delimiter = ',')]
    audiences: Vec<String>,
    /// Subject of the token
    #[arg(long, value_name = "NAME", default_value = "me")]
    subject: String,
    /// Lifetime of the token, in seconds; with 0 it is expired
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u32))]
    seconds: u32,
    /// Kubeconfig of the embedded cluster; the key of its issuer is in the same directory
    #[arg(long, value_name = "FILE", default_value = local_directory::KUBECONFIG)]
    kubeconfig: PathBuf,
}

impl Arguments {
    /// Returns the kubeconfig whose directory contains the key.
    pub(super) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

/// Why there is no issuer, or no token.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("could not read the issuer's key {path}", path = .0.display())]
    Read(PathBuf, #[source] io::Error),
    #[error("could not write the issuer's key {path}", path = .0.display())]
    Write(PathBuf, #[source] io::Error),
    #[error("{path} holds no key of an issuer", path = .0.display())]
    NoKey(PathBuf),
    #[error("this machine provides no random bytes for a key")]
    NoRandom,
}

impl Error {
    /// Returns a hint about how to fix the error, if there is one.
    pub(super) fn hint(&self) -> Option<String> {
        match self {
            Self::Read(_, cause) if cause.kind() == io::ErrorKind::NotFound => {
                Some("`mainstay dev` makes it; --kubeconfig FILE selects the kubeconfig of another run".into())
            }
            Self::NoKey(path) => {
                Some(format!("remove {}, and the next `mainstay dev` makes a new one", path.display()))
            }
            _ => None,
        }
    }
}

/// Returns a token with its metadata.
pub(super) fn token(arguments: &Arguments) -> Result<(String, Value), Error> {
    let issuer = read(&arguments.kubeconfig.with_file_name(FILE))?;
    let now = Timestamp::now().as_second();
    let end = now + i64::from(arguments.seconds);
    let (scopes, audiences) = (arguments.scopes.as_slice(), arguments.audiences.as_slice());
    let token =
        issuer.token(Wanted { subject: &arguments.subject, scopes, audiences, now, end }).ok_or(Error::NoRandom)?;
    let expires = Timestamp::from_second(end).map(|end| end.to_string()).unwrap_or_default();
    let facts = json!({"token": token, "issuer": devcluster::gateway::issuer::ISSUER, "expires": expires});
    Ok((token, facts))
}

/// Returns the issuer whose key is beside a kubeconfig, and creates the key if necessary.
pub(super) fn beside(kubeconfig: &Path) -> Result<Issuer, Error> {
    let path = kubeconfig.with_file_name(FILE);
    match read(&path) {
        Err(Error::Read(_, cause)) if cause.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let key = Issuer::new_key().ok_or(Error::NoRandom)?;
    let issuer = Issuer::new(&key).ok_or(Error::NoRandom)?;
    let failed = |cause| Error::Write(path.clone(), cause);
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all(hex::encode(key).as_bytes())).map_err(failed)?;
    Ok(issuer)
}

fn read(path: &Path) -> Result<Issuer, Error> {
    let failed = |cause| Error::Read(path.to_owned(), cause);
    let is_short = fs::metadata(path).map_err(failed)?.len() <= MOST;
    let text = if is_short { fs::read(path).map_err(failed)? } else { Vec::new() };
    let key = hex::decode(text.trim_ascii()).ok();
    key.and_then(|key| Issuer::new(&key)).ok_or_else(|| Error::NoKey(path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_made_once_and_is_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("a/kubeconfig");
        let path = folder.path().join("a").join(FILE);
        assert!(matches!(read(&path), Err(Error::Read(..))));
        beside(&kubeconfig).unwrap();
        let first = fs::read(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        beside(&kubeconfig).unwrap();
        assert_eq!(fs::read(&path).unwrap(), first);
        fs::write(&path, "mine").unwrap();
        assert!(matches!(beside(&kubeconfig), Err(Error::NoKey(_))));
        assert_eq!(fs::read(&path).unwrap(), b"mine", "what is somebody's stays");
    }
}
