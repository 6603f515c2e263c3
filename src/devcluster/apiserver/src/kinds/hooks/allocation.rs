//! Allocation of the addresses and node ports of Services.

/// Hands out what Services of one cluster must not share.
pub trait Allocator {
    /// A free address of the service range.
    fn cluster_ip(&mut self) -> String;
    /// Takes `address`; false when another Service has it.
    fn claim_cluster_ip(&mut self, address: &str) -> bool;
    /// A free port of 30000–32767.
    fn node_port(&mut self) -> u16;
    /// Takes `port`; false when another Service has it.
    fn claim_node_port(&mut self, port: u16) -> bool;
}

/// Addresses and ports of a Service, to be released when it is deleted or updated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Addresses of the service range.
    pub cluster_ips: Vec<String>,
    /// Ports of 30000–32767.
    pub node_ports: Vec<u16>,
}
