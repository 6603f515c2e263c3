//! The page of a Git host for adding a deploy key to a repository.

use mainstay_git::RemoteUrl;

/// The page for a repository's deploy keys, with advice.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The page's URL; `None` if the host is unknown.
    pub(super) url: Option<String>,
    /// The instructions for the page.
    pub(super) advice: &'static str,
}

/// Returns whether the host accepts only RSA keys, which the agent does not create.
pub(super) fn takes_only_rsa(repository: &RemoteUrl) -> bool {
    matches!(repository.host().unwrap_or_default(), "ssh.dev.azure.com" | "vs-ssh.visualstudio.com")
}

/// Returns the page for a repository.
pub(super) fn page(repository: &RemoteUrl) -> Page {
    let path = repository.repository_path().unwrap_or_default();
    let first_two = || {
        let mut parts = path.split('/').filter(|part| !part.is_empty());
        Some((parts.next()?, parts.next()?))
    };
    let at = |url: Option<String>, advice| Page { url, advice };
    match repository.host().unwrap_or_default() {
        "github.com" | "ssh.github.com" => at(
            first_two().map(|(owner, name)| format!("https://github.com/{owner}/{name}/settings/keys/new")),
            "leave \"Allow write access\" off",
        ),
        "gitlab.com" | "altssh.gitlab.com" => at(
            Some(format!("https://gitlab.com/{path}/-/settings/repository")),
            "under \"Deploy keys\"; leave \"Grant write permissions to this key\" off",
        ),
        "bitbucket.org" | "altssh.bitbucket.org" => at(
            first_two().map(|(owner, name)| format!("https://bitbucket.org/{owner}/{name}/admin/access-keys/")),
            "access keys only read",
        ),
        "codeberg.org" => at(
            first_two().map(|(owner, name)| format!("https://codeberg.org/{owner}/{name}/settings/keys")),
            "leave \"Enable write access\" off",
        ),
        "ssh.dev.azure.com" | "vs-ssh.visualstudio.com" => at(
            path.strip_prefix("v3/")
                .and_then(|rest| rest.split('/').next())
                .map(|organisation| format!("https://dev.azure.com/{organisation}/_usersSettings/keys")),
            "Azure DevOps takes RSA keys only: make one with `ssh-keygen -t rsa -b 3072 -m PEM -N '' -f FILE` and put FILE \
             into the Secret under key",
        ),
        _ => at(None, "add it to the repository as a read-only deploy key, not to a user account"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, expected: Option<&str>) {
        assert_eq!(page(&RemoteUrl::parse(address).unwrap()).url.as_deref(), expected, "{address}");
    }

    #[test]
    fn names_the_page_at_the_large_hosts() {
        check("git@github.com:team/shop.git", Some("https://github.com/team/shop/settings/keys/new"));
        check("ssh://git@ssh.github.com:443/team/shop.git", Some("https://github.com/team/shop/settings/keys/new"));
        check("git@gitlab.com:a/b/c.git", Some("https://gitlab.com/a/b/c/-/settings/repository"));
        check("git@bitbucket.org:team/shop", Some("https://bitbucket.org/team/shop/admin/access-keys/"));
        check("git@codeberg.org:team/shop.git", Some("https://codeberg.org/team/shop/settings/keys"));
        let azure = Some("https://dev.azure.com/org/_usersSettings/keys");
        check("git@ssh.dev.azure.com:v3/org/project/repo", azure);
        check("git@git.example.com:team/shop.git", None);
        check("git@github.com:shop.git", None);
        check("git@github.com.example.com:a/b", None);
    }
}
