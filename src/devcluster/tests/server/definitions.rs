//! CustomResourceDefinitions: served immediately, in every format, until they are deleted.

use crate::world::{World, version};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({"metadata": {"name": "widgets.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }}},
        }],
    }})
}

fn widget(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

#[tokio::test]
async fn is_served_and_discoverable_when_the_answer_is_there() {
    let world = World::new();
    assert_eq!(world.get(WIDGETS).await.text, "404 page not found\n");
    world.post(DEFINITIONS, definition()).await.expect(201);
    assert_eq!(world.get(WIDGETS).await.expect(200)["kind"], "WidgetList");
    let groups = world.get("/apis").await.expect(200);
    assert!(groups["groups"].as_array().unwrap().iter().any(|g| g["name"] == "example.com"));
    let live = world.get(&format!("{DEFINITIONS}/widgets.example.com")).await.expect(200);
    let conditions: Vec<_> = live["status"]["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
    assert_eq!(conditions, ["NamesAccepted", "Established"]);
    let document = world.get("/openapi/v3/apis/example.com/v1").await.expect(200);
    assert!(document["paths"]["/apis/example.com/v1/namespaces/{namespace}/widgets/{name}"]["patch"].is_object());
}

#[tokio::test]
async fn custom_objects_keep_their_kind_in_lists_and_need_a_version_to_be_replaced() {
    let world = World::new();
    world.post(DEFINITIONS, definition()).await.expect(201);
    let mut body = widget("a");
    body["status"] = json!({"x": 1});
    let made = world.post(WIDGETS, body).await.expect(201);
    assert_eq!((made.get("status"), &made["metadata"]["generation"]), (None, &json!(1)));
    let list = world.get(WIDGETS).await.expect(200);
    assert_eq!(
        (&list["items"][0]["kind"], &list["items"][0]["apiVersion"]),
        (&json!("Widget"), &json!("example.com/v1"))
    );
    let path = format!("{WIDGETS}/a");
    world.put(&path, widget("a")).await.refused(422, "Invalid", "metadata.resourceVersion: Invalid value: 0");
    let mut status = made.clone();
    status["status"] = json!({"ready": true});
    status["spec"]["size"] = json!(5);
    status["metadata"]["labels"] = json!({"x": "y"});
    let after = world.put(&format!("{path}/status"), status).await.expect(200);
    assert_eq!((&after["spec"]["size"], &after["status"]["ready"]), (&json!(1), &json!(true)));
    assert!(after["metadata"].get("labels").is_none());
    assert_eq!(after["metadata"]["generation"], 1);
    let strategic = world.ask("PATCH", &path, "application/strategic-merge-patch+json", "", "{}".to_owned()).await;
    strategic.refused(415, "UnsupportedMediaType", "application/merge-patch+json");
    let mut wrong = widget("b");
    wrong["kind"] = "Wrong".into();
    world.post(WIDGETS, wrong).await.refused(422, "Invalid", "kind: Invalid value: \"Wrong\": must be Widget");
    world.post(WIDGETS, json!({"metadata": {"name": "b"}})).await.refused(
        400,
        "BadRequest",
        "Object 'Kind' is missing",
    );
}

#[tokio::test]
async fn changing_a_definition_ends_watches_and_adds_versions() {
    let world = World::new();
    world.post(DEFINITIONS, definition()).await.expect(201);
    world.post(WIDGETS, widget("a")).await.expect(201);
    let mut watch = world.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(watch.short().await, "ADDED a");
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut live = world.get(&path).await.expect(200);
    let mut second = live["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    live["spec"]["versions"].as_array_mut().unwrap().push(second);
    world.put(&path, live).await.expect(200);
    assert_eq!(watch.short().await, "end");
    let other = world.get("/apis/example.com/v2/namespaces/default/widgets/a").await.expect(200);
    assert_eq!(other["apiVersion"], "example.com/v2");
    assert_eq!(world.get("/apis/example.com").await.expect(200)["preferredVersion"]["version"], "v2");
}

#[tokio::test]
async fn objects_from_before_a_change_are_read_with_the_new_schema() {
    let world = World::new();
    world.post(DEFINITIONS, definition()).await.expect(201);
    let made = world.post(WIDGETS, widget("a")).await.expect(201);
    world.post(WIDGETS, widget("b")).await.expect(201);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let mut live = world.get(&path).await.expect(200);
    let properties = &mut live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    *properties = json!({"mode": {"type": "string", "default": "slow"}});
    world.put(&path, live.clone()).await.expect(200);

    let shown = world.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!((&shown["spec"], version(&shown)), (&json!({"mode": "slow"}), version(&made)));
    let list = world.get(WIDGETS).await.expect(200);
    assert_eq!(list["items"][1]["spec"], json!({"mode": "slow"}));
    let mut watch = world.watch(&format!("{WIDGETS}?watch=1")).await;
    assert_eq!(watch.next().await.unwrap()["object"]["spec"], json!({"mode": "slow"}));
    assert_eq!(watch.short().await, "ADDED b");
    world.delete(&format!("{WIDGETS}/b"), json!({})).await.expect(200);
    let gone = watch.next().await.unwrap();
    assert_eq!((&gone["type"], &gone["object"]["spec"]), (&json!("DELETED"), &json!({"mode": "slow"})));

    let written = world.merge(&format!("{WIDGETS}/a"), json!({})).await.expect(200);
    assert!(version(&written) > version(&made), "an empty patch stores the object as it is read");
    assert_eq!(world.merge(&format!("{WIDGETS}/a"), json!({})).await.expect(200), written);

    let mut second = live["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    let mut live = world.get(&path).await.expect(200);
    live["spec"]["versions"][0]["storage"] = false.into();
    live["spec"]["versions"].as_array_mut().unwrap().push(second);
    world.put(&path, live).await.expect(200);
    let shown = world.get("/apis/example.com/v2/namespaces/default/widgets/a").await.expect(200);
    assert_eq!(shown["apiVersion"], "example.com/v2", "also when it was stored as v1");
    assert_eq!(world.get(&format!("{WIDGETS}/a")).await.expect(200)["apiVersion"], "example.com/v1");
}

#[tokio::test]
async fn deletion_takes_the_objects_along_and_waits_for_their_finalizers() {
    let world = World::new();
    world.post(DEFINITIONS, definition()).await.expect(201);
    world.post(WIDGETS, widget("a")).await.expect(201);
    let mut kept = widget("b");
    kept["metadata"]["finalizers"] = json!(["x.y/z"]);
    world.post(WIDGETS, kept).await.expect(201);
    let mut watch = world.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", world.server.store().version())).await;
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let marked = world.delete(&path, json!({})).await.expect(200);
    assert_eq!(marked["metadata"]["finalizers"], json!(["customresourcecleanup.apiextensions.k8s.io"]));
    assert_eq!(watch.short().await, "DELETED a");
    assert_eq!(watch.short().await, "MODIFIED b");
    world.post(WIDGETS, widget("c")).await.refused(
        403,
        "Forbidden",
        "create not allowed while custom resource definition",
    );
    world.merge(&format!("{WIDGETS}/b"), json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(watch.short().await, "DELETED b");
    assert_eq!(watch.short().await, "end");
    world.get(&path).await.expect(404);
    assert_eq!(world.get(WIDGETS).await.text, "404 page not found\n");
}

#[tokio::test]
async fn names_that_are_taken_are_not_accepted() {
    let world = World::new();
    world.post(DEFINITIONS, definition()).await.expect(201);
    let mut other = definition();
    other["metadata"]["name"] = "gadgets.example.com".into();
    other["spec"]["names"] =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Widget", "listKind": "GadgetList"});
    let made = world.post(DEFINITIONS, other).await.expect(201);
    let live = world.get(&format!("{DEFINITIONS}/gadgets.example.com")).await.expect(200);
    assert_eq!(version(&live), version(&made) + 1);
    let condition = &live["status"]["conditions"][0];
    assert_eq!(
        (&condition["reason"], &condition["message"]),
        (&json!("KindConflict"), &json!("\"Widget\" is already in use"))
    );
    let answer = world.get("/apis/example.com/v1/namespaces/default/gadgets").await;
    assert_eq!((answer.code, answer.text.trim()), (404, "404 page not found"));
}
