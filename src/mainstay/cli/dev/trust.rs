//! Limits of the author of the followed repository: files of this machine, and addresses in its networks.
//!
//! Code of a local repository runs on this machine. Code of a remote repository does so with `--run-code`. In both
//! cases the author can already do what the user can. Objects of any other remote repository are treated as those of a
//! stranger.
//!
//! Invariant: objects of a stranger read no local path. They connect only to public addresses and to the host of the
//! repository. Invariant: the embedded API server calls no webhook of a stranger.

use std::net::IpAddr;

use mainstay_git::{RemoteUrl, Settings};
use mainstay_object::egress::{Network, proxy_hosts};

use super::repository::FollowedRepository;
use crate::cli::environment::variables;

/// Whether the author of the objects is trusted like the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// The user runs the author's code.
    User,
    /// The repository is remote, and its code is not run.
    Stranger,
}

impl Trust {
    pub(super) fn of(followed: Option<&FollowedRepository>, run_code: bool) -> Self {
        let is_remote = followed.is_some_and(|followed| followed.local.is_none());
        if is_remote && !run_code { Self::Stranger } else { Self::User }
    }

    /// Limits the Git repositories. `host` are the addresses of the followed repository.
    pub(super) fn limit(self, source: &mut Settings, host: &[IpAddr]) {
        source.allow_local = self == Self::User;
        source.egress.allowed = match self {
            // All networks are allowed, because the whole cluster belongs to this user.
            Self::User => Network::ALL.to_vec(),
            Self::Stranger => {
                host.iter().filter_map(|address| address.to_canonical().to_string().parse().ok()).collect()
            }
        };
        if self == Self::Stranger {
            source.egress.unconfined = Some(Vec::new());
            source.egress.proxies = proxy_hosts(variables());
        }
    }

    /// Returns the namespaces in which Services may have endpoints that a user wrote. A backend on this machine needs
    /// such a Service.
    pub(super) fn written_endpoints(self) -> Option<String> {
        (self == Self::User).then(|| "*".to_owned())
    }
}

impl Trust {
    /// Returns why the embedded API server does not call the webhooks of the objects.
    pub(super) fn refused_webhooks(self) -> Option<&'static str> {
        const WHY: &str = "webhooks of a remote repository are not called by `mainstay dev`, because they reach internal \
                           addresses; add --run-code if you trust its author";
        (self == Self::Stranger).then_some(WHY)
    }
}

/// Returns the addresses of a repository's host; an empty list if the repository is local or the host is not found.
pub(super) async fn addresses(url: &str) -> Vec<IpAddr> {
    let Ok(url) = RemoteUrl::parse(url) else { return Vec::new() };
    let Some(host) = url.host().map(|host| host.trim_matches(['[', ']'])) else { return Vec::new() };
    let found = tokio::net::lookup_host((host, 0)).await;
    found.map(|all| all.map(|address| address.ip()).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use mainstay_object::egress::Egress;

    use super::*;

    fn limited(trust: Trust) -> Settings {
        let mut source = Settings::new("mirrors");
        trust.limit(&mut source, &["10.1.2.3".parse().unwrap()]);
        source
    }

    #[test]
    fn objects_of_a_stranger_reach_public_addresses_and_the_followed_host() {
        let (user, stranger) = (limited(Trust::User), limited(Trust::Stranger));
        assert!(user.allow_local && !stranger.allow_local);
        for (address, is_reached) in [("127.0.0.1", false), ("10.1.2.4", false), ("10.1.2.3", true), ("8.8.8.8", true)]
        {
            let reaches = |source: &Settings| {
                let egress = source.egress.of("default");
                source.egress.refusal(egress, address.parse().unwrap()).is_none()
            };
            assert!(reaches(&user), "{address}");
            assert_eq!(reaches(&stranger), is_reached, "{address}");
        }
        assert_eq!(stranger.egress.of("default"), Egress::Confined);
        assert_eq!(Trust::Stranger.written_endpoints(), None);
        assert!(Trust::Stranger.refused_webhooks().is_some() && Trust::User.refused_webhooks().is_none());
    }

    #[test]
    fn the_author_of_a_remote_repository_is_trusted_if_its_code_runs() {
        let remote = super::super::repository::followed("https://example.org/shop.git").unwrap();
        assert_eq!(Trust::of(Some(&remote), false), Trust::Stranger);
        assert_eq!(Trust::of(Some(&remote), true), Trust::User);
        let local = super::super::repository::plain("shop".into());
        assert_eq!(Trust::of(Some(&local), false), Trust::User);
    }

    #[tokio::test]
    async fn a_host_is_found_by_name_and_by_address() {
        let all: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(addresses("git://127.0.0.1:9418/a").await, all[..1]);
        assert_eq!(addresses("http://[::1]:80/a").await, all[1..]);
        assert!(addresses("http://localhost/a").await.iter().all(IpAddr::is_loopback));
        assert!(addresses("/a/b").await.is_empty());
    }
}
