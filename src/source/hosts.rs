//! What the remotes of one host share: how many of them are asked at once, how fast the first lookups follow each other,
//! and until when the host wants to be left alone.
//!
//! Invariant: a slow host holds up its own remotes only.
//! Invariant: the first remotes of a host are asked at once, and the others one after the other. Namespaces that ask at the same
//! time share the pace; none waits for the remotes of another.
//! Invariant: a host that sent `Retry-After` is not asked about its other remotes with the same credentials, for at most
//! [`MAX_QUIET`]. The remote that was answered so is its consumers' matter, who may ask again when a person wants it.
//! Invariant: a host that is reached through a proxy, or trusted by CAs, of somebody's own is another host: what answers
//! there says nothing about the real one.
//! Deliberately not here: clocks and waiting; the lookups.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::consumers::Identity;
use super::fair_queue::Tenant;
use super::permits::Permits;
use super::{Connection, RemoteUrl};

/// Lookups at a host at the same time; a namespace gets at most half of those that are free.
const AT_ONCE: usize = 16;
/// First lookups at a host that need not wait.
const BURST: u32 = 16;
/// Between the following ones.
const PACE: Duration = Duration::from_millis(20);
/// The longest that one answer keeps the other remotes of the host from being asked.
const MAX_QUIET: Duration = Duration::from_secs(300);
/// The longest that a first lookup waits for others.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Hosts that are known before those are dropped that nobody uses.
const KNOWN: usize = 64;

/// All hosts.
#[derive(Debug, Default)]
pub(super) struct Hosts(Mutex<HashMap<String, Arc<Host>>>);

/// One host and port.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) permits: Permits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the last first lookup of each namespace is due, as far as that still matters.
    next: HashMap<Tenant, Instant>,
    quiet: Option<Quiet>,
}

#[derive(Debug)]
struct Quiet {
    remote: Asking,
    status: u16,
    until: Instant,
}

/// A remote, and a digest of its credentials.
pub(super) type Asking = (Identity, [u8; 32]);

impl Hosts {
    /// The host of a remote; `None` if that is local.
    pub(super) fn get(&self, url: &RemoteUrl, connection: &Connection, now: Instant) -> Option<Arc<Host>> {
        let mut name = name(url)?;
        if connection.proxy.is_some() || connection.authorities.is_some() {
            name = format!("{name} {}", hex::encode(connection.digest()));
        }
        let mut hosts = self.0.lock();
        if hosts.len() >= KNOWN {
            hosts.retain(|_, host| Arc::strong_count(host) > 1 || host.state.lock().is_of_use(now));
        }
        Some(Arc::clone(
            hosts
                .entry(name)
                .or_insert_with(|| Arc::new(Host { permits: Permits::new(AT_ONCE), state: Mutex::default() })),
        ))
    }
}

impl Host {
    /// How long a remote of this namespace that was never asked before waits.
    pub(super) fn delay(&self, tenant: &Tenant, now: Instant) -> Duration {
        self.state.lock().delay(tenant, now)
    }

    /// The status and for how much longer the host wants to be left alone about this remote.
    pub(super) fn quiet(&self, remote: &Asking, now: Instant) -> Option<(u16, Duration)> {
        self.state.lock().quiet(remote, now)
    }

    /// The host answered a remote that it wants to be left alone.
    pub(super) fn set_quiet(&self, remote: Asking, status: u16, after: Duration, now: Instant) {
        self.state.lock().quiet = Some(Quiet { remote, status, until: now + after.min(MAX_QUIET) });
    }
}

impl State {
    fn delay(&mut self, tenant: &Tenant, now: Instant) -> Duration {
        let begin = now.checked_sub(PACE * BURST).unwrap_or(now);
        self.next.retain(|_, next| *next > begin);
        let others = self.next.keys().filter(|other| *other != tenant).count();
        // Each of those who ask at this time is as fast as the pace allows for all of them.
        let together = u32::try_from(others).unwrap_or(u32::MAX).saturating_add(1);
        let pace = PACE.saturating_mul(together);
        let earliest = now.checked_sub(pace * (BURST / together).max(1)).unwrap_or(now);
        let due = self.next.get(tenant).map_or(earliest, |next| (*next).max(earliest)) + pace;
        let due = due.min(now + MAX_DELAY);
        self.next.insert(tenant.clone(), due);
        due.saturating_duration_since(now)
    }

    fn quiet(&self, (remote, credentials): &Asking, now: Instant) -> Option<(u16, Duration)> {
        let quiet = self.quiet.as_ref().filter(|quiet| quiet.until > now)?;
        if quiet.remote.0 == *remote || quiet.remote.1 != *credentials {
            return None;
        }
        Some((quiet.status, quiet.until.saturating_duration_since(now)))
    }

    fn is_of_use(&self, now: Instant) -> bool {
        self.next.values().any(|next| *next > now) || self.quiet.as_ref().is_some_and(|quiet| quiet.until > now)
    }
}

/// Host and port.
fn name(url: &RemoteUrl) -> Option<String> {
    if let Some(address) = url.ssh() {
        return Some(format!("ssh {}:{}", address.host, address.port));
    }
    if let Some(address) = url.git() {
        return Some(format!("git {}:{}", address.host, address.port));
    }
    let url = url.http()?;
    Some(format!("{} {}:{}", url.scheme(), url.host_str()?, url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Asking = ([1; 32], [0; 32]);
    const OTHER: Asking = ([2; 32], [0; 32]);

    fn host(hosts: &Hosts, url: &str) -> Option<Arc<Host>> {
        hosts.get(&RemoteUrl::parse(url).unwrap(), &Connection::default(), Instant::now())
    }

    #[test]
    fn one_remote_is_asked_at_once_and_a_thousand_are_spread() {
        let now = Instant::now();
        let mut state = State::default();
        let tenant = Tenant::from("shop");
        let delays: Vec<_> = (0..1000).map(|_| state.delay(&tenant, now)).collect();
        assert_eq!(delays[..16], [Duration::ZERO; 16]);
        let within_a_second = delays.iter().filter(|delay| **delay <= Duration::from_secs(1)).count();
        assert_eq!((within_a_second, delays[999]), (66, Duration::from_millis(984 * 20)));
        assert_eq!(state.delay(&tenant, now + Duration::from_secs(60)), Duration::ZERO);
    }

    #[test]
    fn a_namespace_with_a_thousand_remotes_does_not_hold_up_the_first_ones_of_another() {
        let now = Instant::now();
        let mut state = State::default();
        for _ in 0..1000 {
            state.delay(&Tenant::from("crowd"), now);
        }
        let shop = Tenant::from("shop");
        let delays: Vec<_> = (0..10).map(|_| state.delay(&shop, now)).collect();
        assert_eq!(delays[..8], [Duration::ZERO; 8]);
        assert_eq!(delays[9], PACE * 4, "two share the pace");
        // Many that come together still follow each other.
        let mut state = State::default();
        let all = (0..200).map(|number| Tenant::from(format!("n{number}").as_str()));
        let first: Vec<_> = all.clone().map(|tenant| state.delay(&tenant, now)).collect();
        assert!(first.iter().all(Duration::is_zero), "none of them waits for others");
        let later: Vec<_> = all.flat_map(|tenant| [state.delay(&tenant, now), state.delay(&tenant, now)]).collect();
        assert!(later.iter().any(|delay| *delay > Duration::from_secs(1)));
    }

    #[test]
    fn a_host_that_wants_to_be_left_alone_is_for_a_while_about_its_other_remotes() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let hosts = Hosts::default();
        let host_of = |url| host(&hosts, url).unwrap();
        host_of("https://a.example/x").set_quiet(ONE, 429, Duration::from_secs(60), now);
        let at_port = host_of("https://a.example:443/y");
        assert_eq!(at_port.quiet(&OTHER, after(20)), Some((429, Duration::from_secs(40))));
        assert_eq!(at_port.quiet(&ONE, after(20)), None, "its own consumers know");
        assert_eq!(at_port.quiet(&([2; 32], [9; 32]), after(20)), None, "with another account");
        assert_eq!(at_port.quiet(&OTHER, after(60)), None);
        assert_eq!(host_of("https://b.example/x").quiet(&OTHER, now), None);
        assert_eq!(host_of("ssh://git@a.example:443/x").quiet(&OTHER, now), None);
        at_port.set_quiet(ONE, 503, Duration::from_secs(3600), now);
        assert_eq!(at_port.quiet(&OTHER, now), Some((503, MAX_QUIET)), "one answer does not close a host for long");
    }

    #[test]
    fn hosts_that_nobody_uses_are_forgotten() {
        let hosts = Hosts::default();
        for number in 0..1000 {
            host(&hosts, &format!("https://h{number}.example/x"));
        }
        assert!(hosts.0.lock().len() <= KNOWN);
    }
}
