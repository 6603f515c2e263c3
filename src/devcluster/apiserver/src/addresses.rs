//! Allocation of cluster IPs and node ports to Services.
//!
//! Invariant: at most one Service holds an address or port. A dropped [`Reservation`] releases its allocations, unless
//! [`Reservation::keep`] was called.
//!
//! Not here: which Services need an address or port (`kinds::hooks`).

use crate::kinds::hooks::{Allocator, Held};
use std::collections::BTreeSet;

use parking_lot::Mutex;

/// The base of the default range, which is allocated from the next address on. 10.96.0.1 belongs to the API.
const RANGE: u32 = u32::from_be_bytes([10, 96, 0, 1]);
/// Number of addresses in the range.
const RANGE_SIZE: u32 = (1 << 16) - 2;
/// Range of node ports.
const PORTS: std::ops::RangeInclusive<u16> = 30000..=32767;

/// The allocated addresses and ports.
#[derive(Debug)]
pub(crate) struct Addresses {
    ips: BTreeSet<String>,
    ports: BTreeSet<u16>,
    base: u32,
    next: u32,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { ips: BTreeSet::new(), ports: BTreeSet::new(), base: RANGE, next: 0 }
    }
}

impl Addresses {
    /// Creates a range above `network`, whose last two bytes are zero.
    pub(crate) fn after(network: std::net::Ipv4Addr) -> Self {
        Self { base: u32::from(network), ..Self::default() }
    }

    /// Releases the addresses and ports of a Service.
    pub(crate) fn release(&mut self, held: &Held) {
        for ip in &held.cluster_ips {
            self.ips.remove(ip);
        }
        for port in &held.node_ports {
            self.ports.remove(port);
        }
    }
}

/// The allocations of one write, released on drop.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    addresses: &'a Mutex<Addresses>,
    taken: Held,
}

impl<'a> Reservation<'a> {
    /// Creates a reservation without allocations.
    pub(crate) fn new(addresses: &'a Mutex<Addresses>) -> Self {
        Self { addresses, taken: Held::default() }
    }

    /// Makes the allocations permanent, after the write was stored.
    pub(crate) fn keep(mut self) {
        self.taken = Held::default();
    }

    fn with<T>(&self, f: impl FnOnce(&mut Addresses) -> T) -> T {
        f(&mut self.addresses.lock())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.taken != Held::default() {
            self.with(|a| a.release(&self.taken));
        }
    }
}

impl Allocator for Reservation<'_> {
    fn cluster_ip(&mut self) -> String {
        let ip = self.with(|a| {
            loop {
                a.next = a.next % RANGE_SIZE + 1;
                let ip = std::net::Ipv4Addr::from(a.base + a.next).to_string();
                if a.ips.len() >= RANGE_SIZE as usize || a.ips.insert(ip.clone()) {
                    return ip;
                }
            }
        });
        self.taken.cluster_ips.push(ip.clone());
        ip
    }

    fn claim_cluster_ip(&mut self, address: &str) -> bool {
        let new = self.with(|a| a.ips.insert(address.to_owned()));
        if new {
            self.taken.cluster_ips.push(address.to_owned());
        }
        new
    }

    fn node_port(&mut self) -> u16 {
        let start = fastrand::u16(PORTS);
        let port = self.with(|a| {
            let order = (start..=*PORTS.end()).chain(*PORTS.start()..start);
            let free = order.into_iter().find(|p| !a.ports.contains(p)).unwrap_or(start);
            a.ports.insert(free);
            free
        });
        self.taken.node_ports.push(port);
        port
    }

    fn claim_node_port(&mut self, port: u16) -> bool {
        let new = self.with(|a| a.ports.insert(port));
        if new {
            self.taken.node_ports.push(port);
        }
        new
    }
}
