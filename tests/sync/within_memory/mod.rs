//! The agent's memory against everything that one namespace, its repositories or a client of its listeners can send.
//! The agent stays within its container's limit, names the causing object, and keeps reverting changes elsewhere.
//!
//! The module's name makes it start last, so that tests that measure time have the machine to themselves.
//!
//! Without permission to create a cgroup on this machine, the kernel does not enforce the limit. The test then compares
//! the peak resident memory with the limit, and says so.

mod inputs;
mod lease;
mod listeners;
mod packs;
mod processes;

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

/// The namespace of all hostile input.
const HOSTILE: &str = "mainstay-tests-hostile";
/// The namespace that must not be affected.
const NEIGHBOUR: &str = "mainstay-tests-neighbour";
/// Objects of the neighbour. Each changes so rarely that its revert has no backoff.
const OBJECTS: usize = 240;
/// Maximum time until a change of the neighbour is reverted.
const PUT_BACK: Duration = Duration::from_secs(1);
/// Minimum number of judged changes.
const EDITS: usize = 10;
/// Interval of the neighbour's changes.
const EVERY: Duration = Duration::from_millis(150);

/// One test at a time: each has its own cluster in this process.
static TURN: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

/// A cluster with a neighbour, and an agent with the memory limit of its pod.
struct Envelope {
    world: World,
    agent: LimitedAgent,
    _neighbour: Remote,
    next: usize,
    reverts: Vec<Duration>,
    /// Maximum observed private memory of the agent, in MiB.
    own: u64,
    _turn: MutexGuard<'static, ()>,
}

impl Envelope {
    /// Starts the agent and waits until the neighbour is ready.
    async fn new() -> Self {
        Self::after(|_| {}).await
    }

    /// Does the same in a cluster that `prepare` changes before the agent starts.
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

    /// Waits without any edits.
    async fn until_calmly(&mut self, what: &str, wanted: impl Fn(&World) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !wanted(&self.world) {
            assert!(Instant::now() < end, "not within a minute: {what}\n{}", self.agent.log());
            self.agent.assert_alive(what);
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    /// Edits objects of the neighbour for at least this long, and until `wanted` holds.
    async fn during(&mut self, what: &str, at_least: Duration, wanted: impl Fn(&World, &LimitedAgent) -> bool) {
        let (begin, end) = (Instant::now(), Instant::now() + Duration::from_secs(180));
        while !wanted(&self.world, &self.agent) || begin.elapsed() < at_least || self.reverts.len() < EDITS {
            assert!(Instant::now() < end, "not within three minutes: {what}\n{}", self.agent.log());
            self.edit(what).await;
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Changes an object of the neighbour and waits until it is reverted.
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

    /// Checks the conditions that must hold after each input.
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
        // The machine may be busy with other tests: one in ten is not judged.
        assert!(usual < PUT_BACK, "{input}: changes elsewhere were reverted after {usual:?} only");
    }
}

/// Creates a GitRepository and a GitSync with this name.
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

/// Returns the condition Ready of a GitSync.
fn ready(world: &World, namespace: &str, name: &str) -> String {
    let sync = world.server.object("mainstay.dev/v1alpha1", "gitsyncs", namespace, name);
    sync.map_or_else(String::new, |sync| condition_of(&sync["status"], "Ready"))
}
