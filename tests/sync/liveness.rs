//! `/healthz` of the running agent: it fails if only a restart would help, and never because a server is unavailable.

use std::time::Duration;

use devcluster::fault_injection::Fault;
use serde_json::json;

use mainstay_testkit::{
    functions::inline,
    listener::page,
    remote::NAME,
    world::{World, config_map, free_address},
};

/// Returns status and text of `/healthz`.
async fn health(world: &World) -> String {
    match page(world, "/healthz").await {
        Ok((status, text)) => format!("{status} {text}"),
        Err(error) => error.to_string(),
    }
}

/// Waits until `/healthz` starts with this text.
async fn healthy(world: &World, beginning: &str) -> String {
    health_is(world, beginning, |said| said.starts_with(beginning)).await
}

/// Waits until `/healthz` matches.
async fn health_is(world: &World, what: &str, wanted: impl Fn(&str) -> bool) -> String {
    let waiting = async {
        loop {
            let said = health(world).await;
            if wanted(&said) {
                return said;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    tokio::time::timeout(mainstay_testkit::PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not {what:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_work_is_reported_and_so_is_its_recovery() {
    let mut world = World::with_functions().await;
    world.listen = Some(free_address());
    // Far shorter than the timeout of requests. The default is far longer.
    world.stuck_after = Duration::from_millis(300);
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    world.quiet().await;
    // An idle agent stays healthy. On a busy machine its loops may be late.
    assert_eq!(healthy(&world, "200").await, "200 ok\n");
    let slow =
        Fault { verb: "apply".into(), resource: "deployments.apps".into(), delay_millis: 10_000, ..Fault::default() };
    world.levers().fail_next(slow);
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    // No other task is stuck, except for a moment on a busy machine.
    let alone = "503 reconciling Functions is stuck: 1 running without progress for ";
    health_is(&world, alone, |said| said.starts_with(alone) && !said.contains(';')).await;
    world.runs("hello").await;
    healthy(&world, "200").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_servers_do_not_restart_the_agent() {
    let mut world = World::with_functions().await;
    world.listen = Some(free_address());
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    // No server listens there.
    world.repository("gone", &format!("http://{}/{NAME}", free_address()));
    world.sync("demo", json!({}));
    world.sync("nowhere", json!({"gitRepository": "gone"}));
    world.start();
    world.ready("demo").await;
    world.condition_is("nowhere", "Ready", "False").await;
    world.git_function_of("gone", "hello", "/");
    world.says("hello", "ConfigurationReady", "False SourceUpdateFailed").await;
    assert_eq!(health(&world).await, "200 ok\n");
    world.levers().fail_next(Fault { code: 503, times: 100_000, ..Fault::default() });
    let before = world.requests();
    world.remote.file("a.yaml", config_map("a", "2")).commit("two");
    world.look();
    world.until("the agent has met with refusals", |w| w.requests() != before).await;
    assert_eq!(health(&world).await, "200 ok\n");
    // Unanswered requests end by their own deadline, long before work counts as stuck.
    world.levers().clear_faults();
    world.gate.shut_after(0);
    world.look();
    assert_eq!(health(&world).await, "200 ok\n");
    world.gate.open();
}
