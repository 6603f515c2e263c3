//! The address of a repository: without a login, and the page of a commit at its host.
//!
//! Invariant: an address is hostile. A link is built from checked parts only, and leads to a host of the table.

use serde_json::Value;

use crate::git_place::has_login;

/// Maximum length of an address, in bytes.
const LONGEST: usize = 2048;
/// Maximum number of groups above a project of GitLab, with the project.
const GROUPS: usize = 22;

/// How a host addresses commits.
#[derive(Clone, Copy)]
enum Host {
    GitHub,
    GitLab,
    Gitea,
    Bitbucket,
}

/// Returns the host of a name. Hosts of companies are known by the first part of their name, such as `gitlab.example.com`.
fn host_of(name: &str) -> Option<Host> {
    Some(match name {
        "github.com" => Host::GitHub,
        "gitlab.com" => Host::GitLab,
        "codeberg.org" | "gitea.com" => Host::Gitea,
        "bitbucket.org" => Host::Bitbucket,
        _ => match name.split_once('.')?.0 {
            "github" => Host::GitHub,
            "gitlab" => Host::GitLab,
            "gitea" | "forgejo" => Host::Gitea,
            _ => return None,
        },
    })
}

/// The text in place of an address in which a login cannot be told from the rest.
const UNCLEAR: &str = "not shown, because it may contain a login";

/// Returns an address without user, password, query and fragment; `None` if a login cannot be told from the rest.
pub(crate) fn without_login(address: &str) -> Option<String> {
    // Parsers treat these characters differently, and so find different hosts.
    if address.contains(|one: char| one == '\\' || one.is_control()) {
        return None;
    }
    let Some((scheme, rest)) = address.split_once("://") else { return without_user(address) };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (has_user, host) = authority.rsplit_once('@').map_or((false, authority), |(_, host)| (true, host));
    // A login with a slash ends the authority too early.
    let is_cut_login = path.contains('@') && (has_user || !host.contains('.'));
    let is_local = host.is_empty() && scheme.eq_ignore_ascii_case("file");
    if is_cut_login || !is_local && !is_host(host) {
        return None;
    }
    Some(format!("{scheme}://{host}{}", without_query(path)))
}

/// Returns an address as a page shows it.
pub(crate) fn shown(address: &str) -> String {
    without_login(address).unwrap_or_else(|| UNCLEAR.to_owned())
}

/// Replaces an address with a login by one without it and a mark. Returns whether it had a login.
pub(crate) fn hide_login(object: &mut Value, pointer: &str) -> bool {
    let Some(Value::String(address)) = object.pointer_mut(pointer) else { return false };
    if !has_login(address) && !is_http(address) {
        return false;
    }
    let bare = without_login(address);
    if bare.as_deref() == Some(address.as_str()) {
        return false;
    }
    *address = bare.map_or_else(|| "(hidden)".to_owned(), |bare| format!("{bare} (login hidden)"));
    true
}

/// Returns whether an address is one of HTTP, in which a user may be a token.
pub(crate) fn is_http(address: &str) -> bool {
    address.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"))
}

/// Returns an address of the form `USER@HOST:PATH`, or a path, without its user.
fn without_user(address: &str) -> Option<String> {
    let (host, path) = address.split_at(address.find([':', '/', '?', '#']).unwrap_or(address.len()));
    let (has_user, host) = host.rsplit_once('@').map_or((false, host), |(_, host)| (true, host));
    // `https:USER:PASSWORD@HOST` is a URL, too.
    let is_url = ["http", "https"].iter().any(|scheme| host.eq_ignore_ascii_case(scheme));
    let is_whole = has_user && host.is_empty();
    if is_whole || path.starts_with(':') && is_url || path.contains('@') {
        return None;
    }
    Some(format!("{host}{}", without_query(path)))
}

fn without_query(path: &str) -> &str {
    &path[..path.find(['?', '#']).unwrap_or(path.len())]
}

/// Returns whether a text is a host, perhaps with a port.
fn is_host(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':').unwrap_or(rest)),
        None => text.split_once(':').unwrap_or((text, "")),
    };
    let is_port = port.is_empty() || port.parse::<u16>().is_ok();
    !host.is_empty() && is_port && !host.contains(|one: char| one.is_whitespace() || "%[]<>\"^|".contains(one))
}

/// Returns the URL of a commit's page at the host of the repository; `None` if the host is unknown.
pub(crate) fn commit_page(address: &str, commit: &str) -> Option<String> {
    let is_commit = matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_commit || address.len() > LONGEST {
        return None;
    }
    let bare = without_login(address)?;
    let (scheme, authority, path) = if let Some((scheme, rest)) = bare.split_once("://") {
        let (authority, path) = rest.split_once('/')?;
        (scheme, authority, path)
    } else {
        let (authority, path) = bare.split_once(':')?;
        ("ssh", authority, path.trim_start_matches('/'))
    };
    let (name, port) = authority.split_once(':').map_or((authority, None), |(name, port)| (name, Some(port)));
    let name = name.to_ascii_lowercase();
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    if !name.bytes().all(is_name) || port.is_some_and(|port| port.parse::<u16>().is_err()) {
        return None;
    }
    let host = host_of(&name)?;
    // The port of SSH is not the one of the pages.
    let origin = match (scheme, port) {
        ("https" | "http", Some(port)) => format!("{scheme}://{name}:{port}"),
        ("https" | "http", None) => format!("{scheme}://{name}"),
        ("ssh", _) => format!("https://{name}"),
        _ => return None,
    };
    let path = path.trim_end_matches('/');
    let segments: Vec<&str> = path.strip_suffix(".git").unwrap_or(path).split('/').collect();
    let (fits, infix) = match host {
        Host::GitHub | Host::Gitea => (segments.len() == 2, "commit"),
        Host::GitLab => ((2..=GROUPS).contains(&segments.len()), "-/commit"),
        Host::Bitbucket => (segments.len() == 2, "commits"),
    };
    (fits && segments.iter().all(|segment| is_segment(segment)))
        .then(|| format!("{origin}/{}/{infix}/{commit}", segments.join("/")))
}

fn is_segment(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    !text.is_empty() && text != "." && text != ".." && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_commit_has_a_page_at_a_known_host() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        for (address, page) in [
            ("https://github.com/team/shop.git", "https://github.com/team/shop/commit/"),
            ("git@github.com:team/shop.git", "https://github.com/team/shop/commit/"),
            ("ssh://git@GitHub.com:22/team/shop", "https://github.com/team/shop/commit/"),
            ("https://user:pa@gitlab.com/a/b/c/shop/", "https://gitlab.com/a/b/c/shop/-/commit/"),
            ("https://gitlab.example.com:8443/a/shop", "https://gitlab.example.com:8443/a/shop/-/commit/"),
            ("ssh://git@gitea.example.com:2222/a/shop.git", "https://gitea.example.com/a/shop/commit/"),
            ("http://gitea.example.com:3000/a/shop?token=x", "http://gitea.example.com:3000/a/shop/commit/"),
            ("https://codeberg.org/a/shop", "https://codeberg.org/a/shop/commit/"),
            ("https://bitbucket.org/a/shop.git", "https://bitbucket.org/a/shop/commits/"),
        ] {
            assert_eq!(commit_page(address, id), Some(format!("{page}{id}")), "{address}");
        }
    }

    #[test]
    fn an_unknown_host_or_a_hostile_address_has_no_page() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        for address in [
            "",
            "github.com",
            "https://github.com",
            "https://github.com/",
            "https://github.com/team",
            "https://github.com/team/shop/tree",
            "https://github.com/../shop",
            "https://github.com/team/sh op",
            "https://github.com/team/%2e%2e",
            "https://github.com/team/\"onclick=x",
            "https://github.com\\.evil.example/team/shop",
            "https://github.com:x/team/shop",
            "https://github.com.evil.example@evil.example/team/shop",
            "https://evilgithub.com/team/shop",
            "https://git.example.com/team/shop",
            "https://evil.example.com/@github.com/team/shop",
            "https://user:pa@ss/w@gitlab.com/a/shop",
            "javascript://github.com/team/shop",
            "javascript:alert(1)",
            "file:///github.com/team/shop",
            "/srv/git/github.com/team/shop",
            "/srv/github.com:team/shop",
            "github.com/team/shop",
            "./github.com:team/shop",
            "ssh://git@github.com",
            "git@github.com:",
            "git@github.com:/",
            "https://github.com//",
            "https://gіthub.com/team/shop",
        ] {
            assert_eq!(commit_page(address, id), None, "{address}");
        }
        for commit in ["", "main", "../../x", &id[1..], &format!("{}g", &id[1..])] {
            assert_eq!(commit_page("https://github.com/team/shop", commit), None, "{commit}");
        }
    }

    #[test]
    fn a_login_is_never_part_of_an_address() {
        for (address, shown) in [
            ("https://host/team/shop.git", Some("https://host/team/shop.git")),
            ("https://user:hunter2@host/shop", Some("https://host/shop")),
            ("https://u:hunter2 @host/shop", Some("https://host/shop")),
            ("https://user:hun@ter2@host/shop?token=hunter2#hunter2", Some("https://host/shop")),
            ("ssh://git@host:22/shop", Some("ssh://host:22/shop")),
            ("https://[::1]:8443/shop", Some("https://[::1]:8443/shop")),
            ("git@host:team/shop", Some("host:team/shop")),
            ("file:///srv/shop", Some("file:///srv/shop")),
            ("/srv/shop", Some("/srv/shop")),
            ("", Some("")),
            // An `@` behind the host is part of the path.
            ("https://evil.example.com/@github.com/team/shop", Some("https://evil.example.com/@github.com/team/shop")),
            ("https://evil.example.com?@github.com/team/shop", Some("https://evil.example.com")),
            ("https://evil.example.com#@github.com/team/shop", Some("https://evil.example.com")),
            // A login with a slash cannot be told from a host and a path.
            ("https://user:hunter2/@x@host/shop", None),
            ("https://user:pa@ss/w@gitlab.com/shop", None),
            ("https://hunter2/x@host/shop", None),
            ("https://hunter2?x@host/shop", None),
            ("https://hunter2#x@host/shop", None),
            ("https://evil.example.com\\@github.com/shop", None),
            ("https://evil.example.com\t@github.com/shop", None),
            ("https:user:hunter2@host/shop", None),
            ("git:hunter2@host:team/shop", None),
            ("https://", None),
            ("@", None),
        ] {
            assert_eq!(without_login(address).as_deref(), shown, "{address}");
        }
        assert_eq!(super::shown("https:user:hunter2@host/shop"), UNCLEAR);
    }

    #[test]
    fn a_login_is_replaced_by_a_mark() {
        for (address, expected) in [
            ("https://host/shop", None),
            ("ssh://git@host/shop", None),
            ("git@host:shop", None),
            ("https://user:hunter2@host/shop", Some("https://host/shop (login hidden)")),
            ("ssh://git:hunter2@host/shop", Some("ssh://host/shop (login hidden)")),
            ("https://host/shop?token=hunter2", Some("https://host/shop (login hidden)")),
            ("https:user:hunter2@host/shop", Some("(hidden)")),
        ] {
            let mut object = json!({"spec": {"url": address}});
            assert_eq!(hide_login(&mut object, "/spec/url"), expected.is_some(), "{address}");
            assert_eq!(object["spec"]["url"], expected.unwrap_or(address));
        }
        assert!(!hide_login(&mut json!({"spec": 7}), "/spec/url"));
    }
}
