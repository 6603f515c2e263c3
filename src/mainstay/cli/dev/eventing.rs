//! Eventing in the embedded cluster: the code of `mainstay eventing run`, as a task of this process.
//!
//! Two Services with Kyma's names route to the listener of this process, through a simulated pod with the port of this
//! process, so `kubectl port-forward` works. The gateway routes events of applications to the same listener.
//!
//! Not here: events of an earlier run. Their subscribers were deleted together with the cluster of that run.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use loopback::{Reach, Reserved};
use mainstay_api::names::{self, EVENTING_NAMESPACE as NAMESPACE};
use mainstay_cluster::{Apply, Cluster};

/// Maximum size of stored events, in bytes.
const BUDGET: u64 = 256 << 20;
/// Label of the pod.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "mainstay-eventing");

/// Why events are not delivered.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum Error {
    #[error("could not listen for events")]
    Listen(#[source] io::Error),
    #[error("could not empty {}", path.display())]
    Empty {
        path: PathBuf,
        #[source]
        cause: io::Error,
    },
    #[error(transparent)]
    Cluster(#[from] mainstay_cluster::Error),
    #[error("the cluster does not serve the kind {0}")]
    UnknownKind(String),
    #[error("the delivery of events stopped")]
    Run(#[from] mainstay_eventing::Error),
}

/// The listener for events, and their directory.
pub(super) struct Events {
    listener: Reserved,
    address: SocketAddr,
    data: PathBuf,
}

impl Events {
    /// Binds a free port.
    pub(super) fn bind(data: PathBuf) -> Result<Self, Error> {
        let failed = |cause| Error::Empty { path: data.clone(), cause };
        match std::fs::remove_dir_all(&data) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = Reserved::bind((Ipv4Addr::LOCALHOST, 0).into(), Reach::SameUser).map_err(Error::Listen)?;
        let address = listener.local_addr().map_err(Error::Listen)?;
        Ok(Self { listener, address, data })
    }

    /// Returns the URL to which Functions publish events.
    pub(super) fn publisher(&self) -> String {
        format!("http://{}/publish", self.address)
    }

    /// Creates the Services and routes. `domain` is the domain of the gateway's hosts.
    pub(super) async fn install(&self, cluster: &Cluster, domain: &str) -> Result<(), Error> {
        for object in objects(self.address, domain) {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            let (kind, name) = (text("kind"), object["metadata"]["name"].as_str().unwrap_or_default());
            let found = cluster.kind(&text("apiVersion"), &kind).await?;
            let kind = found.ok_or(Error::UnknownKind(kind))?;
            let namespace = object["metadata"]["namespace"].as_str();
            cluster.apply(&kind, namespace, name, &object, Apply::forced(names::DEV_MANAGER)).await?;
        }
        Ok(())
    }

    /// Accepts and delivers events until `stop`.
    pub(super) async fn run(
        self,
        cluster: Cluster,
        server: devcluster::Cluster,
        written_endpoints: Vec<String>,
        stop: CancellationToken,
    ) -> Result<(), Error> {
        let resolve = move |namespace: &str, name: &str, port: u16| {
            devcluster::gateway::ready_endpoints(&server, namespace, name, port)
        };
        let settings = mainstay_eventing::Settings {
            data: self.data,
            budget: BUDGET,
            nats: None,
            listener: self.listener,
            metrics: None,
            resolve: Some(Arc::new(resolve)),
            // All clients are allowed, because a single user owns all namespaces.
            publishers: mainstay_eventing::PublisherAuth::Anyone,
            grants: vec![mainstay_eventing::Grant::ALL],
            written_endpoints,
            instance: "mainstay-dev".to_owned(),
            role: mainstay_eventing::Role::Whole,
        };
        Ok(mainstay_eventing::run(settings, cluster, stop).await?)
    }
}

fn objects(address: SocketAddr, domain: &str) -> Vec<Value> {
    let port = address.port();
    let labels = json!({LABEL.0: LABEL.1});
    let metadata = |name: &str| json!({"name": name, "namespace": NAMESPACE, "labels": labels});
    let ports = json!([{"name": "http", "port": 80, "targetPort": port}]);
    let service = |name: &str| {
        let spec = json!({"selector": labels, "ports": ports});
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(name), "spec": spec})
    };
    let container = json!({
        "name": "eventing", "image": "mainstay:dev", "ports": [{"name": "http", "containerPort": port}],
    });
    let mut pod = metadata("mainstay-eventing");
    // The annotation directs requests for the pod to this process.
    pod["annotations"] = json!({devcluster::LOOPBACK: "true"});
    let applications = "eventing-gateway";
    let subset = json!({"addresses": [{"ip": address.ip()}], "ports": [{"name": "http", "port": port}]});
    let destination = json!({"host": format!("{applications}.{NAMESPACE}.svc.cluster.local"), "port": {"number": 80}});
    let paths = json!([{"uri": {"regex": "/[^/]+/(v1/|v2/)?events(/subscribed)?"}}]);
    let route = json!({
        "hosts": [format!("gateway.{domain}")], "gateways": ["kyma-gateway.kyma-system.svc.cluster.local"],
        "http": [{"match": paths, "route": [{"destination": destination}]}],
    });
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}),
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": {"containers": [container]}}),
        service("eventing-event-publisher-proxy"),
        service("eventing-publisher-proxy"),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata(applications), "spec": {"ports": ports}}),
        json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata(applications), "subsets": [subset]}),
        json!({
            "apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService", "metadata": metadata("gateway"),
            "spec": route,
        }),
    ]
}
