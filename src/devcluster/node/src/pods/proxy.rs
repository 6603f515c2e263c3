//! Listeners for Services on loopback addresses. Connections are distributed over ready pods in turn.
//!
//! A Service without a selector forwards to the loopback addresses in its Endpoints, which are programs outside of
//! pods. A Knative Service forwards by its Ingress. A port that this process may not bind is bound 8000 higher (80 as
//! 8080, 443 as 8443); the annotation `devcluster.dev/url` of the Service then shows the URL.
//!
//! Not here: UDP, session affinity, and user-written EndpointSlices.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use loopback::{Listener, Reach};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::context::Context;
use crate::gateway::serving;
use devcluster_apiserver::client::Subject;
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::object::{is_terminating, is_true, text};
use devcluster_apiserver::store::Key;

/// Annotation of a simulated pod. With `true`, the pod's ports are those of 127.0.0.1, where another process serves
/// them.
pub const LOOPBACK: &str = "devcluster.dev/loopback";
/// Annotation with the URL of a Service that listens on a port other than the declared one.
const URL: &str = "devcluster.dev/url";
/// Maximum number of connections per port; further ones wait.
const CONNECTIONS: usize = 2_048;
/// Delay before a retry of a port in use.
const AGAIN: Duration = Duration::from_secs(3);
/// Deadline of a connection to a pod.
const PATIENCE: Duration = Duration::from_secs(2);

/// The listeners of a node by Service.
pub(super) struct Proxy {
    ctx: Context,
    services: HashMap<Key, Listened>,
}

/// The listeners of a Service. Dropping it closes them.
struct Listened {
    address: Ipv4Addr,
    ports: Vec<u16>,
    tasks: Vec<JoinHandle<()>>,
    /// The message if a port could not be bound.
    failed: Option<String>,
}

impl Drop for Listened {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Proxy {
    pub(super) fn new(ctx: Context) -> Self {
        Self { ctx, services: HashMap::new() }
    }

    /// Updates the listeners of all Services.
    pub(super) fn begin(&mut self) {
        let all = self.ctx.server.objects("v1", "services", None);
        let key = |service: &Value| Key::new(text(service, "/metadata/namespace"), text(service, "/metadata/name"));
        let keys: Vec<Key> = all.iter().map(|service| key(service)).chain(self.services.keys().cloned()).collect();
        for key in &keys {
            self.see(key);
        }
    }

    /// Waits until failed ports should be retried; forever if there are none.
    pub(super) async fn when_to_try_again(&self) {
        if self.services.values().any(|listened| listened.failed.is_some()) {
            tokio::time::sleep(AGAIN).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Opens, updates or closes the listeners of a Service.
    pub(super) fn see(&mut self, key: &Key) {
        let service = self.ctx.server.object("v1", "services", key.namespace(), key.name());
        let wanted = service.as_ref().and_then(|service| self.wanted(service));
        let Some((service, (address, ports))) = service.zip(wanted) else {
            self.forget(key);
            self.ctx.node().urls.lock().remove(key);
            return;
        };
        let same = |known: &Listened| known.address == address && known.ports == ports && known.failed.is_none();
        if self.services.get(key).is_some_and(same) {
            return;
        }
        let reported = self.forget(key).and_then(|known| known.failed.clone());
        let mut listened = Listened { address, ports: ports.clone(), tasks: Vec::new(), failed: None };
        let mut urls = Vec::new();
        let mut bounds = Vec::new();
        let mut moved = false;
        for port in ports {
            match listen(address, port) {
                Ok((listener, bound)) => {
                    moved |= bound != port;
                    bounds.push((port, bound));
                    urls.push(if bound == 80 {
                        format!("http://{address}")
                    } else {
                        format!("http://{address}:{bound}")
                    });
                    let (ctx, key) = (self.ctx.clone(), key.clone());
                    listened.tasks.push(tokio::spawn(accept(ctx, key, port, listener)));
                }
                Err(error) => {
                    let message = format!("cannot listen on {address}:{port}: {error}");
                    if reported.as_ref() != Some(&message) {
                        self.ctx.client.report(&service, "kube-proxy", "Warning", "FailedToListen", &message);
                    }
                    listened.failed = Some(message);
                }
            }
        }
        if let Err(error) = self.ctx.node().names.set(key.namespace(), key.name(), address, &bounds) {
            tracing::warn!(%error, service = %key.name(), "pods do not find a Service by its name");
        }
        self.ctx.node().urls.lock().insert(key.clone(), urls.clone());
        self.ctx.node().moves.send_replace(());
        self.services.insert(key.clone(), listened);
        let published = service["metadata"]["annotations"][URL].as_str();
        let address = urls.first().filter(|_| moved).map(String::as_str);
        if published != address {
            let subject = Subject::new("services", key.namespace(), key.name());
            self.ctx.client.merge("kube-proxy", &subject, json!({"metadata": {"annotations": {URL: address}}}));
        }
    }

    /// Returns the loopback subsets of a Service's Endpoints.
    fn written(&self, service: &Value) -> Vec<Subset> {
        written(&self.ctx, text(service, "/metadata/namespace"), text(service, "/metadata/name"))
    }

    /// Closes the listeners and removes the names of a Service.
    fn forget(&mut self, key: &Key) -> Option<Listened> {
        let known = self.services.remove(key)?;
        self.ctx.node().names.remove(key.namespace(), key.name(), known.address);
        Some(known)
    }

    /// Returns the address and TCP ports of a Service that this node serves.
    fn wanted(&self, service: &Value) -> Option<(Ipv4Addr, Vec<u16>)> {
        let spec = &service["spec"];
        let address: Ipv4Addr = text(spec, "/clusterIP").parse().ok()?;
        let network = self.ctx.node().services().octets();
        let leads_somewhere = has_selector(service) || serving::is_led(service) || !self.written(service).is_empty();
        if address.octets()[..2] != network[..2] || is_terminating(service) || !leads_somewhere {
            return None;
        }
        let ports = spec["ports"].as_array()?.iter().filter(|port| port["protocol"] == "TCP");
        Some((
            address,
            ports.filter_map(|port| port["port"].as_u64().and_then(|port| u16::try_from(port).ok())).collect(),
        ))
    }
}

/// Listens on a port, or 8000 above it if permission is missing.
fn listen(address: Ipv4Addr, port: u16) -> io::Result<(Listener, u16)> {
    let bind = |port: u16| Listener::bind((address, port).into(), Reach::SameUser);
    match bind(port) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let above = port.saturating_add(8_000);
            Ok((bind(above)?, above))
        }
        bound => Ok((bound?, port)),
    }
}

async fn accept(ctx: Context, key: Key, port: u16, listener: Listener) {
    let turn = Arc::new(AtomicUsize::new(fastrand::usize(..1024)));
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                let (ctx, key, turn) = (ctx.clone(), key.clone(), turn.clone());
                tokio::spawn(async move {
                    lead(&ctx, &key, port, client, &turn).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection to a Service could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Forwards a connection to the next pod that accepts it.
async fn lead(ctx: &Context, key: &Key, port: u16, mut client: TcpStream, turn: &AtomicUsize) {
    let service = ctx.server.object("v1", "services", key.namespace(), key.name());
    if service.is_some_and(|service| serving::is_led(&service)) {
        return serving::serve(ctx.server.clone(), key.clone(), port, client).await;
    }
    let mut pods = backends(ctx, key, port);
    if pods.is_empty() {
        return;
    }
    let first = turn.fetch_add(1, Ordering::Relaxed) % pods.len();
    pods.rotate_left(first);
    for (address, port) in pods {
        let Ok(Ok(mut pod)) = tokio::time::timeout(PATIENCE, TcpStream::connect((address, port))).await else {
            continue;
        };
        // Otherwise small responses wait for acknowledgements.
        let _ = (client.set_nodelay(true), pod.set_nodelay(true));
        // The result does not matter: both connections are closed.
        let _ = copy_bidirectional(&mut client, &mut pod).await;
        return;
    }
}

/// Returns the present backends of a Service's port, with their port numbers.
fn backends(ctx: &Context, key: &Key, port: u16) -> Vec<(Ipv4Addr, u16)> {
    let Some(service) = ctx.server.object("v1", "services", key.namespace(), key.name()) else { return Vec::new() };
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let Some(target) = ports.into_iter().find(|p| p["port"] == port).map(|p| p["targetPort"].clone()) else {
        return Vec::new();
    };
    if !has_selector(&service) {
        let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let name = ports.find(|p| p["port"] == port).map_or("", |port| text(port, "/name"));
        let subsets = written(ctx, key.namespace(), key.name());
        let found = subsets.iter().filter_map(|(all, ports)| Some((all, *ports.get(name)?)));
        return found.flat_map(|(all, port)| all.iter().map(move |address| (*address, port))).collect();
    }
    let labels = json!({"matchLabels": service["spec"]["selector"]});
    let any = service["spec"]["publishNotReadyAddresses"] == true;
    let pods = ctx.server.objects("v1", "pods", Some(key.namespace()));
    let pods = pods.iter().filter(|pod| hooks::selects(&labels, &pod["metadata"]["labels"]));
    let pods = pods.filter(|pod| any || is_true(pod, "Ready") && !is_terminating(pod) || keep_route(ctx, pod));
    pods.filter_map(|pod| {
        let is_process = pod["metadata"]["annotations"][LOOPBACK] == "true" && !ctx.server.kubelet_runs(pod);
        if is_process {
            return Some((Ipv4Addr::LOCALHOST, number(&target, pod)?));
        }
        let address: Ipv4Addr = text(pod, "/status/podIP").parse().ok().filter(|ip| ctx.node().slot.is_pod(*ip))?;
        Some((address, number(&target, pod)?))
    })
    .collect()
}

/// Addresses, and port numbers by name.
type Subset = (Vec<Ipv4Addr>, HashMap<String, u16>);

/// Returns the loopback subsets of a Service's Endpoints.
fn written(ctx: &Context, namespace: &str, name: &str) -> Vec<Subset> {
    let Some(endpoints) = ctx.server.object("v1", "endpoints", namespace, name) else { return Vec::new() };
    let read = |subset: &Value| {
        let addresses = subset["addresses"].as_array().into_iter().flatten();
        let addresses = addresses.filter_map(|address| text(address, "/ip").parse().ok()).filter(Ipv4Addr::is_loopback);
        let ports = subset["ports"].as_array().into_iter().flatten();
        let ports = ports
            .filter_map(|port| Some((text(port, "/name").to_owned(), u16::try_from(port["port"].as_u64()?).ok()?)));
        (addresses.collect::<Vec<_>>(), ports.collect())
    };
    let all = endpoints["subsets"].as_array().into_iter().flatten().map(read);
    all.filter(|(addresses, _)| !addresses.is_empty()).collect()
}

fn has_selector(service: &Value) -> bool {
    service["spec"]["selector"].as_object().is_some_and(|selector| !selector.is_empty())
}

/// Whether a terminating pod is still routed to, as with delayed endpoint updates. Records when it was first seen
/// terminating.
fn keep_route(ctx: &Context, pod: &Value) -> bool {
    let delay = ctx.node().options.endpoint_delay;
    if delay.is_zero() || !is_terminating(pod) {
        return false;
    }
    let now = Instant::now();
    let mut leaving = ctx.node().leaving.lock();
    now.duration_since(*leaving.entry(text(pod, "/metadata/uid").to_owned()).or_insert(now)) < delay
}

/// Resolves a target port in a pod.
fn number(target: &Value, pod: &Value) -> Option<u16> {
    let number = target.as_u64().or_else(|| {
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let mut ports = containers.flat_map(|c| c["ports"].as_array().into_iter().flatten());
        ports.find(|port| port["name"] == *target)?["containerPort"].as_u64()
    });
    number.and_then(|number| u16::try_from(number).ok())
}
