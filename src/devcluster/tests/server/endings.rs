//! The end of processes: of containers above their limits, and of all containers with the cluster.

use crate::machine::{HOST, Machine, PODS, eventually, lives};
use crate::process::isolated;
use devcluster::{Cluster, NodeOptions, Options};
use serde_json::json;
use std::{io::BufRead as _, path::Path, process::Stdio};

#[tokio::test(flavor = "multi_thread")]
async fn too_much_memory_kills_a_container_as_the_kernel_would() {
    let machine = Machine::new();
    let eat = "import time; x = bytearray(200 << 20); time.sleep(1000)";
    let change = json!({"containers": [{
        "command": ["python3", "-c", eat], "resources": {"limits": {"memory": "64Mi"}},
    }]});
    let mut container = change["containers"][0].clone();
    container["name"] = "main".into();
    container["image"] = HOST.into();
    let pod = json!({"metadata": {"name": "eater"}, "spec": {"restartPolicy": "Never", "containers": [container]}});
    machine.world.post(PODS, pod).await.expect(201);
    let pod = machine.phase("eater", "Failed").await;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("OOMKilled"), &json!(137)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_bomb_is_ended_with_all_it_has_started() {
    let machine = Machine::with(|node| node.tasks = 20);
    let bomb = "for i in $(seq 40); do setsid sleep 1000 & done; wait";
    machine.pod("bomb", bomb, json!({})).await;
    let pod = machine.phase("bomb", "Failed").await;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    let message = ended["message"].as_str().unwrap();
    assert!(message.ends_with("processes and threads, where 20 are allowed"), "{message}");
    let marks = machine.directory.path().to_str().unwrap().to_owned();
    assert_eq!(carriers(&marks), 0);
}

/// Counts processes with this text in their environment.
fn carriers(text: &str) -> usize {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| entry.file_name() != *own);
    let environments = entries.filter_map(|entry| std::fs::read(entry.path().join("environ")).ok());
    environments.filter(|bytes| String::from_utf8_lossy(bytes).contains(text)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_leaves_its_group_ends_with_its_container() {
    let machine = Machine::new();
    machine.pod("daemon", "setsid -f sleep 1000; echo done", json!({})).await;
    machine.phase("daemon", "Succeeded").await;
    assert_eq!(machine.log("daemon", "").await, "done\n");
    assert_eq!(carriers(machine.directory.path().to_str().unwrap()), 0);
}

/// A program that daemonizes by two forks and a new session, with closed files.
const DAEMON: &str = "import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(1000)
    os._exit(0)
os.wait()
print('daemon', flush=True)
time.sleep(1000)
";

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_ends_with_its_pod() {
    let machine = Machine::new();
    machine.pod("p", "", json!({"containers": [{"command": ["python3", "-c", DAEMON]}]})).await;
    machine.phase("p", "Running").await;
    machine.until_log("p", "daemon").await;
    let marks = machine.directory.path().to_str().unwrap().to_owned();
    assert_eq!(carriers(&marks), 2);
    machine.world.delete(&format!("{PODS}/p?gracePeriodSeconds=0"), json!({})).await.expect(200);
    eventually("both are dead", || carriers(&marks) == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_volume_evicts_its_pod() {
    let machine = Machine::new();
    let change = json!({
        "volumes": [{"name": "small", "emptyDir": {"sizeLimit": "1Mi"}}],
        "containers": [{"volumeMounts": [{"name": "small", "mountPath": "/small"}], "env": [{"name": "AT", "value": "/small"}]}],
    });
    machine.pod("filler", "dd if=/dev/zero of=$AT/x bs=1M count=4; exec sleep 1000", change).await;
    let pod = machine.phase("filler", "Failed").await;
    let said = (&pod["status"]["reason"], &pod["status"]["message"]);
    assert_eq!(said, (&json!("Evicted"), &json!("Usage of EmptyDir volume \"small\" exceeds the limit \"1Mi\". ")));
}

/// Starts a cluster with one pod and returns the PID of its live process.
async fn one_process(directory: &Path) -> (Cluster, String) {
    let node = NodeOptions::new(directory).host_image(HOST, []);
    let server = Cluster::new(Options { node: Some(node), ..Options::default() });
    drop(server.start_controllers());
    let machine = crate::world::World { server: server.clone() };
    // A child leaves the process group.
    let script = "echo $$$$; trap '' TERM; sleep 1000 & setsid -f sleep 1000; wait";
    let container = json!({"name": "main", "image": HOST, "command": ["sh", "-c", script]});
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [container]}});
    machine.post(PODS, pod).await.expect(201);
    loop {
        let log = machine.get(&format!("{PODS}/p/log")).await;
        if log.code == 200 && log.text.ends_with('\n') {
            return (server, log.text.trim().to_owned());
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn no_process_outlives_the_runtime() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (server, process) = runtime.block_on(one_process(directory.path()));
    assert!(lives(&process));
    drop(runtime);
    drop(server);
    assert!(!lives(&process));
}

/// Environment variable of the copy of this program that is killed.
const VICTIM: &str = "DEVCLUSTER_VICTIM";

#[tokio::test(flavor = "multi_thread")]
async fn no_process_outlives_a_cluster_that_is_killed() {
    if let Ok(directory) = std::env::var(VICTIM) {
        let (_server, process) = one_process(Path::new(&directory)).await;
        println!("process {process}");
        std::future::pending::<()>().await;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut victim = isolated(std::env::current_exe().unwrap());
    victim.args(["--exact", "--nocapture", "endings::no_process_outlives_a_cluster_that_is_killed"]);
    let mut victim = victim.env(VICTIM, directory.path()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufReader::new(victim.stdout.take().unwrap()).lines();
    let process = lines.map(Result::unwrap).find_map(|line| Some(line.split_once("process ")?.1.to_owned())).unwrap();
    assert!(lives(&process));
    victim.kill().unwrap();
    victim.wait().unwrap();
    eventually("the process is dead", || !lives(&process)).await;
    let marks = directory.path().to_str().unwrap().to_owned();
    eventually("what it has started is dead", || carriers(&marks) == 0).await;
    // Leftovers are removed when the directory is used again.
    let machine = Machine::with(|node| node.directory = directory.path().to_owned());
    let left = || std::fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    eventually("only the new node has a place", || left().len() == 1).await;
    drop(machine);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_a_killed_cluster_left_is_found_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let mut left = isolated("sleep");
    let mut left = std::os::unix::process::CommandExt::process_group(&mut left, 0).arg("1000").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", left.id())).unwrap();
    let begun = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    let records = directory.path().join("node-252/processes");
    std::fs::create_dir_all(&records).unwrap();
    std::fs::write(records.join(left.id().to_string()), begun).unwrap();
    // A process with the same PID as a dead process, but a different start time.
    let mut other = isolated("sleep");
    let mut other = std::os::unix::process::CommandExt::process_group(&mut other, 0).arg("1000").spawn().unwrap();
    std::fs::write(records.join(other.id().to_string()), "1").unwrap();
    let machine = Machine::with(|node| node.directory = directory.path().to_owned());
    let ended = tokio::task::spawn_blocking(move || left.wait().unwrap()).await.unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    eventually("the records are gone", || !records.exists()).await;
    assert!(other.try_wait().unwrap().is_none());
    other.kill().unwrap();
    other.wait().unwrap();
    drop(machine);
}
