//! Limits shared by the remotes of one host: concurrent lookups, the rate of first lookups, and `Retry-After`.
//!
//! Invariant: a slow host delays only its own remotes.
//! Invariant: the first remotes of a host are looked up immediately, the others at a fixed rate across all namespaces.
//! Namespaces take turns: before a remote is looked up, each other namespace gets at most as many lookups as the
//! remote's own.
//! Invariant: after a `Retry-After`, other remotes of the host with the same credentials are not looked up for at most
//! [`MAX_QUIET`]. For the remote that received it, the consumers decide, and may retry on a user's request.
//! Invariant: a host behind a custom proxy or with custom CAs counts as a separate host, because its responses say
//! nothing about the real one.
//! Not here: clocks, waiting, and the lookups.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::consumers::Identity;
use super::fair_queue::{FairQueue, Tenant};
use super::permits::Permits;
use super::{Connection, RemoteUrl};

/// Maximum concurrent lookups at a host. A namespace gets at most half of the free ones.
const AT_ONCE: usize = 16;
/// Number of first lookups at a host that need not wait.
const BURST: u32 = 16;
/// Interval between the first lookups that must wait.
const PACE: Duration = Duration::from_millis(20);
/// Maximum time for which one response blocks lookups of the host's other remotes.
const MAX_QUIET: Duration = Duration::from_secs(300);
/// Number of known hosts above which unused ones are dropped.
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

#[derive(Debug)]
struct State {
    /// Time of the next first lookup.
    next: Option<Instant>,
    /// First lookups that wait for `next`. No lookup keeps a permit of this queue, so namespaces take turns.
    waiting: FairQueue<oneshot::Sender<()>>,
    /// Whether a task serves the waiting lookups.
    is_served: bool,
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
    /// Returns the host of a remote; `None` for a local one.
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
                .or_insert_with(|| Arc::new(Host { permits: Permits::new(AT_ONCE), state: Mutex::new(State::new()) })),
        ))
    }
}

impl Host {
    /// Queues the first lookup of a remote of this namespace. Returns whether the caller must start to
    /// [`serve`](Self::serve) the queue.
    pub(super) fn wait(&self, tenant: &Tenant, waiter: oneshot::Sender<()>) -> bool {
        self.state.lock().wait(tenant, waiter)
    }

    /// Starts all first lookups that are due. Returns the time until the next one; `None` if none waits.
    pub(super) fn serve(&self, now: Instant) -> Option<Duration> {
        self.state.lock().serve(now)
    }

    /// Returns the HTTP status, and the remaining time for which the host must not be asked about this remote.
    pub(super) fn quiet(&self, remote: &Asking, now: Instant) -> Option<(u16, Duration)> {
        self.state.lock().quiet(remote, now)
    }

    /// Records that the response to a request for a remote contained a retry delay.
    pub(super) fn set_quiet(&self, remote: Asking, status: u16, after: Duration, now: Instant) {
        self.state.lock().quiet = Some(Quiet { remote, status, until: now + after.min(MAX_QUIET) });
    }
}

impl State {
    fn new() -> Self {
        Self { next: None, waiting: FairQueue::new(usize::MAX), is_served: false, quiet: None }
    }

    /// Queues a first lookup. Returns whether the caller must start to serve the queue.
    fn wait(&mut self, tenant: &Tenant, waiter: oneshot::Sender<()>) -> bool {
        self.waiting.wait(tenant, waiter, oneshot::Sender::is_closed);
        !std::mem::replace(&mut self.is_served, true)
    }

    /// Starts all first lookups that are due. Returns the time until the next one; `None` if none waits.
    fn serve(&mut self, now: Instant) -> Option<Duration> {
        // An idle period allows a burst of lookups.
        let earliest = now.checked_sub(PACE * (BURST - 1)).unwrap_or(now);
        let mut next = self.next.map_or(earliest, |next| next.max(earliest));
        while next <= now {
            let Some((tenant, waiter)) = self.waiting.next() else {
                self.is_served = false;
                return None;
            };
            self.waiting.give_back(&tenant);
            // A waiter that has given up consumes no slot.
            if waiter.send(()).is_ok() {
                next += PACE;
                self.next = Some(next);
            }
        }
        Some(next.saturating_duration_since(now))
    }

    fn quiet(&self, (remote, credentials): &Asking, now: Instant) -> Option<(u16, Duration)> {
        let quiet = self.quiet.as_ref().filter(|quiet| quiet.until > now)?;
        if quiet.remote.0 == *remote || quiet.remote.1 != *credentials {
            return None;
        }
        Some((quiet.status, quiet.until.saturating_duration_since(now)))
    }

    fn is_of_use(&self, now: Instant) -> bool {
        self.is_served
            || self.next.is_some_and(|next| next > now)
            || self.quiet.as_ref().is_some_and(|quiet| quiet.until > now)
    }
}

/// Returns scheme, host and port as one string.
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

    /// Simulates a host, and records when first lookups are served.
    struct Begun {
        state: State,
        start: Instant,
        waiting: Vec<(String, oneshot::Receiver<()>)>,
        served: Vec<(String, Duration)>,
    }

    impl Begun {
        fn new() -> Self {
            Self { state: State::new(), start: Instant::now(), waiting: Vec::new(), served: Vec::new() }
        }

        fn wait(&mut self, tenant: &str, number: usize) {
            for _ in 0..number {
                let (waiter, turn) = oneshot::channel();
                self.state.wait(&tenant.into(), waiter);
                self.waiting.push((tenant.to_owned(), turn));
            }
        }

        /// Serves until no lookup waits or until `end` after the start. Returns the time at which serving ended.
        fn serve(&mut self, mut at: Duration, end: Duration) -> Duration {
            while let Some(wait) = self.state.serve(self.start + at).filter(|_| at < end) {
                self.collect(at);
                at += wait;
            }
            self.collect(at);
            at
        }

        fn collect(&mut self, at: Duration) {
            self.waiting.retain_mut(|(tenant, turn)| {
                let has_begun = turn.try_recv().is_ok();
                self.served.extend(has_begun.then(|| (tenant.clone(), at)));
                !has_begun
            });
        }

        fn of(&self, tenant: &str) -> Vec<Duration> {
            self.served.iter().filter(|(of, _)| of == tenant).map(|(_, at)| *at).collect()
        }

        /// Returns the maximum number of lookups that start within 20 ms.
        fn most_at_once(&self) -> usize {
            let times = self.served.iter().map(|(_, at)| *at);
            let within = |from: Duration| times.clone().filter(|at| *at >= from && *at < from + PACE).count();
            times.clone().map(within).max().unwrap_or_default()
        }
    }

    #[test]
    fn one_remote_is_asked_at_once_and_a_thousand_are_spread() {
        let mut lookups = Begun::new();
        lookups.wait("shop", 1000);
        let end = lookups.serve(Duration::ZERO, Duration::MAX);
        let all = lookups.of("shop");
        assert_eq!(all[..16], [Duration::ZERO; 16]);
        let within_a_second = all.iter().filter(|at| **at <= Duration::from_secs(1)).count();
        assert_eq!((within_a_second, all[999]), (66, Duration::from_millis(984 * 20)));
        lookups.wait("shop", 1);
        lookups.serve(end + Duration::from_secs(60), Duration::MAX);
        assert_eq!(lookups.of("shop")[1000], end + Duration::from_secs(60));
    }

    #[test]
    fn a_namespace_with_a_thousand_remotes_holds_up_those_of_another_by_no_more_than_its_share() {
        let mut lookups = Begun::new();
        lookups.wait("crowd", 1000);
        let at = lookups.serve(Duration::ZERO, Duration::from_secs(1));
        lookups.wait("shop", 5);
        lookups.serve(at, Duration::MAX);
        let last = lookups.of("shop")[4];
        assert!(last <= at + PACE * 10, "two share the pace: {last:?}");
        assert_eq!(lookups.served.len(), 1005);
    }

    #[test]
    fn however_many_namespaces_there_are_the_host_is_asked_at_the_pace() {
        let mut lookups = Begun::new();
        for number in 0..200 {
            lookups.wait(&format!("n{number}"), 5);
        }
        lookups.serve(Duration::ZERO, Duration::MAX);
        assert_eq!((lookups.served.len(), lookups.most_at_once()), (1000, 16));
        let later = lookups.served.split_off(16);
        lookups.served = later;
        assert_eq!(lookups.most_at_once(), 1);
    }

    #[test]
    fn an_abandoned_lookup_takes_no_time_of_others() {
        let mut lookups = Begun::new();
        lookups.wait("gone", 500);
        lookups.waiting.clear();
        lookups.wait("shop", 16);
        lookups.serve(Duration::ZERO, Duration::MAX);
        assert_eq!(lookups.of("shop"), [Duration::ZERO; 16]);
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
    fn unused_hosts_are_forgotten() {
        let hosts = Hosts::default();
        for number in 0..1000 {
            host(&hosts, &format!("https://h{number}.example/x"));
        }
        assert!(hosts.0.lock().len() <= KNOWN);
    }
}
