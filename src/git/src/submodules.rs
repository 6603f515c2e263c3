//! The submodules in `.gitmodules`, and their remotes.
//!
//! Invariant: the address of a submodule obeys the rules for all addresses. A relative address stays on the host of the
//! parent.
//! Invariant: credentials are sent only to their own scheme, host and port.
//! Invariant: a commit in a repository on a public host cannot reference a host in a private network.
//! Not here: the syntax of the file (`gitmodules`), name resolution, and fetching (`submodule_fetch`). Settings other
//! than path and url are ignored.

use std::collections::BTreeMap;

use super::error::{Error, Fault};
use super::remote::Remote;
use super::{Connection, Credentials, RemoteUrl, gitmodules, private_host};

/// The name of the input in errors.
const WHAT: &str = "submodules of the commit";

/// Maximum size of `.gitmodules`, in bytes.
pub(super) const FILE_BYTES: u64 = 1 << 20;
/// Name of the file.
pub(super) const FILE: &str = ".gitmodules";

/// Maximum number of submodules in the file.
const NAMED: usize = 256;

/// Returns the addresses of a commit's submodules, by path.
pub(super) fn read(text: &str) -> Result<BTreeMap<String, String>, Error> {
    let mut named: Vec<(String, [Option<String>; 2])> = Vec::new();
    for setting in gitmodules::Settings::of(text) {
        let gitmodules::Setting { section, key, value } = setting.map_err(malformed)?;
        let field = match key.as_str() {
            "path" => 0,
            "url" => 1,
            _ => continue,
        };
        let (Some(name), Some(value)) = (section.strip_prefix("submodule."), value) else { continue };
        if value.chars().any(char::is_control) {
            return Err(malformed("a value in .gitmodules must not contain control characters"));
        }
        let known = named.iter().position(|(known, _)| known == name);
        let at = known.unwrap_or_else(|| {
            named.push((name.to_owned(), [None, None]));
            named.len() - 1
        });
        if named.len() > NAMED {
            let (what, limit) = ("the number of submodules in .gitmodules", NAMED as u64);
            return Err(Error::parse(WHAT, Fault::TooLarge { what, limit }));
        }
        named[at].1[field] = Some(value);
    }
    let mut found = BTreeMap::new();
    for (_, fields) in named {
        let [Some(path), Some(url)] = fields else { continue };
        if path.starts_with('-') || url.starts_with('-') {
            return Err(malformed("the path and the URL of a submodule must not begin with `-`"));
        }
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return Err(malformed("the path of a submodule must be below the root of its repository"));
        }
        found.insert(path.to_owned(), url);
    }
    Ok(found)
}

/// Returns the remote of a submodule in a commit of `parent`.
pub(super) fn remote(parent: &Remote, address: &str) -> Result<Remote, Error> {
    let url = if address.starts_with("./") || address.starts_with("../") {
        relative(&parent.url, address)?
    } else {
        RemoteUrl::parse(address)?
    };
    if url.local_path().is_some() && parent.url.local_path().is_none() {
        return Err(malformed("the URL of a submodule must be that of a Git server, not a local path"));
    }
    if url.holds_credentials() {
        return Err(malformed("the URL of a submodule must not contain a user name or password"));
    }
    let is_parent_public = parent.url.host().is_some_and(|host| !private_host::is_private(host));
    if is_parent_public && url.host().is_some_and(private_host::is_private) {
        return Err(malformed("a repository on a public host cannot have a submodule on a private host"));
    }
    let connection = &parent.connection;
    let (credentials, connection) = if is_same_server(&parent.url, &url) {
        (parent.credentials().clone(), connection.clone())
    } else {
        let authorities = connection.authorities.clone();
        (Credentials::Anonymous, Connection { authorities, client: None, ..connection.clone() })
    };
    // The parent's signed commit already determines the submodule's commit.
    Ok(Remote { url, credentials, connection, verification: None, submodules: parent.submodules, lfs: parent.lfs })
}

/// Returns whether both have the same server and user, so that credentials for one may be sent to the other.
pub(super) fn is_same_server(one: &RemoteUrl, other: &RemoteUrl) -> bool {
    let user = |url: &RemoteUrl| url.ssh().map(|address| address.user.clone());
    one.scheme() == other.scheme()
        && one.host() == other.host()
        && one.port() == other.port()
        && user(one) == user(other)
}

/// Resolves a relative address as `git submodule` does: each `../` removes the last part of the parent's path.
fn relative(parent: &RemoteUrl, address: &str) -> Result<RemoteUrl, Error> {
    let above = || malformed("the relative URL of a submodule points outside the host of its repository");
    let mut base = parent.to_string().trim_end_matches('/').to_owned();
    let mut rest = address;
    loop {
        if let Some(shorter) = rest.strip_prefix("./") {
            rest = shorter;
        } else if let Some(shorter) = rest.strip_prefix("../") {
            rest = shorter;
            // In `user@host:path`, the path begins at the colon.
            let at = base.rfind('/').or_else(|| base.rfind(':')).ok_or_else(above)?;
            base.truncate(at);
        } else {
            break;
        }
        rest = rest.trim_start_matches('/');
    }
    if rest.is_empty() || rest.split('/').any(|part| part == "..") {
        return Err(above());
    }
    let is_scp = !base.contains("://") && !base.starts_with('/') && !base.contains(':');
    let url = RemoteUrl::parse(&format!("{base}{}{rest}", if is_scp { ':' } else { '/' })).ok();
    url.filter(|url| is_same_server(parent, url)).ok_or_else(above)
}

fn malformed(why: &'static str) -> Error {
    Error::parse(WHAT, Fault::Malformed { why })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use mainstay_object::Secret;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let got = match read(text) {
            Ok(found) => found.iter().map(|(path, url)| format!("{path} {url}")).collect::<Vec<_>>().join("; "),
            Err(error) => error.fault().to_string(),
        };
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn reads_what_git_writes() {
        check("", "");
        check("[submodule \"a\"]\n\tpath = libs/a\n\turl = ../a.git\n", "libs/a ../a.git");
        let two = "# all\n[submodule \"a\"]\npath=a ; here\nurl = \"https://h/a b.git\" # there\nbranch = main\n\
                   [submodule \"b\"]\n  URL = ssh://git@h/b\n  Path = \"b\\\\c\"\n[core]\npath = x\nurl = y\n";
        check(two, "a https://h/a b.git; b\\c ssh://git@h/b");
        check("[submodule \"a\"]\npath = li\\\nbs/a/\nurl = u", "libs/a u");
        check("[submodule \"a\"] path = a\nurl = u\n", "a u");
        check("[submodule \"a\"]\npath = a\n# ends in \\\nurl = u\n", "a u");
        check("[submodule \"a\"]\npath = a\\\\\nurl = u\n", "a\\ u");
        check("[submodule \"a\"]\npath = a\n[submodule \"b\"]\n[submodule \"a\"]\nurl = u\n", "a u");
        check("[submodule \"a]b\"]\r\npath = a\r\nurl = u\r\n", "a u");
        check("\u{feff}[submodule.a]\npath = a\nurl = u", "a u");
        check("[submodule \"a\"]\npath\nurl = u", "");
        check("[include]\npath = /etc/passwd\nurl = u", "");
        let above = "the path of a submodule must be below the root of its repository";
        check("[submodule \"a\"]\npath = /\nurl = u", above);
        check("[submodule \"a\"]\npath = only", "");
        check("[submodule \"a\"\npath = a", "a section of .gitmodules must have the form [submodule \"name\"]");
        check("[submodule \"a\"]\npath = a\n= b", "a line of .gitmodules must have the form key = value");
        check("[submodule \"a\"]\npath = \"a", "a value in .gitmodules has no closing quote");
        check("[submodule \"a\"]\npath = a\\x", "a value in .gitmodules has an unknown escape");
        let option = "the path and the URL of a submodule must not begin with `-`";
        check("[submodule \"a\"]\npath = a\nurl = -u./payload", option);
        check("[submodule \"a\"]\npath = --all\nurl = https://h/a", option);
    }

    #[test]
    fn names_only_so_many() {
        let many = |count: usize| -> String {
            let sections = (0..count).map(|n| format!("[submodule \"{n}\"]\npath = m{n}\nurl = u\n"));
            sections.collect::<Vec<_>>().concat()
        };
        assert_eq!(read(&many(NAMED)).unwrap().len(), NAMED);
        check(&many(30_000), "the number of submodules in .gitmodules is larger than the limit of 256");
    }

    fn parent(url: &str) -> Remote {
        let password = Secret::new("secret".to_owned());
        Remote::new(RemoteUrl::parse(url).unwrap(), Credentials::Basic { username: "me".into(), password })
    }

    #[track_caller]
    fn resolves(base: &str, address: &str, expected: &str) {
        let got = match remote(&parent(base), address) {
            Ok(remote) => {
                let with = if remote.credentials == Credentials::Anonymous { "" } else { " with credentials" };
                format!("{}{with}", remote.url)
            }
            Err(error) => error.fault().to_string(),
        };
        assert_eq!(got, expected, "{base} {address}");
    }

    #[test]
    fn resolves_addresses_as_git_does_and_keeps_credentials_at_home() {
        let https = "https://git.example.org/org/app.git";
        resolves(https, "../lib.git", "https://git.example.org/org/lib.git with credentials");
        resolves(https, "../../other/lib", "https://git.example.org/other/lib with credentials");
        resolves(https, "./lib", "https://git.example.org/org/app.git/lib with credentials");
        resolves(https, "../.././x/lib", "https://git.example.org/x/lib with credentials");
        resolves(https, "https://git.example.org/lib", "https://git.example.org/lib with credentials");
        resolves(https, "https://GIT.example.org:443/lib", "https://git.example.org/lib with credentials");
        for elsewhere in [
            "http://git.example.org/lib",
            "https://git.example.org:8443/lib",
            "https://git.example.org.evil.example/lib",
            "https://evil.example/lib",
        ] {
            resolves(https, elsewhere, elsewhere);
        }
        resolves("git@example.org:org/app.git", "../lib.git", "git@example.org:org/lib.git with credentials");
    }

    #[test]
    fn refuses_addresses_that_no_repository_may_have() {
        let https = "https://git.example.org/org/app.git";
        let above = "the relative URL of a submodule points outside the host of its repository";
        for address in
            ["../../../lib", "../../../../evil.example/lib", "../../../evil.example/x", "../", "../x/../../y"]
        {
            resolves(https, address, above);
        }
        resolves(https, "/etc", "the URL of a submodule must be that of a Git server, not a local path");
        resolves(https, "file:///etc", "the URL of a submodule must be that of a Git server, not a local path");
        resolves(
            https,
            "https://u:p@git.example.org/x",
            "the URL of a submodule must not contain a user name or password",
        );
        resolves(
            https,
            "ext::sh -c id",
            "the URL must have the form https://host/path, ssh://user@host/path or user@host:path",
        );
        resolves(https, "http://169.254.169.254/x", mainstay_object::egress::METADATA_REFUSED);
        let public = "a repository on a public host cannot have a submodule on a private host";
        for address in ["http://127.0.0.1/x", "ssh://git@10.1.2.3/x", "http://vault.ops.svc:8200/x", "git://[::1]/x"] {
            resolves(https, address, public);
            resolves("http://git.forge.svc/org/app", address, address);
        }
    }

    proptest! {
        #[test]
        fn reads_any_text_to_an_end(text: String, address in "[./a-z:@-]{0,30}") {
            let _ = read(&text);
            let _ = read(&format!("[submodule \"{text}\"]\npath = {text}\nurl = {address}\n"));
            if let Ok(remote) = remote(&parent("https://git.example.org/org/app.git"), &address)
                && remote.credentials != Credentials::Anonymous
            {
                prop_assert_eq!(remote.url.host(), Some("git.example.org"));
            }
        }
    }
}
