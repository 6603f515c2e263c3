//! The API server as one value: what the verbs are written against.
//!
//! [`Server`] owns the store, the type table, the addresses of Services and the injected faults, and knows the kubelet and the
//! extension that it was made with. The verbs (`verbs`) are written against it; HTTP (`service`, `listen`) and clients
//! in this process only call those.
//!
//! Deliberately absent: persistence: what is stored lives as long as the last clone.

use crate::{
    access::signer::Signer,
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

/// Answers a webhook that is configured with a Service: from `clientConfig.service` and the AdmissionReview without its uid, the
/// `response`, whose `patch` is the list itself. `None`: it is not for this one.
pub type OwnWebhook = fn(&Server, &Value, &Value) -> Option<Value>;

/// How a cluster behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How often an idle watch that asked for bookmarks gets one, if anything happened; 5 s.
    pub bookmark_interval: Duration,
    /// How long a watch without `timeoutSeconds` stays open; 30 minutes.
    pub watch_timeout: Duration,
    /// How long a read waits for a resource version of the future; 3 s.
    pub future_wait: Duration,
    /// Pods of all workloads together, so that a mistyped replica count does not fill the memory; 2 500.
    pub most_pods: usize,
    /// How often autoscalers measure the pods of their targets, and over which time; 15 s.
    pub autoscaler_interval: Duration,
    /// Whether roles and bindings decide what users may do; false: everyone may do everything. Whoever brings no
    /// credentials is the administrator either way.
    pub rbac: bool,
    /// Whether the controllers of Knative Serving run; false.
    pub knative: bool,
    /// Answers webhooks that are configured with a Service, in this process; none.
    pub webhook: Option<OwnWebhook>,
    /// Network that the addresses of Services are from; absent: that of a real cluster.
    pub service_network: Option<Ipv4Addr>,
    /// Runs pods; absent: every pod is simulated.
    pub kubelet: Option<Arc<dyn Kubelet>>,
    /// Whether pods that only seem to run say so in a condition and in their column STATUS; false, as on a real cluster.
    pub mark_simulated: bool,
    /// Services beside the Kubernetes API.
    pub extension: Option<Arc<dyn Extension>>,
    /// Converts objects of definitions with the strategy `Webhook`, whose webhooks are not asked: an object, and the
    /// `apiVersion` that is wanted of it.
    pub converter: Option<Converter>,
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
            service_network: None,
            kubelet: None,
            mark_simulated: false,
            extension: None,
            converter: None,
        }
    }
}

/// An API server; clones are the same one.
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
    room: Room,
    requests: Arc<Requests>,
    options: Options,
}

impl Server {
    /// An API server without any objects; [`Server::new`] is one with those of a new cluster.
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
            room: Room::default(),
            requests: Arc::default(),
            options,
        }))
    }

    /// The room for the bodies of requests.
    pub(crate) fn room(&self) -> &Room {
        &self.0.room
    }

    /// The objects.
    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// The served kinds.
    pub fn table(&self) -> Arc<Table> {
        self.0.table.read().clone()
    }

    /// The connections to webhooks.
    pub(crate) fn webhooks(&self) -> &admission::Kept {
        &self.0.webhooks
    }

    /// The requests to Revisions of Knative that are under way.
    pub fn requests(&self) -> &Arc<Requests> {
        &self.0.requests
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Faults, simulated outcomes and counts, as tests set and read them.
    pub fn faults(&self) -> &FaultInjection {
        &self.0.faults
    }

    /// The service beside the Kubernetes API at a path.
    pub fn extension(&self, path: &str) -> Option<&dyn Extension> {
        self.0.options.extension.as_deref().filter(|extension| extension.serves(path))
    }

    /// Signer of the tokens of ServiceAccounts; `None` if the machine has no randomness.
    pub(crate) fn signer(&self) -> Option<&Signer> {
        // Made when it is first wanted: most clusters never sign anything.
        self.0.signer.get_or_init(Signer::new).as_ref()
    }

    /// Says where a port of a Service is to be found by the server itself, for webhooks that are configured with a Service.
    pub fn route_service(&self, namespace: &str, name: &str, port: u16, address: SocketAddr) {
        let mut routes = self.0.routes.write();
        routes.insert((namespace.to_owned(), name.to_owned(), port), address);
    }

    pub(crate) fn service_route(&self, namespace: &str, name: &str, port: u16) -> Option<SocketAddr> {
        let routes = self.0.routes.read();
        routes.get(&(namespace.to_owned(), name.to_owned(), port)).copied()
    }

    /// Makes a token that of the administrator.
    pub(crate) fn learn_token(&self, token: &str) {
        self.0.tokens.write().push(token.to_owned());
    }

    /// Whether a token is that of the administrator.
    pub(crate) fn knows_token(&self, token: &str) -> bool {
        let tokens = self.0.tokens.read();
        tokens.iter().any(|known| equal(known.as_bytes(), token.as_bytes()))
    }

    /// The kubelet, if it has the images of a pod.
    pub fn kubelet(&self, pod: &Value) -> Option<&dyn Kubelet> {
        self.0.options.kubelet.as_deref().filter(|kubelet| kubelet.runs(pod))
    }

    /// Whether there is a kubelet that measures what pods use.
    pub fn measures_pods(&self) -> bool {
        self.0.options.kubelet.is_some()
    }

    /// What the containers of a pod of this UID used, on average over this time.
    pub fn usage(&self, uid: &str, window: Duration) -> Option<Vec<kubelet::ContainerUsage>> {
        self.0.options.kubelet.as_ref()?.usage(uid, window)
    }

    /// Whether the kubelet runs a pod, so that nobody else speaks for it: it could, and nothing says how the pod ends.
    pub fn kubelet_runs(&self, pod: &Value) -> bool {
        !kubelet::has_outcome(pod) && self.kubelet(pod).is_some() && !self.faults().simulates(pod)
    }

    /// Makes the containers of an image end as told instead of what they would do.
    ///
    /// Pods with such a container are simulated, also where a node would run them.
    pub fn simulate(&self, image: &str, simulation: Simulation) {
        self.faults().simulate(image, "", simulation);
    }

    /// The same for the containers of one name.
    pub fn simulate_container(&self, image: &str, container: &str, simulation: Simulation) {
        self.faults().simulate(image, container, simulation);
    }

    pub(crate) fn addresses(&self) -> &Mutex<Addresses> {
        &self.0.addresses
    }

    /// Serialises changes of the type table.
    pub(crate) fn registry(&self) -> &Mutex<()> {
        &self.0.registry
    }

    pub(crate) fn serve_kinds(&self, custom: Vec<Arc<Kind>>) {
        let table = Arc::new(Table::with(custom));
        *self.0.table.write() = table;
    }

    /// The time, as objects carry it.
    pub fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// Compares without telling by the time taken where the first difference is.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |difference, (x, y)| difference | (x ^ y)) == 0
}

/// RFC 3339 in UTC with seconds, as `metadata.creationTimestamp` is written.
pub fn stamp(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
