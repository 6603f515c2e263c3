//! SSH keys that the agent creates in Secrets with the label `mainstay.dev/generate`.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::{Action, Call, Caller, fault_injection::Fault, verbs::patch::Form};
use serde_json::json;

use mainstay_testkit::world::{NAMESPACE, World};

/// Creates a Secret that requests a key.
fn request(world: &World, name: &str) {
    let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {"mainstay.dev/generate": "ssh-key"}});
    world.create("v1", "secrets", NAMESPACE, json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata}));
}

fn has_key(world: &World, name: &str) -> bool {
    let data = world.get("v1", "secrets", name).map(|secret| secret["data"].clone());
    data.is_some_and(|data| data.as_object().is_some_and(|data| !data.is_empty()))
}

/// Refuses the next writes of a Secret.
fn refuse(world: &World, name: &str, retry_after: Option<u32>, times: u32) {
    let (verb, resource, name) = ("patch".to_owned(), "secrets".to_owned(), name.to_owned());
    world.levers().fail_next(Fault { verb, resource, name, code: 503, retry_after, times, ..Fault::default() });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_secret_delays_no_other_one() {
    let mut world = World::new().await;
    refuse(&world, "a", Some(3600), 1000);
    refuse(&world, "b", None, 2);
    for name in ["a", "b", "c"] {
        request(&world, name);
    }
    world.start();
    world.until("a later Secret of the list has a key", |world| has_key(world, "c")).await;
    request(&world, "d");
    world.until("a new Secret has a key", |world| has_key(world, "d")).await;
    world.until("a Secret that was refused twice has a key", |world| has_key(world, "b")).await;
    assert!(!has_key(&world, "a"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_secrets_are_not_listed_again() {
    let mut world = World::new().await;
    let names = ["a", "b", "c"];
    for name in names {
        refuse(&world, name, None, 1);
        request(&world, name);
    }
    world.gate.record();
    world.start();
    for name in names {
        world.until("a Secret that was refused once has a key", |world| has_key(world, name)).await;
    }
    let asked: Vec<String> = world.gate.heard().into_iter().map(|heard| heard.asked).collect();
    let is_list = |asked: &&String| !asked.contains("watch=true") || asked.contains("sendInitialEvents=true");
    let of_keys = asked.iter().filter(|asked| asked.contains("/secrets?") && asked.contains("ssh"));
    assert_eq!(of_keys.filter(is_list).count(), 1, "{asked:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_secret_that_changes_before_the_next_attempt_gets_no_key() {
    let mut world = World::new().await;
    // A user stores a key, or removes the label, immediately before the agent reads the Secret again.
    let changes = [
        ("with-key", json!({"stringData": {"identity": "theirs"}})),
        ("without-label", json!({"metadata": {"labels": {"mainstay.dev/generate": null}}})),
    ];
    for (name, patch) in changes {
        refuse(&world, name, None, 1);
        request(&world, name);
        let server = world.server.clone();
        world.gate.before(["get", "secrets", name], 1, move || {
            let action = Action::Patch(Form::Merge, patch.clone());
            server.call(&Caller::new("kubectl-edit"), Call::new("v1", "secrets", NAMESPACE, name, action)).unwrap();
        });
    }
    world.start();
    world.until("both have changed", |world| world.gate.interferences_left() == 0).await;
    // The agent makes one key after the other, so both attempts have ended before this one.
    request(&world, "later");
    world.until("a later Secret has a key", |world| has_key(world, "later")).await;
    let with_key = world.get("v1", "secrets", "with-key").unwrap();
    assert_eq!(with_key["data"], json!({"identity": BASE64_STANDARD.encode("theirs")}));
    assert!(!has_key(&world, "without-label"));
}
