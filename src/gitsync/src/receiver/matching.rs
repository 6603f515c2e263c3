//! Selects the consumers of a delivery: those that follow a named remote and whose reference may have moved.
//!
//! Two URLs identify the same repository if host, port and path are equal. Scheme, user, `.git`, case and default ports
//! are ignored, because Git hosts with webhooks ignore the case of repository names.
//!
//! Invariant: a delivery selects only consumers in the namespace of its Receiver.

use std::collections::BTreeSet;

use super::payload::{Moved, Push};
use super::sources::{SourceKind, Sources};
use mainstay_git::{Consumer, Followed, RemoteUrl};

/// The hosts of Azure DevOps, and the suffix of older host names.
const AZURE: [&str; 2] = ["dev.azure.com", "ssh.dev.azure.com"];
const OLD_AZURE: &str = ".visualstudio.com";

/// Hosts that serve SSH at port 443 for clients behind firewalls, each with its usual host name.
const SECOND_SSH_HOSTS: [(&str, &str); 3] =
    [("ssh.github.com", "github.com"), ("altssh.gitlab.com", "gitlab.com"), ("altssh.bitbucket.org", "bitbucket.org")];

/// The location of a repository, independent of the form of its URL.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Empty for a repository in the local file system.
    host: String,
    port: Option<u16>,
    /// In lower case, without leading and trailing slashes and `.git`.
    path: String,
}

/// The consumers that a delivery selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meant {
    /// The namespace of the Receiver.
    namespace: String,
    /// The objects that may be looked up.
    allowed: Sources,
    /// The named remotes; `None` means any remote.
    remotes: Option<Remotes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Remotes {
    places: BTreeSet<Place>,
    /// `project/name`, from hosts that send no URL.
    paths: BTreeSet<String>,
    moved: Moved,
    default_branch: Option<String>,
}

impl Meant {
    /// Creates the selection of a delivery. Without a [`Push`], any remote may have changed.
    pub(super) fn new(namespace: &str, allowed: Sources, push: Option<Push>) -> Self {
        let remotes = push.map(|push| {
            let (mut places, mut paths) = (BTreeSet::new(), BTreeSet::new());
            for named in &push.named {
                match RemoteUrl::parse(named) {
                    Ok(url) => places.extend(Place::of(&url)),
                    Err(_) => paths.extend(project(named)),
                }
            }
            Remotes { places, paths, moved: push.moved, default_branch: push.default_branch }
        });
        Self { namespace: namespace.to_owned(), allowed, remotes }
    }

    /// Limits the selection to these objects.
    pub(super) fn limited_to(self, allowed: Sources) -> Self {
        Self { allowed, ..self }
    }

    /// Whether the delivery names no repository, although hosts of its type do.
    pub(super) fn names_no_repository(&self) -> bool {
        self.remotes.as_ref().is_some_and(|remotes| remotes.places.is_empty() && remotes.paths.is_empty())
    }

    /// Whether a consumer is selected.
    pub(super) fn includes(&self, consumer: &Consumer, followed: &Followed) -> bool {
        self.reaches(consumer, followed)
            && self.remotes.as_ref().is_none_or(|all| all.have_moved(followed) && all.name(followed))
    }

    /// Whether a consumer is excluded only because it follows a fixed commit id, which no push moves.
    pub(super) fn passes_over_fixed(&self, consumer: &Consumer, followed: &Followed) -> bool {
        followed.reference.is_commit_id()
            && self.reaches(consumer, followed)
            && self.remotes.as_ref().is_some_and(|all| all.name(followed))
    }

    fn reaches(&self, consumer: &Consumer, followed: &Followed) -> bool {
        consumer.namespace == self.namespace
            && self.allowed.include(SourceKind::of(consumer.kind), &followed.repository, None)
    }
}

impl Remotes {
    fn have_moved(&self, followed: &Followed) -> bool {
        match &self.moved {
            Moved::Any => true,
            Moved::Named(names) => {
                names.iter().any(|name| followed.reference.is_moved_by(name, self.default_branch.as_deref()))
            }
        }
    }

    fn name(&self, followed: &Followed) -> bool {
        let Some(place) = Place::of(&followed.url) else { return false };
        self.places.contains(&place)
            || self.paths.contains(&place.path)
            || self.paths.contains(&data_center(&place.path))
    }
}

/// Returns `project/name` of a path of Bitbucket Data Center. Over HTTP, `scm` and the context path precede it.
fn data_center(path: &str) -> String {
    let mut parts = path.rsplitn(4, '/');
    match (parts.next(), parts.next(), parts.next()) {
        (Some(name), Some(project), Some("scm")) => format!("{project}/{name}"),
        _ => path.to_owned(),
    }
}

/// Returns `project/name` if the string is not a URL.
fn project(named: &str) -> Option<String> {
    (named.contains('/') && !named.contains(':')).then(|| named.to_ascii_lowercase())
}

impl Place {
    fn of(url: &RemoteUrl) -> Option<Self> {
        if let Some(path) = url.local_path() {
            return Some(Self { host: String::new(), port: None, path: path.to_str()?.to_owned() });
        }
        let (host, path) = (url.host()?.trim_end_matches('.').to_lowercase(), url.decoded_path()?.to_lowercase());
        Some(azure(&host, &path).unwrap_or_else(|| match second_ssh_host(&host).filter(|_| url.port() == Some(443)) {
            Some(host) => Self { host: host.to_owned(), port: None, path },
            None => Self { host, port: url.port(), path },
        }))
    }
}

/// Returns the usual host of a host name for SSH at port 443.
fn second_ssh_host(host: &str) -> Option<&'static str> {
    SECOND_SSH_HOSTS.iter().find_map(|(second, first)| (*second == host).then_some(*first))
}

/// Parses a repository of Azure DevOps: `org/project/_git/name`, or `v3/org/project/name` over SSH. In older URLs, the
/// host contains the organisation. A repository with the name of its project may omit the project.
fn azure(host: &str, path: &str) -> Option<Place> {
    let organisation = host.strip_suffix(OLD_AZURE).filter(|name| *name != "vs-ssh");
    if !AZURE.contains(&host) && !host.ends_with(OLD_AZURE) {
        return None;
    }
    let mut parts: Vec<&str> = organisation.into_iter().chain(path.split('/')).collect();
    parts.retain(|part| !matches!(*part, "_git" | "defaultcollection"));
    if parts.first() == Some(&"v3") {
        parts.remove(0);
    }
    if let [organisation, name] = *parts {
        parts = vec![organisation, name, name];
    }
    Some(Place { host: AZURE[0].to_owned(), port: None, path: parts.join("/") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_git::{ConsumerKind, Reference};

    fn push(named: &[&str], moved: Moved) -> Push {
        Push { named: named.iter().map(|&text| text.to_owned()).collect(), moved, ..Push::default() }
    }

    fn followed(url: &str, reference: &str) -> Followed {
        let (url, reference) = (RemoteUrl::parse(url).unwrap(), Reference::parse(reference).unwrap());
        Followed { repository: "repo".into(), url, reference }
    }

    fn web(namespace: &str) -> Consumer {
        Consumer::new(ConsumerKind::GitSync, namespace, "web")
    }

    /// Checks whether a delivery for the repository `named` selects a consumer of `url`.
    #[track_caller]
    fn check(named: &str, url: &str, expected: bool) {
        let meant = Meant::new("shop", Sources::All, Some(push(&[named], Moved::Any)));
        assert_eq!(meant.includes(&web("shop"), &followed(url, "main")), expected, "{named} and {url}");
    }

    #[test]
    fn addresses_of_one_repository_are_equal() {
        for url in [
            "https://github.com/team/shop",
            "https://github.com/team/shop.git",
            "https://user:password@GitHub.com:443/Team/Shop.git/",
            "http://github.com/team/shop",
            "git@github.com:team/shop.git",
            "ssh://git@github.com:22/team/shop",
            "git://github.com/team/shop.git",
        ] {
            check("https://github.com/team/shop.git", url, true);
            check(url, "git@github.com:team/shop", true);
        }
        check("/srv/git/a.git", "file:///srv/git/a.git", true);
        check("ssh://git@git.corp:2222/a/b.git", "ssh://other@git.corp:2222/a/b", true);
    }

    #[test]
    fn the_second_ssh_hosts_of_public_hosts_lead_to_the_same_repositories() {
        for (host, second) in [
            ("github.com", "ssh.github.com"),
            ("gitlab.com", "altssh.gitlab.com"),
            ("bitbucket.org", "altssh.bitbucket.org"),
        ] {
            let named = format!("https://{host}/team/shop.git");
            check(&named, &format!("ssh://git@{second}:443/team/shop.git"), true);
            check(&named, &format!("ssh://git@{second}:2222/team/shop.git"), false);
            check(&named, &format!("https://{second}/team/shop.git"), false);
        }
    }

    #[test]
    fn addresses_of_other_repositories_are_not() {
        check("https://github.com/team/shop", "https://github.com/team/shop2", false);
        check("https://github.com/team/shop", "https://github.com.evil.org/team/shop", false);
        check("https://github.com/team/shop", "https://evil.org/github.com/team/shop", false);
        check("https://git.corp:8443/a/b", "https://git.corp/a/b", false);
        check("ssh://git@git.corp:2222/a/b", "git@git.corp:a/b", false);
        check("https://github.com/team/shop/tree/main", "https://github.com/team/shop", false);
        check("/srv/git/a", "/srv/git/b", false);
        for hostile in ["", "/", "https://", "..", "a", "ext::sh -c id", "\u{0}", "https://e.org/?x", "-oProxy=x@h:y"] {
            check(hostile, "https://github.com/team/shop", false);
        }
    }

    #[test]
    fn a_host_that_writes_no_address_names_project_and_repository() {
        check("TEAM/shop", "https://bb.corp/scm/team/shop.git", true);
        check("TEAM/shop", "ssh://git@bb.corp:7999/team/shop.git", true);
        check("TEAM/shop", "https://bb.corp/scm/team/shop2.git", false);
        check("TEAM/shop", "https://bb.corp/x/team/shop.git", false);
        check("TEAM/shop", "https://corp/bitbucket/scm/team/shop.git", true);
        check("TEAM/shop", "https://corp/bitbucket/scm/scm/team/shop.git", true);
        check("SCM/shop", "https://corp/scm/scm/shop.git", true);
        check("TEAM/shop", "https://corp/bitbucket/scm/team/other/shop.git", false);
    }

    #[test]
    fn azure_devops_has_many_addresses_for_one_repository() {
        for url in [
            "https://dev.azure.com/org/My%20Team/_git/shop",
            "https://org@dev.azure.com/org/My%20Team/_git/shop",
            "https://org.visualstudio.com/My%20Team/_git/shop",
            "https://org.visualstudio.com/DefaultCollection/My%20Team/_git/shop",
            "git@ssh.dev.azure.com:v3/org/My%20Team/shop",
            "org@vs-ssh.visualstudio.com:v3/org/My%20Team/shop",
        ] {
            check("https://dev.azure.com/Org/My%20Team/_git/shop", url, true);
        }
        check("https://dev.azure.com/org/shop/_git/shop", "https://dev.azure.com/org/_git/shop", true);
        check("https://dev.azure.com/org/team/_git/shop", "https://dev.azure.com/org/_git/shop", false);
        check("https://dev.azure.com/org/team/_git/shop", "https://other.visualstudio.com/team/_git/shop", false);
    }

    #[test]
    fn only_consumers_of_the_namespace_the_repositories_and_the_reference_are_meant() {
        let url = "https://e.org/a";
        let check = |allowed: &Sources, moved: Option<&str>, consumer: &Consumer, reference, expected| {
            let moved = moved.map_or(Moved::Any, |name| Moved::Named(vec![name.to_owned()]));
            let meant = Meant::new("shop", allowed.clone(), Some(push(&[url], moved.clone())));
            assert_eq!(
                meant.includes(consumer, &followed(url, reference)),
                expected,
                "{allowed:?} {moved:?} {reference}"
            );
        };
        let (all, own, none) = (Sources::All, Sources::Named(vec!["repo".into()]), Sources::Named(Vec::new()));
        let exactly = |kind| Sources::exactly([(kind, "repo".to_owned())]);
        check(&all, None, &web("shop"), "main", true);
        check(&all, None, &web("shop2"), "main", false);
        check(&own, None, &web("shop"), "main", true);
        check(&Sources::Named(vec!["other".into()]), None, &web("shop"), "main", false);
        check(&none, None, &web("shop"), "main", false);
        check(&exactly(SourceKind::GitRepository), None, &web("shop"), "main", true);
        check(&exactly(SourceKind::OciRepository), None, &web("shop"), "main", false);
        check(&Sources::exactly([]), None, &web("shop"), "main", false);
        check(&all, Some("refs/heads/main"), &web("shop"), "main", true);
        check(&all, Some("refs/heads/dev"), &web("shop"), "main", false);
        let anything = Meant::new("shop", own, None);
        assert!(anything.includes(&web("shop"), &followed("https://e.org/b", "dev")));
        assert!(!anything.includes(&web("shop2"), &followed("https://e.org/b", "dev")));
        let nothing = Meant::new("shop", all, Some(push(&[], Moved::Any)));
        assert!(!nothing.includes(&web("shop"), &followed(url, "main")));
        assert_eq!([&anything, &nothing].map(Meant::names_no_repository), [false, true]);
    }
}
