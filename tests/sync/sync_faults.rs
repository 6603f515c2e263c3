//! Refused, lost or undone requests, and killed agents: nothing is lost, leaked or wrongly deleted.

use std::time::Duration;

use devcluster::fault_injection::Fault;
use serde_json::json;

use mainstay_testkit::{
    logs,
    world::{NAMESPACE, World, config_map},
};

/// Creates a world with four applied ConfigMaps. The next commit removes one and changes two.
async fn about_to_change() -> World {
    let mut world = World::new().await;
    for name in ["a", "b", "c", "leaves"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    world.synced(json!({})).await;
    world.remote.file("a.yaml", config_map("a", "2")).file("b.yaml", config_map("b", "2")).remove("leaves.yaml");
    world
}

/// Checks an apply of `b` that gets this response: everything else continues, pruning waits, the status has the reason,
/// and the GitSync recovers.
async fn refused(fault: Fault, said: &str, stalled: bool) {
    let mut world = about_to_change().await;
    let of_b = Fault { verb: "apply".into(), resource: "configmaps".into(), name: "b".into(), times: 1000, ..fault };
    if of_b.code == 422 {
        // An invalid object could not be created, either.
        world.levers().fail_next(Fault { verb: "create".into(), name: String::new(), ..of_b.clone() });
    }
    world.levers().fail_next(of_b);
    world.try_commit("demo", "two").await;
    world.condition_is("demo", "Ready", "False ApplyFailed").await;
    assert_eq!((world.data("a").as_str(), world.data("b").as_str()), ("2", "1"));
    assert_eq!(world.data("leaves"), "1", "nothing is pruned while something failed");
    let failure = world.failure("demo", "ConfigMap mainstay-tests/b");
    assert!(failure.contains(said), "{failure}");
    assert!(world.condition("demo", "Ready").contains("mainstay-tests/b"), "{}", world.condition("demo", "Ready"));
    assert!(world.condition("demo", "Stalled").starts_with(if stalled { "True" } else { "False" }));
    assert_eq!(world.status("demo")["failed"], 1);
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the others are kept", |w| w.data("a") == "2").await;
    world.levers().clear_faults();
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!((world.data("b").as_str(), world.data("leaves").as_str()), ("2", "absent"));
    assert_eq!(world.status("demo")["failed"], 0);
}

fn answer(code: u16, reason: &str, message: &str) -> Fault {
    Fault { code, reason: reason.into(), message: message.into(), ..Fault::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_object_holds_back_only_pruning() {
    refused(answer(422, "Invalid", "ConfigMap \"b\" is invalid: data: Invalid value: \"x\": no"), "422 Invalid", true)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_permission_holds_back_only_pruning() {
    let message =
        "configmaps \"b\" is forbidden: User \"agent\" cannot patch resource \"configmaps\" in API group \"\"";
    refused(answer(403, "Forbidden", message), "cannot patch", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_up_quota_holds_back_only_pruning() {
    refused(
        answer(403, "Forbidden", "configmaps \"b\" is forbidden: exceeded quota: q, used: 4"),
        "exceeded quota",
        false,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_that_stays_holds_back_only_pruning() {
    refused(answer(409, "Conflict", "the object has been modified"), "409 Conflict", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_fault_about_the_object_holds_back_only_pruning() {
    let message = "failed to create typed patch object: .bogus: field not declared in schema";
    refused(answer(500, "InternalError", message), "not declared in schema", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_overloaded_holds_back_only_pruning() {
    refused(Fault { code: 429, retry_after: Some(1), ..Fault::default() }, "429", false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn really_refused_objects_are_named_together_and_each_recovers() {
    let mut world = World::new().await;
    let unknown = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}], bogus: 1}\n";
    let invalid = config_map("Not_A_Name", "1");
    let homeless =
        config_map("homeless", "1").replace("name: homeless", "name: homeless\n  namespace: mainstay-tests-later");
    world.remote.file("a.yaml", config_map("a", "1")).file("s.yaml", unknown).file("i.yaml", invalid);
    world.remote.file("h.yaml", homeless).commit("one good, three bad");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ApplyFailed").await;
    assert_eq!(world.data("a"), "1");
    assert_eq!(world.status("demo")["failed"], 3, "{}", world.status("demo"));
    let said = |object: &str| world.failure("demo", object);
    assert!(
        said("Service mainstay-tests/s").contains("not declared in schema"),
        "{}",
        said("Service mainstay-tests/s")
    );
    assert!(
        said("ConfigMap mainstay-tests/Not_A_Name").contains("422"),
        "{}",
        said("ConfigMap mainstay-tests/Not_A_Name")
    );
    assert!(
        said("ConfigMap mainstay-tests-later/homeless").contains("404"),
        "{}",
        said("ConfigMap mainstay-tests-later/homeless")
    );
    world.create(
        "v1",
        "namespaces",
        "",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mainstay-tests-later"}}),
    );
    world
        .until("it is applied once its namespace is there", |w| {
            w.server.object("v1", "configmaps", "mainstay-tests-later", "homeless").is_some()
        })
        .await;
    world.remote.file("s.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n");
    world.remote.remove("i.yaml");
    world.commit("demo", "repaired").await;
    assert_eq!(world.status("demo")["failed"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminating_namespace_is_awaited_and_not_taken_for_a_missing_permission() {
    let mut world = World::new().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mainstay-tests-shop"}});
    world.create("v1", "namespaces", "", namespace.clone());
    let blocker = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "blocker", "namespace": "mainstay-tests-shop", "finalizers": ["example.org/wait"]}});
    world.create("v1", "configmaps", "mainstay-tests-shop", blocker);
    let delete = devcluster::Action::Delete(devcluster::verbs::delete::DeleteOptions::default());
    world.try_as("kubectl", devcluster::Call::new("v1", "namespaces", "", "mainstay-tests-shop", delete)).unwrap();
    world
        .remote
        .file("a.yaml", config_map("a", "1"))
        .file("b.yaml", config_map("b", "1").replace("name: b", "name: b\n  namespace: mainstay-tests-shop"));
    world.remote.commit("one");
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ApplyFailed").await;
    assert!(
        world.failure("demo", "ConfigMap mainstay-tests-shop/b").contains("being terminated"),
        "{}",
        world.status("demo")
    );
    assert!(world.condition("demo", "Stalled").starts_with("False"));
    assert_eq!(world.data("a"), "1");
    let free =
        devcluster::Action::Patch(devcluster::verbs::patch::Form::Merge, json!({"metadata": {"finalizers": null}}));
    world.try_as("kubectl", devcluster::Call::new("v1", "configmaps", "mainstay-tests-shop", "blocker", free)).unwrap();
    world
        .until("the namespace is gone", |w| w.server.object("v1", "namespaces", "", "mainstay-tests-shop").is_none())
        .await;
    world.create("v1", "namespaces", "", namespace);
    world.until("it is applied", |w| w.server.object("v1", "configmaps", "mainstay-tests-shop", "b").is_some()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_may_not_be_listed_holds_back_only_its_own_objects() {
    let mut world = World::new().await;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: x}\n---\n\
                  apiVersion: v1\nkind: Secret\nmetadata: {name: t}\nstringData: {password: x}\n";
    world.remote.file("a.yaml", config_map("a", "1")).file("s.yaml", secret).commit("one");
    let message = "secrets is forbidden: User \"agent\" cannot list resource \"secrets\" in API group \"\"";
    let fault =
        Fault { verb: "list".into(), resource: "secrets".into(), times: 1000, ..answer(403, "Forbidden", message) };
    world.levers().fail_next(fault);
    // The agent cannot list these Secrets of another user, so only the server refuses the apply.
    for name in ["s", "t"] {
        let theirs =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"password": "eQ=="}});
        world.create("v1", "secrets", NAMESPACE, theirs);
    }
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False").await;
    world.until("the others are applied", |w| w.data("a") == "1").await;
    world.condition_is("demo", "Ready", "False ApplyFailed").await;
    assert!(world.failure("demo", "Secret mainstay-tests/s").contains("403"), "{}", world.status("demo"));
    let password = |world: &World| world.get("v1", "secrets", "t").unwrap()["data"]["password"].clone();
    assert_eq!(password(&world), "eQ==", "it is not written over");
    world.levers().clear_faults();
    world.ask("demo").await;
    world.ready("demo").await;
    assert_eq!(password(&world), "eA==");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_object_of_another_directory_is_forgotten_with_it() {
    let mut world = World::new().await;
    world
        .remote
        .file("bad/i.yaml", config_map("Not_A_Name", "1"))
        .file("good/a.yaml", config_map("a", "1"))
        .commit("one");
    world.sync("demo", json!({"baseDir": "/bad"}));
    world.start();
    world.condition_is("demo", "Ready", "False ApplyFailed").await;
    world.change("demo", json!({"baseDir": "/good"})).await;
    world.ready("demo").await;
    assert_eq!((world.data("a").as_str(), &world.status("demo")["failed"]), ("1", &json!(0)));
}

/// Creates a world in which requests of every kind fail like this, or are executed and lose their responses.
async fn through_faults(code: u16, after: bool) {
    let mut world = World::new().await;
    for name in ["a", "b", "c"] {
        world.remote.file(&format!("{name}.yaml"), config_map(name, "1"));
    }
    world.remote.commit("one");
    world.sync("demo", json!({"interval": "1s"}));
    for verb in ["list", "apply", "patch", "delete"] {
        world.levers().fail_next(Fault { verb: verb.into(), code, after, times: 2, ..Fault::default() });
    }
    world.start();
    world.ready("demo").await;
    assert_eq!(world.config_maps(), ["a", "b", "c"], "{code} {after}");
    for verb in ["apply", "get", "delete"] {
        world.levers().fail_next(Fault { verb: verb.into(), code, after, times: 1, ..Fault::default() });
    }
    world.remote.file("a.yaml", config_map("a", "2")).remove("b.yaml").commit("two");
    world.request("demo");
    world.until("what left is gone", |w| w.config_maps() == ["a", "c"]).await;
    assert_eq!(world.data("a"), "2", "{code} {after}");
    world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_request_may_fail_or_lose_its_answer_and_the_branch_is_reached_all_the_same() {
    let faults = [(500, false), (503, false), (429, false), (503, true)];
    futures::future::join_all(faults.map(|(code, after)| through_faults(code, after))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retry_after_is_honoured() {
    let mut world = about_to_change().await;
    let fault =
        Fault { verb: "apply".into(), resource: "configmaps".into(), name: "b".into(), code: 429, ..Fault::default() };
    world.levers().fail_next(Fault { retry_after: Some(3), ..fault });
    let began = std::time::Instant::now();
    world.remote.commit("two");
    world.look();
    world.until("it is tried again", |w| w.data("b") == "2").await;
    assert!(began.elapsed() >= Duration::from_secs(3), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_the_server_quotes_appears_nowhere() {
    logs::keep();
    let value = "hunter2-very-private-9417";
    let encoded = "aHVudGVyMi12ZXJ5LXByaXZhdGUtOTQxNw==";
    let mut world = World::new().await;
    let secret = format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{password: {value}}}\n");
    let job = format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: j}}\nspec: {{ports: [{{port: 80}}], bogus: {value}}}\n"
    );
    world.remote.file("a.yaml", config_map("a", "1")).file("s.yaml", &secret).file("j.yaml", &job).commit("one");
    let quoted = |resource: &str, code: u16, message: String| {
        let verb = "apply".to_owned();
        world.levers().fail_next(Fault { verb, resource: resource.into(), times: 1000, ..answer(code, "", &message) });
    };
    quoted("secrets", 500, format!("cannot convert {value} ({encoded}) to a Secret"));
    quoted("services", 422, format!("Service \"j\" is invalid: spec.password: Invalid value: \"{value}\": no"));
    world.sync("demo", json!({}));
    world.start();
    world.condition_is("demo", "Ready", "False ApplyFailed").await;
    assert!(world.failure("demo", "Secret mainstay-tests/s").contains("500"), "{}", world.status("demo"));
    assert!(world.failure("demo", "Service mainstay-tests/j").contains("spec.password"), "{}", world.status("demo"));
    world
        .until("the Event is written", |w| {
            w.server.objects("events.k8s.io/v1", "events", None).iter().any(|event| event["reason"] == "Failed")
        })
        .await;
    let broken = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: t}}\ndata: {{password: \"{value} no base64\"}}\nstringData: [\"{value}\"]\n"
    );
    world.remote.file("t.yaml", broken).file("u.yaml", format!("{{{value}: [")).commit("two");
    world.ask("demo").await;
    world.condition_is("demo", "Ready", "False ManifestInvalid").await;
    world.kill().await;
    let mut told = String::new();
    while let Ok(message) = world.messages.try_recv() {
        told += &format!("{message} {message:?}\n");
    }
    let status = world.status("demo").to_string();
    let events = world.server.objects("events.k8s.io/v1", "events", None);
    let events = events.iter().map(ToString::to_string).collect::<String>();
    let logged = logs::text();
    assert!(logged.contains("mainstay-tests/demo"), "the log is kept");
    for (place, text) in [("status", &status), ("events", &events), ("messages", &told), ("logs", &logged)] {
        for secret in [value, encoded, "hunter2"] {
            let at = text.find(secret);
            assert!(at.is_none(), "{place}: {}", &text[at.unwrap().saturating_sub(300)..]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_agents_acts_and_the_other_takes_over_when_it_is_killed() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({"interval": "1s"}));
    world.start_as("first", true);
    world.ready("demo").await;
    let first = world.detach();
    world.start_as("second", true);
    let holder = |w: &World| {
        let lease = w.get("coordination.k8s.io/v1", "leases", "mainstay");
        lease.and_then(|l| l["spec"]["holderIdentity"].as_str().map(str::to_owned)).unwrap_or_default()
    };
    assert_eq!(holder(&world), "first");
    world.levers().reset_counts();
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("one agent reverts it", |w| w.data("a") == "1").await;
    world.remote.file("a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
    let applies = world.requests().into_iter().filter(|(name, _)| name == "apply configmaps");
    // The revert, the commit's object, and the inventory at most twice.
    assert!(applies.map(|(_, count)| count).sum::<u64>() <= 4, "{:?}", world.requests());
    assert_eq!(world.status("demo")["reverted"], 1);
    first.kill().await;
    // Running tasks of the first agent still finish and may revert this edit.
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the other agent takes over", |w| holder(w) == "second").await;
    world.until("the edit is reverted", |w| w.data("a") == "2").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "changed"}}));
    world.until("the other agent reverts it", |w| w.data("a") == "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_deletion_that_is_no_longer_wanted_has_not_failed() {
    let mut world = about_to_change().await;
    world.fail_next("delete", "configmaps", "leaves", 403, 1000);
    world.try_commit("demo", "two").await;
    world.condition_is("demo", "Ready", "False PruneFailed").await;
    world.change("demo", json!({"prune": false})).await;
    world.ready("demo").await;
    assert_eq!(world.data("leaves"), "1");
    assert_eq!(world.status("demo")["failed"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_was_being_deleted_when_the_commit_came_is_created_again_as_the_commit_has_it() {
    let mut world = about_to_change().await;
    world.edit("v1", "configmaps", "a", json!({"metadata": {"finalizers": ["test.example/wait"]}}));
    world.delete("v1", "configmaps", "a");
    world.try_commit("demo", "two").await;
    world.until("b is changed", |w| w.data("b") == "2").await;
    world.edit("v1", "configmaps", "a", json!({"metadata": {"finalizers": null}}));
    world.ready("demo").await;
    assert_eq!((world.data("a").as_str(), world.data("leaves").as_str()), ("2", "absent"));
    assert_eq!(world.status("demo")["failed"], 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_is_refused_again_and_again_is_written_less_and_less_often() {
    let mut world = World::new().await;
    world.remote.file("a.yaml", config_map("a", "1"));
    world.remote.commit("one");
    world.synced(json!({})).await;
    world.ready("demo").await;
    let writes = |world: &World| {
        let requests = world.requests().into_iter();
        let written = requests.filter(|(what, _)| what == "patch gitsyncs.mainstay.dev/status");
        written.map(|(_, count)| count).sum::<u64>()
    };
    let before = writes(&world);
    world.fail_next("patch", "gitsyncs.mainstay.dev/status", "demo", 403, 1000);
    world.request("demo");
    world.until("the answer to the request is refused", |w| writes(w) > before).await;
    // Each commit causes another attempt, and the request still has no response.
    for round in ["2", "3", "4", "5", "6", "7"] {
        world.remote.file("a.yaml", config_map("a", round));
        world.remote.commit(round);
        world.annotate_sync("demo", "mainstay.dev/round", round);
        world.until("the commit is applied", |w| w.data("a") == round).await;
    }
    let refused = writes(&world) - before;
    assert!(refused <= 2, "{refused} writes were refused");
    world.levers().clear_faults();
    // Another request is answered immediately.
    world.ask("demo").await;
}
