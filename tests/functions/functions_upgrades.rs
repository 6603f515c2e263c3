//! A new agent with other settings, and other generations of a Function. Existing children change once, and the status
//! never claims more than is true.

use devcluster::Subscription;
use mainstay_function::{Settings, presets::ResourcesPreset};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{AUTOSCALERS, CONFIG_MAPS, DEPLOYMENTS, JOBS, Kind, SERVICES, inline, scaled},
    world::{NAMESPACE, World},
};

/// Other settings, a check for their effect, and the numbers of applied Deployments and autoscalers.
type Change = (fn(&mut Settings), fn(&World) -> bool, [u64; 2]);

const ALL: [&str; 3] = ["first", "second", "fixed"];
const KINDS: [Kind; 5] = [CONFIG_MAPS, JOBS, DEPLOYMENTS, SERVICES, AUTOSCALERS];

/// Returns the agent's writes since the counts were reset.
fn written(world: &World) -> Vec<(String, u64)> {
    let reads = ["get ", "list ", "watch "];
    world.requests().into_iter().filter(|(what, _)| !reads.iter().any(|verb| what.starts_with(verb))).collect()
}

/// Returns how often objects of a kind were applied since the counts were reset.
fn applied(world: &World, resource: &str) -> u64 {
    let what = format!("apply {resource}");
    written(world).into_iter().find(|(known, _)| *known == what).map_or(0, |(_, times)| times)
}

/// Returns the generation of each Deployment.
fn generations(world: &World) -> [i64; 3] {
    ALL.map(|name| world.child(name, DEPLOYMENTS)["metadata"]["generation"].as_i64().unwrap())
}

fn versions(world: &World) -> Vec<Value> {
    let children = ALL.into_iter().flat_map(|name| KINDS.into_iter().flat_map(|kind| world.children(name, kind)));
    let all = children.chain(ALL.into_iter().filter_map(|name| world.function_now(name)));
    all.map(|object| object["metadata"]["resourceVersion"].clone()).collect()
}

fn pods(world: &World, name: &str) -> Value {
    world.child(name, DEPLOYMENTS)["spec"]["template"]["spec"].clone()
}

fn has_account(world: &World) -> bool {
    ALL.iter().all(|name| pods(world, name)["serviceAccountName"] == "functions")
}

fn has_memory(world: &World) -> bool {
    ALL.iter().all(|name| pods(world, name)["containers"][0]["resources"]["limits"]["memory"] == "200Mi")
}

fn has_target(world: &World) -> bool {
    let target = |name| world.child(name, AUTOSCALERS)["spec"]["targetCPUUtilizationPercentage"].clone();
    target("first") == 70 && target("second") == 70
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_with_other_settings_changes_each_child_once_and_builds_nothing() {
    let mut world = World::with_functions().await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "functions"}});
    world.create("v1", "serviceaccounts", NAMESPACE, account);
    let builds = world.builds();
    world.start();
    for name in ALL {
        world.function(name, if name == "fixed" { inline("1") } else { scaled("1") });
    }
    for name in ALL {
        world.runs(name).await;
    }
    world.quiet().await;
    world.stop().await;
    let account = |settings: &mut Settings| settings.service_account = Some("functions".to_owned());
    let memory = |settings: &mut Settings| {
        let preset = ResourcesPreset {
            request_cpu: Some("50m".into()),
            request_memory: Some("100Mi".into()),
            limit_cpu: Some("100m".into()),
            limit_memory: Some("200Mi".into()),
        };
        let name = settings.resources.default.clone();
        settings.resources.all.insert(name, preset);
    };
    let target = |settings: &mut Settings| settings.target_cpu_percentage = 70;
    let changes: [Change; 3] =
        [(account, has_account, [3, 0]), (memory, has_memory, [3, 0]), (target, has_target, [0, 2])];
    for (change, is_there, [deployments, autoscalers]) in changes {
        let (before, images) = (generations(&world), ALL.map(|name| world.function_status(name)["image"].clone()));
        assert!(!is_there(&world));
        change(&mut world.functions);
        world.levers().reset_counts();
        world.start();
        world.until_function("what stands is changed", is_there).await;
        world.quiet().await;
        for name in ALL {
            world.runs(name).await;
        }
        world.quiet().await;
        let asked =
            ["deployments.apps", "horizontalpodautoscalers.autoscaling", "configmaps", "services", "jobs.batch"];
        let times = asked.map(|resource| applied(&world, resource));
        assert_eq!(times, [deployments, autoscalers, 0, 0, 0], "{:?}", written(&world));
        let once = i64::from(deployments > 0);
        assert_eq!(generations(&world), before.map(|generation| generation + once));
        assert_eq!(ALL.map(|name| world.function_status(name)["image"].clone()), images);

        // The next agent changes nothing.
        world.stop().await;
        let settled = versions(&world);
        world.levers().reset_counts();
        world.start();
        world.quiet().await;
        world.quiet().await;
        world.stop().await;
        assert_eq!((written(&world), versions(&world)), (vec![], settled));
    }
    assert_eq!(builds.all().values().map(Vec::len).sum::<usize>(), ALL.len(), "nothing was built again");
}

/// Returns the generation of a condition if it is True.
fn holds(status: &Value, kind: &str) -> Option<i64> {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == kind && condition["status"] == "True")?;
    found["observedGeneration"].as_i64()
}

/// Checks every state of the Function since its change to a generation with this source. Returns the number of states.
fn check(events: &mut Subscription, before: &Value, source: &str) -> usize {
    let (mut code, mut runs, mut states) = (Value::Null, Value::Null, 0);
    loop {
        let batch = events.take();
        assert!(!batch.missed);
        if batch.events.is_empty() {
            return states;
        }
        for event in batch.events {
            let Some(object) = event.new.as_ref().map(|new| new.value()) else { continue };
            match &*event.storage {
                "configmaps" => code = object["data"]["source"].clone(),
                "deployments.apps" => runs = json!(*object),
                "functions.serverless.kyma-project.io" => {
                    let (generation, status) = (object["metadata"]["generation"].as_i64(), &object["status"]);
                    let observed = status["observedGeneration"].as_i64();
                    let conditions = ["ConfigurationReady", "BuildReady", "Running"].map(|kind| holds(status, kind));
                    assert!(conditions.iter().all(|speaks_of| *speaks_of <= observed), "{status:#}");
                    if observed != generation {
                        continue;
                    }
                    states += 1;
                    let [configured, built, running] = conditions;
                    // These two conditions are never about an old generation. The running version may be.
                    assert!(configured.is_none_or(|of| Some(of) == generation && code == source), "{status:#}");
                    let tag = |status: &Value| status["built"]["tag"].clone();
                    assert!(built.is_none_or(|of| Some(of) == generation && tag(status) != tag(before)), "{status:#}");
                    if running.is_some() && running != generation {
                        assert_eq!(status["image"], before["image"]);
                    } else if running.is_some() {
                        assert_ne!(status["image"], before["image"]);
                        let image = &runs["spec"]["template"]["spec"]["containers"][0]["image"];
                        assert_eq!(status["image"], *image);
                        assert_eq!(runs["status"]["observedGeneration"], runs["metadata"]["generation"]);
                    }
                }
                _ => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_status_mixes_two_generations() {
    let world = World::running(inline("0")).await;
    world.quiet().await;
    // This also holds for reconciles that end early because of a refused write.
    for (n, refused) in ["", "configmaps", "jobs.batch", "deployments.apps", "services"].into_iter().enumerate() {
        let (before, source) = (world.function_status("hello"), format!("source {n}"));
        let mut events = world.server.embedded().subscribe();
        if !refused.is_empty() {
            world.fail_next("apply", refused, "", 500, 2);
        }
        world.builds_wait();
        world.edit_function(
            "hello",
            json!({"spec": {"source": source}, "metadata": {"labels": {"n": source.replace(' ', "")}}}),
        );
        world.says("hello", "BuildReady", "Unknown JobRunning").await;
        world.builds_succeed();
        world.runs("hello").await;
        world.quiet().await;
        world.levers().clear_faults();
        let states = check(&mut events, &before, &source);
        assert!(states >= 3, "{states} states with {refused:?} refused");
    }
}
