//! The address of a repository: without a login, and the page of a commit at its host.
//!
//! Invariant: an address is hostile. A link is built from checked parts only, and leads to a host of the table.

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

/// Returns an address without user, password, query and fragment. A password with `/` or `@` is omitted, too.
pub(crate) fn without_login(address: &str) -> String {
    let (scheme, rest) = address.split_once("://").map_or(("", address), |(scheme, rest)| (scheme, rest));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    if scheme.is_empty() { rest[..end].to_owned() } else { format!("{scheme}://{}", &rest[..end]) }
}

/// Returns the URL of a commit's page at the host of the repository; `None` if the host is unknown.
pub(crate) fn commit_page(address: &str, commit: &str) -> Option<String> {
    let is_commit = matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_commit || address.len() > LONGEST {
        return None;
    }
    let bare = without_login(address);
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
    use super::*;

    #[test]
    fn a_commit_has_a_page_at_a_known_host() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        for (address, page) in [
            ("https://github.com/team/shop.git", "https://github.com/team/shop/commit/"),
            ("git@github.com:team/shop.git", "https://github.com/team/shop/commit/"),
            ("ssh://git@GitHub.com:22/team/shop", "https://github.com/team/shop/commit/"),
            ("https://user:pa@ss/w@gitlab.com/a/b/c/shop/", "https://gitlab.com/a/b/c/shop/-/commit/"),
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
            "javascript://github.com/team/shop",
            "javascript:alert(1)",
            "file:///github.com/team/shop",
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
            ("https://host/team/shop.git", "https://host/team/shop.git"),
            ("https://user:hunter2@host/shop", "https://host/shop"),
            ("https://user:hunter2/@x@host/shop?token=hunter2#hunter2", "https://host/shop"),
            ("ssh://git@host:22/shop", "ssh://host:22/shop"),
            ("git@host:team/shop", "host:team/shop"),
            ("https://u:hunter2 @host/shop", "https://host/shop"),
            ("", ""),
            ("@", ""),
        ] {
            assert_eq!(without_login(address), shown, "{address}");
        }
    }
}
