//! Kills at random moments under load. Each accepted event is delivered, or is a dead letter.

use std::collections::HashSet;

use super::*;

/// Number of kills.
const KILLS: usize = 6;
/// Number of clients that publish.
const CLIENTS: usize = 4;
/// Bounds of the number of accepted events between two kills.
const BETWEEN: std::ops::Range<usize> = 100..400;

/// The accepted events, by their id.
type Accepted = Arc<Mutex<HashSet<String>>>;

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

impl Events {
    /// Returns the processes and the server of NATS in random order, each by its number, until there are enough.
    fn victims(&self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.roles().len() + self.nats.as_ref().map_or(0, NatsServers::count)).collect();
        fastrand::shuffle(&mut all);
        all.into_iter().cycle().take(KILLS).collect()
    }

    /// Kills a process or the server of NATS, and starts it again. Returns its description.
    async fn replace(&mut self, victim: usize) -> String {
        let roles = self.roles();
        if let (Some(nats), Some(server)) = (&mut self.nats, victim.checked_sub(roles.len())) {
            nats.kill(server);
            nats.restart(server);
            self.ready().await;
            return "NATS".to_owned();
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
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_events_are_delivered_or_dead_letters_after_kills_at_random() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    fastrand::seed(seed);
    let mut events = Events::stopped().await;
    events.sink.start().await;
    if is_on_nats() {
        events.further = ["--role=publisher", "--role=dispatcher"].map(|role| (Some(role), free_address())).into();
    }
    events.start().await;
    let publishers: Vec<SocketAddr> =
        events.roles().into_iter().filter(|(role, _)| *role != Some("--role=dispatcher")).map(|(_, at)| at).collect();
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    let (accepted, ends) = (Accepted::default(), Arc::new(AtomicBool::new(false)));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|name| {
            let (client, url) =
                (events.client.clone(), format!("http://{}/publish", publishers[name % publishers.len()]));
            tokio::spawn(load(client, url, name, Arc::clone(&accepted), Arc::clone(&ends)))
        })
        .collect();
    let mut killed: Vec<String> = Vec::new();
    for victim in events.victims() {
        let more = accepted.lock().len() + fastrand::usize(BETWEEN);
        until("more events are accepted", || accepted.lock().len() >= more).await;
        // Some events are refused, and some fail once.
        events.sink.seen.answers.lock().extend([400, 500]);
        killed.push(events.replace(victim).await);
    }
    ends.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let accepted = accepted.lock().clone();
    let delivered = || {
        let calls = events.sink.seen.calls.lock();
        let of = |call: &Seized| call.headers["ce-id"].to_str().unwrap().to_owned();
        calls.iter().filter(|call| call.code == 200).map(of).collect::<Vec<_>>()
    };
    // The list of dead letters is read only if some events were not delivered.
    until("each accepted event is delivered or a dead letter", || {
        let delivered: HashSet<String> = delivered().into_iter().collect();
        let missing: HashSet<_> = accepted.difference(&delivered).cloned().collect();
        missing.len() <= KILLS && missing.is_subset(&events.dead())
    })
    .await;
    let (delivered, dead) = (delivered(), events.dead());
    let twice = delivered.len() - delivered.iter().collect::<HashSet<_>>().len();
    println!(
        "{} events accepted, {} dead letters, {twice} delivered again, after kills of {}",
        accepted.len(),
        dead.len(),
        killed.join(", ")
    );
    assert!(!dead.is_empty(), "the sink has refused {KILLS} events");
}
