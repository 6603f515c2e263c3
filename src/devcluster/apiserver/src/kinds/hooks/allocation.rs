//! Allocation of the addresses and node ports of Services.

/// Allocates addresses and ports that Services of one cluster must not share.
pub trait Allocator {
    /// Allocates a free address of the service range.
    fn cluster_ip(&mut self) -> String;
    /// Allocates `address`; false if another Service has it.
    fn claim_cluster_ip(&mut self, address: &str) -> bool;
    /// Allocates a free port of 30000–32767.
    fn node_port(&mut self) -> u16;
    /// Allocates `port`; false if another Service has it.
    fn claim_node_port(&mut self, port: u16) -> bool;
}

/// The allocations of a Service, which are released when it is deleted or updated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Addresses of the service range.
    pub cluster_ips: Vec<String>,
    /// Ports of 30000–32767.
    pub node_ports: Vec<u16>,
}
