//! Tenants with Triggers and Subscriptions: allowed targets, received events, and their shares.

use super::*;

const TRIGGERS: (&str, &str, &str) = (KNATIVE, "Trigger", "triggers");

impl Events {
    /// Starts the process as installed: without grants, and without addresses of Services.
    async fn as_installed(arguments: &[&str]) -> Self {
        let mut events = Self::stopped().await;
        events.arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
        events.sink.start().await;
        // A cluster other than the embedded one still has the namespace of the last world.
        let namespace = json!({"metadata": {"name": OTHER}});
        let _ = events.world.try_as("test", Call::new("v1", "namespaces", "", "", Action::Create(namespace)));
        events
    }

    pub(super) fn trigger_in(&self, namespace: &str, name: &str, service: &str) {
        let subscriber = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": service}});
        self.create_in(namespace, TRIGGERS, name, json!({"broker": "default", "subscriber": subscriber}));
    }

    pub(super) fn ready_in(&self, namespace: &str, name: &str) -> Value {
        let object = self.world.server.object(KNATIVE, "triggers", namespace, name).unwrap_or_default();
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|one| one["type"] == "Ready").unwrap_or_default()
    }

    async fn trigger_says(&self, name: &str, status: &str, words: &str) {
        let says = |_: &World| {
            let ready = self.ready_in(NAMESPACE, name);
            ready["status"] == status && ready["message"].as_str().unwrap_or_default().contains(words)
        };
        self.world.until(&format!("the Trigger {name} is {status}: {words}"), says).await;
    }

    async fn publish_in(&self, namespace: &str, id: &str, data: &str) -> u16 {
        let token = self.token_of(namespace, json!(["mainstay-eventing"]));
        self.publish_at(&format!("/namespaces/{namespace}/publish"), id, data, Some(&token)).await
    }

    async fn publish_at(&self, path: &str, id: &str, data: &str, token: Option<&str>) -> u16 {
        let mut request =
            self.client.post(self.url(path)).header("content-type", "application/json").body(data.to_owned());
        for (name, value) in [("specversion", "1.0"), ("id", id), ("source", "tests"), ("type", TYPE)] {
            request = request.header(format!("ce-{name}"), value);
        }
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        request.send().await.unwrap().status().as_u16()
    }

    /// A token of a ServiceAccount of a namespace.
    pub(super) fn token_of(&self, namespace: &str, audiences: Value) -> String {
        let account = json!({"metadata": {"name": "publisher"}});
        let create = Call::new("v1", "serviceaccounts", namespace, "", Action::Create(account));
        // The account may exist already.
        let _ = self.world.try_as("test", create);
        let spec = json!({"audiences": audiences});
        let wanted = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
        let call = Call::new("v1", "serviceaccounts", namespace, "publisher", Action::Create(wanted)).on("token");
        self.world.try_as("test", call).unwrap()["status"]["token"].as_str().unwrap().to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_gets_events_of_its_own_service_accounts_and_of_those_that_the_operator_permits() {
    let paths = [format!("/namespaces/{NAMESPACE}/publish"), format!("/brokers/{NAMESPACE}/default")];
    let all = |arguments: &'static [&'static str], of_other: bool, without: bool| {
        let paths = &paths;
        async move {
            let mut events = Events::as_installed(arguments).await;
            events.start().await;
            let audience = || json!(["mainstay-eventing"]);
            let own = events.token_of(NAMESPACE, audience());
            let other = events.token_of(OTHER, audience());
            let of_api_server = events.token_of(NAMESPACE, json!([]));
            let (head, signature) = own.rsplit_once('.').unwrap();
            let forged = format!("{head}.{}", signature.chars().rev().collect::<String>());
            for path in paths {
                let good = if path.starts_with("/brokers") { 202 } else { 204 };
                let expected = |is_permitted: bool, code: u16| if is_permitted { good } else { code };
                for (token, code) in [
                    (Some(&*own), good),
                    (Some(&*own), good),
                    (Some(&*other), expected(of_other, 403)),
                    (Some(&*of_api_server), expected(without, 401)),
                    (Some(&*forged), expected(without, 401)),
                    (Some("a.b.c"), expected(without, 401)),
                    (None, expected(without, 401)),
                ] {
                    assert_eq!(events.publish_at(path, "1", "{}", token).await, code, "{arguments:?} {path} {token:?}");
                }
            }
            // Kyma's endpoints name no namespace.
            assert_eq!(events.publish("kyma", TYPE, "{}").await, 204);
        }
    };
    all(&[], false, false).await;
    all(&["--allow-publishers=other-tenant=mainstay-tests"], true, false).await;
    all(&["--publisher-auth=none"], true, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_would_be_an_address_is_no_target() {
    let mut events = Events::as_installed(&[]).await;
    events.sink.is_named = false;
    events.start().await;
    let name = format!("{}/admin/delete?all=yes&x=", events.sink.address);
    events.trigger_in(NAMESPACE, "hostile", &name);
    events.trigger_says("hostile", "False", "spec.subscriber.ref.name: must be").await;
    events.subscription("user", &format!("http://sink.{NAMESPACE}.svc.cluster.local@{}/", events.sink.address));
    let refused = events.subscription_is("user", false).await;
    assert!(refused["message"].as_str().unwrap().contains("it has a user"), "{refused}");
    assert_eq!(events.publish_in(NAMESPACE, "1", "x").await, 204);
    assert_eq!((events.sink.count(), events.noted()), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_leads_elsewhere_is_no_target_also_when_it_changes() {
    let mut events = Events::as_installed(&[]).await;
    events.start().await;
    let service = |name: &str, spec: Value| {
        events.create("v1", "Service", "services", name, spec);
    };
    let ports = json!([{"port": 80}]);
    service("sink", json!({"selector": {"app": "sink"}, "ports": ports}));
    service("external", json!({"type": "ExternalName", "externalName": "kubernetes.default.svc.cluster.local"}));
    service("written", json!({"ports": ports}));
    for (trigger, of) in [("good", "sink"), ("external", "external"), ("written", "written")] {
        events.trigger_in(NAMESPACE, trigger, of);
    }
    events.subscription("sub-external", &format!("http://external.{NAMESPACE}.svc.cluster.local"));
    events.trigger_says("good", "True", "").await;
    events.trigger_says("external", "False", "is of type ExternalName").await;
    events.trigger_says("written", "False", "has no selector").await;
    let refused = events.subscription_is("sub-external", false).await;
    assert!(refused["message"].as_str().unwrap().contains("is of type ExternalName"), "{refused}");
    assert_eq!(events.publish_in(NAMESPACE, "1", "x").await, 204);
    events.seen(1).await;

    let external =
        json!({"type": "ExternalName", "externalName": "kubernetes.default", "clusterIP": "", "clusterIPs": null});
    events.world.edit("v1", "services", "sink", json!({"spec": external}));
    events.trigger_says("good", "False", "is of type ExternalName").await;
    assert_eq!(events.publish_in(NAMESPACE, "2", "x").await, 204);
    assert_eq!(events.sink.headers("ce-id"), ["1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_with_an_endpoint_slice_that_somebody_wrote_is_no_target() {
    let mut events = Events::as_installed(&[]).await;
    events.start().await;
    events.create("v1", "Service", "services", "sink", json!({"selector": {"app": "sink"}, "ports": [{"port": 80}]}));
    events.trigger_in(NAMESPACE, "mine", "sink");
    events.trigger_says("mine", "True", "").await;
    let metadata = json!({"name": "written", "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": "sink"}});
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "endpoints": [{"addresses": ["100.100.100.200"]}], "ports": [{"port": 80}],
    });
    events.world.create("discovery.k8s.io/v1", "endpointslices", NAMESPACE, slice);
    events.trigger_says("mine", "False", "has the EndpointSlice written").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_receives_events_of_other_namespaces_by_the_operators_word_only() {
    let mut events = Events::as_installed(&[]).await;
    events.start().await;
    events.trigger_in(NAMESPACE, "own", "sink");
    events.trigger_in(OTHER, "curious", "sink");
    let other_is_ready = |_: &World| events.ready_in(OTHER, "curious")["status"] == "True";
    events.trigger_is_ready("own").await;
    events.world.until("the Trigger of the other namespace is ready", other_is_ready).await;
    let of_other = |events: &Events| {
        let host = format!("sink.{OTHER}.svc.cluster.local");
        events.sink.headers("host").into_iter().filter(|of| *of == host).count()
    };
    assert_eq!(events.publish("shared", TYPE, "x").await, 204, "it is for nobody");
    assert_eq!(events.publish_in(NAMESPACE, "1", "x").await, 204);
    assert_eq!(events.publish_in(OTHER, "2", "x").await, 204);
    events.seen(2).await;
    until("both are noted as delivered", || events.noted() == 2).await;
    assert_eq!((events.sink.count(), of_other(&events)), (2, 1));

    events.kill();
    events.arguments = vec![format!("--allow-subscriptions={OTHER}={NAMESPACE}")];
    events.start().await;
    assert_eq!(events.publish_in(NAMESPACE, "3", "x").await, 204);
    events.seen(4).await;
    assert_eq!(of_other(&events), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn triggers_to_nowhere_fill_the_share_of_their_own_namespace() {
    let share = if is_on_nats() { "--nats-share=4Mi" } else { "--budget=8Mi" };
    let mut events = Events::as_installed(&[share]).await;
    events.start().await;
    for number in 0..4 {
        events.trigger_in(OTHER, &format!("nowhere-{number}"), "nowhere");
    }
    events.trigger_in(NAMESPACE, "own", "sink");
    events.trigger_is_ready("own").await;
    let last_is_ready = |_: &World| events.ready_in(OTHER, "nowhere-3")["status"] == "True";
    events.world.until("the Triggers to nowhere are ready", last_is_ready).await;
    let data = "x".repeat(60_000);
    let mut refused = 0;
    for number in 0..200 {
        if events.publish_in(OTHER, &format!("lost-{number}"), &data).await == 507 {
            refused += 1;
        }
    }
    assert!(refused > 50, "{refused}: the namespace has filled its share");
    let token = events.token_of(OTHER, json!(["mainstay-eventing"]));
    let url = events.url(&format!("/namespaces/{OTHER}/publish"));
    let request =
        events.client.post(url).bearer_auth(token).header("content-type", "application/json").body(data.clone());
    let request = [("specversion", "1.0"), ("id", "full"), ("source", "tests"), ("type", TYPE)]
        .into_iter()
        .fold(request, |request, (name, value)| request.header(format!("ce-{name}"), value));
    let said = request.send().await.unwrap().text().await.unwrap();
    assert!(said.contains(&format!("full for namespace {OTHER}: ")), "{said}");
    for number in 0..10 {
        assert_eq!(events.publish_in(NAMESPACE, &format!("good-{number}"), &data).await, 204);
    }
    events.seen(10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_with_events_end_after_five_deliveries() {
    // Two Triggers answer each delivery, so each hop doubles their number.
    const ALL: usize = 2 + 4 + 8 + 16 + 32;
    let mut events = Events::as_installed(&[]).await;
    events.sink.seen.replies.store(true, Ordering::Relaxed);
    events.start().await;
    for name in ["one", "two"] {
        events.trigger_in(NAMESPACE, name, "sink");
    }
    for name in ["one", "two"] {
        events.trigger_is_ready(name).await;
    }
    assert_eq!(events.publish_in(NAMESPACE, "1", "x").await, 204);
    events.seen(ALL).await;
    until("all are noted as delivered", || events.noted() == ALL).await;
    assert_eq!(events.sink.count(), ALL);
}
