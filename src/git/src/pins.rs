//! The pinned host keys in the status of a GitRepository.
//!
//! Invariant: a key is pinned only if the GitRepository still pins keys and has no pin for the host.
//! Invariant: a pin is removed once the host's keys are known from another source. If they become unknown again, the
//! pin does not return.
//! Not here: writing the status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::address::RemoteUrl;
use super::pinning::FirstUse;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::git_repository::{HostKeyPolicy, PinnedHostKey};
use mainstay_api::{GitRepository, GitRepositoryStatus};

fn pinned(repository: &GitRepository) -> &[PinnedHostKey] {
    repository.status.as_ref().map_or(&[], |status| &status.pinned_host_keys)
}

/// Returns the host whose key a GitRepository pins; `None` if it pins none.
fn host_to_pin(repository: &GitRepository) -> Option<String> {
    let pins = repository.spec.host_keys == HostKeyPolicy::PinAtFirstUse;
    RemoteUrl::parse(&repository.spec.url).ok().filter(|_| pins)?.known_hosts_name()
}

/// Returns the status with this key pinned; `Ok(None)` if it is already pinned.
///
/// # Errors
/// The reason why the key must not be pinned.
pub fn pin(
    repository: &GitRepository,
    first_use: &FirstUse,
    now: Timestamp,
) -> Result<Option<GitRepositoryStatus>, String> {
    let FirstUse { host, key, fingerprint, .. } = first_use;
    if host_to_pin(repository).as_ref() != Some(host) {
        return Err("the GitRepository has changed meanwhile".to_owned());
    }
    match pinned(repository).iter().find(|pin| pin.host == *host) {
        Some(pin) if pin.key == *key => return Ok(None),
        Some(pin) => return Err(format!("{} was pinned meanwhile", pin.fingerprint)),
        None => {}
    }
    let mut status = repository.status.clone().unwrap_or_default();
    // A pin of a different host belongs to an earlier address of the repository.
    status.pinned_host_keys = vec![PinnedHostKey {
        host: host.clone(),
        key: key.clone(),
        fingerprint: fingerprint.clone(),
        pinned_at: Time(now),
    }];
    let message = format!(
        "the host key of {host} was pinned at first use: {fingerprint}; compare it with what the host's operator publishes"
    );
    conditions::set(
        &mut status.conditions,
        Type::HostKeyPinned,
        "True",
        Reason::PinnedAtFirstUse,
        &message,
        repository.metadata.generation,
        now,
    );
    Ok(Some(status))
}

/// Returns the GitRepository with this key pinned, in memory only.
pub fn pin_for_now(repository: &GitRepository, host: &str, key: &str) -> GitRepository {
    let mut repository = repository.clone();
    let (host, key) = (host.to_owned(), key.to_owned());
    let pin = PinnedHostKey { host, key, fingerprint: String::new(), pinned_at: Time(Timestamp::UNIX_EPOCH) };
    repository.status.get_or_insert_default().pinned_host_keys = vec![pin];
    repository
}

/// Returns the status without stale pins; `None` if there are none. A pin is stale if the GitRepository now has a
/// different host, or no longer pins keys. It is also stale if the shared host keys, or those in the Secret, include
/// the host.
pub(super) fn without_stale_pins(
    repository: &GitRepository,
    is_superseded: bool,
    is_known: impl FnOnce(&str) -> bool,
) -> Option<GitRepositoryStatus> {
    let old = repository.status.as_ref()?;
    let host = host_to_pin(repository).filter(|host| !is_superseded && !is_known(host));
    let mut status = old.clone();
    status.pinned_host_keys.retain(|pin| Some(&pin.host) == host.as_ref());
    if status.pinned_host_keys.is_empty() {
        status.conditions.retain(|condition| condition.type_ != Type::HostKeyPinned.as_str());
    }
    (status != *old).then_some(status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::SharedHostKeys;
    use super::*;

    fn repository(url: &str, policy: &str, status: Option<GitRepositoryStatus>) -> GitRepository {
        let spec = json!({"url": url, "hostKeys": policy});
        let mut repository = GitRepository::new("web", serde_json::from_value(spec).unwrap());
        repository.metadata.namespace = Some("shop".into());
        repository.status = status;
        repository
    }

    fn first_use(host: &str, key: &str) -> FirstUse {
        FirstUse {
            namespace: "shop".into(),
            name: "web".into(),
            host: host.into(),
            key: key.into(),
            fingerprint: format!("SHA256:{key}"),
        }
    }

    const URL: &str = "git@git.example.com:shop.git";

    #[test]
    fn pins_only_a_host_without_a_pin() {
        let now = Timestamp::UNIX_EPOCH;
        let host = "git.example.com";
        let made = pin(&repository(URL, "PinAtFirstUse", None), &first_use(host, "a"), now).unwrap();
        assert_eq!(made.as_ref().unwrap().pinned_host_keys[0].key, "a");
        assert_eq!(made.as_ref().unwrap().conditions[0].type_, "HostKeyPinned");
        let again = repository(URL, "PinAtFirstUse", made);
        assert_eq!(pin(&again, &first_use(host, "a"), now), Ok(None));
        assert_eq!(pin(&again, &first_use(host, "b"), now), Err("SHA256:a was pinned meanwhile".into()));
        let changed = Err("the GitRepository has changed meanwhile".into());
        assert_eq!(pin(&again, &first_use("other.example.com", "a"), now), changed);
        assert_eq!(pin(&repository(URL, "Known", None), &first_use(host, "a"), now), changed);
    }

    #[test]
    fn pins_go_with_the_host_and_the_port_and_with_their_last_consumer() {
        let host = "git.example.com";
        let made = pin(&repository(URL, "PinAtFirstUse", None), &first_use(host, "a"), Timestamp::UNIX_EPOCH).unwrap();
        let left = |url: &str, policy: &str| {
            without_stale_pins(&repository(url, policy, made.clone()), false, |host| {
                SharedHostKeys::Published.know(host)
            })
        };
        assert_eq!(left(URL, "PinAtFirstUse"), None);
        assert_eq!(left("git@git.example.com:other.git", "PinAtFirstUse"), None, "the host is the same");
        let none = Some(GitRepositoryStatus::default());
        assert_eq!(left(URL, "Known"), none);
        assert_eq!(left("https://git.example.com/shop.git", "PinAtFirstUse"), none);
        assert_eq!(left("ssh://git@git.example.com:2222/shop.git", "PinAtFirstUse"), none);
        let mut forgotten = made.clone().unwrap();
        forgotten.pinned_host_keys.clear();
        let forgotten = repository(URL, "PinAtFirstUse", Some(forgotten));
        assert_eq!(without_stale_pins(&forgotten, false, |_| false), none);
    }

    #[test]
    fn pins_go_once_the_host_is_known_otherwise() {
        let made =
            pin(&repository(URL, "PinAtFirstUse", None), &first_use("git.example.com", "a"), Timestamp::UNIX_EPOCH);
        let pinned = repository(URL, "PinAtFirstUse", made.unwrap());
        let none = Some(GitRepositoryStatus::default());
        let left =
            |lines: &str| without_stale_pins(&pinned, false, |host| SharedHostKeys::Lines(lines.into()).know(host));
        let published = super::super::PUBLISHED.lines().find_map(|line| line.split_once(" ssh-ed25519 ")).unwrap().1;
        let ours = format!("git.example.com ssh-ed25519 {published}");
        let other = format!("other.example.com ssh-ed25519 {published}");
        assert_eq!(left(&other), None, "of another host");
        assert_eq!(left(&ours), none);
        assert_eq!(left(&format!("@revoked {ours}")), None, "no key is known by that");
        assert_eq!(without_stale_pins(&pinned, false, |host| SharedHostKeys::Unknown(None).know(host)), None);
        assert_eq!(without_stale_pins(&pinned, true, |_| false), none, "its Secret has known_hosts");
    }
}
