//! All controllers, and the task that runs them.

use std::time::{Duration, Instant};

use super::controller::{Controller, Queue};
use super::work_queue::WorkQueue;
use super::{
    autoscalers, cluster_roles, cron_jobs, daemon_sets, deployments, disruption_budgets, endpoint_mirrors, endpoints,
    garbage, jobs, knative, namespaces, pods, quotas, replica_sets, service_catalog, stateful_sets, volumes,
};
use devcluster_apiserver::client::Client;
use devcluster_apiserver::history::Event;
use devcluster_apiserver::server::Server;

/// The controllers of a cluster.
fn all() -> Vec<Box<dyn Controller>> {
    vec![
        Box::new(namespaces::Namespaces::default()),
        Box::new(cluster_roles::ClusterRoles),
        Box::new(garbage::Garbage::default()),
        Box::new(deployments::Deployments),
        Box::new(replica_sets::ReplicaSets),
        Box::new(stateful_sets::StatefulSets),
        Box::new(daemon_sets::DaemonSets),
        Box::new(jobs::Jobs),
        Box::new(pods::Pods::default()),
        Box::new(volumes::Volumes),
        Box::<endpoints::Endpoints>::default(),
        Box::new(endpoint_mirrors::EndpointMirrors),
        Box::<autoscalers::Autoscalers>::default(),
        Box::<disruption_budgets::DisruptionBudgets>::default(),
        Box::<quotas::Quotas>::default(),
        Box::new(cron_jobs::CronJobs),
        Box::new(service_catalog::ServiceCatalog),
    ]
}

/// Number of reconciles between two reads of the event log.
const RECONCILES_IN_A_ROW: usize = 8;
/// Pause after events without work, so that a burst of them causes few wake-ups.
const LULL: Duration = Duration::from_millis(2);

/// Starts the controllers. They end with the runtime.
///
/// Needs a running tokio runtime.
pub fn start(server: &Server) -> tokio::task::JoinHandle<()> {
    let subscription = server.subscribe();
    let server = server.clone();
    tokio::spawn(async move { run(&server, subscription).await })
}

async fn run(server: &Server, mut subscription: devcluster_apiserver::call::Subscription) {
    let client = Client::new(server);
    let mut controllers = all();
    if server.options().knative {
        controllers.push(Box::<knative::Knative>::default());
    }
    let mut queue = WorkQueue::default();
    pods::register_node(&client);
    begin(&client, &mut controllers, &mut queue);
    let mut simulations = server.faults().simulations();
    let mut waits = server.requests().waits();
    loop {
        let batch = subscription.take();
        // A new simulation may change the outcome of a running pod.
        let simulated = simulations.has_changed().unwrap_or(false);
        if batch.missed || simulated {
            simulations.mark_unchanged();
            begin(&client, &mut controllers, &mut queue);
        }
        let waited = waits.has_changed().unwrap_or(false);
        if waited {
            waits.mark_unchanged();
            let revisions = server.requests().take_waited_for();
            for (number, controller) in controllers.iter_mut().enumerate() {
                controller.waited_for(&revisions, &mut Queue::of(&mut queue, number));
            }
        }
        let idle = batch.events.is_empty() && !batch.missed && !simulated && !waited;
        for event in batch.events {
            enqueue(&mut controllers, &mut queue, &event);
        }
        let mut reconciled = 0;
        while reconciled < RECONCILES_IN_A_ROW
            && let Some((controller, subject)) = queue.take_due(Instant::now())
        {
            reconciled += 1;
            controllers[controller].reconcile(&client, &subject, &mut Queue::of(&mut queue, controller));
        }
        if reconciled > 0 {
            tokio::task::yield_now().await;
            continue;
        }
        if !idle {
            tokio::time::sleep(LULL).await;
            continue;
        }
        let pause = queue.next_due().map(|at| at.saturating_duration_since(Instant::now()));
        tokio::select! {
            () = subscription.changed() => {}
            Ok(()) = simulations.changed() => simulations.mark_changed(),
            Ok(()) = waits.changed() => waits.mark_changed(),
            () = sleep(pause) => {}
        }
    }
}

async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

fn enqueue(controllers: &mut [Box<dyn Controller>], queue: &mut WorkQueue, event: &Event) {
    for (number, controller) in controllers.iter_mut().enumerate() {
        controller.enqueue(event, &mut Queue::of(queue, number));
    }
}

/// Enqueues every object as if it had just been created.
fn begin(client: &Client, controllers: &mut [Box<dyn Controller>], queue: &mut WorkQueue) {
    for kind in client.kinds() {
        for (key, stored) in &client.stored(&kind.storage) {
            let event =
                Event::new(stored.rv, kind.storage.clone(), key.clone(), None, Some(stored.clone()), Instant::now());
            enqueue(controllers, queue, &event);
        }
    }
}
