//! Eventing in the embedded cluster: the same code as in `mainstay eventing run`, as a task of this process.
//!
//! Two Services with Kyma's names lead to it, through a simulated pod whose port is this process's, so that `kubectl port-forward`
//! works; and the gateway leads the events of applications there.
//!
//! Deliberately absent: events of an earlier run; whoever subscribed is gone with its cluster.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::DOMAIN;
use crate::api::names;
use crate::cli::Error as CommandError;
use crate::cli::eventing::NAMESPACE;
use crate::cluster::{Apply, Cluster};
use crate::eventing;

/// What events may occupy on disk.
const BUDGET: u64 = 256 << 20;
/// Label of the pod.
const LABEL: (&str, &str) = ("app.kubernetes.io/name", "mainstay-eventing");

/// Where events are accepted, and where they are kept.
pub(super) struct Events {
    listener: TcpListener,
    address: SocketAddr,
    data: PathBuf,
}

impl Events {
    /// Listens on a free port.
    pub(super) fn bind(data: PathBuf) -> Result<Self, super::Error> {
        let failed = |cause| super::Error::Write { path: data.clone(), cause };
        match std::fs::remove_dir_all(&data) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(super::Error::Events)?;
        let address = listener.local_addr().map_err(super::Error::Events)?;
        Ok(Self { listener, address, data })
    }

    /// Where Functions publish.
    pub(super) fn publisher(&self) -> String {
        format!("http://{}/publish", self.address)
    }

    /// Creates what leads there.
    pub(super) async fn install(&self, cluster: &Cluster) -> Result<(), CommandError> {
        for object in objects(self.address) {
            let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            let (kind, name) = (text("kind"), object["metadata"]["name"].as_str().unwrap_or_default());
            let found = cluster.kind(&text("apiVersion"), &kind).await?;
            let kind = found.ok_or(CommandError::UnknownKind(kind))?;
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
        stop: CancellationToken,
    ) -> Result<(), CommandError> {
        let resolve = move |namespace: &str, name: &str, port: u16| {
            devcluster::gateway::ready_endpoints(&server, namespace, name, port)
        };
        let settings = eventing::Settings {
            data: self.data,
            budget: BUDGET,
            listener: self.listener,
            resolve: Some(Arc::new(resolve)),
            instance: "mainstay-dev".to_owned(),
        };
        Ok(eventing::run(settings, cluster, stop).await?)
    }
}

fn objects(address: SocketAddr) -> Vec<Value> {
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
    // What is sent to the pod goes to this process.
    pod["annotations"] = json!({devcluster::LOOPBACK: "true"});
    let applications = "eventing-gateway";
    let subset = json!({"addresses": [{"ip": address.ip()}], "ports": [{"name": "http", "port": port}]});
    let destination = json!({"host": format!("{applications}.{NAMESPACE}.svc.cluster.local"), "port": {"number": 80}});
    let paths = json!([{"uri": {"regex": "/[^/]+/(v1/|v2/)?events(/subscribed)?"}}]);
    let route = json!({
        "hosts": [format!("gateway.{DOMAIN}")], "gateways": ["kyma-gateway.kyma-system.svc.cluster.local"],
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
