//! The networks of a node: one network of 127.0.0.0/8 for its pods, and the next network for its Services.
//!
//! Nodes of several clusters on one machine must not share addresses. A node reserves its networks by a listener in
//! them. The kernel closes the listener when the process ends, even by a crash.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use loopback::{Reach, Reserved};
use parking_lot::Mutex;

/// The address of the node.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// Port of the reserving listener.
const PORT: u16 = 10250;
/// Second byte of the first and last pod network. 127.0 and 127.1 are not used, because they are shared.
const FIRST: u8 = 2;
const LAST: u8 = 252;
/// Number of pod addresses in a network.
const ROOM: u32 = 64_000;

/// The networks of one node.
#[derive(Debug)]
pub(super) struct Slot {
    network: u8,
    /// Reserves the networks; not read.
    _listener: Option<Reserved>,
    pods: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    held: BTreeSet<u32>,
    last: u32,
}

/// Reserves a network; `None` if it is in use.
fn hold(network: u8) -> Option<Reserved> {
    Reserved::bind((Ipv4Addr::new(127, network, 255, 254), PORT).into(), Reach::SameUser).ok()
}

impl Slot {
    /// Reserves free networks. If all are in use, the node shares the first; addresses may then conflict, and pods
    /// report the conflict.
    pub(super) fn take() -> Self {
        let free = (FIRST..=LAST).step_by(2).find_map(|network| Some((network, hold(network)?)));
        let (network, listener) = free.map_or((FIRST, None), |(network, listener)| (network, Some(listener)));
        Self { network, _listener: listener, pods: Mutex::default() }
    }

    /// Returns the name of the node's directory.
    pub(super) fn name(&self) -> String {
        format!("node-{}", self.network)
    }

    /// Whether a name is the name of a node's directory.
    pub(super) fn is_name(name: &str) -> bool {
        name.strip_prefix("node-").is_some_and(|network| network.parse::<u8>().is_ok())
    }

    /// Whether the networks of a directory name are free.
    pub(super) fn abandoned(name: &str) -> bool {
        let network = name.strip_prefix("node-").and_then(|network| network.parse().ok());
        network.is_some_and(|network| hold(network).is_some())
    }

    /// Returns the network of Services.
    pub(super) fn services(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.network + 1, 0, 0)
    }

    /// Whether an address belongs to a pod of this node.
    pub(super) fn is_pod(&self, address: Ipv4Addr) -> bool {
        address.octets()[..2] == [127, self.network]
    }

    /// Reserves a pod address. Released addresses are reused as late as possible.
    pub(super) fn lease(&self) -> Ipv4Addr {
        let mut pool = self.pods.lock();
        for _ in 0..ROOM {
            pool.last = pool.last % ROOM + 1;
            let address = pool.last;
            if pool.held.insert(address) {
                break;
            }
        }
        Ipv4Addr::from(u32::from(Ipv4Addr::new(127, self.network, 0, 0)) + pool.last)
    }

    /// Releases an address.
    pub(super) fn give_back(&self, address: Ipv4Addr) {
        let network = u32::from(Ipv4Addr::new(127, self.network, 0, 0));
        self.pods.lock().held.remove(&u32::from(address).wrapping_sub(network));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_share_no_address() {
        let (one, other) = (Slot::take(), Slot::take());
        assert_ne!(one.services(), other.services());
        let (first, second) = (one.lease(), one.lease());
        assert_ne!(first, second);
        assert!(one.is_pod(first) && !other.is_pod(first) && !one.is_pod(one.services()));
        assert!(!Slot::abandoned(&one.name()) && !Slot::abandoned("else"));
    }

    #[test]
    fn an_address_comes_again_late() {
        let slot = Slot::take();
        let first = slot.lease();
        slot.give_back(first);
        assert_ne!(slot.lease(), first);
    }
}
