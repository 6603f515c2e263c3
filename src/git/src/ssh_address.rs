//! The address of a repository over SSH: `ssh://user@host:port/path`, or `user@host:path` as in scp.
//!
//! Invariant: host, user and path contain nothing that a shell, an option parser or a terminal could misinterpret.
//! Invariant: the address contains no password.

use std::fmt;

use super::error::Fault;
use mainstay_object::egress::{METADATA_REFUSED, is_metadata_host};

/// Default user, as Git hosts expect it.
const USER: &str = "git";
const PORT: u16 = 22;

/// The address of a repository on an SSH server.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct SshAddress {
    pub(super) user: String,
    /// The host: a name or an IP address, in lower case and without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path as sent to the server. `/…` is absolute; other paths are relative to a home directory.
    pub(super) path: String,
}

impl SshAddress {
    /// Parses the address after `ssh://`.
    pub(super) fn parse_url(rest: &str) -> Result<Self, Fault> {
        const FORM: Fault = Fault::Malformed { why: "an SSH URL must have the form ssh://user@host:port/path" };
        if rest.contains(['?', '#']) {
            return Err(Fault::Malformed {
                why: "the URL must not contain `?` or `#`; credentials belong in a Secret",
            });
        }
        let (authority, path) = rest.split_at(rest.find('/').ok_or(FORM)?);
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let (host, port) = split_port(host).ok_or(FORM)?;
        let port = match port {
            None | Some("") => PORT,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port > 0).ok_or(FORM)?
            }
            Some(_) => return Err(FORM),
        };
        let path = super::percent::decoded(path);
        let user = user.map(super::percent::decoded);
        Self { user: user.unwrap_or_else(|| USER.to_owned()), host: host.to_owned(), port, path }.checked()
    }

    /// Parses `user@host:path`; `None` if the input does not have this form.
    pub(super) fn parse_scp(text: &str) -> Option<Result<Self, Fault>> {
        let at = text.find('@')?;
        let end_of_host = if text[at + 1..].starts_with('[') {
            text[at..].find("]:").map(|found| at + found + 1)?
        } else {
            at + text[at..].find(':')?
        };
        let (user, host) = (&text[..at], text[at + 1..end_of_host].trim_start_matches('[').trim_end_matches(']'));
        if text[..end_of_host].contains('/') {
            return None;
        }
        let path = text[end_of_host + 1..].to_owned();
        Some(Self { user: user.to_owned(), host: host.to_owned(), port: PORT, path }.checked())
    }

    /// Refuses addresses that could be misinterpreted.
    fn checked(mut self) -> Result<Self, Fault> {
        if self.user.contains(':') {
            return Err(PASSWORD);
        }
        if [&self.user, &self.host, &self.path].iter().any(|part| part.starts_with('-')) {
            return Err(Fault::Malformed {
                why: "the user, the host and the path of an SSH URL must not begin with `-`, which would be an option",
            });
        }
        if [&self.user, &self.path].iter().any(|part| part.chars().any(char::is_control)) {
            return Err(Fault::Malformed { why: "the URL must not contain control characters" });
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+');
        if self.user.is_empty() || !self.user.chars().all(plain) {
            return Err(Fault::Malformed {
                why: "the user of an SSH URL must consist of letters, digits, `.`, `_`, `-` and `+`",
            });
        }
        let is_ip = self.host.parse::<std::net::Ipv6Addr>().is_ok();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if self.host.is_empty() || self.host.len() > 253 || !(is_ip || self.host.chars().all(is_name)) {
            return Err(Fault::Malformed {
                why: "the host of an SSH URL must be a name of ASCII letters, digits, `.`, `_` and `-`, or an IP \
                      address",
            });
        }
        if is_metadata_host(&self.host) {
            return Err(Fault::Malformed { why: METADATA_REFUSED });
        }
        // `/~user/…` is a path in a home directory.
        let path = if self.path.starts_with("/~") { &self.path[1..] } else { &self.path };
        let path = path.trim_end_matches(['/', ' ']);
        if path.is_empty() {
            return Err(Fault::Malformed { why: "an SSH URL must contain the path of the repository" });
        }
        self.path = path.to_owned();
        self.host.make_ascii_lowercase();
        Ok(self)
    }

    /// Returns the host in the form of `known_hosts`, with its port unless that is 22.
    pub(super) fn known_hosts_name(&self) -> String {
        if self.port == PORT { self.host.clone() } else { format!("[{}]:{}", self.host, self.port) }
    }

    /// Returns the port unless it is the default of SSH.
    pub(super) fn unusual_port(&self) -> Option<u16> {
        Some(self.port).filter(|port| *port != PORT)
    }

    /// Returns the command for fetching.
    pub(super) fn command(&self) -> String {
        format!("git-upload-pack {}", self.quoted_path())
    }

    /// Returns the command that receives pushes.
    pub(super) fn push_command(&self) -> String {
        format!("git-receive-pack {}", self.quoted_path())
    }

    /// Returns the command that asks for the location of Git LFS files.
    pub(super) fn lfs_command(&self) -> String {
        format!("git-lfs-authenticate {} download", self.quoted_path())
    }

    /// Quotes the path as Git does. `!` is quoted, too, for shells with history expansion.
    fn quoted_path(&self) -> String {
        format!("'{}'", self.path.replace('\'', "'\\''").replace('!', "'\\!'"))
    }
}

const PASSWORD: Fault = Fault::Malformed {
    why: "an SSH URL must not contain a password; reference a Secret with a private key in the repository's `auth`",
};

/// Splits `host`, `host:port`, `[address]` or `[address]:port`.
fn split_port(text: &str) -> Option<(&str, Option<&str>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return if rest.is_empty() { Some((host, None)) } else { Some((host, Some(rest.strip_prefix(':')?))) };
    }
    Some(text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))))
}

/// Formats the address so that it parses to the same address again.
impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == PORT && !self.path.starts_with(['/', '~']) {
            return write!(f, "{}@{host}:{}", self.user, self.path);
        }
        let port = if self.port == PORT { String::new() } else { format!(":{}", self.port) };
        let slash = if self.path.starts_with('/') { "" } else { "/" };
        write!(f, "ssh://{}@{host}{port}{slash}{}", self.user, encoded(&self.path))
    }
}

fn encoded(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        match c {
            '%' => out.push_str("%25"),
            '?' => out.push_str("%3F"),
            '#' => out.push_str("%23"),
            ' ' => out.push_str("%20"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::RemoteUrl;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let got = match RemoteUrl::parse(text) {
            Ok(url) => format!("{url} {}", url.ssh().map(super::SshAddress::command).unwrap_or_default()),
            Err(error) => error.fault().to_string(),
        };
        assert_eq!(got, expected, "{text}");
    }

    #[test]
    fn reads_both_forms() {
        let upload = |path: &str| format!("git-upload-pack '{path}'");
        let scp = format!("git@github.com:a/b.git {}", upload("a/b.git"));
        check("git@github.com:a/b.git", &scp);
        check(" git@GitHub.com:a/b.git/ ", &scp);
        check("ssh://git@github.com/a/b.git", &format!("ssh://git@github.com/a/b.git {}", upload("/a/b.git")));
        check("ssh://github.com/a/b", &format!("ssh://git@github.com/a/b {}", upload("/a/b")));
        check("git+ssh://h:2222/a", &format!("ssh://git@h:2222/a {}", upload("/a")));
        check("ssh://me@[::1]:2222/a", &format!("ssh://me@[::1]:2222/a {}", upload("/a")));
        check("me@[::1]:a", &format!("me@[::1]:a {}", upload("a")));
        check("ssh://h/~me/a%20b", &format!("ssh://git@h/~me/a%20b {}", upload("~me/a b")));
        check("me@h:/srv/it's!", &format!("ssh://me@h/srv/it's! {}", upload(r"/srv/it'\''s'\!'")));
        check("git@ssh.dev.azure.com:v3/o/p/r", &format!("git@ssh.dev.azure.com:v3/o/p/r {}", upload("v3/o/p/r")));
    }

    #[test]
    fn refuses_injections() {
        let option = "the user, the host and the path of an SSH URL must not begin with `-`, which would be an option";
        check("ssh://-oProxyCommand=id/x", option);
        check("ssh://git@-oProxyCommand=id/x", option);
        check("git@-oProxyCommand=id:x", option);
        check("-oProxyCommand=id@h:x", option);
        check("git@h:--upload-pack=id", option);
        let password = "an SSH URL must not contain a password; reference a Secret with a private key in the \
                        repository's `auth`";
        check("ssh://git:hunter2@h/x", password);
        check("ssh://git%3Ahunter2@h/x", password);
        check("git:hunter2@h:x", password);
        check("ssh://h/a%0aid", "the URL must not contain control characters");
        check("ssh://h/a%00", "the URL must not contain control characters");
        let user = "the user of an SSH URL must consist of letters, digits, `.`, `_`, `-` and `+`";
        check("ssh://a$(id)@h/x", user);
        check("ssh://@h/x", user);
        let host = "the host of an SSH URL must be a name of ASCII letters, digits, `.`, `_` and `-`, or an IP address";
        check("ssh://git@h$(id)/x", host);
        check("ssh://git@gіthub.com/x", host);
        check("ssh:///x", host);
        let form = "an SSH URL must have the form ssh://user@host:port/path";
        check("ssh://h", form);
        check("ssh://h:0/x", form);
        check("ssh://h:99999/x", form);
        check("ssh://h:+22/x", form);
        check("ssh://h/", "an SSH URL must contain the path of the repository");
        check("ssh://h/x?a", "the URL must not contain `?` or `#`; credentials belong in a Secret");
        assert!(!super::SshAddress::parse_scp("git:hunter2@h:x").unwrap().unwrap_err().to_string().contains("hunter"));
    }

    proptest! {
        #[test]
        fn the_displayed_form_parses_to_the_same_address(text in "(ssh://)?[ -~]{0,12}@?[a-z\\[\\]:.-]{1,6}[:/][ -~]{0,12}") {
            if let Ok(url) = RemoteUrl::parse(&text) {
                prop_assert_eq!(&RemoteUrl::parse(&url.to_string()).unwrap(), &url);
                prop_assert!(!url.to_string().chars().any(char::is_control));
            }
        }
    }
}
