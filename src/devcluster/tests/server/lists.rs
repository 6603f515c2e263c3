//! Lists: snapshots, pages, selectors, formats.

use crate::world::{MAPS, World, version};
use serde_json::json;

fn names(list: &serde_json::Value) -> Vec<&str> {
    list["items"].as_array().into_iter().flatten().filter_map(|i| i["metadata"]["name"].as_str()).collect()
}

#[tokio::test]
async fn list_has_the_global_version_and_bare_items() {
    let world = World::new();
    let empty = world.get(MAPS).await.expect(200);
    assert_eq!((empty["kind"].as_str(), &empty["items"]), (Some("ConfigMapList"), &json!([])));
    world.map("a", json!({})).await;
    world.post("/api/v1/namespaces", json!({"metadata": {"name": "later"}})).await.expect(201);
    let list = world.get("/api/v1/configmaps?").await.expect(200);
    assert_eq!(version(&list), version(&empty) + 2);
    assert!(list["items"][0].get("kind").is_none() && list["items"][0].get("apiVersion").is_none());
}

#[tokio::test]
async fn later_pages_come_from_the_snapshot_of_the_first() {
    let world = World::new();
    for name in ["a", "b", "c", "d"] {
        world.map(name, json!({})).await;
    }
    let first = world.get(&format!("{MAPS}?&limit=2")).await.expect(200);
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a", "b"], &json!(2)));
    world.delete(&format!("{MAPS}/c"), json!({})).await.expect(200);
    world.map("e", json!({})).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = world.get(&format!("{MAPS}?limit=2&continue={token}")).await.expect(200);
    assert_eq!(names(&second), ["c", "d"]);
    assert_eq!(version(&second), version(&first));
    assert!(second["metadata"].get("continue").is_none());

    let both = world.get(&format!("{MAPS}?limit=2&continue={token}&resourceVersion=5")).await;
    both.refused(400, "BadRequest", "specifying resource version is not allowed when using continue");
    world.get(&format!("{MAPS}?limit=2&continue=garbage")).await.refused(400, "BadRequest", "continue");

    world.server.store().compact();
    let expired = world.get(&format!("{MAPS}?limit=2&continue={token}")).await;
    expired.refused(410, "Expired", "The provided continue parameter is too old");
    let token = expired.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let inconsistent = world.get(&format!("{MAPS}?limit=5&continue={token}")).await.expect(200);
    assert_eq!(names(&inconsistent), ["d", "e"]);
}

#[tokio::test]
async fn selectors_select_and_refuse_what_they_do_not_know() {
    let world = World::new();
    world.map("a", json!({"app": "x"})).await;
    world.map("b", json!({"app": "y"})).await;
    let one = world.get(&format!("{MAPS}?labelSelector=app%20in%20(x)")).await.expect(200);
    assert_eq!(names(&one), ["a"]);
    let one = world.get(&format!("{MAPS}?fieldSelector=metadata.name%3Db")).await.expect(200);
    assert_eq!(names(&one), ["b"]);
    world.get(&format!("{MAPS}?fieldSelector=data.i%3Db")).await.refused(
        400,
        "BadRequest",
        "\"data.i\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
    );
    world.get(&format!("{MAPS}?labelSelector=a+b")).await.refused(400, "BadRequest", "unable to parse requirement");
}

#[tokio::test]
async fn versions_of_a_list_are_exact_or_not_older() {
    let world = World::new();
    let before = version(&world.map("a", json!({})).await);
    world.map("b", json!({})).await;
    let exact = format!("{MAPS}?resourceVersion={before}&resourceVersionMatch=Exact");
    let exact = world.get(&exact).await.expect(200);
    assert_eq!((names(&exact), version(&exact)), (vec!["a"], before));
    let newer = world.get(&format!("{MAPS}?resourceVersion={before}&resourceVersionMatch=NotOlderThan")).await;
    assert_eq!(names(&newer.expect(200)), ["a", "b"]);
    let future = world.get(&format!("{MAPS}?resourceVersion=9999")).await;
    future.refused(504, "Timeout", "Too large resource version: 9999");
    assert_eq!(future.headers["retry-after"], "1");
    world.get(&format!("{MAPS}?resourceVersionMatch=Exact")).await.refused(422, "Invalid", "resourceVersionMatch");
    world.server.store().compact();
    world.get(&format!("{MAPS}?resourceVersion={before}&resourceVersionMatch=Exact")).await.refused(
        410,
        "Expired",
        "The resourceVersion for the provided list is too old.",
    );
}

#[tokio::test]
async fn answers_in_the_form_that_is_accepted() {
    let world = World::new();
    world.map("a", json!({})).await;
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let list = world.get_as(MAPS, partial).await.expect(200);
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["kind"], "PartialObjectMetadata");
    assert!(list["items"][0].get("data").is_none());
    let table = world.get_as(MAPS, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json").await.expect(200);
    assert_eq!(table["rows"][0]["cells"][0], "a");
    world.get_as(MAPS, "application/xml").await.refused(406, "NotAcceptable", "406: Not Acceptable");
    let one = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    world.get_as(MAPS, one).await.refused(
        406,
        "NotAcceptable",
        "you requested PartialObjectMetadata, but the requested object is a list",
    );
    assert_eq!(world.get_as(&format!("{MAPS}/a"), one).await.expect(200)["kind"], "PartialObjectMetadata");
}

#[tokio::test]
async fn unknown_continue_tokens_are_distinguished() {
    let world = World::new();
    let group = world.get("/apis/nowhere.example.com/v1/things").await;
    assert_eq!((group.code, group.text.as_str()), (404, "404 page not found\n"));
    world.get("/api/v1/things").await.refused(404, "NotFound", "the server could not find the requested resource");
    world.get(&format!("{MAPS}/none")).await.refused(404, "NotFound", "configmaps \"none\" not found");
    world.put("/api/v1/namespaces/default/configmaps", json!({})).await.refused(405, "MethodNotAllowed", "");
    world.delete("/api/v1/namespaces", json!({})).await.refused(405, "MethodNotAllowed", "");
}

#[tokio::test]
async fn discovery_has_no_empty_group_and_an_etag() {
    let world = World::new();
    let legacy = world.get("/apis/apps/v1").await.expect(200);
    let resources = legacy["resources"].as_array().unwrap();
    let find = |name: &str| resources.iter().find(|r| r["name"] == name).unwrap();
    assert!(find("deployments").get("group").is_none());
    assert_eq!(find("deployments/scale")["group"], "autoscaling");
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let aggregated = world.get_as("/apis", accept).await;
    assert_eq!(aggregated.expect(200)["kind"], "APIGroupDiscoveryList");
    assert!(aggregated.headers["content-type"].to_str().unwrap().contains("as=APIGroupDiscoveryList"));
    assert!(aggregated.headers.contains_key("etag"));
    assert_eq!(world.get("/readyz").await.text, "ok");
    assert_eq!(world.get("/version").await.expect(200)["minor"], "36");
}
