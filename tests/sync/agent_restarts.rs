//! An agent whose process is killed and restarted, like a container within its pod.

use std::process::{Child, Stdio};

use serde_json::{Value, json};

use mainstay_testkit::world::{NAMESPACE, World, config_map};

/// The program as a process beside the cluster. Killed on drop.
struct Agent(Child);

impl Agent {
    fn start(directory: &std::path::Path, kubeconfig: &std::path::Path) -> Self {
        let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
        command.args(["agent", "--allow-local", "-n", NAMESPACE]).arg("--kubeconfig").arg(kubeconfig);
        command.arg("--data").arg(directory).env_clear().stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// `kill -9`.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lease(world: &World) -> Value {
    let mut spec = world.get("coordination.k8s.io/v1", "leases", "mainstay").unwrap()["spec"].clone();
    spec.as_object_mut().unwrap().remove("renewTime");
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restarted_agent_keeps_its_lease() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    world.remote.commit("one");
    world.sync("demo", json!({}));
    let serving = world.server.embedded().serve(([127, 0, 0, 1], 0).into(), None).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, world.server.embedded().kubeconfig(serving.address(), None)).unwrap();
    let mut agent = Agent::start(&directory.path().join("data"), &kubeconfig);
    world.ready("demo").await;
    let before = lease(&world);
    agent.kill();
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    let _agent = Agent::start(&directory.path().join("data"), &kubeconfig);
    world.until("the edit is reverted", |w| w.data("a") == "1").await;
    // Holder and acquire time are unchanged: the new process did not wait for the Lease to expire.
    assert_eq!(lease(&world), before);
}
