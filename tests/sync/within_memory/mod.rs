//! It begins last among the tests, by its name, so that those which measure time have the machine to themselves.
//!
//! The agent's memory, against whatever one namespace, its repositories or a client of its listeners can send it: it lives
//! within what its container has, names the object that is the cause, and goes on reverting what others change
//! elsewhere.
//!
//! Where this machine lets us make no cgroup, the kernel does not judge: then the peak of the resident memory is compared
//! with the limit, and the test says so.

mod inputs;
mod lease;
mod listeners;
mod packs;

use std::{
    sync::LazyLock,
    time::{Duration, Instant},
};

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard};

use mainstay_testkit::{
    limited_agent::{LimitedAgent, POD_MIB},
    remote::Remote,
    world::{World, condition_of, config_map},
};

/// The namespace that everything comes from.
const HOSTILE: &str = "mainstay-tests-hostile";
/// The namespace that must not notice.
const NEIGHBOUR: &str = "mainstay-tests-neighbour";
/// Objects of the neighbour: each is changed so seldom that no revert waits for its own backoff.
const OBJECTS: usize = 240;
/// Longest time until a change of the neighbour's is reverted.
const PUT_BACK: Duration = Duration::from_secs(1);
/// How many changes are judged, at least.
const EDITS: usize = 10;
/// How often the neighbour changes something.
const EVERY: Duration = Duration::from_millis(150);

/// One at a time: each has a cluster of its own in this process.
static TURN: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

/// A cluster with a neighbour in it, and an agent in as much memory as it has in a pod.
struct Envelope {
    world: World,
    agent: LimitedAgent,
    _neighbour: Remote,
    next: usize,
    reverts: Vec<Duration>,
    /// Most memory of its own that the agent had, in MiB, as far as that was looked at.
    own: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Envelope {
    /// The agent runs, and the neighbour is ready.
    async fn new() -> Self {
        Self::after(|_| {}).await
    }

    /// The same, in a cluster that is prepared before the agent starts.
    async fn after(prepare: impl FnOnce(&World)) -> Self {
        let turn = TURN.lock().await;
        let world = World::new().await;
        for namespace in [HOSTILE, NEIGHBOUR] {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            world.create("v1", "namespaces", "", object);
        }
        let mut neighbour = Remote::new();
        for number in 0..OBJECTS {
            neighbour.file(&format!("{number}.yaml"), config_map(&format!("calm-{number}"), "1"));
        }
        neighbour.commit("all");
        follow(&world, NEIGHBOUR, "calm", &neighbour.path().display().to_string(), json!({}));
        prepare(&world);
        let agent = LimitedAgent::start(&world, &[]).await;
        let mut this = Self { world, agent, _neighbour: neighbour, next: 0, reverts: Vec::new(), own: 0, _turn: turn };
        this.until_calmly("the neighbour is ready", |world| ready(world, NEIGHBOUR, "calm").starts_with("True")).await;
        this
    }

    /// Waits for something without any edit meanwhile.
    async fn until_calmly(&mut self, what: &str, wanted: impl Fn(&World) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !wanted(&self.world) {
            assert!(Instant::now() < end, "not within a minute: {what}\n{}", self.agent.log());
            self.agent.assert_alive(what);
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// The neighbour goes on for so long, and until something is so.
    async fn during(&mut self, what: &str, at_least: Duration, wanted: impl Fn(&World, &LimitedAgent) -> bool) {
        let (begin, end) = (Instant::now(), Instant::now() + Duration::from_secs(180));
        while !wanted(&self.world, &self.agent) || begin.elapsed() < at_least || self.reverts.len() < EDITS {
            assert!(Instant::now() < end, "not within three minutes: {what}\n{}", self.agent.log());
            self.edit(what).await;
            tokio::time::sleep(EVERY).await;
        }
    }

    /// The neighbour changes an object, which is reverted.
    async fn edit(&mut self, during: &str) {
        let name = format!("calm-{}", self.next % OBJECTS);
        self.next += 1;
        let action = Action::Patch(Form::Merge, json!({"data": {"key": "changed"}}));
        let begin = Instant::now();
        self.world.try_as("kubectl-edit", Call::new("v1", "configmaps", NEIGHBOUR, &name, action)).unwrap();
        let value =
            |world: &World| world.server.object("v1", "configmaps", NEIGHBOUR, &name).unwrap()["data"]["key"].clone();
        while value(&self.world) != "1" {
            self.own = self.own.max(self.agent.own_mib());
            self.agent.assert_alive(during);
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "{name} is not reverted during: {during}\n{}",
                self.agent.log()
            );
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.own = self.own.max(self.agent.own_mib());
        self.reverts.push(begin.elapsed());
    }

    /// What must hold after each input.
    #[expect(clippy::print_stdout, reason = "figures, for those who look at them")]
    fn judge(&mut self, input: &str) {
        self.agent.assert_alive(input);
        self.reverts.sort_unstable();
        let (usual, slowest) = (self.reverts[self.reverts.len() * 9 / 10], self.reverts[self.reverts.len() - 1]);
        let (peak, own) = (self.agent.peak_mib(), self.own);
        let place = if self.agent.is_limited() { "in a cgroup" } else { "NOT in a cgroup: none can be made here" };
        println!(
            "{input}: peak {peak} MiB with the program as it is released, of its own {own} MiB were seen, {place}; changes elsewhere were reverted \
             within {usual:?}, the slowest within {slowest:?}"
        );
        assert!(peak <= POD_MIB, "{input}: {peak} MiB");
        // The machine may be busy with other tests, too: one in ten is not judged.
        assert!(usual < PUT_BACK, "{input}: changes elsewhere were reverted after {usual:?} only");
    }
}

/// A GitRepository and a GitSync of this name.
fn follow(world: &World, namespace: &str, name: &str, url: &str, spec: Value) {
    repository(world, namespace, name, url);
    let mut whole = json!({"gitRepository": name, "interval": "1h"});
    json_patch::merge(&mut whole, &spec);
    let sync = json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": "GitSync",
        "metadata": {"name": name, "namespace": namespace}, "spec": whole,
    });
    world.create("mainstay.dev/v1alpha1", "gitsyncs", namespace, sync);
}

fn repository(world: &World, namespace: &str, name: &str, url: &str) {
    let version = "serverless.kyma-project.io/v1alpha1";
    let repository = json!({
        "apiVersion": version, "kind": "GitRepository", "metadata": {"name": name, "namespace": namespace},
        "spec": {"url": url},
    });
    world.create(version, "gitrepositories", namespace, repository);
}

/// The condition Ready of a GitSync.
fn ready(world: &World, namespace: &str, name: &str) -> String {
    let sync = world.server.object("mainstay.dev/v1alpha1", "gitsyncs", namespace, name);
    sync.map_or_else(String::new, |sync| condition_of(&sync["status"], "Ready"))
}
