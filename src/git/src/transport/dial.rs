//! Connects to one of a host's addresses, directly or through a proxy. The attempts start one after the other and
//! overlap.
//!
//! Invariant: an unresponsive address costs only `HEAD_START`, not the whole deadline.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::names::Names;
use super::tunnel;
use crate::error::Fault;
use crate::fair_queue::Tenant;
use crate::proxy::Proxy;

/// Delay after which the next address is tried in parallel, as RFC 8305 recommends.
const HEAD_START: Duration = Duration::from_millis(250);
/// Maximum number of tried addresses per family.
const TRIED: usize = 4;

/// The target of a connection.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) host: &'a str,
    pub(super) port: u16,
    pub(super) proxy: Option<&'a Proxy>,
}

/// Connects within this time.
pub(super) async fn connect(
    names: &Names,
    to: &Target<'_>,
    within: Duration,
    tenant: &Tenant,
) -> Result<TcpStream, Fault> {
    names.check_host(to.host)?;
    let (host, port) = to.proxy.map_or((to.host, to.port), |proxy| (&proxy.host, proxy.port));
    let dialled = async {
        let found = names.find(tenant, host, port).await?;
        let connected = race(&found, TcpStream::connect).await.map_or_else(
            || Err(network(format!("no connection: the name {host} has no address"))),
            |connected| connected.map_err(|error| network(format!("no connection: {error}"))),
        );
        let Some(proxy) = to.proxy else { return connected };
        let mut stream = connected?;
        tunnel::open(&mut stream, proxy, to.host, to.port).await?;
        Ok(stream)
    };
    let dialled = tokio::time::timeout(within, dialled).await;
    let dialled = dialled.unwrap_or_else(|_| Err(network("no connection: timed out".to_owned())));
    let stream = dialled.map_err(|fault| match (fault, to.proxy) {
        (Fault::Network { what }, Some(proxy)) => Fault::Proxy { why: format!("{proxy}: {what}") },
        (Fault::Confined { why }, Some(proxy)) => Fault::Proxy { why: format!("{proxy}: {why}") },
        (fault, _) => fault,
    })?;
    // Requests are small and sensitive to latency. If this fails, a request takes some milliseconds longer.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn network(what: String) -> Fault {
    Fault::Network { what }
}

/// Returns the first successful connection, or the error of the last failed one; `None` without addresses.
async fn race<C, A>(addresses: &[SocketAddr], connect: impl Fn(SocketAddr) -> A) -> Option<io::Result<C>>
where
    A: Future<Output = io::Result<C>>,
{
    let mut rest = in_order(addresses).into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut last = None;
    loop {
        attempts.extend(rest.next().map(&connect));
        let next = Instant::now() + HEAD_START;
        let may_wait = async {
            if rest.len() == 0 {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep_until(next).await;
        };
        tokio::select! {
            ended = attempts.next() => match ended {
                Some(Ok(connection)) => return Some(Ok(connection)),
                Some(Err(error)) => last = Some(Err(error)),
                None => return last,
            },
            () = may_wait => {}
        }
    }
}

/// Alternates between the address families, beginning with the one that the resolver prefers.
fn in_order(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first = |address: &&SocketAddr| address.is_ipv4() == addresses[0].is_ipv4();
    let (first, second): (Vec<SocketAddr>, Vec<SocketAddr>) = addresses.iter().partition(is_first);
    let mut order = Vec::new();
    for at in 0..TRIED {
        order.extend(first.get(at));
        order.extend(second.get(at));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    /// Connects to the addresses: port 1 never responds, port 2 refuses, port 3 succeeds.
    async fn outcome(addresses: &[&str]) -> (String, Duration) {
        let addresses: Vec<_> = addresses.iter().map(|text| address(text)).collect();
        let before = Instant::now();
        let ended = race(&addresses, |address| async move {
            match address.port() {
                1 => std::future::pending().await,
                2 => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                _ => Ok(address),
            }
        });
        let ended = match tokio::time::timeout(Duration::from_secs(10), ended).await {
            Ok(Some(Ok(address))) => address.to_string(),
            Ok(Some(Err(error))) => error.to_string(),
            Ok(None) => "no address".to_owned(),
            Err(_) => "it took too long".to_owned(),
        };
        (ended, before.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_never_answers_does_not_keep_the_others_from_being_tried() {
        let check = async |addresses: &[&str], expected: &str, millis: u64| {
            assert_eq!(outcome(addresses).await, (expected.to_owned(), Duration::from_millis(millis)), "{addresses:?}");
        };
        check(&["[::1]:1", "127.0.0.1:3"], "127.0.0.1:3", 250).await;
        check(&["[::1]:1", "[::2]:1", "[::3]:1", "127.0.0.1:3"], "127.0.0.1:3", 250).await;
        check(&["127.0.0.1:1", "127.0.0.2:2", "127.0.0.3:3"], "127.0.0.3:3", 250).await;
        check(&["127.0.0.1:2", "127.0.0.2:2"], "connection refused", 0).await;
        check(&["127.0.0.1:1"], "it took too long", 10_000).await;
        check(&[], "no address", 0).await;
    }

    #[test]
    fn the_families_take_turns_and_of_many_addresses_only_a_few_are_tried() {
        let many: Vec<_> = (1..=9).map(|last| address(&format!("[::{last}]:22"))).collect();
        let other = address("127.0.0.1:22");
        let order = in_order(&[many.clone(), vec![other]].concat());
        assert_eq!(order, [many[0], other, many[1], many[2], many[3]]);
        assert_eq!(in_order(&[]), []);
    }
}
