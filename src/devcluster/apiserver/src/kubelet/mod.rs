//! Requests of the API server to the kubelet: the logs of containers, and commands beside them.
//!
//! A real API server asks over HTTPS; here the kubelet is a value in the same process. Without one, and for pods that it
//! does not run, the server answers as simulated containers would ([`crate::service`]).
//!
//! Deliberately absent: how pods run. Kubelets follow the event log like any controller.

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

/// Name of the one node of a cluster.
pub const NODE: &str = "devcluster";

/// Annotation on a pod: how its containers end, for pods that nobody is to run.
const OUTCOME: &str = "devcluster.dev/outcome";

/// The condition of a pod that only seems to run.
pub const SIMULATED: &str = "devcluster.dev/Simulated";

/// The kubelet of a cluster's node.
pub trait Kubelet: fmt::Debug + Send + Sync {
    /// Whether it can run a pod: it has all of its images.
    fn runs(&self, pod: &Value) -> bool;

    /// The address that the kubelet gave to a pod of this UID.
    fn address_of(&self, uid: &str) -> Option<Ipv4Addr>;

    /// The log of a container that has begun, by the pod's UID and the container's name.
    fn log(&self, uid: &str, container: &str) -> Option<Arc<dyn ContainerLog>>;

    /// What the containers of a pod of this UID used, on average over this time; `None` while they have not been measured
    /// for long enough.
    fn usage(&self, uid: &str, window: Duration) -> Option<Vec<ContainerUsage>>;

    /// Starts a command in a container; the reason why it could not be started as `Err`.
    fn exec(&self, uid: &str, container: &str, words: &[String]) -> Result<Box<dyn Process>, String>;
}

/// What a container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Its name.
    pub name: String,
    /// Thousandths of a processor.
    pub cpu_millis: u64,
    /// Bytes of memory.
    pub memory: u64,
}

/// A command that runs in a container; it is killed when this is dropped.
pub trait Process: Send {
    /// Its streams; they can be had once.
    fn pipes(&mut self) -> Pipes;

    /// Waits for its end; its exit code.
    fn wait(&mut self) -> BoxFuture<'_, i64>;
}

/// The streams of a command.
pub struct Pipes {
    /// Its standard input, when it reads one.
    pub stdin: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    /// Its standard output.
    pub stdout: Pin<Box<dyn AsyncRead + Send>>,
    /// Its standard error.
    pub stderr: Pin<Box<dyn AsyncRead + Send>>,
}

/// Whether a pod says itself how its containers end.
pub fn has_outcome(pod: &Value) -> bool {
    pod["metadata"]["annotations"][OUTCOME].is_string()
}

/// A condition of a pod: true, or false for a reason; it keeps its time while its status is the same.
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

/// The id of an image.
pub fn image_id(image: &str) -> String {
    format!("{image}@sha256:{}", hex::encode(Sha256::digest(image)))
}

/// The id of a container of a pod.
pub fn container_id(pod: &Value, name: &str) -> String {
    let digest = Sha256::digest(format!("{}/{name}", text(pod, "/metadata/uid")));
    format!("devcluster://{}", hex::encode(digest))
}
