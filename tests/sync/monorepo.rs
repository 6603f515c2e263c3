//! Very many GitSyncs or Functions in one repository. A commit costs one lookup and one fetch, and only affected ones
//! apply or build.

use std::time::Duration;

use serde_json::json;

use mainstay_testkit::{
    git_server::GitServer,
    listener::metrics,
    remote::NAME,
    webhooks::{deliver, listening, push},
    world::{NAMESPACE, World, config_map, free_address},
};

/// Number of GitSyncs, each with its own directory.
const SYNCS: usize = 300;
/// Number of the GitSync whose directory changes.
const CHANGED: usize = 123;

/// Number of Functions, each with its own directory.
const FUNCTIONS: usize = 50;

const TOKEN: &str = "a-token-of-enough-bytes";

fn name(number: usize) -> String {
    format!("team-{number:03}")
}

/// Returns the requests by `<verb> <resource>` since `before`.
fn since(before: &[(String, u64)], now: Vec<(String, u64)>) -> Vec<(String, u64)> {
    let earlier = |name: &str| before.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
    let mut counts: Vec<_> = now.into_iter().map(|(name, count)| (earlier(&name), name, count)).collect();
    counts.retain(|(earlier, _, count)| count > earlier);
    counts.into_iter().map(|(earlier, name, count)| (name, count - earlier)).collect()
}

/// Returns the number of reconciles of GitSyncs so far.
async fn reconciles(world: &World) -> u64 {
    let text = metrics(world).await;
    let count = text.lines().find_map(|line| line.strip_prefix("mainstay_reconciles_total ")).unwrap();
    count.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_in_one_of_300_directories_costs_one_lookup_one_fetch_and_one_apply() {
    let mut world = World::new().await;
    world.patience *= 3;
    world.receive = Some(listening());
    world.listen = Some(free_address());
    world.set_secret("hook", json!({"token": TOKEN}));
    world.receiver("hook", json!({}));
    for number in 0..SYNCS {
        world.remote.file(&format!("{}/a.yaml", name(number)), config_map(&name(number), "1"));
    }
    let first = world.remote.commit("first");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("mono", &server.url(NAME));
    for number in 0..SYNCS {
        world.sync(&name(number), json!({"gitRepository": "mono", "baseDir": format!("/{}", name(number))}));
    }
    world.start();
    let all_at = |world: &World, commit: &str| {
        (0..SYNCS).all(|number| {
            let status = world.status(&name(number));
            status["appliedCommit"] == commit && status["attemptedCommit"] == commit
        })
    };
    world.until("all are applied", |w| all_at(w, &first)).await;
    let url = world.receiver_url("hook").await;
    world.quiet().await;
    let counts = server.take_counts();
    assert_eq!(counts.packs, 1, "the first commit is fetched once: {counts:?}");

    let before = world.requests();
    let reconciled = reconciles(&world).await;
    let version = |world: &World, number| {
        world.get("v1", "configmaps", &name(number)).unwrap()["metadata"]["resourceVersion"].clone()
    };
    let versions: Vec<_> = (0..SYNCS).map(|number| version(&world, number)).collect();
    world.remote.file(&format!("{}/a.yaml", name(CHANGED)), config_map(&name(CHANGED), "2"));
    let second = world.remote.commit("one directory");
    // All GitSyncs are woken at the same time.
    assert_eq!(deliver(&url, TOKEN, &push(&server.url(NAME), "refs/heads/main")).await.0, 200);
    world.until("all have seen it", |w| all_at(w, &second)).await;
    world.quiet().await;
    assert_eq!(world.data(&name(CHANGED)), "2");
    for (number, old) in versions.iter().enumerate() {
        assert_eq!(version(&world, number) != *old, number == CHANGED, "{}", name(number));
    }

    // A push and the GitSync's own status each cause a reconcile. A GitSync that changes objects reports twice. There
    // are no other causes.
    let reconciled = reconciles(&world).await - reconciled;
    assert!(reconciled <= 4 * SYNCS as u64, "{reconciled} reconciles of {SYNCS} GitSyncs");
    let counts = server.take_counts();
    assert_eq!((counts.packs, counts.requests - counts.packs), (1, 1), "one fetch and one lookup: {counts:?}");
    let requests = since(&before, world.requests());
    let of = |verb: &str, resource: &str| {
        let name = format!("{verb} {resource}");
        requests.iter().find(|(other, _)| *other == name).map_or(0, |(_, count)| *count)
    };
    assert_eq!(of("apply", "configmaps"), 2, "the object and the inventory of its GitSync: {requests:?}");
    // Each GitSync updates the commit in its status.
    assert_eq!(of("patch", "gitsyncs.mainstay.dev/status"), SYNCS as u64, "{requests:?}");
    // The Event of the GitSync that changes is behind those of the first sync, which are written at a limited rate.
    let about_second = |world: &World| {
        let events = world.server.objects("v1", "events", Some(NAMESPACE));
        let notes = events.iter().filter(|event| event["message"].to_string().contains(&second[..7]));
        notes.map(|event| event["involvedObject"]["name"].to_string()).collect::<Vec<_>>()
    };
    world.until("the change has its Event", |w| !about_second(w).is_empty()).await;
    world.quiet().await;
    let about = about_second(&world);
    assert_eq!(about, [format!("{:?}", name(CHANGED))], "commits elsewhere have no Events");
    let known = ["apply configmaps", "patch gitsyncs.mainstay.dev/status", "create events"];
    assert!(requests.iter().all(|(name, _)| known.contains(&name.as_str())), "{requests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_in_the_directory_of_one_of_50_functions_costs_one_lookup_one_fetch_and_one_build() {
    let mut world = World::with_functions().await;
    world.patience *= 3;
    world.receive = Some(listening());
    world.functions.git_interval = Duration::from_secs(3600);
    world.functions.git_fetch_requeue = Duration::from_secs(3600);
    world.set_secret("hook", json!({"token": TOKEN}));
    world.receiver("hook", json!({}));
    for number in 0..FUNCTIONS {
        let file = |file: &str| format!("{}/{file}", name(number));
        world.remote.file(&file("handler.js"), format!("// {number}")).file(&file("package.json"), "{}");
    }
    world.remote.commit("first");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("mono", &server.url(NAME));
    for number in 0..FUNCTIONS {
        world.git_function_of("mono", &name(number), &format!("/{}", name(number)));
    }
    let builds = world.builds();
    world.start();
    world.until_function("all run", |w| (0..FUNCTIONS).all(|number| w.is_running(&name(number)))).await;
    let url = world.receiver_url("hook").await;
    world.quiet().await;
    let (counts, first_builds) = (server.take_counts(), builds.all());
    assert_eq!((counts.packs, first_builds.len()), (1, FUNCTIONS), "{counts:?}");

    world.remote.file(&format!("{}/handler.js", name(7)), "// changed");
    let second = world.remote.commit("one directory");
    assert_eq!(deliver(&url, TOKEN, &push(&server.url(NAME), "refs/heads/main")).await.0, 200);
    world.until_function("it is seen", |w| w.function_status(&name(7))["commit"] == *second).await;
    world.until_function("it runs", |w| w.is_running(&name(7)) && builds.all().len() > FUNCTIONS).await;
    world.quiet().await;
    let counts = server.take_counts();
    assert_eq!((counts.packs, counts.requests - counts.packs), (1, 1), "one fetch and one lookup: {counts:?}");
    let all = builds.all();
    assert_eq!(all.len(), FUNCTIONS + 1);
    let jobs: Vec<_> =
        all.iter().filter(|(image, _)| !first_builds.contains_key(*image)).map(|(_, jobs)| jobs).collect();
    assert!(jobs.len() == 1 && jobs[0].len() == 1 && jobs[0][0].starts_with(&name(7)), "{jobs:?}");
}
