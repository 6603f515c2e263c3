//! Addresses of one node: a network of 127.0.0.0/8 for its pods and the next one for its Services.
//!
//! Nodes of several clusters on one machine must not share addresses. A node holds its networks by listening on an
//! address of them, which the system gives up when the process ends, however it ends.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use loopback::{Reach, Reserved};
use parking_lot::Mutex;

/// The node's own address.
pub(super) const HOST: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// The port of the address that is listened on.
const PORT: u16 = 10250;
/// Second bytes of the pods' networks; 127.0 and 127.1 are for everybody.
const FIRST: u8 = 2;
const LAST: u8 = 252;
/// Addresses of a network that are given to pods.
const ROOM: u32 = 64_000;

/// The networks of one node.
#[derive(Debug)]
pub(super) struct Slot {
    network: u8,
    /// Held, not used.
    _listener: Option<Reserved>,
    pods: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    held: BTreeSet<u32>,
    last: u32,
}

/// The listener that holds a network, when nobody else has it.
fn hold(network: u8) -> Option<Reserved> {
    Reserved::bind((Ipv4Addr::new(127, network, 255, 254), PORT).into(), Reach::SameUser).ok()
}

impl Slot {
    /// Takes free networks. When all are taken the first are shared: then addresses may clash, and pods say so.
    pub(super) fn take() -> Self {
        let free = (FIRST..=LAST).step_by(2).find_map(|network| Some((network, hold(network)?)));
        let (network, listener) = free.map_or((FIRST, None), |(network, listener)| (network, Some(listener)));
        Self { network, _listener: listener, pods: Mutex::default() }
    }

    /// The name of what belongs to this node alone.
    pub(super) fn name(&self) -> String {
        format!("node-{}", self.network)
    }

    /// Whether this is the name of what belongs to a node.
    pub(super) fn is_name(name: &str) -> bool {
        name.strip_prefix("node-").is_some_and(|network| network.parse::<u8>().is_ok())
    }

    /// Whether no node has the networks of a name.
    pub(super) fn abandoned(name: &str) -> bool {
        let network = name.strip_prefix("node-").and_then(|network| network.parse().ok());
        network.is_some_and(|network| hold(network).is_some())
    }

    /// The network of Services.
    pub(super) fn services(&self) -> Ipv4Addr {
        Ipv4Addr::new(127, self.network + 1, 0, 0)
    }

    /// Whether an address is that of a pod of this node.
    pub(super) fn is_pod(&self, address: Ipv4Addr) -> bool {
        address.octets()[..2] == [127, self.network]
    }

    /// A free address for a pod, to be given back; one is used again as late as possible.
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

    /// Takes an address back.
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
