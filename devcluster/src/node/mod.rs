//! A node that runs pods as processes of this machine.
//!
//! A pod is the node's when all of its images are: a *host image* names programs that are installed here, an image of
//! the embedded registry is unpacked. Every pod has an address of its own in 127.0.0.0/8, and so has every Service,
//! which leads to its ready pods.
//!
//! [`supervisor`] follows the event log and gives every pod a task ([`pod`]); that one takes its containers from start
//! to end ([`container`]), with what they are given ([`environment`], [`paths`], [`volumes`], [`image`]), what is asked
//! of them ([`probes`]), what is run beside them ([`exec`]) and what they say ([`logs`]), and tells the API ([`status`]). [`proxy`] listens for Services.
//!
//! Invariant: no process outlives the node: a container is a process group that is killed as a whole, and a
//! [`watchdog`] does so when this process can no longer do it itself.
//!
//! Deliberately absent: namespaces, users and the other walls of a container. What runs here runs as whoever started
//! the cluster. A resize changes the status only, and ephemeral containers are not run: there is no wall to look behind.

mod container;
mod environment;
pub(crate) mod exec;
mod image;
mod interpreters;
pub(crate) mod logs;
mod marks;
mod options;
mod paths;
mod pod;
mod probes;
mod process;
mod program;
mod proxy;
mod slot;
mod status;
mod supervisor;
mod tokens;
mod unpack;
mod usage;
mod volumes;
mod watchdog;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::registry::Registry;
use crate::server::Server;
use crate::store::Key;

pub use self::options::{HostImage, NodeOptions};

use self::exec::Running;
use self::image::Images;
use self::logs::Books;
use self::slot::Slot;
use self::usage::Usage;
use self::watchdog::Watchdog;

/// A node: its addresses, its directory and the logs of its containers.
#[derive(Debug)]
pub(crate) struct Node {
    options: NodeOptions,
    slot: Slot,
    books: Books,
    running: Running,
    watchdog: Watchdog,
    usage: Usage,
    images: tokio::sync::Mutex<Images>,
    /// Where the programs are that stand for those of Python images, once one was asked for.
    python: tokio::sync::OnceCell<Option<PathBuf>>,
    urls: Mutex<HashMap<Key, Vec<String>>>,
    /// The addresses of the pods that run now, by their UIDs.
    addresses: Mutex<HashMap<String, Ipv4Addr>>,
    /// When a Service first met a pod, by its UID, that is being deleted.
    leaving: Mutex<HashMap<String, Instant>>,
    started: AtomicBool,
}

/// A number of seconds as a pod gives it, cut at a year: what is added to the present never overflows.
fn seconds(given: u64) -> Duration {
    Duration::from_secs(given.min(365 * 24 * 3600))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// A node that does not run anything yet.
    pub(crate) fn new(options: NodeOptions) -> Self {
        let slot = Slot::take();
        let watchdog = Watchdog::new(&options.directory.join(slot.name()));
        Self {
            options,
            slot,
            books: Books::default(),
            running: Running::default(),
            watchdog,
            usage: Usage::default(),
            images: tokio::sync::Mutex::default(),
            python: tokio::sync::OnceCell::new(),
            urls: Mutex::default(),
            addresses: Mutex::default(),
            leaving: Mutex::default(),
            started: AtomicBool::new(false),
        }
    }

    /// The network of Services.
    pub(crate) fn services(&self) -> Ipv4Addr {
        self.slot.services()
    }

    /// The logs of the containers.
    pub(crate) fn books(&self) -> &Books {
        &self.books
    }

    /// Whether a pod is the node's; `registry` is the embedded one.
    pub(crate) fn runs(&self, pod: &Value, registry: Option<&Registry>) -> bool {
        let images = ["initContainers", "containers"].into_iter().flat_map(|list| {
            pod["spec"][list].as_array().into_iter().flatten().map(|c| c["image"].as_str().unwrap_or_default())
        });
        let mut any = false;
        for image in images {
            any = true;
            let host = image.split('/').next().unwrap_or_default();
            if self.host_image(image).is_none() && !registry.is_some_and(|registry| registry.is_at(host)) {
                return false;
            }
        }
        any
    }

    fn host_image(&self, image: &str) -> Option<&HostImage> {
        self.options.host_images.iter().find(|host| host.image == image)
    }

    /// The address that this node gave to a pod of this UID.
    pub(crate) fn address_of(&self, uid: &str) -> Option<Ipv4Addr> {
        lock(&self.addresses).get(uid).copied()
    }

    /// Where this node keeps what only it needs.
    fn directory(&self) -> PathBuf {
        self.options.directory.join(self.slot.name())
    }
}

impl Server {
    /// Where a Service is listened on, a URL per TCP port in the order of its ports; empty without a node.
    pub fn service_urls(&self, namespace: &str, name: &str) -> Vec<String> {
        let Some(node) = self.node() else { return Vec::new() };
        lock(&node.urls).get(&Key::new(namespace, name)).cloned().unwrap_or_default()
    }
}

/// Starts the node of a cluster, if it has one that was not started before.
pub(crate) fn start(server: &Server) {
    let Some(node) = server.node() else { return };
    if !node.started.swap(true, Ordering::AcqRel) {
        tokio::spawn(supervisor::run(server.clone()));
    }
}
