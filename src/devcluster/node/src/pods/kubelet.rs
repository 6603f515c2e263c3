//! The node itself, and what it does for the API server.

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

/// A node: its addresses, its directory and the logs of its containers.
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
    /// Where the programs are that stand for those of Python images, once one was asked for.
    pub(super) python: tokio::sync::OnceCell<Option<PathBuf>>,
    pub(super) urls: Mutex<HashMap<Key, Vec<String>>>,
    /// Changes with `urls`.
    pub(super) moves: tokio::sync::watch::Sender<()>,
    /// The addresses of the pods that run now, by their UIDs.
    pub(super) addresses: Mutex<HashMap<String, Ipv4Addr>>,
    /// When a Service first met a pod, by its UID, that is being deleted.
    pub(super) leaving: Mutex<HashMap<String, Instant>>,
    pub(super) started: AtomicBool,
}

impl Node {
    /// A node that does not run anything yet; `registry` is that of its cluster.
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

    /// The network of Services.
    pub fn services(&self) -> Ipv4Addr {
        self.slot.services()
    }

    /// The host image of this name.
    pub(super) fn host_image(&self, image: &str) -> Option<&HostImage> {
        self.options.host_images.iter().find(|host| host.image == image)
    }

    /// How a container of this image is kept from other users, and the socket that its server listens on.
    pub(super) fn front(&self, image: &str, address: Ipv4Addr) -> Option<(&FrontOptions, PathBuf)> {
        let front = self.options.front.as_ref().filter(|_| self.host_image(image).is_none())?;
        Some((front, front.directory.join(address.to_string())))
    }

    /// Where this node keeps what only it needs.
    pub(super) fn directory(&self) -> PathBuf {
        self.options.directory.join(self.slot.name())
    }
}

impl Node {
    /// Where a Service is listened on, a URL per TCP port in the order of its ports.
    pub fn service_urls(&self, namespace: &str, name: &str) -> Vec<String> {
        self.urls.lock().get(&Key::new(namespace, name)).cloned().unwrap_or_default()
    }

    /// Changes whenever a Service is listened on elsewhere than before.
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
