//! The controllers of the cluster: the event log in, writes like any client's out.
//!
//! One task reads the event log and lets every [`Actor`] note which objects deserve a look; then it takes one look
//! after the other. A look reads the state of the world and brings it one step nearer to what it should be; whatever
//! it writes comes back as an event. An actor is a file; a new one is a line in [`cast`].
//!
//! Invariant: actors write through the verbs with their own manager names, so versions, events, ownership and
//! generations are those of a real cluster.
//! Invariant: a look may be taken at any time and any number of times; it decides from the state alone.
//!
//! Deliberately absent: containers. Pods are simulated (`pods`), unless a node runs them (`crate::node`).

mod agenda;
mod autoscalers;
mod cluster_roles;
mod cron_jobs;
mod cron_schedule;
mod daemon_sets;
mod deployments;
pub(crate) mod disruption_budgets;
mod endpoint_mirrors;
mod endpoints;
mod garbage;
pub(crate) mod hands;
mod index;
mod jobs;
mod namespaces;
pub(crate) mod pod_parts;
pub(crate) mod pods;
mod quotas;
mod replica_sets;
mod revisions;
mod room;
mod stateful_sets;
mod told;
mod volumes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::history::Event;
use crate::server::Server;
use crate::store::Key;

use self::agenda::Agenda;
use self::hands::Hands;

/// An object: its storage, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Subject {
    pub(crate) storage: Arc<str>,
    pub(crate) key: Key,
}

impl Subject {
    pub(crate) fn new(storage: &str, namespace: &str, name: &str) -> Self {
        Self { storage: Arc::from(storage), key: Key::new(namespace, name) }
    }

    fn of(event: &Event) -> Self {
        Self { storage: event.storage.clone(), key: event.key.clone() }
    }
}

/// What an actor wants to look at, and when.
struct Wishes<'a> {
    agenda: &'a mut Agenda,
    actor: usize,
}

impl Wishes<'_> {
    /// As soon as possible.
    fn now(&mut self, subject: Subject) {
        self.after(subject, Duration::ZERO);
    }

    /// After a while.
    fn after(&mut self, subject: Subject, delay: Duration) {
        self.agenda.add(self.actor, subject, Instant::now() + delay);
    }
}

/// One controller.
trait Actor: Send {
    /// Notes what an event means; cheap, because it is called for every write of the cluster.
    fn notice(&mut self, event: &Event, wishes: &mut Wishes<'_>);

    /// Looks at one object and does the next thing about it.
    fn look(&mut self, hands: &Hands, subject: &Subject, wishes: &mut Wishes<'_>);
}

/// The controllers of a cluster.
fn cast() -> Vec<Box<dyn Actor>> {
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
    ]
}

/// Looks between two glances at the event log.
const LOOKS_IN_A_ROW: usize = 8;
/// How long to let writes gather that concern no actor, so that a flood of them costs few wake-ups.
const LULL: Duration = Duration::from_millis(2);

impl Server {
    /// Starts the controllers, and the node if there is one; they end with the runtime. Needs a running tokio runtime.
    pub fn spawn_actors(&self) -> tokio::task::JoinHandle<()> {
        crate::node::start(self);
        let subscription = self.subscribe();
        let server = self.clone();
        tokio::spawn(async move { run(&server, subscription).await })
    }
}

async fn run(server: &Server, mut subscription: crate::call::Subscription) {
    let hands = Hands::new(server);
    let mut actors = cast();
    let mut agenda = Agenda::default();
    pods::register_node(&hands);
    begin(&hands, &mut actors, &mut agenda);
    let mut simulations = server.levers().simulations();
    loop {
        let batch = subscription.take();
        // A pod that runs may have been told another end.
        let told = simulations.has_changed().unwrap_or(false);
        if batch.missed || told {
            simulations.mark_unchanged();
            begin(&hands, &mut actors, &mut agenda);
        }
        let idle = batch.events.is_empty() && !batch.missed && !told;
        for event in batch.events {
            notice(&mut actors, &mut agenda, &event);
        }
        let mut looks = 0;
        while looks < LOOKS_IN_A_ROW
            && let Some((actor, subject)) = agenda.due(Instant::now())
        {
            looks += 1;
            actors[actor].look(&hands, &subject, &mut Wishes { agenda: &mut agenda, actor });
        }
        if looks > 0 {
            tokio::task::yield_now().await;
            continue;
        }
        if !idle {
            tokio::time::sleep(LULL).await;
            continue;
        }
        let pause = agenda.next().map(|at| at.saturating_duration_since(Instant::now()));
        tokio::select! {
            () = subscription.changed() => {}
            Ok(()) = simulations.changed() => simulations.mark_changed(),
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

fn notice(actors: &mut [Box<dyn Actor>], agenda: &mut Agenda, event: &Event) {
    for (index, actor) in actors.iter_mut().enumerate() {
        actor.notice(event, &mut Wishes { agenda, actor: index });
    }
}

/// Everything there is, as if it had just appeared.
fn begin(hands: &Hands, actors: &mut [Box<dyn Actor>], agenda: &mut Agenda) {
    for kind in hands.kinds() {
        for (key, stored) in &hands.stored(&kind.storage) {
            let event =
                Event::new(stored.rv, kind.storage.clone(), key.clone(), None, Some(stored.clone()), Instant::now());
            notice(actors, agenda, &event);
        }
    }
}
