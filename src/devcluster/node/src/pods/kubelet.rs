//! The node, and its kubelet interface for the API server.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use crate::registry::Registry;
use devcluster_apiserver::kubelet::{ContainerLog, ContainerUsage, Kubelet, Process};
use devcluster_apiserver::requests::QUEUE_PROXY;
use devcluster_apiserver::store::Key;

use super::exec::{self, Running};
use super::logs::StoredLogs;
use super::names::Names;
use super::options::{FrontOptions, HostImage, NodeOptions};
use super::slot::Slot;
use super::unpacked::Images;
use super::usage::Usage;
use super::watchdog::Watchdog;

/// A node: networks, directory and container logs.
#[derive(Debug)]
pub struct Node {
    pub(super) options: NodeOptions,
    pub(super) registry: Option<Arc<Registry>>,
    pub(super) slot: Slot,
    pub(super) logs: StoredLogs,
    pub(super) names: Names,
    pub(super) running: Arc<Running>,
    pub(super) watchdog: Arc<Watchdog>,
    pub(super) usage: Usage,
    pub(super) images: tokio::sync::Mutex<Images>,
    /// Python environment for images, created on first use.
    pub(super) python: tokio::sync::OnceCell<Option<PathBuf>>,
    pub(super) urls: Mutex<HashMap<Key, Vec<String>>>,
    /// Notifies of changes in `urls`.
    pub(super) moves: tokio::sync::watch::Sender<()>,
    /// Addresses of running pods by UID.
    pub(super) addresses: Mutex<HashMap<String, Ipv4Addr>>,
    /// When a terminating pod was first seen by a Service, by UID.
    pub(super) leaving: Mutex<HashMap<String, Instant>>,
    pub(super) started: AtomicBool,
}

impl Node {
    /// Creates a node without pods. `registry` is the registry of the cluster.
    pub fn new(options: NodeOptions, registry: Option<Arc<Registry>>) -> Self {
        let slot = Slot::take();
        let directory = options.directory.join(slot.name());
        let watchdog = Arc::new(Watchdog::new(&directory));
        Self {
            options,
            registry,
            slot,
            logs: StoredLogs::default(),
            names: Names::new(&directory),
            running: Arc::default(),
            watchdog,
            usage: Usage::default(),
            images: tokio::sync::Mutex::default(),
            python: tokio::sync::OnceCell::new(),
            urls: Mutex::default(),
            moves: tokio::sync::watch::Sender::new(()),
            addresses: Mutex::default(),
            leaving: Mutex::default(),
            started: AtomicBool::new(false),
        }
    }

    /// Returns the network of Services.
    pub fn services(&self) -> Ipv4Addr {
        self.slot.services()
    }

    /// Returns the host image with a name.
    pub(super) fn host_image(&self, image: &str) -> Option<&HostImage> {
        self.options.host_images.iter().find(|host| host.image == image)
    }

    /// Returns the front and the socket of a container's server; `None` for host images.
    pub(super) fn front(&self, image: &str, address: Ipv4Addr) -> Option<(&FrontOptions, PathBuf)> {
        let front = self.options.front.as_ref().filter(|_| self.host_image(image).is_none())?;
        Some((front, front.directory.join(address.to_string())))
    }

    /// Returns the node's private directory.
    pub(super) fn directory(&self) -> PathBuf {
        self.options.directory.join(self.slot.name())
    }
}

impl Node {
    /// Returns the URLs on which a Service listens, one per TCP port in the order of its ports.
    pub fn service_urls(&self, namespace: &str, name: &str) -> Vec<String> {
        self.urls.lock().get(&Key::new(namespace, name)).cloned().unwrap_or_default()
    }

    /// Notifies when the address of a Service changes.
    pub fn service_moves(&self) -> tokio::sync::watch::Receiver<()> {
        self.moves.subscribe()
    }
}

impl Kubelet for Node {
    fn runs(&self, pod: &Value) -> bool {
        let images = ["initContainers", "containers"].into_iter().flat_map(|list| {
            pod["spec"][list].as_array().into_iter().flatten().map(|c| c["image"].as_str().unwrap_or_default())
        });
        let mut any = false;
        for image in images.filter(|image| *image != QUEUE_PROXY) {
            any = true;
            let host = image.split('/').next().unwrap_or_default();
            if self.host_image(image).is_none() && !self.registry.as_ref().is_some_and(|images| images.is_at(host)) {
                return false;
            }
        }
        any
    }

    fn address_of(&self, uid: &str) -> Option<Ipv4Addr> {
        self.addresses.lock().get(uid).copied()
    }

    fn log(&self, uid: &str, container: &str) -> Option<Arc<dyn ContainerLog>> {
        self.logs.of(uid, container).map(|log| log as Arc<dyn ContainerLog>)
    }

    fn usage(&self, uid: &str, window: Duration) -> Option<Vec<ContainerUsage>> {
        self.usage.of(uid, window)
    }

    fn exec(&self, uid: &str, container: &str, words: &[String]) -> Result<Box<dyn Process>, String> {
        exec::start(&self.running, &self.watchdog, uid, container, words).map(|process| Box::new(process) as _)
    }
}
