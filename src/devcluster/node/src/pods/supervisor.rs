//! The node's main loop: reads the event log and starts a task per pod.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::context::Context;
use super::kubelet::Node;
use super::proxy::Proxy;
use super::{claim, marks, pod, usage, watchdog};
use devcluster_apiserver::client::Client;
use devcluster_apiserver::history::Event;
use devcluster_apiserver::kubelet::NODE;
use devcluster_apiserver::object::text;
use devcluster_apiserver::server::Server;
use devcluster_apiserver::store::Key;

impl Node {
    /// Starts running the pods of a cluster, once.
    ///
    /// Needs a running tokio runtime.
    pub fn start(self: &Arc<Self>, server: &Server) {
        if !self.started.swap(true, Ordering::AcqRel) {
            tokio::spawn(run(server.clone(), self.clone()));
        }
    }
}

/// Runs the node until the runtime ends.
async fn run(server: Server, node: Arc<Node>) {
    let ctx = Context { client: Arc::new(Client::new(&server)), server, node };
    let _in_use = clean(&ctx);
    let mut subscription = ctx.server.subscribe();
    let mut pods =
        Pods { ctx: ctx.clone(), orders: HashMap::new(), objects: watch::Sender::new(0), tasks: JoinSet::new() };
    let mut proxy = Proxy::new(ctx.clone());
    let monitor = usage::run(&ctx.node.usage);
    let follow = async {
        pods.begin(&mut proxy);
        loop {
            let batch = tokio::select! {
                batch = subscription.next() => batch,
                () = proxy.when_to_try_again() => {
                    proxy.begin();
                    continue;
                }
            };
            if batch.missed {
                pods.begin(&mut proxy);
            }
            for event in batch.events {
                pods.notice(&event, &mut proxy);
            }
        }
    };
    tokio::join!(monitor, follow);
}

/// Kills the processes of earlier nodes, removes their directories, and creates and locks the directory of this node.
fn clean(ctx: &Context) -> Option<File> {
    let own = ctx.node().directory();
    let all = ctx.node().options.directory.clone();
    for entry in fs::read_dir(&all).into_iter().flatten().flatten() {
        if entry.path() == own || claim::is_abandoned(&entry.path()) {
            watchdog::kill_leftovers(&entry.path().join("processes"));
            marks::kill_all(&entry.path());
            if let Err(error) = fs::remove_dir_all(entry.path()) {
                tracing::warn!(%error, path = %entry.path().display(), "what an earlier node has left stays");
            }
        }
    }
    let made = ["processes", "pods"].into_iter().try_for_each(|folder| fs::create_dir_all(own.join(folder)));
    // The directory contains Secrets of pods.
    let closed = made.and_then(|()| fs::set_permissions(&own, fs::Permissions::from_mode(0o700)));
    let held = closed.and_then(|()| claim::hold(&own));
    held.map_err(|error| tracing::error!(%error, path = %own.display(), "the node has no place for its pods")).ok()
}

struct Pods {
    ctx: Context,
    /// By UID.
    orders: HashMap<String, watch::Sender<Arc<Value>>>,
    objects: watch::Sender<u64>,
    tasks: JoinSet<()>,
}

impl Pods {
    fn begin(&mut self, proxy: &mut Proxy) {
        let mut known = Vec::new();
        for pod in self.ctx.server.objects("v1", "pods", None) {
            known.push(text(&pod, "/metadata/uid").to_owned());
            self.see(&pod);
        }
        self.orders.retain(|uid, _| known.contains(uid));
        self.objects.send_modify(|n| *n += 1);
        proxy.begin();
    }

    fn notice(&mut self, event: &Event, proxy: &mut Proxy) {
        match &*event.storage {
            "pods" => {
                let old = event.old.as_ref().map(|stored| stored.value());
                match (&event.new, old) {
                    (Some(new), _) => self.see(&new.value()),
                    (None, Some(old)) => {
                        self.orders.remove(text(&old, "/metadata/uid"));
                    }
                    (None, None) => {}
                }
            }
            "configmaps" | "secrets" | "serviceaccounts" => self.objects.send_modify(|n| *n += 1),
            "services" | "endpoints" => proxy.see(&Key::new(event.key.namespace(), event.key.name())),
            _ => {}
        }
        while self.tasks.try_join_next().is_some() {}
    }

    fn see(&mut self, pod: &Arc<Value>) {
        let uid = text(pod, "/metadata/uid");
        if let Some(orders) = self.orders.get(uid) {
            orders.send_replace(pod.clone());
            return;
        }
        let mine = text(pod, "/spec/nodeName") == NODE && self.ctx.server.kubelet_runs(pod);
        if mine {
            let (orders, received) = watch::channel(pod.clone());
            self.orders.insert(uid.to_owned(), orders);
            self.tasks.spawn(pod::live(self.ctx.clone(), pod.clone(), received, self.objects.subscribe()));
        }
    }
}
