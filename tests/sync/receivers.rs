//! Receivers: a Git host reports a push, and only the affected GitSyncs look up their remote immediately.

use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use devcluster::Options;
use serde_json::json;

use mainstay_testkit::{
    canary::nothing_is_shown,
    git_server::{Fault, GitServer, On},
    listener::metrics_are,
    logs,
    remote::{NAME, Remote as Origin},
    webhooks::{client, deliver, listening, push, send, signature},
    world::{NAMESPACE, World, condition_of, config_map, free_address},
};

pub(super) const TOKEN: &str = "canary-of-the-token";
const ANOTHER: &str = "another-token-of-enough-bytes";
const MAIN: &str = "refs/heads/main";
const NOBODY: &str = "nothing to do: no GitSync, Function or artifact of this Receiver follows the repository and reference that the \
                      delivery names";

/// Creates a world whose GitSync `demo` follows the repository `shop` on a Git server, with a poll interval of ten
/// minutes. Also returns the URL of its Receiver `hook`.
async fn followed() -> (World, GitServer, String) {
    followed_in(World::with_functions().await).await
}

pub(super) async fn followed_in(mut world: World) -> (World, GitServer, String) {
    world.listen = Some(free_address());
    world.receive = Some(listening());
    world.functions.git_interval = Duration::from_secs(600);
    world.remote.file("objects/a.yaml", config_map("a", "1")).file("hello/handler.js", "1").commit("one");
    let server = GitServer::start(world.remote.root()).await;
    world.repository("shop", &server.url(NAME));
    world.set_secret("hook", json!({"token": TOKEN}));
    world.receiver("hook", json!({}));
    world.sync("demo", json!({"gitRepository": "shop", "baseDir": "/objects", "interval": "10m"}));
    world.start();
    world.ready("demo").await;
    let url = world.receiver_url("hook").await;
    (world, server, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_is_applied_at_once_with_one_lookup_for_all_consumers() {
    let (mut world, server, url) = followed().await;
    world.sync("again", json!({"gitRepository": "shop", "baseDir": "/objects", "interval": "10m", "suspend": true}));
    world.git_function_of("shop", "hello", "/hello");
    let own = json!({
        "runtime": "nodejs22", "type": "git", "source": "", "gitRepository": {"url": server.url(NAME)}, "reference": "main",
        "baseDir": "/hello",
    });
    world.function("own", own);
    world.runs("hello").await;
    world.runs("own").await;
    world.remote.branch("dev").file("objects/a.yaml", config_map("dev", "1")).commit("dev");
    world.sync("dev", json!({"gitRepository": "shop", "baseDir": "/objects", "interval": "10m", "reference": "dev"}));
    world.ready("dev").await;

    world.remote.branch("main").file("objects/a.yaml", config_map("a", "2")).file("hello/handler.js", "2");
    let head = world.remote.commit("two");
    let before = world.lookups().await;
    let (status, text) = deliver(&url, TOKEN, &push(&server.url(NAME), MAIN)).await;
    let all = "looking up the remote for Function hello, Function own, GitSync again, GitSync demo";
    assert_eq!((status, text.as_str()), (200, all));
    world.until("the push is applied", |w| w.data("a") == "2").await;
    world.ready_at("demo", &head).await;
    for name in ["hello", "own"] {
        world.until_function("the Function follows", |w| w.function_status(name)["commit"] == *head).await;
    }
    assert_eq!(world.lookups().await - before, 1, "one request for all of them");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delivery_about_an_unknown_repository_causes_no_lookup() {
    let (mut world, server, url) = followed().await;
    let mut other = Origin::new();
    other.file("objects/b.yaml", config_map("b", "1")).commit("one");
    let other = GitServer::start(other.root()).await;
    world.repository("other", &other.url(NAME));
    world.sync("other", json!({"gitRepository": "other", "baseDir": "/objects", "interval": "10m"}));
    world.until("the other one is applied", |w| w.data("b") == "1").await;
    world.receiver("narrow", json!({"repositories": ["shop"]}));
    let narrow = world.receiver_url("narrow").await;
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    let before = world.lookups().await;
    for body in [
        push(&server.url(NAME), "refs/heads/dev"),
        push(&server.url(NAME), "refs/tags/v1"),
        push("https://example.org/team/shop.git", MAIN),
        push(&format!("{}x", server.url(NAME)), MAIN),
    ] {
        assert_eq!(deliver(&url, TOKEN, &body).await, (200, NOBODY.to_owned()), "{body}");
    }
    for body in [push("", MAIN), "{}".to_owned()] {
        let (status, text) = deliver(&url, TOKEN, &body).await;
        assert_eq!(
            (status, text.starts_with("nothing to do: the delivery names no repository")),
            (200, true),
            "{text}"
        );
    }
    assert_eq!(deliver(&narrow, TOKEN, &push(&other.url(NAME), MAIN)).await, (200, NOBODY.to_owned()));
    assert_eq!(world.lookups().await, before, "nothing was asked");
    let woken = deliver(&url, TOKEN, &push(&other.url(NAME), MAIN)).await;
    assert_eq!(woken, (200, "looking up the remote for GitSync other".to_owned()));
    world.until("its remote is asked", |w| w.data("b") == "1").await;
    assert_eq!(world.data("a"), "1", "what was pushed to the first repository is not looked for");
    deliver(&narrow, TOKEN, &push(&server.url(NAME), MAIN)).await;
    world.until("the push is applied", |w| w.data("a") == "2").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_names_missing_sources_until_they_exist() {
    let (world, server, _) = followed().await;
    world.receiver("early", json!({"repositories": ["later"]}));
    let nothing = "True SourceNotFound: no delivery has an effect; no GitRepository, OCIRepository or HelmChart of this \
                   namespace is named later";
    world.receiver_is("early", nothing).await;
    world.repository("later", &server.url(NAME));
    world.receiver_is("early", "True Receiving: receives for later").await;
    world.sync("later", json!({"gitRepository": "later", "baseDir": "/objects", "interval": "10m", "suspend": true}));
    let url = world.receiver_url("early").await;
    let woken = async {
        while deliver(&url, TOKEN, &push(&server.url(NAME), MAIN)).await.1 != "looking up the remote for GitSync later"
        {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    assert!(tokio::time::timeout(mainstay_testkit::PATIENCE, woken).await.is_ok(), "the delivery has an effect");
    world.change_receiver("early", json!({"repositories": ["later", "other"]}));
    world.receiver_is("early", "True SourceNotFound: receives for 1 of 2 objects; no ").await;
    let ready = |w: &World| condition_of(&w.receiver_status("early"), "Ready");
    assert!(ready(&world).contains("is named other (spec.repositories)"), "{}", ready(&world));
    world.delete("serverless.kyma-project.io/v1alpha1", "gitrepositories", "later");
    world.until("both are named", |w| ready(w).contains("is named later or other (spec.repositories)")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_is_followed_by_its_id_is_moved_by_no_push_and_the_answer_says_so() {
    let (world, server, url) = followed().await;
    let head = world.remote.head();
    let fixed = json!({"gitRepository": "shop", "baseDir": "/none", "reference": head});
    world.sync("fixed", fixed.clone());
    world.condition_is("fixed", "Ready", "False SourceInvalid").await;
    let before = world.lookups().await;
    let (status, text) = deliver(&url, TOKEN, &push(&server.url(NAME), "refs/heads/dev")).await;
    let one = "nothing to do: no GitSync, Function or artifact of this Receiver follows the reference that the delivery names; one follows \
               a fixed commit of the repository, which a push does not change";
    assert_eq!((status, text.as_str()), (200, one));
    world.sync("again", fixed);
    world.condition_is("again", "Ready", "False SourceInvalid").await;
    let (_, text) = deliver(&url, TOKEN, &push(&server.url(NAME), "refs/heads/dev")).await;
    assert_eq!(text, one.replace("one follows", "2 follow"));
    assert_eq!(world.lookups().await, before, "nothing was asked");
    // A GitSync that follows the branch is named as before.
    let woken = deliver(&url, TOKEN, &push(&server.url(NAME), MAIN)).await;
    assert_eq!(woken, (200, "looking up the remote for GitSync demo".to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_replayed_deliveries_costs_a_lookup_a_second_and_the_last_one_counts() {
    let (mut world, server, url) = followed().await;
    let body = push(&server.url(NAME), MAIN);
    let (before, began) = (world.lookups().await, Instant::now());
    for _ in 0..300 {
        assert_eq!(deliver(&url, TOKEN, &body).await.0, 200);
    }
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    assert_eq!(deliver(&url, TOKEN, &body).await.0, 200);
    world.until("the last push is applied", |w| w.data("a") == "2").await;
    let (lookups, seconds) = (world.lookups().await - before, began.elapsed().as_secs());
    assert!(lookups <= seconds + 2, "{lookups} lookups in {seconds} s");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_does_not_disturb_a_server_that_asks_to_be_left_alone() {
    let (mut world, server, url) = followed().await;
    world.git_function_of("shop", "hello", "/hello");
    world.runs("hello").await;
    let body = push(&server.url(NAME), MAIN);
    server.fail(On::Everything, Fault::RetryAfter(3600));
    assert_eq!(deliver(&url, TOKEN, &body).await.0, 200);
    world.condition_is("demo", "Reconciling", "True SourceUnavailable").await;
    world.says("hello", "ConfigurationReady", "False").await;
    let before = world.lookups().await;
    for _ in 0..3 {
        assert_eq!(deliver(&url, TOKEN, &body).await.0, 200);
        world.quiet().await;
    }
    assert_eq!(world.lookups().await, before);
    // A sync request by a user still works.
    server.heal();
    world.remote.file("objects/a.yaml", config_map("a", "2"));
    world.commit("demo", "two").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_token_changes_the_path_and_the_old_path_is_not_found() {
    let (mut world, server, old) = followed().await;
    let body = push(&server.url(NAME), MAIN);
    assert_eq!(deliver(&old, TOKEN, &body).await.0, 200);
    world.set_secret("hook", json!({"token": ANOTHER}));
    world.until("the path is another", |w| w.receiver_status("hook")["url"] != *old).await;
    let new = world.receiver_url("hook").await;
    let nobody = (404, "not found".to_owned());
    assert_eq!(deliver(&old, TOKEN, &body).await, nobody);
    assert_eq!(deliver(&old, ANOTHER, &body).await, nobody);
    let wrong = (400, "the header X-Hub-Signature-256 does not match the token of the Receiver".to_owned());
    assert_eq!(deliver(&new, TOKEN, &body).await, wrong);
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    assert_eq!(deliver(&new, ANOTHER, &body).await.0, 200);
    world.until("the push is applied", |w| w.data("a") == "2").await;

    world.delete("v1", "secrets", "hook");
    world.receiver_is("hook", "False TokenNotFound: Secret hook does not exist in this namespace").await;
    assert_eq!(world.receiver_status("hook")["webhookPath"], json!(null));
    assert_eq!(deliver(&new, ANOTHER, &body).await, nobody);
    world.set_secret("hook", json!({"token": ANOTHER}));
    assert_eq!(world.receiver_url("hook").await, new, "the same token has the same path");
    assert_eq!(deliver(&new, ANOTHER, &body).await.0, 200);
    world.delete("mainstay.dev/v1alpha1", "receivers", "hook");
    world.until("the Receiver is gone", |w| w.receiver_status("hook").is_null()).await;
    let gone = async {
        while deliver(&new, ANOTHER, &body).await.0 != 404 {
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    };
    assert!(tokio::time::timeout(mainstay_testkit::PATIENCE, gone).await.is_ok(), "the path is nobody's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generic_receiver_accepts_every_request_to_its_path() {
    let (mut world, _server, _) = followed().await;
    world.receiver("any", json!({"type": "generic", "repositories": ["shop"]}));
    let url = world.receiver_url("any").await;
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    let woken = send(client().post(&url)).await;
    assert_eq!(woken, (200, "looking up the remote for GitSync demo".to_owned()));
    world.until("the push is applied", |w| w.data("a") == "2").await;
    world.set_secret("hook", json!({"token": "short"}));
    world.receiver_is("any", "False TokenInvalid: the key token of Secret hook has less than 16 bytes").await;
    assert_eq!(send(client().post(&url)).await.0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_cannot_be_read_harms_only_itself() {
    // The test changes the definition, so it needs a cluster of its own.
    let (mut world, server, url) = followed_in(World::with_functions_on(Options::default())).await;
    let loose = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": loose}]);
    let definition = devcluster::Call::new(
        "apiextensions.k8s.io/v1",
        "customresourcedefinitions",
        "",
        "receivers.mainstay.dev",
        devcluster::Action::Patch(devcluster::verbs::patch::Form::Json, version),
    );
    world.try_as("test", definition).unwrap();
    world.receiver("unknown", json!({"type": "svn"}));
    world.receiver("unreadable", json!({"secretRef": 7, "events": "push"}));
    world.receiver_is("unknown", "False SpecInvalid: spec.type must be one of github, gitlab").await;
    assert!(condition_of(&world.receiver_status("unknown"), "Stalled").starts_with("True SpecInvalid"));
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    assert_eq!(deliver(&url, TOKEN, &push(&server.url(NAME), MAIN)).await.0, 200);
    world.until("the push is applied", |w| w.data("a") == "2").await;
    assert_eq!(world.receiver_status("unreadable"), json!(null));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_lead_requests_redelivery() {
    let mut world = World::new().await;
    world.set_secret("hook", json!({"token": TOKEN}));
    world.receiver("hook", json!({}));
    world.remote.file("a.yaml", config_map("a", "1")).commit("one");
    world.sync("demo", json!({}));
    world.receive = Some(listening());
    world.start_as("first", true);
    world.ready("demo").await;
    let url = world.receiver_url("hook").await;
    let body = push("https://example.org/a", MAIN);
    assert_eq!(deliver(&url, TOKEN, &body).await, (200, NOBODY.to_owned()));
    let first = world.detach();
    let second = listening();
    let path = world.receiver_status("hook")["webhookPath"].as_str().unwrap().to_owned();
    let other = format!("http://{}{path}", second.address().unwrap());
    world.receive = Some(second);
    world.start_as("second", true);
    let (status, text) = deliver(&other, TOKEN, &body).await;
    assert_eq!((status, text.as_str()), (503, "this agent is not the leader; redeliver the webhook"));
    assert_eq!(send(client().post(other.replace("/hook/", "/other/"))).await.0, 503, "nothing is known there");
    first.kill().await;
    let taken_over = async {
        while deliver(&other, TOKEN, &body).await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(tokio::time::timeout(mainstay_testkit::PATIENCE, taken_over).await.is_ok(), "the other one leads");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_part_of_a_token_is_shown() {
    logs::keep();
    let (mut world, server, url) = followed().await;
    let body = push(&server.url(NAME), MAIN);
    assert_eq!(deliver(&url, TOKEN, &body).await.0, 200);
    let (status, text) = deliver(&url, "guessed", &body).await;
    assert_eq!(status, 400);
    assert!(!text.contains(TOKEN));
    world
        .until("an Event says that a delivery was refused", |w| {
            let events = w.server.objects("v1", "events", Some(NAMESPACE));
            let about = |event: &serde_json::Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
            events.iter().any(|event| {
                about(event, "reason") == "DeliveryRefused" && event["involvedObject"]["kind"] == "Receiver"
            })
        })
        .await;
    let refused = r#"mainstay_receiver_deliveries_total{type="github",outcome="refused"} 1"#;
    metrics_are(&world, "deliveries are counted", |text| text.contains(refused) && !text.contains(TOKEN)).await;
    let path = world.receiver_status("hook")["webhookPath"].as_str().unwrap().to_owned();
    let hidden = [TOKEN, &signature(TOKEN, &body)];
    assert!(!world.receiver_status("hook").to_string().contains(TOKEN));
    let logged = logs::text();
    assert!(logged.contains("a delivery was refused"), "the log was kept");
    for word in hidden.into_iter().chain([path.as_str()]) {
        assert!(!logged.contains(word), "{word} is in the log");
    }
    nothing_is_shown(&mut world, &hidden).await;
}

/// Returns headers and body of the documented push notification to `main` from a host of this type.
fn reported(kind: &str, token: &str, url: &str) -> (Vec<(&'static str, String)>, String) {
    let project = json!({"git_http_url": url, "git_ssh_url": "git@h:team/shop.git", "default_branch": "main"});
    let update = json!({"name": MAIN, "oldObjectId": "0", "newObjectId": "1"});
    let repository = json!({"name": "shop", "remoteUrl": url, "defaultBranch": MAIN, "project": {"name": "team"}});
    let change = json!({"ref": {"id": MAIN, "displayId": "main", "type": "BRANCH"}, "refId": MAIN, "type": "UPDATE"});
    let links = json!({"clone": [{"href": url, "name": "http"}]});
    let body = match kind {
        "gitlab" => json!({"object_kind": "push", "event_name": "push", "ref": MAIN, "project": project}),
        "bitbucket" => json!({
            "eventKey": "repo:refs_changed", "changes": [change],
            "repository": {"slug": "shop", "project": {"key": "TEAM"}, "links": links},
        }),
        "azure-devops" => json!({
            "eventType": "git.push", "publisherId": "tfs", "resource": {"refUpdates": [update], "repository": repository},
        }),
        "generic-hmac" => json!({"repository": url, "ref": "main"}),
        _ => json!({"ref": MAIN, "repository": {"clone_url": url, "default_branch": "main"}}),
    };
    let body = body.to_string();
    let (tag, login) = (signature(token, &body), BASE64_STANDARD.encode(format!("hook:{token}")));
    let headers = match kind {
        "gitlab" => vec![("X-Gitlab-Event", "Push Hook".to_owned()), ("X-Gitlab-Token", token.to_owned())],
        "gitea" => vec![("X-Gitea-Event", "push".to_owned()), ("X-Gitea-Signature", tag.replace("sha256=", ""))],
        "bitbucket" => vec![("X-Event-Key", "repo:refs_changed".to_owned()), ("X-Hub-Signature", tag)],
        "azure-devops" => vec![("Authorization", format!("Basic {login}"))],
        "generic-hmac" => vec![("X-Signature", tag)],
        _ => vec![("X-GitHub-Event", "push".to_owned()), ("X-Hub-Signature-256", tag)],
    };
    (headers, body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_of_each_type_of_host_is_applied_and_one_with_another_token_is_refused() {
    let (mut world, server, _) = followed().await;
    let kinds = ["github", "gitlab", "gitea", "bitbucket", "azure-devops", "generic-hmac", "generic"];
    for (number, kind) in kinds.into_iter().enumerate() {
        world.receiver(kind, json!({"type": kind}));
        let url = world.receiver_url(kind).await;
        let deliver = async |token: &str| {
            let (headers, body) = reported(kind, token, &server.url(NAME));
            let request =
                headers.into_iter().fold(client().post(&url), |request, (name, value)| request.header(name, value));
            send(request.header("Content-Type", "application/json").body(body)).await
        };
        let value = format!("{}", number + 2);
        world.remote.file("objects/a.yaml", config_map("a", &value)).commit(kind);
        let before = world.lookups().await;
        // For type `generic`, the path is the only secret.
        if kind != "generic" {
            let (status, text) = deliver("guess").await;
            let header = reported(kind, "", "").0.pop().unwrap().0;
            let wrong = format!("the header {header} does not match the token of the Receiver");
            assert_eq!((status, text), (400, wrong), "{kind}");
            assert_eq!(world.lookups().await, before, "{kind}");
        }
        assert_eq!(deliver(TOKEN).await, (200, "looking up the remote for GitSync demo".to_owned()), "{kind}");
        world.until(&format!("the push of {kind} is applied"), |w| w.data("a") == value).await;
    }
}
