//! Triggers and Subscriptions: the events that they receive, and their versions.

use mainstay_testkit::kubectl::Kubectl;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_an_application_reach_the_trigger_that_wants_them() {
    let events = Events::running().await;
    events.trigger("mine-the-source", json!({"eventtypeversion": "v1", "source": "mock", "type": "user.created"}));
    events.trigger_is_ready("mine-the-source").await;

    let (_, other) = events.post("/mock/v1/events", "application/json", legacy("v2")).await;
    let (status, answer) = events.post("/mock/v1/events", "application/json", legacy("v1")).await;
    let id = serde_json::from_str::<Value>(&answer).unwrap()["event-id"].as_str().unwrap().to_owned();
    assert_eq!((status, answer), (200, format!("{{\"event-id\":\"{id}\",\"status\":\"\",\"reason\":\"\"}}\n")));
    assert!(other.contains("event-id"), "nobody wants the other version: {other}");
    // The tutorial's body, with the prefix of headers in its keys.
    let structured = json!({
        "ce-specversion": "1.0", "ce-type": "user.created", "ce-source": "elsewhere", "ce-id": "two",
        "ce-eventtypeversion": "v1", "data": {"a": 1},
    });
    let structured = events.post("/mock/events", "application/cloudevents+json", structured.to_string()).await;
    assert_eq!(structured, (204, String::new()));
    events.seen(2).await;
    let mut ids = events.sink.headers("ce-id");
    ids.sort();
    let mut expected = [id, "two".to_owned()];
    expected.sort();
    assert_eq!(ids, expected);
    let of = |name: &str| events.sink.headers(name);
    assert_eq!(of("ce-source"), ["mock", "mock"]);
    let host = format!("sink.{NAMESPACE}.svc.cluster.local");
    assert_eq!(of("host"), [host.as_str(), &host]);
    assert_eq!(of("content-type"), ["application/json"; 2]);
    assert!(of("ce-knativearrivaltime").iter().all(|time| !time.is_empty()));
    assert!(events.sink.bodies().contains(&"\"123456789\"".to_owned()));

    let kubectl = Kubectl::of_user(&events.world.server, NAMESPACE, "somebody").await;
    let listed = kubectl.run(&["get", "triggers"]).await;
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["NAME", "READY", "REASON", "BROKER", "SUBSCRIBER_URI", "AGE"]);
    let uri = format!("http://sink.{NAMESPACE}.svc.cluster.local/");
    assert_eq!(lines[1][..4], ["mine-the-source", "True", "default", uri.as_str()]);
    let label = kubectl.run(&["get", "triggers", "-l", "eventing.knative.dev/broker=default", "-o", "name"]).await;
    assert_eq!(label, "trigger.eventing.knative.dev/mine-the-source\n");
    let wanted = events.client.get(events.url("/mock/v1/events/subscribed")).send().await.unwrap();
    let expected = json!({"eventsInfo": [{"name": "user.created", "version": "v1"}]});
    assert_eq!(serde_json::from_str::<Value>(&wanted.text().await.unwrap()).unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_events_are_refused_as_kyma_refuses_them() {
    let events = Events::running().await;
    let field = |answer: &(u16, String)| {
        let body: Value = serde_json::from_str(&answer.1).unwrap();
        format!("{} {} {}", answer.0, body["message"].as_str().unwrap(), body["details"][0]["field"])
    };
    let with = |time: &str| {
        let mut event: Value = serde_json::from_str(&legacy("v1")).unwrap();
        event["event-time"] = time.into();
        event.to_string()
    };
    let post = |body: String| events.post("/mock/v1/events", "application/json", body);
    assert_eq!(field(&post(with("")).await), "400 Missing field \"event-time\"");
    assert_eq!(field(&post(with("now")).await), "400 Invalid field \"event-time\"");
    assert_eq!(field(&post("x".repeat(70_000)).await), "413 Request body too large null");
    let structured = events
        .post("/publish", "application/cloudevents+json", r#"{"specversion":"1.0","source":"s","type":"t"}"#)
        .await;
    assert_eq!(structured, (400, "id: MUST be a non-empty string\n".to_owned()));
    assert_eq!(events.post("/publish?a", "application/json", "{}").await, (404, String::new()));
    assert_eq!(events.post("/healthz", "application/json", "{}").await, (405, String::new()));
    assert_eq!(events.publish("1", "sap.kyma.custom.a.b", "1").await, 400);
    let kubectl = Kubectl::of_user(&events.world.server, NAMESPACE, "somebody").await;
    let trigger = |spec: Value| {
        json!({"apiVersion": KNATIVE, "kind": "Trigger", "metadata": {"name": "wrong"}, "spec": spec}).to_string()
    };
    let file = kubectl.file("trigger.json", &trigger(json!({"subscriber": {}})));
    let refused = kubectl.refused(&["apply", "-f", &file]).await;
    assert!(refused.contains("expected at least one, got none: spec.subscriber.ref, spec.subscriber.uri"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_gets_the_events_of_its_clean_type() {
    let events = Events::running().await;
    events.subscription("sub", &own_sink());
    events.subscription("elsewhere", "http://sink.other.svc.cluster.local");
    let condition = events.subscription_is("sub", true).await;
    assert_eq!((&condition["type"], &condition["status"]), (&json!("Subscription active"), &json!("True")));
    let refused = events.subscription_is("elsewhere", false).await;
    assert_eq!(
        refused["message"],
        format!("namespace of subscription: {NAMESPACE} and the namespace of subscriber: other are different")
    );
    assert_eq!(events.publish("1", TYPE, r#"{"orderCode":"3211213"}"#).await, 204);
    assert_eq!(events.publish("1", TYPE, r#"{"orderCode":"3211213"}"#).await, 204, "the same again");
    assert_eq!(events.publish("2", "sap.kyma.custom.my-app.order.received.v1", "2").await, 204);
    assert_eq!(events.publish("3", "other", "3").await, 204, "nobody wants it");
    assert_eq!(events.publish("4", TYPE, "4").await, 204);
    events.seen(3).await;
    let mut seen: Vec<_> = events.sink.headers("ce-id").into_iter().zip(events.sink.headers("ce-type")).collect();
    seen.sort();
    assert_eq!(seen, ["1", "2", "4"].map(|id| (id.to_owned(), TYPE.to_owned())));
    assert!(events.sink.bodies().contains(&r#"{"orderCode":"3211213"}"#.to_owned()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_of_the_newer_version_gets_the_events_of_its_source() {
    const NEWER: &str = "eventing.kyma-project.io/v1alpha2";
    let events = Events::running().await;
    let newer = |name: &str, more: Value| {
        let mut spec = json!({"sink": own_sink(), "types": ["order.paid.v1"]});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        events.create(NEWER, "Subscription", "subscriptions", name, spec);
    };
    newer("standard", json!({"source": "te.sts", "config": {"maxInFlightMessages": "3", "qos": "AT_LEAST_ONCE"}}));
    newer("exact", json!({"sink": format!("{}/exact", own_sink()), "typeMatching": "exact"}));
    newer("elsewhere", json!({"source": "elsewhere"}));
    newer("refused", json!({"source": "tests", "types": ["paid"]}));
    for name in ["standard", "exact", "elsewhere"] {
        events.subscription_is(name, true).await;
    }
    let refused = events.subscription_is("refused", false).await;
    assert_eq!(refused["message"], "spec.types[0]: must have minimum 2 segments");
    let status = events.status(NEWER, "subscriptions", "standard");
    assert_eq!(status["config"]["maxInFlightMessages"], 3);
    assert_eq!(status["types"], json!([{"originalType": "order.paid.v1", "cleanType": "order.paid.v1"}]));
    assert_eq!(status["conditions"][1]["message"], "no effect: spec.config.qos; remove these fields");
    // Both versions show every field.
    let older = events.world.server.object(KYMA, "subscriptions", NAMESPACE, "standard").unwrap();
    assert_eq!((&older["spec"]["source"], &older["spec"]["types"]), (&json!("te.sts"), &json!(["order.paid.v1"])));
    assert_eq!(events.publish("1", "order.paid.v1", "1").await, 204);
    assert_eq!(events.publish("2", "order.created.v1", "2").await, 204, "nobody wants it");
    assert_eq!(events.publish("3", "order.paid.v1", "3").await, 204);
    events.seen(4).await;
    let mut seen = events.sink.headers("ce-id");
    seen.sort();
    assert_eq!(seen, ["1", "1", "3", "3"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_of_the_newer_version_gets_events_beside_an_older_one() {
    const NEWER: &str = "eventing.knative.dev/v1";
    let events = Events::running().await;
    events.trigger("older", json!({"type": "t"}));
    let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "sink"}, "uri": "/newer"});
    let spec = json!({"broker": "default", "filter": {"attributes": {"type": "t"}}, "subscriber": subscriber});
    events.create(NEWER, "Trigger", "triggers", "newer", spec);
    for name in ["older", "newer"] {
        events.trigger_is_ready(name).await;
    }
    assert!((200..300).contains(&events.publish("1", "t", "x").await));
    events.seen(2).await;
    assert_eq!(events.sink.headers("ce-id"), ["1", "1"]);
    let uri = events.status(NEWER, "triggers", "newer")["subscriberURI"].clone();
    assert!(uri.as_str().unwrap().ends_with("svc.cluster.local/newer"), "{uri}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_costs_no_request_to_the_api_server() {
    let events = Events::running().await;
    for name in ["a", "b", "c"] {
        events.trigger(name, json!({"type": TYPE}));
        events.subscription(&format!("sub-{name}"), &own_sink());
    }
    events.subscription("nowhere", "http://elsewhere.example.org");
    for name in ["a", "b", "c"] {
        events.trigger_is_ready(name).await;
        events.subscription_is(&format!("sub-{name}"), true).await;
    }
    events.subscription_is("nowhere", false).await;
    let counted = events.world.server.embedded().faults();
    events
        .world
        .is_silent_while(counted, async || {
            for number in 0..20 {
                assert_eq!(events.publish(&number.to_string(), TYPE, "data").await, 204);
            }
            events.seen(20 * 6).await;
        })
        .await;
    assert_eq!(events.sink.count(), 20 * 6);
}
