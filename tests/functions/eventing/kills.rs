//! Kills at random moments under load. Each accepted event is delivered, or is a dead letter.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fastrand::Rng;
use http::header::AUTHORIZATION;
use mainstay_testkit::random::random;
use tokio::task::JoinHandle;

use super::sink::Seized;
use super::*;

/// The accepted events, by their id.
type Accepted = Arc<Mutex<HashSet<String>>>;

/// The kills, and the load.
pub(crate) struct Kills {
    /// Number of kills.
    pub(crate) count: usize,
    /// Bounds of the number of accepted events between two kills.
    pub(crate) between: Range<usize>,
    /// Number of clients that publish.
    pub(crate) clients: usize,
}

/// Publishes events, each until it is accepted, as a client does.
async fn load(client: Client, url: String, name: usize, accepted: Accepted, ends: Arc<AtomicBool>) {
    for number in 0.. {
        let id = format!("{name}-{number}");
        while !matches!(publish(&client, &url, &id, TYPE, "data").await, Ok(204)) {
            if ends.load(Ordering::Relaxed) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        accepted.lock().insert(id);
        if ends.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Waits until this number of further events are accepted.
async fn more(accepted: &Accepted, count: usize) {
    let wanted = accepted.lock().len() + count;
    until("more events are accepted", || accepted.lock().len() >= wanted).await;
}

impl Events {
    /// Returns the processes and the servers of NATS, each by its number: in random order, and again, until there are
    /// enough.
    fn victims(&self, random: &mut Rng, count: usize) -> Vec<usize> {
        let all = self.roles().len() + self.nats.as_ref().map_or(0, NatsServers::count);
        let mut victims = Vec::new();
        while victims.len() < count {
            let mut round: Vec<usize> = (0..all).collect();
            random.shuffle(&mut round);
            victims.extend(round);
        }
        victims.truncate(count);
        victims
    }

    /// Kills a process or a server of NATS, and starts it again. The other servers accept this number of events in the
    /// meantime. Returns its description.
    async fn replace(&mut self, victim: usize, accepted: &Accepted, meanwhile: usize) -> String {
        let roles = self.roles();
        if let (Some(nats), Some(server)) = (&mut self.nats, victim.checked_sub(roles.len())) {
            nats.kill(server);
            if nats.count() > 1 {
                more(accepted, meanwhile).await;
            }
            nats.restart(server);
            self.ready().await;
            return format!("NATS {server}");
        }
        self.processes[victim].kill().unwrap();
        self.processes[victim].wait().unwrap();
        self.processes[victim] = self.spawn(roles[victim]);
        self.ready().await;
        roles[victim].0.unwrap_or("the process").to_owned()
    }

    /// Returns the ids of dead letters.
    fn dead(&self) -> HashSet<String> {
        let output = self.command(&["dead-letters", "--output", "json"]);
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        all.iter().map(|letter| letter["attributes"]["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the ids of the events that the Service of a namespace has accepted.
    fn delivered_in(&self, namespace: &str) -> Vec<String> {
        let host = format!("sink.{namespace}.svc.cluster.local");
        let calls = self.sink.seen.calls.lock();
        let of = |call: &Seized| call.headers["ce-id"].to_str().unwrap().to_owned();
        calls.iter().filter(|call| call.code == 200 && call.headers["host"] == host).map(of).collect()
    }

    /// Starts two publishers and two dispatchers, or the one process of a journal, with a subscriber. Another subscriber
    /// has no grant for the namespace of the events, but receives the events without a namespace.
    async fn start_with_a_curious_namespace(&mut self) {
        self.sink.start().await;
        if self.nats.is_some() {
            self.further = ["--role=publisher", "--role=dispatcher"].map(|role| (Some(role), free_address())).into();
        }
        self.start().await;
        // A cluster other than the embedded one still has the namespace of the last world.
        let namespace = json!({"metadata": {"name": OTHER}});
        let _ = self.world.try_as("test", Call::new("v1", "namespaces", "", "", Action::Create(namespace)));
        self.subscription("sub", &own_sink());
        self.subscription_is("sub", true).await;
        self.trigger_in(OTHER, "curious", "sink");
        self.world.until("it is ready", |_| self.ready_in(OTHER, "curious")["status"] == "True").await;
        assert_eq!(self.publish("control", TYPE, "data").await, 204);
        let has = |namespace: &str| self.delivered_in(namespace).iter().any(|id| id == "control");
        until("both receive it", || has(NAMESPACE) && has(OTHER)).await;
    }

    /// Starts clients that publish in the namespace until the end.
    fn clients(&self, count: usize, accepted: &Accepted, ends: &Arc<AtomicBool>) -> Vec<JoinHandle<()>> {
        let publishers: Vec<SocketAddr> =
            self.roles().into_iter().filter(|(role, _)| *role != Some("--role=dispatcher")).map(|(_, at)| at).collect();
        let token = format!("Bearer {}", self.token_of(NAMESPACE, json!(["mainstay-eventing"])));
        let headers = [(AUTHORIZATION, token.parse().unwrap())].into_iter().collect();
        let client = Client::builder().no_proxy().default_headers(headers).build().unwrap();
        let begin = |name: usize| {
            let url = format!("http://{}/namespaces/{NAMESPACE}/publish", publishers[name % publishers.len()]);
            tokio::spawn(load(client.clone(), url, name, Arc::clone(accepted), Arc::clone(ends)))
        };
        (0..count).map(begin).collect()
    }

    /// Kills processes and servers at random under load. Checks that each accepted event is delivered at least once or is
    /// a dead letter, and that no event is delivered in the other namespace.
    #[expect(clippy::print_stdout, reason = "figures, for those who look at them")]
    pub(crate) async fn survive(mut self, kills: Kills) {
        let mut random = random();
        self.start_with_a_curious_namespace().await;
        let (accepted, ends, began) = (Accepted::default(), Arc::new(AtomicBool::new(false)), Instant::now());
        let clients = self.clients(kills.clients, &accepted, &ends);
        let mut killed: Vec<String> = Vec::new();
        for victim in self.victims(&mut random, kills.count) {
            more(&accepted, random.usize(kills.between.clone())).await;
            // Some events are refused, and some fail once.
            self.sink.seen.answers.lock().extend([400, 500]);
            killed.push(self.replace(victim, &accepted, random.usize(kills.between.clone())).await);
        }
        ends.store(true, Ordering::Relaxed);
        for client in clients {
            client.await.unwrap();
        }
        let (accepted, published) = (accepted.lock().clone(), began.elapsed());
        // The list of dead letters is read only if some events were not delivered.
        until("each accepted event is delivered or a dead letter", || {
            if self.sink.count() + kills.count < accepted.len() {
                return false;
            }
            let delivered: HashSet<String> = self.delivered_in(NAMESPACE).into_iter().collect();
            let missing: HashSet<_> = accepted.difference(&delivered).cloned().collect();
            missing.len() <= kills.count && missing.is_subset(&self.dead())
        })
        .await;
        let (delivered, dead) = (self.delivered_in(NAMESPACE), self.dead());
        let twice = delivered.len() - delivered.iter().collect::<HashSet<_>>().len();
        println!(
            "{} events accepted in {published:.1?}, {} dead letters, {twice} delivered again, all within {:.1?}, after kills of {}",
            accepted.len(),
            dead.len(),
            began.elapsed(),
            killed.join(", ")
        );
        assert!(!dead.is_empty(), "the sink has refused {} events", kills.count);
        let elsewhere: HashSet<String> = self.delivered_in(OTHER).into_iter().collect();
        assert_eq!(elsewhere, ["control".to_owned()].into(), "delivered without a grant");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_events_are_delivered_or_dead_letters_after_kills_at_random() {
    Events::stopped().await.survive(Kills { count: 6, between: 100..400, clients: 4 }).await;
}
