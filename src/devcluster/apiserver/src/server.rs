//! The API server as one value.
//!
//! [`Server`] owns the store, the type table, the addresses of Services and the injected faults. It refers to the
//! kubelet and the extension in its options. The verbs (`verbs`) use it; HTTP (`service`, `listen`) and clients in this
//! process call the verbs.
//!
//! Not here: persistence. The data lives as long as the last clone.

use crate::{
    access::{signer::Signer, user::Authenticator},
    addresses::Addresses,
    admission,
    extension::Extension,
    fault_injection::{FaultInjection, Simulation},
    kinds::table::{Converter, Kind, Table},
    kubelet::{self, Kubelet},
    requests::Requests,
    service::request::Room,
    store::Store,
};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Answers a webhook that is configured with a Service, in this process. The arguments are the server,
/// `clientConfig.service` and the AdmissionReview without its uid. Returns the `response`, whose `patch` is a plain
/// list; `None` if the webhook is not served here.
pub type OwnWebhook = fn(&Server, &Value, &Value) -> Option<Value>;

/// The settings of a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// Interval of bookmarks for an idle watch that requested them, if there were events; default 5 s.
    pub bookmark_interval: Duration,
    /// Duration of a watch without `timeoutSeconds`; default 30 minutes.
    pub watch_timeout: Duration,
    /// Maximum wait of a read for a future resource version; default 3 s.
    pub future_wait: Duration,
    /// Maximum number of pods of all workloads together; default 2,500. A mistyped replica count must not fill the
    /// memory.
    pub most_pods: usize,
    /// Interval at which autoscalers measure pods, and the averaging period; default 15 s.
    pub autoscaler_interval: Duration,
    /// Whether RBAC restricts users; default false: all users may do everything. A client without credentials is always
    /// the administrator.
    pub rbac: bool,
    /// Whether the controllers of Knative Serving run; default false.
    pub knative: bool,
    /// Answers webhooks that are configured with a Service, in this process; default none.
    pub webhook: Option<OwnWebhook>,
    /// Reason why URLs of webhooks are not called, except those of [`Server::permit_webhooks`]. Default none: all are
    /// called.
    pub refused_webhooks: Option<&'static str>,
    /// Network of Service addresses; default: that of a real cluster.
    pub service_network: Option<Ipv4Addr>,
    /// Runs pods; default none: every pod is simulated.
    pub kubelet: Option<Arc<dyn Kubelet>>,
    /// Whether simulated pods are marked in a condition and in their column STATUS; default false, as on a real
    /// cluster.
    pub mark_simulated: bool,
    /// Services beside the Kubernetes API.
    pub extension: Option<Arc<dyn Extension>>,
    /// Converts an object of a definition with the strategy `Webhook` to an `apiVersion`. Conversion webhooks are never
    /// called.
    pub converter: Option<Converter>,
    /// Authenticates tokens of another issuer; default none.
    pub authenticator: Option<Authenticator>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bookmark_interval: Duration::from_secs(5),
            watch_timeout: Duration::from_mins(30),
            future_wait: Duration::from_secs(3),
            most_pods: 2_500,
            autoscaler_interval: Duration::from_secs(15),
            rbac: false,
            knative: false,
            webhook: None,
            refused_webhooks: None,
            service_network: None,
            kubelet: None,
            mark_simulated: false,
            extension: None,
            converter: None,
            authenticator: None,
        }
    }
}

/// An API server. Clones share their state.
#[derive(Clone, Debug)]
pub struct Server(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Store,
    table: RwLock<Arc<Table>>,
    registry: Mutex<()>,
    addresses: Mutex<Addresses>,
    faults: FaultInjection,
    signer: OnceLock<Option<Signer>>,
    tokens: RwLock<Vec<String>>,
    routes: RwLock<HashMap<(String, String, u16), SocketAddr>>,
    webhooks: admission::Kept,
    permitted_webhooks: RwLock<Vec<SocketAddr>>,
    room: Room,
    requests: Arc<Requests>,
    options: Options,
}

impl Server {
    /// Creates an API server without any objects. [`Server::new`] adds the initial objects.
    pub(crate) fn empty(options: Options) -> Self {
        let addresses = options.service_network.map_or_else(Addresses::default, Addresses::after);
        Self(Arc::new(Inner {
            store: Store::default(),
            table: RwLock::new(Arc::new(Table::with([]))),
            registry: Mutex::default(),
            addresses: Mutex::new(addresses),
            faults: FaultInjection::default(),
            signer: OnceLock::new(),
            tokens: RwLock::default(),
            routes: RwLock::default(),
            webhooks: admission::Kept::default(),
            permitted_webhooks: RwLock::default(),
            room: Room::default(),
            requests: Arc::default(),
            options,
        }))
    }

    /// Returns the memory budget for request bodies.
    pub(crate) fn room(&self) -> &Room {
        &self.0.room
    }

    /// Returns the store of objects.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns the served kinds.
    pub fn table(&self) -> Arc<Table> {
        self.0.table.read().clone()
    }

    /// Returns the connections to webhooks.
    pub(crate) fn webhooks(&self) -> &admission::Kept {
        &self.0.webhooks
    }

    /// Returns the counts of requests in progress to Knative Revisions.
    pub fn requests(&self) -> &Arc<Requests> {
        &self.0.requests
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Returns the injected faults, simulated outcomes and counts.
    pub fn faults(&self) -> &FaultInjection {
        &self.0.faults
    }

    /// Returns the extension that serves a path.
    pub fn extension(&self, path: &str) -> Option<&dyn Extension> {
        self.0.options.extension.as_deref().filter(|extension| extension.serves(path))
    }

    /// Returns the signer of ServiceAccount tokens; `None` if the machine has no randomness.
    pub(crate) fn signer(&self) -> Option<&Signer> {
        // Created on first use: most clusters sign no token.
        self.0.signer.get_or_init(Signer::new).as_ref()
    }

    /// Sets the address at which the server reaches a Service port, for webhooks that are configured with a Service.
    pub fn route_service(&self, namespace: &str, name: &str, port: u16, address: SocketAddr) {
        let mut routes = self.0.routes.write();
        routes.insert((namespace.to_owned(), name.to_owned(), port), address);
    }

    /// Permits webhooks with URLs of this address, even if others are refused.
    pub fn permit_webhooks(&self, address: SocketAddr) {
        self.0.permitted_webhooks.write().push(address);
    }

    /// Returns why a webhook with a URL of this host and port is not called.
    pub(crate) fn webhook_refusal(&self, host: &str, port: u16) -> Option<&'static str> {
        let why = self.0.options.refused_webhooks?;
        let permitted = self.0.permitted_webhooks.read();
        let is_permitted = permitted.iter().any(|one| one.port() == port && one.ip().to_string() == host);
        (!is_permitted).then_some(why)
    }

    pub(crate) fn service_route(&self, namespace: &str, name: &str, port: u16) -> Option<SocketAddr> {
        let routes = self.0.routes.read();
        routes.get(&(namespace.to_owned(), name.to_owned(), port)).copied()
    }

    /// Adds a token of the administrator.
    pub(crate) fn learn_token(&self, token: &str) {
        self.0.tokens.write().push(token.to_owned());
    }

    /// Returns whether a token is one of the administrator's.
    pub(crate) fn knows_token(&self, token: &str) -> bool {
        let tokens = self.0.tokens.read();
        tokens.iter().any(|known| equal(known.as_bytes(), token.as_bytes()))
    }

    /// Returns the kubelet if it can run a pod.
    pub fn kubelet(&self, pod: &Value) -> Option<&dyn Kubelet> {
        self.0.options.kubelet.as_deref().filter(|kubelet| kubelet.runs(pod))
    }

    /// Returns whether a kubelet measures the usage of pods.
    pub fn measures_pods(&self) -> bool {
        self.0.options.kubelet.is_some()
    }

    /// Returns the average usage of a pod's containers over a time window.
    pub fn usage(&self, uid: &str, window: Duration) -> Option<Vec<kubelet::ContainerUsage>> {
        self.0.options.kubelet.as_ref()?.usage(uid, window)
    }

    /// Returns whether the kubelet runs a pod, so that it alone writes the pod's status. Pods with a simulated outcome
    /// are excluded.
    pub fn kubelet_runs(&self, pod: &Value) -> bool {
        !kubelet::has_outcome(pod) && self.kubelet(pod).is_some() && !self.faults().simulates(pod)
    }

    /// Sets the outcome of an image's containers.
    ///
    /// A pod with such a container is simulated, even if a node could run it.
    pub fn simulate(&self, image: &str, simulation: Simulation) {
        self.faults().simulate(image, "", simulation);
    }

    /// Sets the outcome of an image's containers with one name.
    pub fn simulate_container(&self, image: &str, container: &str, simulation: Simulation) {
        self.faults().simulate(image, container, simulation);
    }

    pub(crate) fn addresses(&self) -> &Mutex<Addresses> {
        &self.0.addresses
    }

    /// Returns the lock that serialises changes of the type table.
    pub(crate) fn registry(&self) -> &Mutex<()> {
        &self.0.registry
    }

    pub(crate) fn serve_kinds(&self, custom: Vec<Arc<Kind>>) {
        let table = Arc::new(Table::with(custom));
        *self.0.table.write() = table;
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Compares in constant time: the duration does not reveal the first difference.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

/// Formats a time in RFC 3339, UTC and whole seconds, like `metadata.creationTimestamp`.
pub fn stamp(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
