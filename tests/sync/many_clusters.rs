//! One agent and fifty remote clusters. Five of them are slow, and two are away.

use std::time::Duration;

use devcluster::fault_injection::Fault;
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Caller, Cluster, Options, Serving};
use serde_json::json;

use mainstay_testkit::limited_agent::{LimitedAgent, POD_MIB};
use mainstay_testkit::world::{NAMESPACE, World, config_map, free_address};

const HEALTHY: usize = 43;
const SLOW: usize = 5;
const AWAY: usize = 2;
/// Delay of each response of a slow cluster.
const DELAY: Duration = Duration::from_secs(2);
const FOREVER: Duration = Duration::from_hours(1);

/// A cluster that is served without TLS and tokens.
struct Remote {
    server: Cluster,
    _serving: Serving,
    kubeconfig: String,
}

impl Remote {
    async fn new() -> Self {
        let server = Cluster::new(Options::default());
        let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let kubeconfig = kubeconfig(&serving.address().to_string());
        Self { server, _serving: serving, kubeconfig }
    }

    /// Delays all further responses.
    fn delay(&self, delay: Duration) {
        let delay_millis = delay.as_millis().try_into().unwrap();
        self.server.faults().clear_faults();
        self.server.faults().fail_next(Fault { delay_millis, times: u32::MAX, ..Fault::default() });
    }

    fn data(&self) -> String {
        let map = self.server.object("v1", "configmaps", NAMESPACE, "a");
        map.and_then(|map| map["data"]["key"].as_str().map(str::to_owned)).unwrap_or_else(|| "absent".to_owned())
    }

    fn edit(&self) {
        let action = Action::Patch(Form::Merge, json!({"data": {"key": "edited"}}));
        let call = Call::new("v1", "configmaps", NAMESPACE, "a", action);
        self.server.call(&Caller::new("kubectl-edit"), call).unwrap();
    }

    /// Returns the number of requests so far without watches.
    fn requests(&self) -> u64 {
        let counts = self.server.faults().counts();
        counts.iter().filter(|count| count.verb != "watch").map(|count| count.count).sum()
    }
}

fn kubeconfig(address: &str) -> String {
    format!(
        "current-context: it\nclusters: [{{name: it, cluster: {{server: \"http://{address}\"}}}}]\n\
         users: [{{name: it, user: {{token: x}}}}]\ncontexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
    )
}

/// Creates a GitSync to a cluster.
fn follow(world: &World, name: &str, kubeconfig: &str) {
    world.set_secret(name, json!({"value": kubeconfig}));
    let spec = json!({"baseDir": "there", "interval": "2s", "kubeConfig": {"secretRef": {"name": name}}});
    world.sync(name, spec);
}

/// Waits until all clusters have this value.
async fn all_have(world: &World, clusters: &[Remote], value: &str) {
    let missing = || clusters.iter().filter(|cluster| cluster.data() != value).count();
    world.until_or(value, |_| missing() == 0, || format!("{} clusters do not have it", missing())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_agent_follows_fifty_clusters_although_five_are_slow_and_two_are_away() {
    let mut world = World::new().await;
    world.remote.file("own/a.yaml", config_map("a", "1")).file("there/a.yaml", config_map("a", "1")).commit("one");
    world.sync("own", json!({"baseDir": "own", "interval": "2s"}));
    let mut healthy = Vec::new();
    for number in 0..HEALTHY {
        healthy.push(Remote::new().await);
        follow(&world, &format!("healthy-{number}"), &healthy[number].kubeconfig);
    }
    let mut slow = Vec::new();
    for number in 0..SLOW {
        slow.push(Remote::new().await);
        slow[number].delay(DELAY);
        follow(&world, &format!("slow-{number}"), &slow[number].kubeconfig);
    }
    let away = |number: usize| format!("away-{number}");
    for number in 0..AWAY {
        follow(&world, &away(number), &kubeconfig(&free_address().to_string()));
    }
    let mut agent = LimitedAgent::start(&world, &[]).await;
    all_have(&world, &healthy, "1").await;
    all_have(&world, &slow, "1").await;
    for number in 0..AWAY {
        world.condition_is(&away(number), "Ready", "False ClusterUnavailable").await;
    }
    // One commit reaches all of them.
    world.remote.file("there/a.yaml", config_map("a", "2")).commit("two");
    all_have(&world, &healthy, "2").await;
    all_have(&world, &slow, "2").await;
    // Clusters that respond no more delay no other one: each other one is reverted and gets the next commit, although
    // none of those has been reverted.
    for cluster in &slow {
        cluster.delay(FOREVER);
        cluster.edit();
    }
    healthy.iter().for_each(Remote::edit);
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "edited"}}));
    all_have(&world, &healthy, "2").await;
    world.until("the own cluster is reverted", |world| world.data("a") == "1").await;
    world.remote.file("there/a.yaml", config_map("a", "3")).commit("three");
    all_have(&world, &healthy, "3").await;
    for number in 0..HEALTHY {
        world.ready(&format!("healthy-{number}")).await;
    }
    assert!(slow.iter().all(|cluster| cluster.data() == "edited"));
    let requests: Vec<u64> = healthy.iter().map(Remote::requests).collect();
    assert!(requests.iter().all(|count| *count < 40), "{requests:?}");
    agent.assert_alive("fifty clusters");
    let (peak, own) = (agent.peak_mib(), agent.own_mib());
    println!("fifty clusters: peak {peak} MiB, own {own} MiB, requests of a cluster: {:?}", requests.iter().max());
    assert!(peak <= POD_MIB, "{peak} MiB");
}
