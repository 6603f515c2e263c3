//! The address of a remote, parsed once.
//!
//! Invariant: neither `Display` nor `Debug` shows a user or password in the address. They are stored separately and
//! used only if the repository references no Secret.
//! Not here: the parts of an SSH address (`ssh_address`).

pub(super) mod plain_host;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use reqwest::Url;

use super::auth::Credentials;
use super::error::{Error, Fault};
use super::git_address::GitAddress;
use super::percent;
use super::ssh_address::SshAddress;
use mainstay_object::Secret;
use mainstay_object::egress::{METADATA_REFUSED, is_metadata_host};

/// The address of a repository. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RemoteUrl(Arc<Address>);

#[derive(PartialEq, Eq, Hash)]
struct Address {
    place: Place,
    embedded: Credentials,
}

#[derive(PartialEq, Eq, Hash)]
enum Place {
    /// A URL without user, password, query and trailing slash.
    Http(Url),
    Ssh(SshAddress),
    Git(GitAddress),
    Local(PathBuf),
    Artifact(ArtifactAddress),
}

/// The artifact of an OCIRepository.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ArtifactAddress {
    /// The address of the registry's repository.
    url: String,
    /// Namespace, name and uid of the OCIRepository.
    pub(super) owner: String,
}

/// Maximum length of an address, in bytes.
const LONGEST: usize = 4096;

impl RemoteUrl {
    /// Parses `https://`, `http://`, `ssh://`, `git://` and `file://` addresses, `user@host:path`, and absolute
    /// paths.
    pub fn parse(text: &str) -> Result<Self, Error> {
        read(text.trim()).and_then(short_enough).map_err(|cause| Error::parse("address of the repository", cause))
    }

    /// Returns the address of a repository in this file system; `path` is absolute.
    pub fn local(path: impl Into<PathBuf>) -> Self {
        Self::new(Place::Local(path.into()), Credentials::Anonymous)
    }

    /// Returns the address of the artifact of an OCIRepository. Only the agent creates such addresses. `owner`
    /// distinguishes OCIRepositories.
    pub fn of_artifact(url: &str, owner: String) -> Self {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        // A password in the address is refused by other code, and never shown.
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let shown = format!("{scheme}://{host}{path}");
        let url = shown.chars().filter(|c| !c.is_control()).take(LONGEST / 4).collect();
        Self::new(Place::Artifact(ArtifactAddress { url, owner }), Credentials::Anonymous)
    }

    /// Returns the artifact of an OCIRepository.
    pub(super) fn artifact(&self) -> Option<&ArtifactAddress> {
        match &self.0.place {
            Place::Artifact(address) => Some(address),
            Place::Http(_) | Place::Ssh(_) | Place::Git(_) | Place::Local(_) => None,
        }
    }

    fn new(place: Place, embedded: Credentials) -> Self {
        Self(Arc::new(Address { place, embedded }))
    }

    /// Returns the directory of a local repository.
    pub fn local_path(&self) -> Option<&Path> {
        match &self.0.place {
            Place::Local(path) => Some(path),
            Place::Http(_) | Place::Ssh(_) | Place::Git(_) | Place::Artifact(_) => None,
        }
    }

    pub(super) fn http(&self) -> Option<&Url> {
        match &self.0.place {
            Place::Http(url) => Some(url),
            Place::Ssh(_) | Place::Git(_) | Place::Local(_) | Place::Artifact(_) => None,
        }
    }

    pub(super) fn ssh(&self) -> Option<&SshAddress> {
        match &self.0.place {
            Place::Ssh(address) => Some(address),
            Place::Http(_) | Place::Git(_) | Place::Local(_) | Place::Artifact(_) => None,
        }
    }

    pub(super) fn git(&self) -> Option<&GitAddress> {
        match &self.0.place {
            Place::Git(address) => Some(address),
            Place::Http(_) | Place::Ssh(_) | Place::Local(_) | Place::Artifact(_) => None,
        }
    }

    /// Returns the scheme of the address; `file` for a local repository.
    pub fn scheme(&self) -> &str {
        match &self.0.place {
            Place::Http(url) => url.scheme(),
            Place::Ssh(_) => "ssh",
            Place::Git(_) => "git",
            Place::Local(_) => "file",
            Place::Artifact(_) => "oci",
        }
    }

    /// Returns the host in lower case, without port; `None` for a local repository.
    pub fn host(&self) -> Option<&str> {
        match &self.0.place {
            Place::Http(url) => url.host_str(),
            Place::Ssh(address) => Some(&address.host),
            Place::Git(address) => Some(&address.host),
            Place::Local(_) | Place::Artifact(_) => None,
        }
    }

    /// Returns the port unless it is the default of the scheme.
    pub fn port(&self) -> Option<u16> {
        match &self.0.place {
            Place::Http(url) => url.port(),
            Place::Ssh(address) => address.unusual_port(),
            Place::Git(address) => address.unusual_port(),
            Place::Local(_) | Place::Artifact(_) => None,
        }
    }

    /// Returns the server as `scheme://host`, with the port unless it is the default; `None` for a local repository.
    pub fn server(&self) -> Option<String> {
        let port = self.port().map(|port| format!(":{port}")).unwrap_or_default();
        Some(format!("{}://{}{port}", self.scheme(), self.host()?))
    }

    /// Returns a text that is equal for addresses of the same repository: it has neither scheme nor `.git`, and the user of SSH
    /// only if that is not `git`. Two artifacts with the same address are different, because each follows its own version.
    pub fn identity(&self) -> String {
        match &self.0.place {
            Place::Artifact(address) => format!("oci:{}", address.owner),
            Place::Local(path) => path.display().to_string(),
            // The path may be relative to the home directory of the user.
            Place::Ssh(address) if address.user != "git" || address.path.starts_with('~') => {
                format!("{}@{}:{}/{}", address.user, address.host, address.port, address.path)
            }
            Place::Http(_) | Place::Ssh(_) | Place::Git(_) => {
                let (host, port) = (self.host().unwrap_or_default(), self.port().map(|port| format!(":{port}")));
                let path = self.repository_path().map(percent::decoded).unwrap_or_default();
                format!("{host}{}/{path}", port.unwrap_or_default())
            }
        }
    }

    /// Returns the path on the host, without leading and trailing slashes and without `.git`; `None` for a local
    /// repository.
    pub fn repository_path(&self) -> Option<&str> {
        let path = match &self.0.place {
            Place::Http(url) => url.path(),
            Place::Ssh(address) => &address.path,
            Place::Git(address) => &address.path,
            Place::Local(_) | Place::Artifact(_) => return None,
        };
        let path = path.trim_matches('/');
        Some(path.strip_suffix(".git").unwrap_or(path))
    }

    /// Returns [`repository_path`](Self::repository_path) without percent encoding.
    pub fn decoded_path(&self) -> Option<String> {
        self.repository_path().map(percent::decoded)
    }

    /// Returns the host in the form of `known_hosts`, with the port unless it is 22; `None` if the scheme is not SSH.
    pub fn known_hosts_name(&self) -> Option<String> {
        self.ssh().map(SshAddress::known_hosts_name)
    }

    /// Returns whether the address contains a user or a password.
    pub fn holds_credentials(&self) -> bool {
        self.0.embedded != Credentials::Anonymous
    }

    /// Returns whether the address contains a password.
    pub(super) fn holds_password(&self) -> bool {
        matches!(&self.0.embedded, Credentials::Basic { password, .. } if !password.expose().is_empty())
    }

    /// Returns whether an attacker on the network can replace the repository. A Git daemon neither encrypts nor
    /// authenticates.
    pub fn is_unprotected(&self) -> bool {
        self.git().is_some()
    }

    /// Returns the credentials in the address.
    pub(super) fn embedded(&self) -> &Credentials {
        &self.0.embedded
    }
}

fn read(text: &str) -> Result<RemoteUrl, Fault> {
    const FORM: Fault = Fault::Malformed {
        why: "the URL must have the form https://host/path, ssh://user@host/path or user@host:path",
    };
    const INSTEAD: &str = "use https:// or ssh://";
    if text.is_empty() || text.len() > LONGEST || text.chars().any(char::is_control) {
        return Err(FORM);
    }
    if text.starts_with('/') {
        return Ok(RemoteUrl::local(text));
    }
    let Some((scheme, rest)) = text.split_once("://") else {
        let address = SshAddress::parse_scp(text).ok_or(FORM)??;
        return Ok(RemoteUrl::new(Place::Ssh(address), Credentials::Anonymous));
    };
    match scheme.to_ascii_lowercase().as_str() {
        "http" | "https" => http(text),
        "file" => Ok(RemoteUrl::local(file_path(&Url::parse(text).map_err(|_| FORM)?)?)),
        "ssh" | "git+ssh" | "ssh+git" => {
            Ok(RemoteUrl::new(Place::Ssh(SshAddress::parse_url(rest)?), Credentials::Anonymous))
        }
        "git" => {
            let address = GitAddress::parse(rest).map_err(|why| Fault::Malformed { why })?;
            Ok(RemoteUrl::new(Place::Git(address), Credentials::Anonymous))
        }
        "oci" => {
            let instead = "create an OCIRepository, and name it in spec.sourceRef of the GitSync";
            Err(Fault::Unsupported { what: "an image registry as a Git repository", instead })
        }
        _ => Err(Fault::Unsupported { what: "this kind of address", instead: INSTEAD }),
    }
}

/// Returns the path of a `file://` address. The path is displayed without `file://`, so it must be valid as a plain
/// path.
fn file_path(url: &Url) -> Result<PathBuf, Fault> {
    const PLAIN: Fault = Fault::Malformed {
        why: "the path of a file:// URL must not contain control characters, `?` or `#`, or have spaces at its ends",
    };
    let path = url.to_file_path().map_err(|()| PLAIN)?;
    let is_plain = |shown: &str| shown.trim() == shown && !shown.chars().any(char::is_control);
    let is_path = url.query().is_none() && url.fragment().is_none() && path.to_str().is_some_and(is_plain);
    if is_path { Ok(path) } else { Err(PLAIN) }
}

/// Checks the length of the displayed address, because its ASCII form may be longer than the input and is parsed again.
fn short_enough(url: RemoteUrl) -> Result<RemoteUrl, Fault> {
    if url.to_string().len() > LONGEST {
        return Err(Fault::Malformed { why: "the URL must have at most 4096 bytes, all of them ASCII" });
    }
    Ok(url)
}

fn http(text: &str) -> Result<RemoteUrl, Fault> {
    let mut url =
        Url::parse(text).map_err(|_| Fault::Malformed { why: "the URL must have the form https://host/path" })?;
    if url.query().is_some() || url.fragment().is_some() {
        return Err(Fault::Malformed { why: "the URL must not contain `?` or `#`; credentials belong in a Secret" });
    }
    if !plain_host::is_plain_in(text) {
        return Err(Fault::Malformed { why: plain_host::REFUSED });
    }
    if url.host_str().is_some_and(is_metadata_host) {
        return Err(Fault::Malformed { why: METADATA_REFUSED });
    }
    let embedded = match (url.username(), url.password()) {
        ("", None) => Credentials::Anonymous,
        (user, password) => Credentials::Basic {
            username: percent::decoded(user),
            password: Secret::new(percent::decoded(password.unwrap_or_default())),
        },
    };
    strip(&mut url);
    let path = url.path().trim_end_matches('/').to_owned();
    url.set_path(&path);
    Ok(RemoteUrl::new(Place::Http(url), embedded))
}

/// Removes user and password from a URL.
pub(super) fn strip(url: &mut Url) {
    // Both calls fail only for URLs that cannot contain credentials.
    let _ = url.set_username("");
    let _ = url.set_password(None);
}

impl FromStr for RemoteUrl {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text)
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.place {
            Place::Http(url) => f.write_str(url.as_str()),
            Place::Ssh(address) => address.fmt(f),
            Place::Git(address) => address.fmt(f),
            Place::Local(path) => path.display().fmt(f),
            Place::Artifact(address) => f.write_str(&address.url),
        }
    }
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let got = match RemoteUrl::parse(text) {
            Ok(url) => url.to_string(),
            Err(error) => error.fault().to_string(),
        };
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn the_address_of_an_artifact_shows_no_login() {
        let shown = |url: &str| RemoteUrl::of_artifact(url, "a/b/c".to_owned()).to_string();
        assert_eq!(shown("oci://r.example.org:5000/team/shop"), "oci://r.example.org:5000/team/shop");
        for url in ["oci://user:hunter2@r.example.org/a", "user:hunter2@r.example.org/a", "oci://hunter2@x@r/a"] {
            assert!(!shown(url).contains("hunter2"), "{url}: {}", shown(url));
        }
    }

    #[test]
    fn addresses_of_one_repository_have_one_identity() {
        let identity = |text: &str| RemoteUrl::parse(text).unwrap().identity();
        let same = [
            "https://git.example.org/team/shop",
            "git@git.example.org:team/shop.git",
            "ssh://git.example.org/team/shop/",
        ];
        assert!(same.iter().all(|text| identity(text) == "git.example.org/team/shop"), "{:?}", same.map(identity));
        assert_eq!(identity("https://git.example.org:8443/team/shop.git"), "git.example.org:8443/team/shop");
        assert_eq!(identity("/srv/git/shop"), "/srv/git/shop");
        for (one, other) in [
            ("a@git.example.org:shop", "b@git.example.org:shop"),
            ("a@git.example.org:shop", "a@git.example.org:/shop"),
        ] {
            assert_ne!(identity(one), identity(other), "each user has a home directory");
        }
        let artifact = |owner: &str| RemoteUrl::of_artifact("oci://r.example.org/web", owner.to_owned()).identity();
        assert_ne!(artifact("shop/staging/1"), artifact("shop/production/2"));
    }

    #[test]
    fn reads_http_and_local_addresses_and_says_what_else_it_saw() {
        check(" https://example.org/a/b.git/ ", "https://example.org/a/b.git");
        check("HTTP://Example.org:8080/x", "http://example.org:8080/x");
        check("/srv/git/x", "/srv/git/x");
        check("file:///srv/a%20b", "/srv/a b");
        for (scheme, piece) in [("https", "é"), ("git", "%/")] {
            let address = format!("{scheme}://example.org/{}x", piece.repeat(1500));
            check(&address, "the URL must have at most 4096 bytes, all of them ASCII");
        }
        for path in ["/srv/%1b[31ma", "/srv/a%20", "/srv/a?b", "/srv/a#b", "/srv/%ff"] {
            let plain = "the path of a file:// URL must not contain control characters, `?` or `#`, or have spaces at \
                         its ends";
            check(&format!("file://{path}"), plain);
        }
        let form = "the URL must have the form https://host/path, ssh://user@host/path or user@host:path";
        check("ext::sh -c id", form);
        check("git://example.org/x", "git://example.org/x");
        check("ftp://example.org/x", "this kind of address is not supported; use https:// or ssh://");
        check("", form);
        check("http://169.254.169.254/x", METADATA_REFUSED);
        check("https://0xa9fea9fe/x", METADATA_REFUSED);
        check("ssh://git@[fe80::1]/x", METADATA_REFUSED);
        check("https://", "the URL must have the form https://host/path");
        check("relative/path", form);
        check("example.org:8080/x", form);
        check("a/b@c:d", form);
        check("https://e.org/x?token=abc", "the URL must not contain `?` or `#`; credentials belong in a Secret");
    }

    #[test]
    fn refuses_hosts_that_only_look_like_another_one() {
        let ascii = "the host of a URL must be ASCII, because letters of other scripts can look the same; write the host \
                     in its `xn--` form";
        for host in [
            "gіthub.com",
            "GІTHUB.com",
            "user:canary@gіthub.com",
            "ｇithub.com",
            "g%D1%96thub.com",
            "git\u{ad}hub.com",
            "github。com",
            "example.org:8080@gіthub.com:8443",
        ] {
            for scheme in ["https", "http", "HTTPS", "git"] {
                // A `git://` address has no user.
                let host = if scheme == "git" { host.rsplit('@').next().unwrap() } else { host };
                check(&format!("{scheme}://{host}/team/shop"), ascii);
            }
        }
        check("https:///gіthub.com/team/shop", ascii);
        check(r"https://\\gіthub.com\team", ascii);
        check("https://xn--gthub-cvf.com/a", "https://xn--gthub-cvf.com/a");
        check("git://xn--gthub-cvf.com/a", "git://xn--gthub-cvf.com/a");
        check("https://example.org/größe", "https://example.org/gr%C3%B6%C3%9Fe");
        check("https://me@example.org/x", "https://example.org/x");
        check("https://[::1]:8443/x", "https://[::1]:8443/x");
    }

    #[test]
    fn hides_credentials_that_stand_in_the_address() {
        let url = RemoteUrl::parse("https://us%40er:hunter%32@example.org/x").unwrap();
        assert_eq!(url.to_string(), "https://example.org/x");
        assert!(!format!("{url:?}").contains("hunter"));
        assert!(url.holds_credentials() && !RemoteUrl::parse(&url.to_string()).unwrap().holds_credentials());
        let Credentials::Basic { username, password } = url.embedded() else { panic!("no credentials") };
        assert_eq!((username.as_str(), password.expose().as_str()), ("us@er", "hunter2"));
    }

    proptest! {
        #[test]
        fn reads_any_text_without_panic_and_shows_no_password(
            scheme in "(https?|ssh|git|file|ext|HTTPS)?(://|:)?", user in "[a-z%@:/]{0,6}", rest in "(\\PC|[/:@%?#.\\[\\]]){0,40}",
        ) {
            for text in [format!("{scheme}{rest}"), format!("{scheme}{user}:canary-81723@{rest}")] {
                // Only passwords are hidden; a path or a name is shown.
                let is_secret = |url: &RemoteUrl| match url.embedded() {
                    Credentials::Basic { password, .. } => password.expose().contains("canary-81723"),
                    _ => false,
                };
                let (shown, holds_it) = match RemoteUrl::parse(&text) {
                    Ok(url) => (format!("{url} {url:?}"), is_secret(&url)),
                    Err(error) => (format!("{error} {}", error.fault()), true),
                };
                prop_assert!(!holds_it || !shown.contains("canary-81723"), "{}: {}", text, shown);
            }
        }
    }
}
