//! Resolves host names to addresses.
//!
//! The system's resolver blocks a thread until the nameservers respond, possibly for minutes, and cannot be cancelled.
//! So an abandoned lookup still counts for the limit.
//!
//! Invariant: connections use exactly the resolved addresses: a name is resolved once per connection, and forbidden
//! addresses are removed.
//! Invariant: for confined connections, internal names and missing names give the same result.
//! Invariant: at most [`AT_ONCE`] threads resolve names, shared fairly between namespaces. A namespace with
//! unresponsive nameservers delays only its own repositories.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::egress::{REFUSED, SharedPolicy, sentence};
use crate::error::Fault;
use crate::fair_queue::Tenant;
use crate::permits::Permits;
use mainstay_object::egress::Egress;

/// Maximum number of concurrent lookups.
pub(crate) const AT_ONCE: usize = 16;

tokio::task_local! {
    /// The namespace on whose behalf a task works. The HTTP client resolves names deep inside a request, where the
    /// namespace cannot be passed as an argument.
    static TENANT: Tenant;
}

/// Runs a conversation with remotes on behalf of a namespace.
pub(crate) async fn on_behalf_of<T>(tenant: &Tenant, conversation: impl Future<Output = T>) -> T {
    TENANT.scope(tenant.clone(), conversation).await
}

/// Returns the namespace on whose behalf the current task works.
pub(super) fn tenant() -> Tenant {
    TENANT.try_with(Clone::clone).unwrap_or_default()
}

/// Resolves names.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    permits: Permits,
    /// Hosts with fixed addresses.
    known: Arc<HashMap<String, SocketAddr>>,
    policy: SharedPolicy,
    egress: Egress,
    look_up: fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
}

impl Names {
    /// Returns a resolver that uses the system's resolver for all hosts except the `known` ones.
    pub(crate) fn new(known: HashMap<String, SocketAddr>, policy: SharedPolicy) -> Self {
        let known = Arc::new(known);
        Self {
            permits: Permits::new(AT_ONCE),
            known,
            policy,
            egress: Egress::default(),
            look_up: |host, port| Ok((host, port).to_socket_addrs()?.collect()),
        }
    }

    /// Returns the same resolver with a different set of allowed addresses.
    pub(crate) fn within(&self, egress: Egress) -> Self {
        Self { egress, ..self.clone() }
    }

    /// Returns whether the allowed addresses are limited.
    pub(super) fn are_limited(&self) -> bool {
        self.egress != Egress::Unrestricted
    }

    /// Returns whether the namespace must not learn which internal names exist.
    fn are_confined(&self) -> bool {
        self.egress == Egress::Confined
    }

    /// Refuses a host that is a forbidden IP address. Such hosts are not resolved.
    pub(crate) fn check_host(&self, host: &str) -> Result<(), Fault> {
        let refusal = self.policy.refusal_of_host(self.egress, host);
        refusal.map_or(Ok(()), |refusal| Err(Fault::Confined { why: sentence(refusal) }))
    }

    /// Refuses a forbidden IP address. A name is checked when it is resolved.
    pub(crate) fn check_address(&self, host: &str) -> Result<(), Fault> {
        if host.parse::<IpAddr>().is_ok() { self.check_host(host) } else { Ok(()) }
    }

    /// Returns the addresses of a host, in the resolver's order.
    pub(crate) async fn find(&self, tenant: &Tenant, host: &str, port: u16) -> Result<Vec<SocketAddr>, Fault> {
        let (look_up, name) = (self.look_up, host.to_owned());
        let found = match self.known.get(host) {
            Some(known) if known.port() == 0 => Ok(vec![SocketAddr::new(known.ip(), port)]),
            Some(known) => Ok(vec![*known]),
            None => self.permits.share(tenant).run(move || look_up(&name, port)).await?,
        };
        self.judged(host, found).map_err(|unresolved| match unresolved {
            Unresolved::Confined(ConfinedAddress(why)) => Fault::Confined { why },
            Unresolved::NotFound(what) => Fault::Network { what: format!("no connection: {what}") },
        })
    }

    /// Returns the allowed addresses in the resolver's result.
    fn judged(&self, host: &str, found: io::Result<Vec<SocketAddr>>) -> Result<Vec<SocketAddr>, Unresolved> {
        let found = match found {
            Ok(found) => found,
            Err(error) if !self.are_confined() => {
                return Err(Unresolved::NotFound(format!("the name {host} is not found ({error})")));
            }
            Err(error) if is_temporary(&error) => {
                return Err(Unresolved::NotFound("names cannot be looked up now".to_owned()));
            }
            Err(_) => Vec::new(),
        };
        let refusal = |address: &SocketAddr| self.policy.refusal(self.egress, address.ip());
        let refused = found.first().and_then(refusal);
        let allowed: Vec<_> = found.into_iter().filter(|address| refusal(address).is_none()).collect();
        match refused {
            _ if !allowed.is_empty() => Ok(allowed),
            // A confined namespace must not learn which names exist in the cluster.
            _ if self.are_confined() => Err(Unresolved::Confined(ConfinedAddress(REFUSED))),
            Some(refusal) => Err(Unresolved::Confined(ConfinedAddress(sentence(refusal)))),
            None => Ok(allowed),
        }
    }
}

/// Why a name does not resolve.
#[derive(Debug)]
enum Unresolved {
    Confined(ConfinedAddress),
    NotFound(String),
}

/// The name has only forbidden addresses. For confined connections, it may also mean that the name does not exist.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ConfinedAddress(pub(super) &'static str);

/// Returns whether the nameservers failed to respond, so that the name may exist. The library provides only the
/// system's message.
fn is_temporary(error: &io::Error) -> bool {
    let text = error.to_string();
    ["Temporary failure", "Try again"].iter().any(|words| text.contains(words))
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, tenant) = (self.clone(), tenant());
        Box::pin(async move {
            let host = name.as_str();
            // If the host is also a proxy from the environment, this is a connection to the proxy, which is always
            // allowed.
            let names = if names.policy.is_proxy(host) { names.within(Egress::Unrestricted) } else { names };
            let (look_up, name) = (names.look_up, host.to_owned());
            let found = match names.known.get(host) {
                // The client replaces the port if it is 0, or if the URL has one.
                Some(known) => Ok(vec![*known]),
                None => names.permits.share(&tenant).run(move || look_up(&name, 0)).await?,
            };
            let judged = names.judged(host, found).map_err(|unresolved| match unresolved {
                // The caller finds this error among the causes of a failed request.
                Unresolved::Confined(confined) => Box::<dyn std::error::Error + Send + Sync>::from(confined),
                Unresolved::NotFound(what) => what.into(),
            })?;
            Ok::<Addrs, _>(Box::new(judged.into_iter()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use parking_lot::{Condvar, Mutex};

    use super::*;
    use mainstay_object::egress::{EgressPolicy, MACHINE_REFUSED};

    static STUCK: AtomicUsize = AtomicUsize::new(0);
    static OVER: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    /// A resolver whose nameservers do not respond until the test ends, except for `good` and `absent`.
    fn stuck(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if host == "metadata" {
            return Ok(vec![SocketAddr::from(([169, 254, 169, 254], port))]);
        }
        if host == "absent" {
            return Err(io::ErrorKind::NotFound.into());
        }
        if host != "good" {
            STUCK.fetch_add(1, Ordering::SeqCst);
            OVER.1.wait_while(&mut OVER.0.lock(), |over| !*over);
        }
        Ok(vec![SocketAddr::from(([127, 0, 0, 1], port))])
    }

    struct Over;

    impl Drop for Over {
        fn drop(&mut self) {
            *OVER.0.lock() = true;
            OVER.1.notify_all();
        }
    }

    #[tokio::test]
    async fn a_nameserver_that_never_answers_holds_up_its_own_namespace_only() {
        let _over = Over;
        let names = Names { look_up: stuck, ..Names::new(HashMap::new(), SharedPolicy::default()) };
        let (bad, good): (Tenant, Tenant) = ("bad".into(), "good".into());
        let brief = Duration::from_millis(10);
        for number in 0..50 {
            let name = format!("stuck-{number}");
            // The caller gives up long before the thread is free again.
            let given_up = tokio::time::timeout(brief, names.find(&bad, &name, 22)).await;
            assert!(given_up.is_err());
            let resolving = on_behalf_of(&bad, async { names.resolve(name.parse().unwrap()).await });
            assert!(tokio::time::timeout(brief, resolving).await.is_err());
        }
        let held = STUCK.load(Ordering::SeqCst);
        assert!((1..=AT_ONCE / 2).contains(&held), "{held} threads are held");
        let found = tokio::time::timeout(Duration::from_secs(60), names.find(&good, "good", 22)).await;
        assert_eq!(found.expect("a thread is free").unwrap(), [SocketAddr::from(([127, 0, 0, 1], 22))]);
        let absent = names.find(&good, "absent", 22).await.unwrap_err().to_string();
        assert_eq!(absent, "no connection: the name absent is not found (entity not found)");
        let refused = names.find(&good, "metadata", 80).await.unwrap_err().to_string();
        assert_eq!(refused, mainstay_object::egress::METADATA_REFUSED);
        let resolving = on_behalf_of(&good, async { names.resolve("metadata".parse().unwrap()).await });
        assert!(resolving.await.err().expect("it is refused").to_string().contains("link-local"));
        let resolving = on_behalf_of(&good, async { names.resolve("good".parse().unwrap()).await });
        let found = tokio::time::timeout(Duration::from_secs(60), resolving).await;
        assert_eq!(found.expect("a thread is free").unwrap().count(), 1);
    }

    /// Simulates a malicious nameserver: an internal name, an external one, and one with both kinds of addresses. Each
    /// lookup returns a different result than the one before.
    fn rebinding(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let (inside, outside) = (SocketAddr::from(([10, 96, 0, 1], port)), SocketAddr::from(([192, 0, 2, 1], port)));
        match host {
            "outside" => Ok(vec![outside]),
            "both" => Ok(vec![inside, outside]),
            "rebinding" if ASKED.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => Ok(vec![outside]),
            "rebinding" | "inside" => Ok(vec![inside]),
            "metadata" => Ok(vec![SocketAddr::from(([169, 254, 169, 254], port))]),
            "empty" => Ok(Vec::new()),
            "unanswered" => Err(io::Error::other("Temporary failure in name resolution")),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    #[tokio::test]
    async fn a_confined_namespace_does_not_learn_which_names_there_are_inside() {
        let policy = EgressPolicy { unconfined: Some(Vec::new()), ..EgressPolicy::default() };
        let all = Names { look_up: rebinding, ..Names::new(HashMap::new(), Arc::new(policy)) };
        let confined = all.within(Egress::Confined);
        let shop: Tenant = "shop".into();
        for host in ["inside", "metadata", "empty", "absent"] {
            let found = confined.find(&shop, host, 443).await;
            assert!(matches!(found, Err(Fault::Confined { why: REFUSED })), "{host}: {found:?}");
            let resolved = confined.resolve(host.parse().unwrap()).await.err().expect("it is refused");
            assert_eq!(
                resolved.downcast_ref::<ConfinedAddress>().map(|ConfinedAddress(why)| *why),
                Some(REFUSED),
                "{host}"
            );
        }
        let unanswered = confined.find(&shop, "unanswered", 443).await.unwrap_err().to_string();
        assert_eq!(unanswered, "no connection: names cannot be looked up now");
        let absent = all.find(&shop, "absent", 443).await.unwrap_err().to_string();
        assert!(absent.contains("the name absent is not found"), "{absent}");
    }

    /// Simulates a nameserver that returns addresses of the machine and of a private network.
    fn rebound(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let [own, private] = [[127, 0, 0, 1], [10, 0, 0, 1]].map(|address: [u8; 4]| SocketAddr::from((address, port)));
        match host {
            "rebound" => Ok(vec![own]),
            "both" => Ok(vec![own, private]),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    #[tokio::test]
    async fn a_name_does_not_lead_a_command_to_its_own_machine() {
        let all = Names { look_up: rebound, ..Names::new(HashMap::new(), Arc::new(EgressPolicy::default())) };
        let (names, shop) = (all.within(Egress::OffMachine), Tenant::from("shop"));
        let refused = names.find(&shop, "rebound", 443).await;
        assert!(matches!(refused, Err(Fault::Confined { why: MACHINE_REFUSED })), "{refused:?}");
        assert!(names.resolve("rebound".parse().unwrap()).await.is_err());
        assert_eq!(names.find(&shop, "both", 443).await.unwrap(), [SocketAddr::from(([10, 0, 0, 1], 443))]);
        let absent = names.find(&shop, "absent", 443).await.unwrap_err().to_string();
        assert!(absent.contains("the name absent is not found"), "{absent}");
    }

    #[tokio::test]
    async fn a_confined_namespace_gets_only_addresses_that_were_judged() {
        let policy = EgressPolicy { unconfined: Some(Vec::new()), ..EgressPolicy::default() };
        let all = Names { look_up: rebinding, ..Names::new(HashMap::new(), Arc::new(policy)) };
        let confined = all.within(Egress::Confined);
        let shop: Tenant = "shop".into();
        let outside = SocketAddr::from(([192, 0, 2, 1], 443));
        assert_eq!(all.find(&shop, "inside", 443).await.unwrap().len(), 1);
        let refused = confined.find(&shop, "inside", 443).await.unwrap_err();
        assert!(matches!(refused, Fault::Confined { .. }), "{refused}");
        assert_eq!(confined.find(&shop, "outside", 443).await.unwrap(), [outside]);
        assert_eq!(confined.find(&shop, "both", 443).await.unwrap(), [outside]);
        // The HTTP client connects only to the addresses that this resolver returns.
        let resolved = |host: &'static str| {
            let names = confined.clone();
            async move { names.resolve(host.parse().unwrap()).await.map(Iterator::collect::<Vec<_>>) }
        };
        assert_eq!(resolved("both").await.unwrap(), [SocketAddr::from(([192, 0, 2, 1], 0))]);
        assert!(resolved("inside").await.is_err());
        for _ in 0..8 {
            let found = confined.find(&shop, "rebinding", 443).await;
            assert!(found.is_err() || found.is_ok_and(|found| found == [outside]));
        }
    }
}
