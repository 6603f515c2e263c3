//! The API server's interface to the kubelet: logs of containers and commands in them.
//!
//! A real API server uses HTTPS; here the kubelet is a value in the same process. Without a kubelet, and for pods that
//! it does not run, the server answers for simulated containers ([`crate::service`]).
//!
//! Not here: running pods. Kubelets follow the event log like any controller.

pub mod log;
pub mod pod_parts;
pub mod requests;

pub use self::log::ContainerLog;

use std::{fmt, net::Ipv4Addr, pin::Pin, sync::Arc, time::Duration};

use crate::object::{conditions, text};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite};

/// Name of a cluster's only node.
pub const NODE: &str = "devcluster";

/// The pod annotation with the outcome of its containers, for pods that are always simulated.
const OUTCOME: &str = "devcluster.dev/outcome";

/// The condition of a simulated pod.
pub const SIMULATED: &str = "devcluster.dev/Simulated";

/// The kubelet of a cluster's node.
pub trait Kubelet: fmt::Debug + Send + Sync {
    /// Returns whether the kubelet can run a pod, because it has all images.
    fn runs(&self, pod: &Value) -> bool;

    /// Returns the address that the kubelet assigned to the pod with this UID.
    fn address_of(&self, uid: &str) -> Option<Ipv4Addr>;

    /// Returns the log of a started container, by pod UID and container name.
    fn log(&self, uid: &str, container: &str) -> Option<Arc<dyn ContainerLog>>;

    /// Returns the average usage of a pod's containers over a time window; `None` until they have been measured for
    /// that long.
    fn usage(&self, uid: &str, window: Duration) -> Option<Vec<ContainerUsage>>;

    /// Starts a command in a container. Fails with the reason if it could not be started.
    fn exec(&self, uid: &str, container: &str, words: &[String]) -> Result<Box<dyn Process>, String>;
}

/// The usage of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Name of the container.
    pub name: String,
    /// CPU usage in thousandths of a core.
    pub cpu_millis: u64,
    /// Memory usage in bytes.
    pub memory: u64,
}

/// A command in a container. Dropping it kills the command.
pub trait Process: Send {
    /// Returns the streams, which can be taken once.
    fn pipes(&mut self) -> Pipes;

    /// Waits for the end of the command. Returns its exit code.
    fn wait(&mut self) -> BoxFuture<'_, i64>;
}

/// The streams of a command.
pub struct Pipes {
    /// Standard input, if the command reads it.
    pub stdin: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    /// Standard output.
    pub stdout: Pin<Box<dyn AsyncRead + Send>>,
    /// Standard error.
    pub stderr: Pin<Box<dyn AsyncRead + Send>>,
}

/// Returns whether a pod has an annotation with the outcome of its containers.
pub fn has_outcome(pod: &Value) -> bool {
    pod["metadata"]["annotations"][OUTCOME].is_string()
}

/// Returns a pod condition: true, or false with reason and message. The transition time is kept if the status does not
/// change.
pub fn condition(pod: &Value, now: &Value, kind: &str, state: Result<(), (&str, &str)>) -> Value {
    let status = if state.is_ok() { "True" } else { "False" };
    let old = conditions(pod).iter().find(|c| c["type"] == kind && c["status"] == status);
    let since = old.map_or_else(|| now.clone(), |c| c["lastTransitionTime"].clone());
    let mut condition = json!({"type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since});
    if let Err((reason, message)) = state {
        condition["reason"] = reason.into();
        condition["message"] = message.into();
    }
    condition
}

/// Returns the id of an image.
pub fn image_id(image: &str) -> String {
    format!("{image}@sha256:{}", hex::encode(Sha256::digest(image)))
}

/// Returns the id of a pod's container.
pub fn container_id(pod: &Value, name: &str) -> String {
    let digest = Sha256::digest(format!("{}/{name}", text(pod, "/metadata/uid")));
    format!("devcluster://{}", hex::encode(digest))
}
