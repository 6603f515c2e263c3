//! Parses the address of a Provider and of its proxy, and checks subjects of NATS.
//!
//! Invariant: no message contains a part of the address, which may be secret.
//! Invariant: credentials are in the Secret. Only a type whose services define them as a part of the address accepts
//! them there.
//! Invariant: the address of a Git host is that of a repository.
//! Invariant: a subject has no space and no control character, so it cannot add a command of the protocol.

use reqwest::Url;

use crate::provider_type::ProviderType;

/// The part of a clone's path at Bitbucket Server between the context path of the server and the repository.
const SCM: &str = "/scm/";
/// Why the address of a Git host cannot be used.
pub(crate) const NO_REPOSITORY: &str = "is not the address of a repository, such as https://HOST/OWNER/NAME";
pub(crate) const NO_AZURE_REPOSITORY: &str =
    "must have the form https://dev.azure.com/ORGANISATION/PROJECT/_git/REPOSITORY";
pub(crate) const NO_CLONE: &str =
    "must be the HTTP address of a clone, such as https://HOST/scm/PROJECT/REPOSITORY.git";
/// Maximum length of a subject, in bytes. Servers accept commands of 4 KiB.
const LONGEST_SUBJECT: usize = 2048;

/// The place that an address is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The key `address` of the Secret.
    Secret,
    /// The field `spec.address`, or the default of the type.
    Spec,
}

/// Parses the address of a type.
///
/// # Errors
/// Why the address cannot be used, as words that follow the name of the field.
pub(crate) fn parse(kind: ProviderType, address: &str, place: Place) -> Result<Url, &'static str> {
    let is_nats = kind == ProviderType::Nats;
    let (schemes, form) = if is_nats {
        (["nats", "tls"], "must be nats://HOST:4222 or tls://HOST:4222 with one server")
    } else {
        (["http", "https"], "must be an http or https URL")
    };
    let url = Url::parse(address).ok().filter(|url| schemes.contains(&url.scheme())).ok_or(form)?;
    if url.host_str().is_none_or(str::is_empty) || (is_nats && !is_server(&url)) {
        return Err(form);
    }
    let has_login = !url.username().is_empty() || url.password().is_some();
    match kind {
        // In a DSN of Sentry, the user name is the key.
        ProviderType::Sentry if url.username().is_empty() => {
            Err("must be a Sentry DSN, such as https://KEY@HOST/PROJECT")
        }
        ProviderType::Sentry => Ok(url),
        // Flux documents the address of the Secret as a place of the login.
        ProviderType::Nats if place == Place::Secret => Ok(url),
        _ if has_login => Err("credentials belong into the Secret, not into the address"),
        _ => {
            check_repository(kind, &url)?;
            Ok(url)
        }
    }
}

/// Checks that the address of a Git host is that of a repository.
fn check_repository(kind: ProviderType, url: &Url) -> Result<(), &'static str> {
    use ProviderType as P;
    let (is_repository, why) = match kind {
        P::Github | P::GithubDispatch | P::GithubComment | P::Gitea | P::GiteaComment | P::Bitbucket => {
            (owner_and_name(url).is_some(), NO_REPOSITORY)
        }
        // A project may be in groups of groups.
        P::Gitlab | P::GitlabComment => (segments(url).len() > 1, NO_REPOSITORY),
        P::AzureDevops => (azure_repository(url).is_some(), NO_AZURE_REPOSITORY),
        P::BitbucketServer => (clone_of_bitbucket(url).is_some(), NO_CLONE),
        _ => return Ok(()),
    };
    if is_repository { Ok(()) } else { Err(why) }
}

/// Checks the address of a proxy.
///
/// # Errors
/// Why the proxy cannot be used, as words that follow the name of the field.
pub(crate) fn check_proxy(address: &str) -> Result<(), &'static str> {
    let form = "must be http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT";
    let is_known = |url: &Url| matches!(url.scheme(), "http" | "https" | "socks5" | "socks5h");
    let url = Url::parse(address).ok().filter(is_known).ok_or(form)?;
    if url.username().is_empty() && url.password().is_none() {
        return Ok(());
    }
    Err("credentials belong into a Secret; put address, username and password into one, and name it in proxySecretRef")
}

/// Returns the segments of a path, without `.git` at the end.
pub(crate) fn segments(url: &Url) -> Vec<&str> {
    let path = url.path().trim_matches('/');
    path.strip_suffix(".git").unwrap_or(path).split('/').filter(|part| !part.is_empty()).collect()
}

/// Returns owner and name in the address of a repository.
pub(crate) fn owner_and_name(url: &Url) -> Option<(&str, &str)> {
    match segments(url)[..] {
        [owner, name] => Some((owner, name)),
        _ => None,
    }
}

/// Returns organisation, project and repository in the address of a repository at Azure DevOps.
pub(crate) fn azure_repository(url: &Url) -> Option<(&str, &str, &str)> {
    match segments(url)[..] {
        [organisation, project, "_git", repository] => Some((organisation, project, repository)),
        _ => None,
    }
}

/// Returns whether a URL is that of one server, and nothing else. Parsers accept almost any host of an unknown scheme.
fn is_server(url: &Url) -> bool {
    let is_bare = matches!(url.path(), "" | "/") && url.query().is_none() && url.fragment().is_none();
    let host = url.host_str().unwrap_or_default();
    let is_host = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
    is_bare && (is_host || host.starts_with('['))
}

/// Returns the context path, the project and the repository in the address of a clone at Bitbucket Server.
pub(crate) fn clone_of_bitbucket(url: &Url) -> Option<(&str, &str, &str)> {
    let path = url.path().trim_end_matches('/');
    let (context, repository) = path.strip_suffix(".git").unwrap_or(path).rsplit_once(SCM)?;
    let (project, name) = repository.split_once('/')?;
    let is_segment = |segment: &str| !segment.is_empty() && !segment.contains('/');
    (is_segment(project) && is_segment(name)).then_some((context, project, name))
}

/// Returns whether messages can be published to this subject.
pub(crate) fn is_subject(subject: &str) -> bool {
    let is_token = |token: &str| !matches!(token, "" | "*" | ">");
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control();
    subject.len() <= LONGEST_SUBJECT && subject.chars().all(is_plain) && subject.split('.').all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_nats_is_one_server_and_has_a_login_only_in_the_secret() {
        let of = |address: &str, place| parse(ProviderType::Nats, address, place).map(|_| ());
        for good in ["nats://bus", "nats://bus.example.com:4222", "tls://10.0.0.1/", "tls://[2001:db8::1]:4443"] {
            assert_eq!(of(good, Place::Spec), Ok(()), "{good}");
        }
        let form = Err("must be nats://HOST:4222 or tls://HOST:4222 with one server");
        for bad in [
            "bus:4222",
            "bus",
            "ws://bus",
            "https://bus",
            "nats://",
            "nats:bus",
            "nats://a,b",
            "nats://a:4222,nats://b:4222",
            "nats://a/path",
            "nats://a?x",
            "nats://b\u{fc}s",
            "nats://a:99999",
        ] {
            assert_eq!(of(bad, Place::Spec), form, "{bad}");
        }
        for login in ["nats://user:hunter2@bus", "nats://hunter2@bus"] {
            assert_eq!(of(login, Place::Secret), Ok(()));
            assert!(of(login, Place::Spec).unwrap_err().starts_with("credentials belong into the Secret"), "{login}");
        }
    }

    #[test]
    fn an_address_of_bitbucket_server_is_that_of_a_clone_over_http() {
        let of = |address: &str| parse(ProviderType::BitbucketServer, address, Place::Spec).map(|_| ());
        for good in [
            "https://example.com:7990/scm/projectfoo/repobar.git",
            "http://example.com/context/scm/~user/repobar",
            "https://example.com/scm/context2/scm/scm/projectfoo/repobar.git",
        ] {
            assert_eq!(of(good), Ok(()), "{good}");
        }
        for (bad, expected) in [
            ("ssh://git@example.com:2222/ap/sandbox.git", "must be an http or https URL"),
            ("https://example.com/context1/projectfoo/repobar.git", "must be the HTTP address of a clone"),
            ("https://example.com/scm/projectfoo/repobar/invalid.git", "must be the HTTP address of a clone"),
            ("https://example.com/scm/projectfoo", "must be the HTTP address of a clone"),
            ("https://example.com/scm//repobar", "must be the HTTP address of a clone"),
            ("https://u:p@example.com/scm/projectfoo/repobar", "credentials belong"),
        ] {
            assert!(of(bad).unwrap_err().starts_with(expected), "{bad}");
        }
    }

    #[test]
    fn an_address_of_a_git_host_is_that_of_a_repository() {
        let of = |kind: &str, address: &str| {
            let kind = ProviderType::parse(kind).unwrap();
            parse(kind, address, Place::Secret).map(|_| ())
        };
        for (kind, good) in [
            ("github", "https://github.com/o/r.git"),
            ("githubdispatch", "https://github.com/o/r/"),
            ("gitlab", "https://gitlab.com/g/s/r"),
            ("gitea", "http://127.0.0.1:3000/o/r"),
            ("bitbucket", "https://bitbucket.org/o/r"),
            ("azuredevops", "https://dev.azure.com/o/p/_git/r"),
            ("generic", "https://host.example"),
        ] {
            assert_eq!(of(kind, good), Ok(()), "{kind} {good}");
        }
        for kind in
            ["github", "githubdispatch", "githubpullrequestcomment", "gitea", "giteapullrequestcomment", "bitbucket"]
        {
            for bad in ["https://h.example", "https://h.example/o", "https://h.example/a/o/r"] {
                assert_eq!(of(kind, bad), Err(NO_REPOSITORY), "{kind} {bad}");
            }
        }
        for kind in ["gitlab", "gitlabmergerequestcomment"] {
            assert_eq!(of(kind, "https://gitlab.com/g"), Err(NO_REPOSITORY), "{kind}");
        }
        for bad in ["https://dev.azure.com/o/p/r", "https://dev.azure.com/o/p/_git", "https://dev.azure.com/o/p/git/r"]
        {
            assert_eq!(of("azuredevops", bad), Err(NO_AZURE_REPOSITORY), "{bad}");
        }
    }

    #[test]
    fn an_address_of_a_proxy_has_no_login() {
        for good in ["http://proxy.example:3128", "https://10.0.0.1", "socks5://proxy.example:1080"] {
            assert_eq!(check_proxy(good), Ok(()), "{good}");
        }
        for bad in ["proxy.example:3128", "", "ftp://proxy.example", "//proxy.example"] {
            assert!(check_proxy(bad).unwrap_err().starts_with("must be http://HOST:PORT"), "{bad}");
        }
        for login in
            ["http://user:hunter2@proxy.example", "http://user@proxy.example", "socks5://:hunter2@proxy.example"]
        {
            let why = check_proxy(login).unwrap_err();
            assert!(why.contains("proxySecretRef") && !why.contains("hunter2"), "{login}: {why}");
        }
    }

    #[test]
    fn a_subject_is_one_word_without_wildcards() {
        for good in ["a", "mainstay.events", "a.b-c_d.$E.F>G"] {
            assert!(is_subject(good), "{good}");
        }
        for bad in ["", ".", "a.", ".a", "a..b", "*", "a.*", "a.>", "a b", "a\r\nPUB b 0", "a\tb", "a\u{a0}b"] {
            assert!(!is_subject(bad), "{bad:?}");
        }
        assert!(!is_subject(&"a".repeat(LONGEST_SUBJECT + 1)));
    }
}
