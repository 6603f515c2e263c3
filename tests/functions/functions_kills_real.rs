//! An agent is killed repeatedly while real builds run. No image is built twice, no object is left behind, and in the
//! end every Function answers.

use serde_json::json;

use mainstay_testkit::{
    build::wheel,
    functions::{AUTOSCALERS, JOBS, inline},
    random::random,
    world::World,
};

/// Number of kills.
const KILLS: u64 = 5;
/// The Functions by the location of their code.
const INLINE: [&str; 2] = ["hopper", "adder"];
const IN_GIT: [&str; 2] = ["packed", "wheeled"];

/// Returns the code of a Function, which answers with its name and a version.
fn code(name: &str, version: u64) -> String {
    match name {
        "hopper" => format!("module.exports = {{ main: () => 'hopper {version}' }}"),
        "packed" => format!("module.exports = {{ main: () => require('word') + ' {version}' }}"),
        "adder" => format!("def main(event, context):\n    return 'adder {version}'\n"),
        _ => format!("import wheeled\ndef main(event, context):\n    return wheeled.word + ' {version}'\n"),
    }
}

fn file(name: &str) -> String {
    format!("{name}/{}", if name == "packed" { "handler.js" } else { "handler.py" })
}

/// Creates all Functions in their first version.
fn create(world: &mut World) {
    world.remote.file("packed/package.json", r#"{"dependencies":{"word":"file:./word"}}"#);
    world.remote.file("packed/word/package.json", r#"{"name":"word","version":"1.0.0"}"#);
    world.remote.file("packed/word/index.js", "module.exports = 'packed'");
    world.remote.file("wheeled/requirements.txt", "./wheeled-1.0-py3-none-any.whl\n");
    world.remote.file("wheeled/wheeled-1.0-py3-none-any.whl", wheel("wheeled", ""));
    for name in IN_GIT {
        world.remote.file(&file(name), code(name, 0));
    }
    world.remote.commit("the first version");
    for name in IN_GIT {
        world.git_function(name, &format!("/{name}"));
    }
    world.edit_function("wheeled", json!({"spec": {"runtime": "python312"}}));
    for name in INLINE {
        world.function(name, inline(&code(name, 0)));
    }
    world.edit_function("adder", json!({"spec": {"runtime": "python312", "maxReplicas": 2}}));
}

/// Changes a Function to another version.
fn change(world: &mut World, name: &str, version: u64) {
    if INLINE.contains(&name) {
        world.edit_function(name, json!({"spec": {"source": code(name, version)}}));
    } else {
        world.remote.file(&file(name), code(name, version)).commit("another version");
        world.look();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_kills_of_an_agent_with_real_builds_lose_nothing_and_build_nothing_twice() {
    let mut random = random();
    let mut world = World::with_processes().await;
    let builds = world.builds();
    create(&mut world);
    world.function("short", inline("module.exports = { main: () => 'short' }"));
    let mut versions = [0; 4];
    for round in 0..KILLS {
        // The pipeline of one Function alone has more writes.
        world.gate.shut_after(random.u64(1..=12) + if round == 0 { 20 } else { 0 });
        world.start();
        if round > 0 {
            let which = random.usize(..4);
            for which in [which, (which + 1) % 4] {
                versions[which] = round;
                change(&mut world, [INLINE, IN_GIT].as_flattened()[which], round);
            }
        }
        if round == 2 {
            world.delete_function("short");
        }
        let gate = world.gate.clone();
        let shut = tokio::time::timeout(world.patience, gate.shut()).await;
        assert!(shut.is_ok(), "round {round} made too few writes");
        world.kill().await;
        gate.open();
        if random.bool() {
            // Builds end while no agent runs.
            let ended = |w: &World| {
                let jobs = w.server.objects(JOBS.0, JOBS.1, None);
                jobs.iter().all(|job| job["status"]["conditions"].is_array())
            };
            world.until_function("the builds end by themselves", ended).await;
        }
    }
    world.start();
    for (name, version) in [INLINE, IN_GIT].as_flattened().iter().zip(versions) {
        world.runs(name).await;
        world.answers(name, &format!("200 {name} {version}")).await;
    }
    for (image, jobs) in builds.all() {
        assert_eq!(jobs.len(), 1, "{image} was built {} times: {jobs:?}", jobs.len());
    }
    world.until_function("nothing is left behind", |w| w.strays().is_empty()).await;
    assert_eq!(world.children("adder", AUTOSCALERS).len(), 1);
}
