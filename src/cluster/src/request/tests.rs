//! Requests on the wire for each verb, and the results of their responses.

use futures::{FutureExt, StreamExt};
use serde_json::json;

use super::super::apply::{Apply, Part, Persistence};
use super::super::connect::IN_FLIGHT;
use super::super::delete::{Guard, Propagation, Removal};
use super::super::fake;
use super::super::kind::tests::kind;
use super::super::selection::Selection;
use super::*;
use mainstay_object::failure::Class;

fn config_maps() -> Arc<Kind> {
    Arc::new(kind("v1", "ConfigMap", "configmaps", true))
}

const ONE: &str = "/api/v1/namespaces/a/configmaps/b";

#[tokio::test]
async fn applies_with_manager_force_and_strict_validation() {
    let (cluster, mut server) = fake::cluster();
    let body = json!({ "apiVersion": "v1", "kind": "ConfigMap" });
    let how = Apply::forced("mainstay").dry_run();
    let kind = config_maps();
    let (applied, sent) = tokio::join!(cluster.apply(&kind, Some("a"), "b", &body, how), async {
        let asked = server.next().await;
        assert_eq!(
            asked.line(),
            format!("PATCH {ONE}?fieldManager=mainstay&force=true&fieldValidation=Strict&dryRun=All")
        );
        assert_eq!(asked.request.headers()["content-type"], "application/apply-patch+yaml");
        asked.json(200, &json!({ "metadata": { "resourceVersion": "9" } })).await
    });
    assert_eq!(sent, body);
    assert_eq!(applied.expect("applied")["metadata"]["resourceVersion"], "9");
    assert_eq!(cluster.requests().total(|verb, resource| verb == Verb::Apply && resource == "configmaps"), 1);
}

#[tokio::test]
async fn a_patch_whose_successful_response_is_too_large_is_written() {
    let (cluster, mut server) = fake::cluster();
    let (kind, patch) = (config_maps(), json!({ "metadata": { "annotations": { "a": "b" } } }));
    let large = "x".repeat(cluster.0.limits.bytes + 1);
    for (code, is_written) in [(200, true), (403, false)] {
        let (written, sent) = tokio::join!(cluster.send_merge(&kind, Some("a"), "b", &patch), async {
            let asked = server.next().await;
            assert!(asked.line().starts_with(&format!("PATCH {ONE}")), "{}", asked.line());
            asked.text(code, &large).await
        });
        assert_eq!((sent, written.is_ok()), (patch.clone(), is_written));
    }
    let (written, ()) = tokio::join!(cluster.send_merge(&kind, Some("a"), "b", &patch), async {
        server.next().await.cut();
    });
    assert!(written.expect_err("a broken connection").is_outcome_unknown());
}

#[tokio::test]
async fn an_unforced_apply_says_nothing_of_force() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let body = json!({});
    let (refused, _) = tokio::join!(
        cluster.apply(&kind, Some("a"), "b", &body, Apply::unforced("mainstay-handover")),
        async {
            let asked = server.next().await;
            assert_eq!(asked.parameter("force"), None);
            let cause = json!({ "reason": "FieldManagerConflict", "message": "conflict with \"hpa\"", "field": ".spec.replicas" });
            let status = json!({ "code": 409, "reason": "Conflict", "details": { "causes": [cause] } });
            asked.json(409, &status).await
        }
    );
    let refused = refused.expect_err("a conflict");
    assert!(refused.is_conflict());
    assert_eq!(refused.refusal().expect("an answer").conflicts[0].manager, "hpa");
}

#[tokio::test]
async fn rewrites_managed_fields_of_exactly_the_version_that_was_read() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let entries = json!([{ "manager": "mainstay" }]);
    let (written, sent) = tokio::join!(cluster.rewrite_managed_fields(&kind, Some("a"), "b", "7", &entries), async {
        let asked = server.next().await;
        assert_eq!(asked.request.headers()["content-type"], "application/json-patch+json");
        asked.json(200, &json!({})).await
    });
    written.expect("written");
    assert_eq!(sent[0], json!({ "op": "replace", "path": "/metadata/resourceVersion", "value": "7" }));
    assert_eq!(sent[1]["value"], entries);
}

#[tokio::test]
async fn deletes_only_what_was_looked_at() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let guard = Guard { uid: Some("u"), resource_version: Some("7") };
    let (gone, sent) = tokio::join!(cluster.delete(&kind, Some("a"), "b", guard, Propagation::Background), async {
        let asked = server.next().await;
        assert_eq!(asked.line(), format!("DELETE {ONE}"));
        asked.json(200, &json!({ "kind": "Status", "status": "Success" })).await
    });
    assert_eq!(gone.expect("deleted"), Removal::Gone);
    assert_eq!(sent["preconditions"], json!({ "uid": "u", "resourceVersion": "7" }));
}

#[tokio::test]
async fn deleting_a_missing_object_is_no_error() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let missing = json!({ "code": 404, "reason": "NotFound" });
    let (deleted, _) =
        tokio::join!(cluster.delete(&kind, Some("a"), "b", Guard::default(), Propagation::Orphan), async {
            server.next().await.json(404, &missing).await
        });
    assert_eq!(deleted.expect("no error"), Removal::Absent);
    let (read, _) =
        tokio::join!(cluster.get(&kind, Some("a"), "b"), async { server.next().await.json(404, &missing).await });
    assert_eq!(read.expect("no error"), None);
}

#[tokio::test]
async fn status_writes_go_to_the_subresource_under_the_agents_name() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let patch = json!({});
    let (written, _) = tokio::join!(cluster.patch_merge(&kind, Some("a"), "b", Part::Status, &patch), async {
        let asked = server.next().await;
        assert_eq!(asked.line(), format!("PATCH {ONE}/status?fieldManager=mainstay-agent&fieldValidation=Strict"));
        asked.json(200, &json!({})).await
    });
    written.expect("written");
}

#[tokio::test]
async fn creates_in_the_collection() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let body = json!({ "metadata": { "name": "b" } });
    let (created, _) = tokio::join!(cluster.create(&kind, Some("a"), "b", &body, Persistence::DryRun), async {
        let asked = server.next().await;
        assert!(asked.line().starts_with("POST /api/v1/namespaces/a/configmaps?"), "{}", asked.line());
        assert_eq!(asked.parameter("dryRun").as_deref(), Some("All"));
        asked.json(409, &json!({ "code": 409, "reason": "AlreadyExists" })).await
    });
    assert!(created.expect_err("it exists").is_already_exists());
}

#[tokio::test]
async fn lists_metadata_page_by_page() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let listed =
        cluster.list_metadata(&kind, Selection::labelled("app", "web")).map(|meta| meta.unwrap().name.unwrap());
    let (names, ()) = tokio::join!(listed.collect::<Vec<_>>(), async {
        let first = server.next().await;
        assert!(first.request.headers()["accept"].to_str().unwrap().contains("as=PartialObjectMetadataList"));
        assert_eq!((first.parameter("limit"), first.parameter("continue")), (Some("500".to_owned()), None));
        let items = json!([{ "metadata": { "name": "a" } }, { "metadata": { "name": "b" } }]);
        first.json(200, &json!({ "metadata": { "continue": "c1" }, "items": items })).await;
        let second = server.next().await;
        assert_eq!(second.parameter("continue").as_deref(), Some("c1"));
        second.json(410, &json!({ "code": 410, "reason": "Expired", "metadata": { "continue": "c2" } })).await;
        let third = server.next().await;
        assert_eq!(third.parameter("continue").as_deref(), Some("c2"));
        third.json(200, &json!({ "metadata": {}, "items": [{ "metadata": { "name": "c" } }] })).await;
    });
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test]
async fn a_list_ends_after_its_first_error() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let listed = cluster.list(&kind, Selection::default().within("a"));
    let (items, _) = tokio::join!(listed.collect::<Vec<_>>(), async {
        server.next().await.json(403, &json!({ "code": 403, "message": "User \"x\" cannot list" })).await
    });
    let [Err(error)] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!(error.to_string(), "could not list configmaps in a");
    assert_eq!(error.class(), Class::Denied);
}

#[tokio::test]
async fn refuses_names_that_a_path_cannot_carry_without_asking() {
    let (cluster, _server) = fake::cluster();
    let kind = config_maps();
    for (namespace, name) in [(Some("a"), ""), (Some("a"), ".."), (Some("."), "b"), (Some(""), "b"), (None, "b")] {
        let error = cluster.get(&kind, namespace, name).await.expect_err("not addressable");
        assert_eq!(error.class(), Class::Invalid, "{namespace:?} {name}");
    }
    assert_eq!(cluster.requests().total(|_, _| true), 0);
}

#[tokio::test(start_paused = true)]
async fn gives_up_a_server_that_does_not_answer() {
    let (cluster, _server) = fake::cluster();
    let error = cluster.get(&config_maps(), Some("a"), "b").await.expect_err("no answer");
    assert_eq!(error.class(), Class::Unavailable);
    assert!(error.is_outcome_unknown());
}

#[tokio::test(start_paused = true)]
async fn requests_in_flight_are_bounded_and_slow_ones_give_way() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let read = |cluster: Cluster| {
        let kind = Arc::clone(&kind);
        tokio::spawn(async move { cluster.get(&kind, Some("a"), "b").await.is_ok() })
    };
    let mut reads: Vec<_> = (0..2 * IN_FLIGHT).map(|_| read(cluster.clone())).collect();
    let mut asked = Vec::new();
    while asked.len() < IN_FLIGHT {
        asked.push(server.next().await);
    }
    assert!(server.next().now_or_never().is_none(), "the others wait");
    reads.push(read(cluster.urgent()));
    asked.push(server.next().await);
    for one in asked.drain(..IN_FLIGHT / 2) {
        one.json(200, &json!({})).await;
    }
    while asked.len() < IN_FLIGHT + 1 {
        asked.push(server.next().await);
    }
    assert!(server.next().now_or_never().is_none(), "a place is free for each answer");
    let slow = tokio::time::Instant::now();
    while asked.len() < 3 * IN_FLIGHT / 2 + 1 {
        asked.push(server.next().await);
    }
    assert_eq!(slow.elapsed().as_secs(), 1, "slow requests give their places up");
    for one in asked {
        one.json(200, &json!({})).await;
    }
    for read in reads {
        assert!(read.await.unwrap());
    }
}

#[tokio::test]
async fn a_broken_connection_is_unavailable() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let (read, ()) = tokio::join!(cluster.get(&kind, Some("a"), "b"), async { server.next().await.cut() });
    assert_eq!(read.expect_err("no answer").class(), Class::Unavailable);
}

#[tokio::test]
async fn keeps_retry_after_of_a_busy_server() {
    let (cluster, mut server) = fake::cluster();
    let kind = config_maps();
    let (read, _) = tokio::join!(cluster.get(&kind, Some("a"), "b"), async {
        server.next().await.busy("Too many requests, please try again later.", 7).await
    });
    assert_eq!(read.expect_err("busy").retry_after(), Some(Duration::from_secs(7)));
}
