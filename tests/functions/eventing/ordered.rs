//! Events of a source in order, and the metrics of events.

use super::*;

/// Two sources of different partitions on NATS.
const SOURCES: [&str; 2] = ["shop", "crm"];

impl Events {
    fn ordered_trigger(&self, name: &str, ordering: &str) {
        let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "sink"}});
        let metadata =
            json!({"name": name, "namespace": NAMESPACE, "annotations": {"mainstay.dev/ordering": ordering}});
        let spec = json!({"broker": "default", "subscriber": subscriber});
        let object = json!({"apiVersion": KNATIVE, "kind": "Trigger", "metadata": metadata, "spec": spec});
        self.world.create(KNATIVE, "triggers", NAMESPACE, object);
    }

    async fn publish_of(&self, source: &str, number: usize) {
        let id = format!("{source}-{number}");
        let mut request = self.client.post(self.url("/publish")).header("content-type", "application/json").body("1");
        for (name, value) in [("specversion", "1.0"), ("id", &id), ("source", source), ("type", "t")] {
            request = request.header(format!("ce-{name}"), value);
        }
        assert_eq!(request.send().await.unwrap().status(), 204);
    }

    /// Returns the ids of a source's accepted events.
    fn accepted_of(&self, source: &str) -> Vec<String> {
        let calls = self.sink.seen.calls.lock();
        let accepted = calls.iter().filter(|call| call.code == 200 && call.headers["ce-source"] == source);
        accepted.map(|call| call.headers["ce-id"].to_str().unwrap().to_owned()).collect()
    }

    /// Returns the metrics of all processes.
    async fn metrics(&self) -> String {
        let mut text = String::new();
        let addresses = self.scraped.lock().clone();
        for address in addresses {
            let answer = self.client.get(format!("http://{address}/metrics")).send().await.unwrap();
            assert_eq!(answer.status(), 200);
            text += &answer.text().await.unwrap();
        }
        text
    }
}

fn ids(source: &str, numbers: &[usize]) -> Vec<String> {
    numbers.iter().map(|number| format!("{source}-{number}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_event_holds_the_later_events_of_its_source_and_no_others() {
    let events = Events::running().await;
    events.ordered_trigger("mine", "source");
    events.trigger_is_ready("mine").await;
    let [first, second] = SOURCES;
    let fail = |number: usize, code: u16| events.sink.seen.failing.lock().insert(format!("{first}-{number}"), code);
    fail(1, 500);
    // This status is final, so the event becomes a dead letter.
    fail(3, 400);
    for number in 0..6 {
        for source in SOURCES {
            events.publish_of(source, number).await;
        }
    }
    let all = [0, 1, 2, 3, 4, 5];
    until("the other source is delivered", || events.accepted_of(second).len() == 6).await;
    assert_eq!(events.accepted_of(second), ids(second, &all));
    until("the failing event has come", || events.sink.headers("ce-id").contains(&format!("{first}-1"))).await;
    assert_eq!(events.accepted_of(first), ids(first, &[0]));
    events.sink.seen.failing.lock().remove(&format!("{first}-1"));
    until("the source goes on", || events.accepted_of(first).len() == 5).await;
    assert_eq!(events.accepted_of(first), ids(first, &[0, 1, 2, 4, 5]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_order_is_a_condition() {
    let events = Events::running().await;
    events.ordered_trigger("wrong", "Source");
    // Before the Broker exists, the Trigger says so.
    let is = |_: &World| events.ready_in(NAMESPACE, "wrong")["reason"] == "InvalidOrdering";
    events.world.until("the Trigger names the order", is).await;
    let ready = events.ready_in(NAMESPACE, "wrong");
    let expected = "metadata.annotations[mainstay.dev/ordering]: must be \"source\", or absent";
    assert_eq!((&ready["status"], &ready["message"]), (&json!("False"), &json!(expected)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_events_and_deliveries_are_counted() {
    let events = Events::running().await;
    events.subscription("sub", &own_sink());
    events.subscription_is("sub", true).await;
    events.sink.seen.answers.lock().push(500);
    assert_eq!(events.publish("one", TYPE, "data").await, 204);
    assert_eq!(events.publish("two", "sap.kyma.custom.a.b", "data").await, 400);
    let delivered = format!(
        "kind=\"subscription\",subscription_namespace=\"{NAMESPACE}\",subscription_name=\"sub\",event_type=\"{TYPE}\",\
         sink=\"{}/\"",
        own_sink()
    );
    let expected = [
        "eventing_epp_requests_total{code=\"204\",method=\"POST\",path=\"/publish\"} 1".to_owned(),
        "eventing_epp_requests_total{code=\"400\",method=\"POST\",path=\"/publish\"} 1".to_owned(),
        format!(
            "eventing_epp_event_type_published_total{{event_type=\"{TYPE}\",event_source=\"tests\",code=\"204\"}} 1"
        ),
        "eventing_epp_backend_duration_milliseconds_count{code=\"204\",destination_service=".to_owned(),
        "eventing_epp_health 1".to_owned(),
        format!("eventing_ec_nats_delivery_per_subscription_total{{{delivered},response_code=\"500\"}} 1"),
        format!("eventing_ec_nats_delivery_per_subscription_total{{{delivered},response_code=\"200\"}} 1"),
        format!("eventing_ec_nats_subscriber_dispatch_duration_seconds_count{{{delivered},response_code=\"200\"}} 1"),
        "subscription_name=\"sub\"} 1".to_owned(),
    ];
    let end = Instant::now() + PATIENCE;
    loop {
        let text = events.metrics().await;
        let missing: Vec<_> = expected.iter().filter(|part| !text.contains(part.as_str())).collect();
        if missing.is_empty() {
            break;
        }
        assert!(Instant::now() < end, "{missing:#?} in {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(events.client.get(events.url("/metrics")).send().await.unwrap().status(), 404);
}
