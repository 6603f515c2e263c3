//! The requests that a GitSync causes at the API server. Their number does not grow with the number of GitSyncs.

use std::time::{Duration, Instant};

use serde_json::json;

use mainstay_testkit::world::{World, config_map};

/// Requests for a new GitSync of four objects, at most, besides its Event: four applies, two writes of the inventory, and
/// two of the status.
const NEW: u64 = 8;
/// Requests for a commit that changes all four, at most, besides its Event: four applies, the inventory, the status.
const CHANGED: u64 = 6;
/// Time after which a running attempt is shown in its status, as in `running` of mainstay-gitsync.
const QUICK: Duration = Duration::from_secs(5);
/// Minimum time between two such writes of all attempts, as in `urgency` of mainstay-gitsync.
const BETWEEN: Duration = Duration::from_millis(250);

/// Writes the files of the four objects of a GitSync.
fn write(world: &mut World, name: &str, value: &str) {
    let object = |kind: &str, rest: &str| format!("kind: {kind}\nmetadata:\n  name: {name}\n{rest}");
    let secret = object("Secret", &format!("stringData:\n  key: \"{value}\"\n"));
    let account = object("ServiceAccount", &format!("automountServiceAccountToken: {}\n", value == "1"));
    let service = object("Service", &format!("spec:\n  ports:\n  - port: 8{value}\n"));
    world.remote.file(&format!("{name}/map.yaml"), config_map(name, value));
    for (file, text) in [("secret", secret), ("account", account), ("service", service)] {
        world.remote.file(&format!("{name}/{file}.yaml"), format!("apiVersion: v1\n{text}"));
    }
}

/// Requests by `<verb> <resource>`.
#[derive(Debug)]
struct Counts(Vec<(String, u64)>);

impl Counts {
    fn of(world: &World) -> Self {
        Self(world.requests())
    }

    fn since(&self, world: &World) -> Self {
        let earlier = |name: &str| self.0.iter().find(|(other, _)| other == name).map_or(0, |(_, count)| *count);
        let counts = world.requests().into_iter().map(|(name, count)| (earlier(&name), name, count));
        Self(counts.map(|(earlier, name, count)| (name, count - earlier)).filter(|(_, count)| *count > 0).collect())
    }

    fn sum(&self, counts: impl Fn(&str) -> bool) -> u64 {
        self.0.iter().filter(|(name, _)| counts(name)).map(|(_, count)| count).sum()
    }
}

/// The requests of a part of the test.
#[derive(Debug)]
struct Phase {
    counts: Counts,
    /// Maximum number of statuses that showed running attempts. It is 0 unless the phase took longer than [`QUICK`], for
    /// example on a machine with other work.
    shown: u64,
}

impl Phase {
    /// Returns the phase that began at a time with these counts and ends now.
    fn since(began: Instant, before: &Counts, world: &World) -> Self {
        let counts = before.since(world);
        let late = began.elapsed().saturating_sub(QUICK);
        let turns = u64::try_from(late.as_millis() / BETWEEN.as_millis()).unwrap();
        Self { counts, shown: if late.is_zero() { 0 } else { turns + 1 } }
    }

    fn sum(&self, counts: impl Fn(&str) -> bool) -> u64 {
        self.counts.sum(counts)
    }
}

fn is_event(name: &str) -> bool {
    name.contains("events")
}

/// Returns the requests of `number` GitSyncs of four objects each: for their creation, and for a commit that changes
/// all objects. Another GitSync existed before, so that the watches of their kinds are open.
async fn costs(number: usize) -> (Phase, Phase) {
    let mut world = World::new().await;
    world.patience *= 3;
    let names: Vec<_> = (0..number).map(|number| format!("team-{number:02}")).collect();
    for name in names.iter().map(String::as_str).chain(["first"]) {
        write(&mut world, name, "1");
    }
    let one = world.remote.commit("one");
    world.sync("first", json!({"baseDir": "/first"}));
    world.start();
    world.ready("first").await;
    world.until("its Event is written", |w| Counts::of(w).sum(is_event) > 0).await;
    let (before, began) = (Counts::of(&world), Instant::now());
    for name in &names {
        world.sync(name, json!({"baseDir": format!("/{name}")}));
    }
    for name in &names {
        world.ready_at(name, &one).await;
    }
    world.until("an Event is written", |w| before.since(w).sum(is_event) > 0).await;
    let new = Phase::since(began, &before, &world);
    let (before, began) = (Counts::of(&world), Instant::now());
    for name in &names {
        write(&mut world, name, "2");
    }
    let two = world.remote.commit("two");
    world.look();
    for name in names.iter().map(String::as_str).chain(["first"]) {
        world.ready_at(name, &two).await;
    }
    (new, Phase::since(began, &before, &world))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_git_sync_costs_eight_requests_and_no_list_however_many_there_are() {
    for number in [1, 50] {
        let (new, changed) = costs(number).await;
        let number = number as u64;
        println!("{number}: new {new:?}; changed {changed:?}");
        assert_eq!(new.sum(|name| name.starts_with("list") || name.starts_with("get")), 0, "{new:?}");
        // On a slow machine, the Events of several GitSyncs are further apart, so that fewer are summed up.
        assert!(new.sum(|name| !is_event(name)) <= NEW * number + new.shown, "{number}: {new:?}");
        assert!(new.sum(is_event) <= number, "{number}: {new:?}");
        assert_eq!(changed.sum(|name| name.starts_with("list") || name.starts_with("get")), 0, "{changed:?}");
        // The GitSync that existed before names the commit, too.
        let (status, rest) = ("patch gitsyncs.mainstay.dev/status", |name: &str| !is_event(name));
        assert!(changed.sum(rest) <= CHANGED * number + 1 + changed.shown, "{number}: {changed:?}");
        assert!(changed.sum(|name| name == status) <= number + 1 + changed.shown, "{number}: {changed:?}");
    }
}
