//! Names of hosts become addresses.
//!
//! The system's resolver blocks a thread for as long as the nameservers of a name take, which may be minutes, and nobody
//! can call it back. So a lookup that nobody waits for any more still counts.
//!
//! Invariant: at most [`AT_ONCE`] threads look names up, shared fairly by namespaces: one whose nameservers never answer
//! holds up its own repositories.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::source::error::Fault;
use crate::source::fair_queue::Tenant;
use crate::source::link_local;
use crate::source::permits::Permits;

/// Names that are looked up at the same time.
pub(in crate::source) const AT_ONCE: usize = 16;

tokio::task_local! {
    /// On whose behalf remotes are spoken to. The client of HTTP asks for addresses deep within a request, where nothing
    /// else of ours comes along.
    static TENANT: Tenant;
}

/// Speaks to remotes on behalf of a namespace.
pub(in crate::source) async fn on_behalf_of<T>(tenant: &Tenant, conversation: impl Future<Output = T>) -> T {
    TENANT.scope(tenant.clone(), conversation).await
}

/// On whose behalf the current task speaks.
pub(super) fn tenant() -> Tenant {
    TENANT.try_with(Clone::clone).unwrap_or_default()
}

/// Looks names up.
#[derive(Clone, Debug)]
pub(in crate::source) struct Names {
    permits: Permits,
    /// Hosts for which the resolver is not asked.
    known: Arc<HashMap<String, IpAddr>>,
    look_up: fn(&str, u16) -> io::Result<Vec<SocketAddr>>,
}

impl Names {
    /// With the resolver of the system for all but these hosts.
    pub(in crate::source) fn new(known: HashMap<String, IpAddr>) -> Self {
        let known = Arc::new(known);
        Self {
            permits: Permits::new(AT_ONCE),
            known,
            look_up: |host, port| Ok((host, port).to_socket_addrs()?.collect()),
        }
    }

    /// The addresses of a host, in the resolver's order.
    pub(super) async fn find(&self, tenant: &Tenant, host: &str, port: u16) -> Result<Vec<SocketAddr>, Fault> {
        if let Some(known) = self.known.get(host) {
            return Ok(vec![SocketAddr::new(*known, port)]);
        }
        let (look_up, name) = (self.look_up, host.to_owned());
        let found = self.permits.share(tenant).run(move || look_up(&name, port)).await?;
        let found = found.map_err(|error| not_found(host, &error)).and_then(|found| without_link_local(host, found));
        found.map_err(|why| Fault::Network { what: format!("no connection: {why}") })
    }
}

fn not_found(host: &str, error: &io::Error) -> String {
    format!("the name {host} is not found ({error})")
}

/// The addresses that may be connected to.
fn without_link_local(host: &str, found: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, String> {
    let is_none = found.is_empty();
    let allowed: Vec<_> = found.into_iter().filter(|address| !link_local::is_link_local(address.ip())).collect();
    if allowed.is_empty() && !is_none {
        return Err(format!("the name {host} leads to a link-local address; {}", link_local::REFUSED));
    }
    Ok(allowed)
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, tenant) = (self.clone(), tenant());
        Box::pin(async move {
            if let Some(known) = names.known.get(name.as_str()) {
                return Ok::<Addrs, _>(Box::new(std::iter::once(SocketAddr::new(*known, 0))));
            }
            let look_up = names.look_up;
            let host = name.as_str().to_owned();
            let found = names.permits.share(&tenant).run(move || look_up(name.as_str(), 0)).await?;
            let found = found.map_err(|error| not_found(&host, &error))?;
            let found = without_link_local(&host, found)?;
            Ok::<Addrs, _>(Box::new(found.into_iter()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use parking_lot::{Condvar, Mutex};

    use super::*;

    static STUCK: AtomicUsize = AtomicUsize::new(0);
    static OVER: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

    /// A resolver whose nameservers answer for `good` and `absent`, and for nothing else before the test is over.
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
        let names = Names { look_up: stuck, ..Names::new(HashMap::new()) };
        let (bad, good): (Tenant, Tenant) = ("bad".into(), "good".into());
        let brief = Duration::from_millis(10);
        for number in 0..50 {
            let name = format!("stuck-{number}");
            // Given up long before its thread is free.
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
        assert!(refused.starts_with("no connection: the name metadata leads to a link-local address"), "{refused}");
        let resolving = on_behalf_of(&good, async { names.resolve("metadata".parse().unwrap()).await });
        assert!(resolving.await.err().expect("it is refused").to_string().contains("link-local"));
        let resolving = on_behalf_of(&good, async { names.resolve("good".parse().unwrap()).await });
        let found = tokio::time::timeout(Duration::from_secs(60), resolving).await;
        assert_eq!(found.expect("a thread is free").unwrap().count(), 1);
    }
}
