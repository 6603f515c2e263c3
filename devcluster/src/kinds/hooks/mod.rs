//! The behaviour of built-in kinds: defaults, what the server fills in or keeps, validation, generation, versions.
//!
//! Each function takes an object (and, on updates, its stored predecessor) and answers with the object a real API
//! server would have made of it, or with the causes for which that one would have refused. The families of kinds
//! have a file each; this page only tells which file speaks for which kind.
//!
//! Invariant: `default` is idempotent, so re-applying what is stored changes nothing.
//! Invariant: nothing here panics on any JSON; fields of a wrong type are left alone (the schema refuses them).
//!
//! Deliberately absent: custom resources (their schema speaks for them) and clocks; times and identities that a rule
//! needs are in the object's `metadata` already.

use serde_json::Value;

use crate::status::Cause;

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

/// What a Service holds of the cluster's addresses and ports; to be given back when it is deleted or updated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Addresses of the service range.
    pub cluster_ips: Vec<String>,
    /// Ports of 30000–32767.
    pub node_ports: Vec<u16>,
}

/// What `object` holds; empty for all kinds but Service.
pub fn held(_api_version: &str, _kind: &str, _object: &Value) -> Held {
    Held::default()
}

/// What JSON decoding into the kind's Go type would refuse beyond field types: base64 of Secrets, quantities.
/// The text goes into `<Kind> in version "<v>" cannot be handled as a <Kind>: <text>` (400).
pub fn check_decodable(_api_version: &str, _kind: &str, _object: &Value) -> Result<(), String> {
    Ok(())
}

/// Fills in the kind's defaults and brings quantities into their canonical form; idempotent.
pub fn default(_api_version: &str, _kind: &str, _object: &mut Value) {}

/// What the server does to a new object after defaulting: initial status, addresses, names from the uid.
/// `metadata.name`, `uid`, `creationTimestamp` and `namespace` must be in place.
pub fn prepare_create(
    _api_version: &str,
    _kind: &str,
    _object: &mut Value,
    _allocator: &mut dyn Allocator,
) -> Vec<Cause> {
    Vec::new()
}

/// What the server keeps or fills in when an object is replaced through its main endpoint: the old status, the
/// cluster address, the Job's selector.
pub fn prepare_update(
    _api_version: &str,
    _kind: &str,
    _old: &Value,
    _object: &mut Value,
    _allocator: &mut dyn Allocator,
) -> Vec<Cause> {
    Vec::new()
}

/// What the server keeps when an object is replaced through `/status`: everything but the status and, for most
/// kinds, annotations, labels and finalizers.
pub fn prepare_status_update(_api_version: &str, _kind: &str, _old: &Value, _object: &mut Value) {}

/// Why a real server would refuse `object` (422); with `old`, also the immutable fields.
pub fn validate(_api_version: &str, _kind: &str, _object: &Value, _old: Option<&Value>) -> Vec<Cause> {
    Vec::new()
}

/// Whether replacing `old` by `new` (through the main endpoint) counts as a new generation; `None` for kinds without
/// generations. A new object of a kind that has them starts at 1.
pub fn generation_changes(_api_version: &str, _kind: &str, _old: &Value, _new: &Value) -> Option<bool> {
    None
}

/// The same object in another version of its group: HorizontalPodAutoscalers `autoscaling/v1` and `v2`, Events `v1`
/// and `events.k8s.io/v1`. Others only get the new `apiVersion`.
pub fn convert(object: &Value, _from: &str, to: &str) -> Value {
    let mut object = object.clone();
    object["apiVersion"] = to.into();
    object
}
