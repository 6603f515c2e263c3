//! Providers of type `nats`, against the real server.

use async_nats::{Client, ConnectOptions, Subscriber};
use futures::StreamExt as _;
use serde_json::{Value, json};

use super::{OURS, alert, create, is, world};
use mainstay_testkit::canary::nothing_is_shown;
use mainstay_testkit::nats_server::NatsServers;
use mainstay_testkit::proxy::Proxy;
use mainstay_testkit::world::World;
use mainstay_testkit::{PATIENCE, logs};

const SUBJECT: &str = "mainstay.events";
const PASSWORD: &str = "hunter2";
const WRONG: &str = "canary-of-a-wrong-password";

/// An independent client that has subscribed to the subject.
struct Subscribed {
    _client: Client,
    messages: Subscriber,
}

impl Subscribed {
    async fn to(nats: &NatsServers) -> Self {
        let options = ConnectOptions::with_user_and_password("mainstay".to_owned(), PASSWORD.to_owned());
        let options = options.add_root_certificates(nats.credentials().join("ca.crt"));
        let client = options.connect(nats.address().to_string()).await.unwrap();
        let messages = client.subscribe(SUBJECT).await.unwrap();
        client.flush().await.unwrap();
        Self { _client: client, messages }
    }

    /// Waits for the message of this Provider about the applied commit.
    async fn applied(&mut self, provider: &str) -> Value {
        let received = async {
            loop {
                let message = self.messages.next().await.expect("the subscription continues");
                let event: Value = serde_json::from_slice(&message.payload).unwrap();
                if event["reason"] == "Applied" && event["metadata"]["provider"] == provider {
                    return event;
                }
            }
        };
        tokio::time::timeout(PATIENCE, received).await.expect("the message arrives")
    }
}

/// Creates a Provider with an Alert. `more` are further fields of its spec; null removes one.
fn provider(world: &World, name: &str, address: &str, more: &Value) {
    let mut spec = json!({"type": "nats", "address": address, "channel": SUBJECT, "secretRef": {"name": "login"}});
    let fields = spec.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    fields.retain(|_, value| !value.is_null());
    create(world, "Provider", "providers", name, spec);
    let mut alert = alert(name);
    alert["eventMetadata"] = json!({"provider": name});
    create(world, "Alert", "alerts", name, alert);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_is_published_over_tls_to_the_host_that_the_certificate_names() {
    logs::keep();
    let (mut world, nats) = (world().await, NatsServers::one());
    let mut subscribed = Subscribed::to(&nats).await;
    let (address, port) = (nats.address(), nats.address().port());
    let authority = std::fs::read_to_string(nats.credentials().join("ca.crt")).unwrap();
    world.set_secret("login", json!({"username": "mainstay", "password": PASSWORD}));
    world.set_secret("ca", json!({"ca.crt": authority}));
    world.set_secret("in-address", json!({"address": format!("tls://mainstay:{PASSWORD}@{address}")}));
    let trusted = json!({"certSecretRef": {"name": "ca"}});
    let through = [Proxy::http("me", PASSWORD), Proxy::socks("me", PASSWORD)];
    world.set_secret("proxy", json!({"address": through[0].address(), "username": "me", "password": WRONG}));
    let with_proxy = json!({"certSecretRef": {"name": "ca"}, "proxySecretRef": {"name": "proxy"}});
    provider(&world, "wrong-proxy", &format!("tls://{address}"), &with_proxy);
    provider(&world, "bus", &format!("nats://{address}"), &trusted);
    provider(&world, "other-name", &format!("tls://localhost:{port}"), &trusted);
    provider(&world, "unknown", &format!("nats://{address}"), &json!({}));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    let applied = subscribed.applied("bus").await;
    assert_eq!(applied["metadata"]["revision"], format!("sha1:{}", world.remote.head()));
    assert_eq!((&applied["involvedObject"]["kind"], &applied["severity"]), (&json!("GitSync"), &json!("info")));
    is(&mut world, "providers", "bus", "True Sending: sends to 127.0.0.1").await;
    let refused = "False NotDelivered: localhost: TLS: the server's certificate is for a different name";
    is(&mut world, "providers", "other-name", refused).await;
    is(&mut world, "providers", "unknown", "False NotDelivered: 127.0.0.1: TLS: no CA that is trusted").await;
    let denied = "False NotDelivered: 127.0.0.1: the proxy requires a valid user name and password";
    is(&mut world, "providers", "wrong-proxy", denied).await;
    // The waiting message arrives after the correction.
    let corrected = json!({"spec": {"certSecretRef": {"name": "ca"}, "secretRef": {"name": "in-address"}}});
    world.edit(OURS, "providers", "unknown", corrected);
    is(&mut world, "providers", "unknown", "True Sending").await;
    subscribed.applied("unknown").await;
    let corrected = json!({"stringData": {"password": PASSWORD, "address": through[1].address()}});
    world.edit("v1", "secrets", "proxy", corrected);
    subscribed.applied("wrong-proxy").await;
    is(&mut world, "providers", "wrong-proxy", "True Sending").await;
    nothing_is_shown(&mut world, &[PASSWORD, WRONG]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_login_or_subject_is_named_and_tried_again() {
    logs::keep();
    let (mut world, nats) = (world().await, NatsServers::plain());
    let mut subscribed = Subscribed::to(&nats).await;
    let address = format!("nats://{}", nats.address());
    world.set_secret("login", json!({"username": "mainstay", "password": PASSWORD}));
    world.set_secret("wrong", json!({"username": "mainstay", "password": WRONG}));
    provider(&world, "bus", &address, &json!({"secretRef": {"name": "wrong"}}));
    provider(&world, "anonymous", &address, &json!({"secretRef": null}));
    provider(&world, "other-subject", &address, &json!({"channel": "orders.created"}));
    provider(&world, "with-tls", &address.replace("nats:", "tls:"), &json!({}));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    let refused = "False NotDelivered: 127.0.0.1: the service refuses the credentials; correct the Secret";
    is(&mut world, "providers", "bus", refused).await;
    is(&mut world, "providers", "anonymous", refused).await;
    let not_permitted = "False NotDelivered: 127.0.0.1: the user may not publish to the subject in spec.channel";
    is(&mut world, "providers", "other-subject", not_permitted).await;
    is(&mut world, "providers", "with-tls", "False NotDelivered: 127.0.0.1: the server has no TLS").await;
    world.edit("v1", "secrets", "wrong", json!({"stringData": {"password": PASSWORD}}));
    is(&mut world, "providers", "bus", "True Sending").await;
    subscribed.applied("bus").await;
    world.edit(OURS, "providers", "other-subject", json!({"spec": {"channel": "mainstay.*"}}));
    is(&mut world, "providers", "other-subject", "False SpecInvalid: spec.channel: must be a subject").await;
    nothing_is_shown(&mut world, &[WRONG]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_or_is_not_one_of_nats_delays_no_other_provider() {
    let (mut world, nats) = (world().await, NatsServers::plain());
    let mut subscribed = Subscribed::to(&nats).await;
    // The system accepts connections to it, and no program responds.
    let stuck = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let web = super::Service::start().await;
    world.set_secret("login", json!({"username": "mainstay", "password": PASSWORD}));
    for (name, address) in [("stuck", stuck.local_addr().unwrap()), ("web", web.address), ("bus", nats.address())] {
        provider(&world, name, &format!("nats://{address}"), &json!({"timeout": "1s"}));
    }
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    subscribed.applied("bus").await;
    is(&mut world, "providers", "bus", "True Sending").await;
    let timed_out = "False NotDelivered: 127.0.0.1: timed out after 1 s while publishing a message";
    is(&mut world, "providers", "stuck", timed_out).await;
    is(&mut world, "providers", "web", "False NotDelivered: 127.0.0.1: ").await;
    assert!(web.seen.requests.lock().is_empty());
}
