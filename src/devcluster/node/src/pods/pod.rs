//! A pod, from its scheduling to its removal.
//!
//! The task creates the volumes, runs the init containers in order and then the main containers concurrently. It writes
//! the pod's status from their updates. A terminating pod stops its containers and is removed when they have ended.
//!
//! Invariant: only this task writes the pod's status.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use loopback::Front;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::container::{Container, Policy, Update};
use super::context::Context;
use super::environment::ValueSources;
use super::probes::seconds;
use super::program::Sandbox;
use super::queue_proxy;
use super::status::{self, State, View};
use super::tokens::Tokens;
use super::volumes::{self, Volume};
use super::{slot, usage};
use crate::gateway::is_service;
use devcluster_apiserver::client::Subject;
use devcluster_apiserver::object::{count, is_terminating, text};

/// Delay between the pod's removal from Endpoints and SIGTERM, so that pending connections arrive first.
const QUIET: Duration = Duration::from_millis(100);
/// Delay before a retry of volumes without an event.
const AGAIN: Duration = Duration::from_secs(2);
/// Interval of measuring a pod's disk usage.
const MEASURE: Duration = Duration::from_secs(2);
/// Attempts to write a status after conflicts.
const ATTEMPTS: usize = 10;

/// Runs a pod until it is deleted.
pub(super) async fn live(
    ctx: Context,
    pod: Arc<Value>,
    mut orders: watch::Receiver<Arc<Value>>,
    objects: watch::Receiver<u64>,
) {
    let uid = text(&pod, "/metadata/uid").to_owned();
    let address = ctx.node().slot.lease();
    ctx.node().addresses.lock().insert(uid.clone(), address);
    let directory = ctx.node().directory().join("pods").join(&uid);
    let mut life = Life::new(&ctx, pod, address, directory.clone(), objects);
    let gone = orders.clone();
    tokio::select! {
        () = life.course(&mut orders) => {}
        () = closed(gone) => {}
    }
    // Dropping the tasks kills the pod's processes.
    drop(life);
    closed(orders).await;
    ctx.node.logs.forget(&uid);
    ctx.node().addresses.lock().remove(&uid);
    ctx.node().slot.give_back(address);
    let removed = tokio::task::spawn_blocking(move || fs::remove_dir_all(directory)).await;
    // The directory is missing if the pod never began.
    if let Ok(Err(error)) = removed
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "the directory of a pod stays");
    }
}

/// Waits until the pod is deleted.
async fn closed(mut orders: watch::Receiver<Arc<Value>>) {
    while orders.changed().await.is_ok() {}
}

/// Waits until the pod terminates. Returns false if it was deleted.
async fn deleted(orders: &mut watch::Receiver<Arc<Value>>) -> bool {
    orders.wait_for(|pod| is_terminating(pod)).await.is_ok()
}

/// Waits until the pod terminates or its generation changes; `None` if it was deleted.
async fn changed(orders: &mut watch::Receiver<Arc<Value>>, generation: i64) -> Option<Arc<Value>> {
    let other = |pod: &Arc<Value>| is_terminating(pod) || count(pod, "/metadata/generation") != generation;
    orders.wait_for(other).await.ok().map(|pod| pod.clone())
}

/// Returns the grace period of a pod.
fn grace(pod: &Value) -> Duration {
    let given = pod["metadata"]["deletionGracePeriodSeconds"].as_u64();
    let given = given.or_else(|| count(pod, "/spec/terminationGracePeriodSeconds").try_into().ok());
    seconds(given.unwrap_or(30))
}

struct Life {
    ctx: Context,
    subject: Subject,
    pod: Arc<Value>,
    directory: PathBuf,
    view: View,
    tasks: JoinSet<()>,
    updates: mpsc::Receiver<(usize, Update)>,
    sender: mpsc::Sender<(usize, Update)>,
    stop: watch::Sender<Option<Duration>>,
    objects: watch::Receiver<u64>,
    tokens: Tokens,
    /// Containers that will not run again, by index.
    over: Vec<bool>,
    launched: Vec<bool>,
    /// Fronts of the containers' servers.
    fronts: Vec<Front>,
}

/// Why waiting for the containers ended.
enum End {
    /// All containers have finished.
    Over,
    /// The pod terminates.
    Deleted,
}

impl Life {
    fn new(
        ctx: &Context,
        pod: Arc<Value>,
        address: std::net::Ipv4Addr,
        directory: PathBuf,
        objects: watch::Receiver<u64>,
    ) -> Self {
        let list = |field: &str, init: bool, waits: &'static str| -> Vec<status::Container> {
            let containers = pod["spec"][field].as_array().into_iter().flatten();
            containers.map(|container| status::Container::new(container, init, waits)).collect()
        };
        let mut containers = list("initContainers", true, "PodInitializing");
        let waits = if containers.is_empty() { "ContainerCreating" } else { "PodInitializing" };
        containers.extend(list("containers", false, waits));
        let begun = text(&pod, "/status/startTime").parse().unwrap_or_else(|_| Timestamp::now());
        let count = containers.len();
        let view = View { address, host: slot::HOST, begun, prepared: false, containers, ended: None, over: false };
        let (sender, updates) = mpsc::channel(64);
        let subject = Subject::new("pods", text(&pod, "/metadata/namespace"), text(&pod, "/metadata/name"));
        let tokens = Tokens::new(&ctx.server, &pod);
        Self {
            ctx: ctx.clone(),
            subject,
            pod,
            directory,
            view,
            tasks: JoinSet::new(),
            updates,
            sender,
            stop: watch::Sender::new(None),
            objects,
            tokens,
            over: vec![false; count],
            launched: vec![false; count],
            fronts: Vec::new(),
        }
    }

    async fn course(&mut self, orders: &mut watch::Receiver<Arc<Value>>) {
        let finished = matches!(text(&self.pod, "/status/phase"), "Succeeded" | "Failed");
        if !finished {
            self.publish();
            let end = match self.volumes(orders).await {
                Some(volumes) => {
                    self.view.prepared = true;
                    self.publish();
                    self.containers(orders, &Arc::new(volumes)).await
                }
                None => End::Deleted,
            };
            if matches!(end, End::Over) {
                self.view.over = true;
                self.publish();
            }
        }
        // A closed channel means that the pod was deleted, which ends this task, too.
        if deleted(orders).await {
            self.remove();
        }
    }

    /// Waits until the volumes can be created; `None` if the pod terminates first.
    async fn volumes(&mut self, orders: &mut watch::Receiver<Arc<Value>>) -> Option<Vec<Volume>> {
        let mut reported = String::new();
        loop {
            if is_terminating(&orders.borrow_and_update()) {
                return None;
            }
            self.objects.borrow_and_update();
            let message = match self.lay_out() {
                Ok(volumes) => return Some(volumes),
                Err(message) => message,
            };
            if reported != message {
                self.ctx.client.report(&self.pod, "kubelet", "Warning", "FailedMount", &message);
                reported = message;
            }
            tokio::select! {
                _ = orders.changed() => {}
                _ = self.objects.changed() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    fn lay_out(&self) -> Result<Vec<Volume>, String> {
        for folder in ["home", "tmp", "containers", "volumes"] {
            let made = fs::create_dir_all(self.directory.join(folder));
            made.map_err(|e| format!("Failed to create pod sandbox: {e}"))?;
        }
        let claims = self.ctx.node().directory().join("claims");
        self.with_values(|values| volumes::lay_out(&self.directory.join("volumes"), &claims, values, &self.tokens))
    }

    /// Updates the files of ConfigMaps and Secrets.
    fn refresh(&mut self) {
        self.objects.borrow_and_update();
        let refreshed =
            self.with_values(|values| volumes::refresh(&self.directory.join("volumes"), values, &self.tokens));
        if let Err(error) = refreshed {
            let message = format!("MountVolume.SetUp failed: {error}");
            self.ctx.client.report(&self.pod, "kubelet", "Warning", "FailedMount", &message);
        }
    }

    /// Keeps on disk only the Secrets that a running container mounts.
    fn settle_secrets(&self, volumes: &[Volume]) {
        let may_run = |container: &&Value| {
            let known = self.view.containers.iter().position(|known| container["name"] == known.name.as_str());
            known.is_some_and(|index| self.launched[index] && !self.over[index])
        };
        let all = ["initContainers", "containers"].into_iter().filter_map(|list| self.pod["spec"][list].as_array());
        let containers: Vec<&Value> = all.flatten().filter(may_run).collect();
        if let Err(error) =
            self.with_values(|values| volumes::settle_secrets(volumes, &containers, values, &self.tokens))
        {
            let message = format!("MountVolume.SetUp failed: {error}");
            self.ctx.client.report(&self.pod, "kubelet", "Warning", "FailedMount", &message);
        }
    }

    fn with_values<T>(&self, f: impl FnOnce(&ValueSources<'_>) -> T) -> T {
        let namespace = self.subject.key.namespace();
        let config_map = |name: &str| self.ctx.server.object("v1", "configmaps", namespace, name);
        let secret = |name: &str| self.ctx.server.object("v1", "secrets", namespace, name);
        f(&ValueSources {
            pod: &self.pod,
            address: self.view.address.to_string(),
            host: self.view.host.to_string(),
            config_map: &config_map,
            secret: &secret,
        })
    }

    /// Runs the containers until all have finished or the pod terminates.
    async fn containers(&mut self, orders: &mut watch::Receiver<Arc<Value>>, volumes: &Arc<Vec<Volume>>) -> End {
        let deadline = self.pod["spec"]["activeDeadlineSeconds"].as_u64();
        let deadline = tokio::time::Instant::now() + seconds(deadline.unwrap_or(u64::MAX));
        let mut measure = tokio::time::Instant::now() + MEASURE;
        let mut given = self.pod["spec"]["volumes"].as_array().into_iter().flatten();
        let mounts_objects = given.any(volumes::follows_objects);
        let mut generation = count(&self.pod, "/metadata/generation");
        self.launch_next(volumes);
        loop {
            if self.over.iter().zip(&self.launched).all(|(over, launched)| *over || !launched) && self.is_over() {
                return End::Over;
            }
            let stopping = self.stop.borrow().is_some();
            tokio::select! {
                Some((index, update)) = self.updates.recv() => {
                    self.receive(index, update);
                    // Updates that arrive together are written together.
                    while let Ok((index, update)) = self.updates.try_recv() {
                        self.receive(index, update);
                    }
                    self.launch_next(volumes);
                    self.settle_secrets(volumes);
                    self.publish();
                }
                Some(pod) = changed(orders, generation), if !stopping => {
                    if is_terminating(&pod) {
                        self.end_all(orders).await;
                        return End::Deleted;
                    }
                    generation = count(&pod, "/metadata/generation");
                    self.publish();
                }
                Ok(()) = self.objects.changed(), if mounts_objects && !stopping => self.refresh(),
                () = tokio::time::sleep_until(deadline), if !stopping => {
                    let message = "Pod was active on the node longer than the specified deadline";
                    self.fail("DeadlineExceeded", message.to_owned());
                }
                () = tokio::time::sleep_until(measure), if !stopping => {
                    let (directory, most) = (self.directory.clone(), self.ctx.node().options.pod_disk);
                    let begun = tokio::time::Instant::now();
                    if let Some(message) = usage::disk(directory, volumes.clone(), most).await {
                        self.fail("Evicted", message);
                    }
                    // Limits the disk load of a pod with many files.
                    measure = tokio::time::Instant::now() + MEASURE.max(begun.elapsed() * 20);
                }
            }
        }
    }

    /// Fails the pod for a reason that the node detected.
    fn fail(&mut self, reason: &'static str, message: String) {
        self.ctx.client.report(&self.pod, "kubelet", "Warning", reason, &message);
        self.view.ended = Some((reason, message));
        let grace = if reason == "Evicted" { Duration::ZERO } else { grace(&self.pod) };
        self.stop.send_replace(Some(grace));
        self.publish();
    }

    /// Stops all containers and waits for their end.
    async fn end_all(&mut self, orders: &watch::Receiver<Arc<Value>>) {
        for container in self.view.containers.iter().filter(|c| matches!(c.state, State::Running(..))) {
            let message = format!("Stopping container {}", container.name);
            self.ctx.client.report(&self.pod, "kubelet", "Normal", "Killing", &message);
        }
        tokio::time::sleep(QUIET).await;
        let grace = grace(&orders.borrow());
        self.stop.send_replace(Some(grace));
        while !self.over.iter().zip(&self.launched).all(|(over, launched)| *over || !launched) {
            let Some((index, update)) = self.updates.recv().await else { return };
            self.receive(index, update);
            self.publish();
        }
    }

    fn receive(&mut self, index: usize, update: Update) {
        let container = &mut self.view.containers[index];
        match update {
            Update::State(state, restarts) => {
                if let State::Ended(ended) = &container.state {
                    container.last = Some(ended.clone());
                }
                if !matches!(state, State::Running(..)) {
                    (container.ready, container.started) = (false, false);
                }
                container.state = state;
                container.restarts = restarts;
            }
            Update::Image(id) => container.image_id = id,
            Update::Ready(ready) => container.ready = ready,
            Update::Started => container.started = true,
            Update::Over => self.over[index] = true,
        }
    }

    /// Whether no container will run again: all have finished, an init container has failed, or the node ended the pod.
    fn is_over(&self) -> bool {
        let init_failed = self.view.containers.iter().zip(&self.over).any(|(container, over)| {
            *over && container.init && !matches!(&container.state, State::Ended(ended) if ended.code == 0)
        });
        let mains = self.view.containers.iter().zip(&self.over).filter(|(container, _)| !container.init);
        let mut mains = mains.map(|(_, over)| *over);
        init_failed || self.view.ended.is_some() || mains.all(|over| over)
    }

    /// Starts the next init container, or all others after the init containers.
    fn launch_next(&mut self, volumes: &Arc<Vec<Volume>>) {
        if self.stop.borrow().is_some() {
            return;
        }
        for index in 0..self.view.containers.len() {
            let container = &self.view.containers[index];
            if container.init {
                if !self.launched[index] {
                    self.launch(index, volumes);
                    return;
                }
                let through = if container.sidecar {
                    container.started
                } else {
                    self.over[index] && matches!(&container.state, State::Ended(ended) if ended.code == 0)
                };
                if !through {
                    return;
                }
            } else if !self.launched[index] {
                self.launch(index, volumes);
            }
        }
    }

    fn launch(&mut self, index: usize, volumes: &Arc<Vec<Volume>>) {
        let container = &self.view.containers[index];
        let list = if container.init { "initContainers" } else { "containers" };
        let all = self.pod["spec"][list].as_array().into_iter().flatten();
        let Some(spec) = all.into_iter().find(|c| c["name"] == container.name.as_str()).cloned() else { return };
        let policy = match text(&self.pod, "/spec/restartPolicy") {
            _ if container.sidecar => Policy::Always,
            "Never" => Policy::Never,
            "OnFailure" => Policy::OnFailure,
            _ if container.init => Policy::OnFailure,
            _ => Policy::Always,
        };
        let directory = self.directory.join("containers").join(&container.name);
        let sandbox = Sandbox {
            termination: directory.join("termination-log"),
            home: self.directory.join("home"),
            temporary: self.directory.join("tmp"),
            address: self.view.address,
            directory,
        };
        if let Err(error) = fs::create_dir_all(&sandbox.directory) {
            // The container reports the error when it starts.
            tracing::warn!(%error, "the directory of a container");
        }
        self.launched[index] = true;
        self.settle_secrets(volumes);
        let container = Container {
            ctx: self.ctx.clone(),
            index,
            pod: self.pod.clone(),
            spec,
            policy,
            sandbox,
            volumes: volumes.clone(),
            updates: self.sender.clone(),
            stop: self.stop.subscribe(),
            objects: self.objects.clone(),
            image: None,
        };
        let is_server = !self.view.containers[index].init && !queue_proxy::is_it(&container.spec);
        let front = self.ctx.node().front(text(&container.spec, "/image"), self.view.address).filter(|_| is_server);
        if let Some((front, socket)) = front {
            let (server, at) = (self.ctx.server.clone(), SocketAddr::from((self.view.address, front.port)));
            self.fronts.push(Front::following(at, socket, move |host| is_service(&server, host)));
        }
        if queue_proxy::is_it(&container.spec) {
            self.tasks.spawn(queue_proxy::run(container));
        } else {
            self.tasks.spawn(container.run());
        }
    }

    /// Writes the status.
    fn publish(&self) {
        for _ in 0..ATTEMPTS {
            let Some(pod) = self.ctx.client.get(&self.subject) else { return };
            if pod["metadata"]["uid"] != self.pod["metadata"]["uid"] {
                return;
            }
            let status = self.view.status(&self.ctx.client, &pod);
            if self.ctx.client.set_status("kubelet", &self.subject, &pod, status) {
                return;
            }
        }
        tracing::warn!(pod = self.subject.key.name(), "the status of a pod could not be written");
    }

    /// Deletes the pod after its containers have ended.
    fn remove(&self) {
        if let Some(pod) = self.ctx.client.get(&self.subject)
            && count(&pod, "/metadata/deletionGracePeriodSeconds") > 0
        {
            self.ctx.client.delete(&self.subject, &pod, None, Some(0));
        }
    }
}
