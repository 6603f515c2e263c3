//! Traces in a real OpenTelemetry Collector, which writes what it receives to a file.

use std::time::Duration;

use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::remote::NAME;
use mainstay_testkit::webhooks::client;
use mainstay_testkit::world::{World, config_map, free_address};
use mainstay_testkit::{PATIENCE, isolated};
use mainstay_traces::Endpoint;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;

use super::{built, serve};

struct Collector {
    directory: TempDir,
    url: String,
    _server: Child,
}

impl Collector {
    async fn start() -> Self {
        let (directory, address) = (tempfile::tempdir().unwrap(), free_address());
        let configuration = json!({
            "receivers": {"otlp": {"protocols": {"http": {"endpoint": address.to_string()}}}},
            "exporters": {"file": {"path": directory.path().join("spans.jsonl"), "flush_interval": "100ms"}},
            "service": {
                "telemetry": {"metrics": {"level": "none"}},
                "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["file"]}},
            },
        });
        let file = directory.path().join("config.yaml");
        std::fs::write(&file, configuration.to_string()).unwrap();
        let mut command = isolated(built("collector"));
        command.arg("--config").arg(file);
        let server = serve(command, &directory.path().join("log"), address).await;
        Self { directory, url: format!("http://{address}"), _server: server }
    }

    /// Returns the written groups of spans, each with the resource that sent them.
    fn groups(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.directory.path().join("spans.jsonl")).unwrap_or_default();
        // The last line may be incomplete.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let requests = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        requests.flat_map(|request| request["resourceSpans"].as_array().unwrap().clone()).collect()
    }

    fn spans(&self) -> Vec<Value> {
        let groups = self.groups();
        let scopes = groups.iter().flat_map(|group| group["scopeSpans"].as_array().unwrap());
        scopes.flat_map(|scope| scope["spans"].as_array().unwrap().clone()).collect()
    }

    /// Waits for the first trace whose first span has this name. Returns that span, and those below it in order.
    async fn trace(&self, name: &str) -> (Value, Vec<Value>) {
        let written = async {
            loop {
                if let Some(root) = self.spans().into_iter().find(|span| span["name"] == name) {
                    return root;
                }
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        };
        let root = tokio::time::timeout(PATIENCE, written).await;
        let root = root.unwrap_or_else(|_| panic!("no trace of a {name} in {:#?}", self.spans()));
        let mut below = self.spans();
        below.retain(|span| span["parentSpanId"] == root["spanId"]);
        below.sort_by_key(|span| nanoseconds(span, "startTimeUnixNano"));
        (root, below)
    }
}

fn nanoseconds(span: &Value, field: &str) -> u64 {
    span[field].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_and_a_revert_are_traces_in_a_collector() {
    let collector = Collector::start().await;
    // Makes the process able to use TLS, as the agent does at its start.
    let _ = client();
    let _exporting = mainstay_traces::start(Endpoint::Collector(&collector.url)).unwrap();
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "canary-of-a-value")).commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("shop", &server.url(NAME));
    world.synced(json!({"gitRepository": "shop"})).await;
    let (commit, steps) = collector.trace("commit").await;
    let names: Vec<_> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["lookup", "fetch", "compile", "plan", "stage", "prune", "health"], "{steps:#?}");
    assert_eq!(commit["parentSpanId"].as_str().unwrap_or_default(), "", "{commit:#}");
    assert!(steps.iter().all(|step| step["traceId"] == commit["traceId"]), "{steps:#?}");
    let (start, end) = (nanoseconds(&commit, "startTimeUnixNano"), nanoseconds(&commit, "endTimeUnixNano"));
    assert!(steps.iter().all(|step| nanoseconds(step, "startTimeUnixNano") >= start), "{commit:#} {steps:#?}");
    assert!(steps.iter().all(|step| nanoseconds(step, "endTimeUnixNano") <= end), "{commit:#} {steps:#?}");

    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed-by-hand"}}));
    let (revert, _) = collector.trace("revert").await;
    assert_ne!(revert["traceId"], commit["traceId"]);
    let groups = collector.groups();
    let service = json!({"key": "service.name", "value": {"stringValue": "mainstay"}});
    let is_ours = |group: &Value| group["resource"]["attributes"].as_array().unwrap().contains(&service);
    assert!(groups.iter().all(is_ours), "{groups:#?}");
    let sent = format!("{groups:?}");
    assert!(sent.contains(&world.remote.head()) && !sent.contains("canary-of-a-value"), "{sent}");
    assert!(!sent.contains("changed-by-hand"), "{sent}");
}
