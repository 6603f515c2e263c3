//! Receivers whose deliveries have a token of an issuer. The issuers are fakes at their real host names, with a key that the
//! test holds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use jiff::Timestamp;
use mainstay_testkit::git_server::GitServer;
use mainstay_testkit::remote::NAME;
use mainstay_testkit::tls::PrivateCa;
use mainstay_testkit::webhooks::{client, listening, send};
use mainstay_testkit::world::{NAMESPACE, World, condition_of, config_map};
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::receivers::{TOKEN, followed_in};

const OURS: &str = "mainstay.dev/v1alpha1";
const CI: &str = "ci.example.com";
const GOOGLE: &str = "www.googleapis.com";
/// A host to which issuers redirect.
const OTHER: &str = "other.example.com";
const WOKEN: &str = "looking up the remote for GitSync demo";
const AWAY: &str =
    "the keys of the token's issuer cannot be read now; an Event of the Receiver has the reason; redeliver the webhook";

/// The state of the fakes.
#[derive(Default)]
struct Fakes {
    /// The status of all responses, instead of 200.
    status: Option<u16>,
    /// Requests, as `<host><path>`.
    asked: Vec<String>,
    keys: Vec<Value>,
}

type Shared = Arc<Mutex<Fakes>>;

/// The issuers, their key, and the CA of their certificates.
struct Issuers {
    ca: PrivateCa,
    server: GitServer,
    fakes: Shared,
    pair: EcdsaKeyPair,
    _root: tempfile::TempDir,
}

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn new_pair() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random).unwrap()
}

fn public_key(pair: &EcdsaKeyPair, name: &str) -> Value {
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    json!({"kty": "EC", "alg": "ES256", "use": "sig", "kid": name, "crv": "P-256", "x": encoded(x), "y": encoded(y)})
}

fn signed(pair: &EcdsaKeyPair, name: &str, claims: &Value) -> String {
    let header = json!({"alg": "ES256", "typ": "JWT", "kid": name}).to_string();
    let text = format!("{}.{}", encoded(header), encoded(claims.to_string()));
    let signature = pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap();
    format!("{text}.{}", encoded(signature.as_ref()))
}

async fn answer(State(fakes): State<Shared>, request: Request) -> Response {
    let host = request.headers()[header::HOST].to_str().unwrap().to_owned();
    let path = request.uri().path();
    let mut fakes = fakes.lock();
    fakes.asked.push(format!("{host}{path}"));
    if let Some(status) = fakes.status {
        let to = format!("https://{OTHER}/keys");
        return (StatusCode::from_u16(status).unwrap(), [(header::LOCATION, to)]).into_response();
    }
    let body = match path {
        "/.well-known/openid-configuration" => {
            json!({"issuer": format!("https://{host}"), "jwks_uri": format!("https://{host}/keys"), "other": [1]})
        }
        _ => json!({"keys": fakes.keys}),
    };
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

impl Issuers {
    async fn start() -> Self {
        let (ca, root) = (PrivateCa::new(), tempfile::tempdir().unwrap());
        let pair = new_pair();
        let fakes = Arc::new(Mutex::new(Fakes { keys: vec![public_key(&pair, "k1")], ..Fakes::default() }));
        let mut router = Router::new();
        for path in ["/.well-known/openid-configuration", "/keys", "/oauth2/v3/certs"] {
            router = router.route(path, axum::routing::any(answer));
        }
        let router = router.with_state(Arc::clone(&fakes));
        let server = GitServer::start_tls_with(root.path(), ca.server_for(&[CI, GOOGLE, OTHER]), router).await;
        Self { ca, server, fakes, pair, _root: root }
    }

    /// Returns a world whose agent finds the issuers under their hosts, and trusts their CA.
    async fn world(&self) -> World {
        let mut world = World::with_functions().await;
        world.clouds.authorities = Some(self.ca.pem());
        let address: SocketAddr = self.server.base().trim_start_matches("https://").parse().unwrap();
        world.hosts = [CI, GOOGLE, OTHER].map(|host| (host.to_owned(), address)).into();
        world
    }

    fn asked(&self) -> Vec<String> {
        self.fakes.lock().asked.clone()
    }

    /// Returns a token with usual claims of CI after a change.
    fn token(&self, change: &Value) -> String {
        signed(&self.pair, "k1", &claims(change))
    }
}

fn claims(change: &Value) -> Value {
    let now = Timestamp::now().as_second();
    let mut claims = json!({
        "iss": format!("https://{CI}"), "aud": "notification-controller", "sub": "repo:team/shop", "iat": now, "nbf": now,
        "exp": now + 600, "repository": "team/shop",
    });
    json_patch::merge(&mut claims, change);
    claims
}

/// Returns the spec of a Receiver for deliveries of CI.
fn of_ci() -> Value {
    json!({"type": "generic-oidc", "secretRef": null, "oidcProviders": [{
        "issuerURL": format!("https://{CI}"),
        "variables": [{"name": "allowed", "expression": "['team/shop']"}],
        "validations": [
            {"expression": "claims.repository in vars.allowed", "message": "the repository may not send deliveries"},
            {"expression": "claims.sub.startsWith('repo:')", "message": "the subject is not a repository"},
        ],
    }]})
}

async fn post(url: &str, token: &str, body: &str) -> (u16, String) {
    send(client().post(url).bearer_auth(token).body(body.to_owned())).await
}

fn events_of(world: &World, namespace: &str, name: &str) -> String {
    let events = world.server.objects("v1", "events", Some(namespace));
    let own = events.iter().filter(|event| event["involvedObject"]["name"] == name);
    own.map(|event| format!("{} {}\n", event["reason"], event["message"])).collect::<Vec<_>>().concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_a_named_issuer_authenticates_a_delivery() {
    let issuers = Issuers::start().await;
    let (mut world, _server, _) = followed_in(issuers.world().await).await;
    world.receiver("ci", of_ci());
    let url = world.receiver_url("ci").await;
    assert_eq!(issuers.asked(), [""; 0], "no issuer is asked before a delivery");
    // Neither a delivery without a token nor one for others causes a request to an issuer.
    let missing = "the header Authorization is missing: let the sender add a bearer token of the issuer";
    assert_eq!(send(client().post(&url)).await, (400, missing.to_owned()));
    for (change, why) in [
        (json!({"iss": "https://evil.example.com"}), "the issuer of the token (iss) is not an issuer of this Receiver"),
        (json!({"aud": "another"}), "the audience of the token (aud) is not that of this Receiver"),
        (json!({"exp": 1_000_000}), "the token has expired (exp)"),
        (json!({"nbf": Timestamp::now().as_second() + 300}), "the token is not valid yet (nbf)"),
    ] {
        assert_eq!(post(&url, &issuers.token(&change), "{}").await, (400, why.to_owned()), "{change}");
    }
    assert_eq!(issuers.asked(), [""; 0]);

    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    assert_eq!(post(&url, &issuers.token(&json!({})), "{}").await, (200, WOKEN.to_owned()));
    world.until("the push is applied", |w| w.data("a") == "2").await;
    let once = [format!("{CI}/.well-known/openid-configuration"), format!("{CI}/keys")];
    assert_eq!(issuers.asked(), once);
    let before = world.lookups().await;
    let (forger, token) = (new_pair(), issuers.token(&json!({})));
    let bare = token.rsplit_once('.').unwrap().0;
    let unsigned = format!("{}.{}.", encoded(r#"{"alg": "none"}"#), encoded(claims(&json!({})).to_string()));
    let signature = "the signature of the token does not match the keys of its issuer";
    let algorithm =
        "the algorithm of the token is not supported: use RS256, RS384, RS512, PS256, PS384, PS512, ES256 or ES384";
    for (token, why) in [
        (signed(&forger, "k1", &claims(&json!({}))), signature),
        (format!("{bare}.AAAA"), signature),
        (signed(&forger, "k2", &claims(&json!({}))), "the issuer has no key with the name in the token (kid)"),
        (unsigned, algorithm),
        (
            issuers.token(&json!({"repository": "evil/shop"})),
            "the token is refused: the repository may not send deliveries",
        ),
        (
            issuers.token(&json!({"repository": "evil/shop", "sub": "user"})),
            "the token is refused: the repository may not send deliveries; the subject is not a repository",
        ),
    ] {
        assert_eq!(post(&url, &token, "{}").await, (400, why.to_owned()));
    }
    assert_eq!(world.lookups().await, before);
    // An unknown key is looked for once a minute.
    assert!(issuers.asked().chunks(2).all(|pair| pair == once), "{:?}", issuers.asked());
    let refused = |w: &World| events_of(w, NAMESPACE, "ci").contains("a delivery was refused");
    world.until("an Event says that a delivery was refused", refused).await;
    for event in [events_of(&world, NAMESPACE, "ci"), world.receiver_status("ci").to_string()] {
        assert!(!event.contains(bare), "{event}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_that_fails_or_redirects_delays_deliveries() {
    let issuers = Issuers::start().await;
    let (mut world, _server, _) = followed_in(issuers.world().await).await;
    world.receiver("ci", of_ci());
    let url = world.receiver_url("ci").await;
    issuers.fakes.lock().status = Some(302);
    let token = issuers.token(&json!({}));
    assert_eq!(post(&url, &token, "{}").await, (503, AWAY.to_owned()));
    assert_eq!(post(&url, &token, "{}").await, (503, AWAY.to_owned()));
    let configuration = format!("{CI}/.well-known/openid-configuration");
    assert!(issuers.asked().iter().all(|asked| *asked == configuration), "a redirect is not followed");
    let why = format!("the keys of the issuer at {CI} cannot be read: it redirects (302), which is not followed");
    world.until("an Event has the reason", |w| events_of(w, NAMESPACE, "ci").contains(&why)).await;
    issuers.fakes.lock().status = None;
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    let healed = async {
        while post(&url, &token, "{}").await.0 != 200 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    assert!(tokio::time::timeout(mainstay_testkit::PATIENCE, healed).await.is_ok(), "the issuer is asked again");
    world.until("the push is applied", |w| w.data("a") == "2").await;
}

/// The namespace of a tenant.
const SHOP: &str = "mainstay-tests-shop";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_does_not_have_an_issuer_at_an_internal_address_asked() {
    let issuers = Issuers::start().await;
    let mut world = issuers.world().await;
    world.allow_networks.clear();
    world.receive = Some(listening());
    world.create("v1", "namespaces", "", json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SHOP}}));
    let create = |name: &str, issuer: &str| {
        let mut spec = of_ci();
        spec.as_object_mut().unwrap().remove("secretRef");
        spec["oidcProviders"][0]["issuerURL"] = issuer.into();
        let metadata = json!({"name": name, "namespace": SHOP});
        let object = json!({"apiVersion": OURS, "kind": "Receiver", "metadata": metadata, "spec": spec});
        world.create(OURS, "receivers", SHOP, object);
    };
    let by_address = issuers.server.base();
    let cases = [
        ("by-name", format!("https://{CI}"), "may not reach"),
        ("by-address", by_address, "may not reach"),
        ("metadata", "https://169.254.169.254".to_owned(), "cannot be read: connections to link-local"),
    ];
    for (name, issuer, _) in &cases {
        create(name, issuer);
    }
    world.start();
    for (name, issuer, why) in &cases {
        let status = |w: &World| w.server.object(OURS, "receivers", SHOP, name).map(|one| one["status"].clone());
        let is_ready = |w: &World| status(w).is_some_and(|status| condition_of(&status, "Ready").starts_with("True"));
        world.until("the Receiver is served", is_ready).await;
        let url = status(&world).unwrap()["url"].as_str().unwrap().to_owned();
        let token = issuers.token(&json!({"iss": issuer}));
        assert_eq!(post(&url, &token, "{}").await, (503, AWAY.to_owned()), "{issuer}");
        let said = |w: &World| events_of(w, SHOP, name);
        world.until_or("the reason", |w| said(w).contains(why), || said(&world)).await;
    }
    assert_eq!(issuers.asked(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_subscription_of_google_reports_an_image() {
    let issuers = Issuers::start().await;
    let (mut world, _server, _) = followed_in(issuers.world().await).await;
    let (email, audience) = ("push@shop.iam.gserviceaccount.com", "https://hooks.example.com");
    world.set_secret("google", json!({"token": TOKEN, "email": email}));
    world.receiver("gcr", json!({"type": "gcr", "secretRef": {"name": "google"}}));
    world.receiver_is("gcr", "False TokenNotFound: Secret google has no key audience").await;
    world.set_secret("google", json!({"token": TOKEN, "email": email, "audience": audience}));
    let url = world.receiver_url("gcr").await;
    let of_google = |change: Value| {
        let mut all = json!({
            "iss": "https://accounts.google.com", "aud": audience, "email": email, "email_verified": true, "nbf": null,
        });
        json_patch::merge(&mut all, &change);
        issuers.token(&all)
    };
    let data = BASE64_STANDARD.encode(r#"{"action": "INSERT", "tag": "us-docker.pkg.dev/shop/web/web:1"}"#);
    let message = json!({"data": data, "messageId": "1", "publishTime": "2026-01-01T00:00:00Z"});
    let body = json!({"message": message, "subscription": "projects/shop/subscriptions/push"}).to_string();
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    let wrong = "the token is not of the service account in the key email of the Receiver's Secret";
    for change in [
        json!({"email": "push@evil.iam.gserviceaccount.com"}),
        json!({"email_verified": false}),
        json!({"email": null}),
    ] {
        assert_eq!(post(&url, &of_google(change.clone()), &body).await, (400, wrong.to_owned()), "{change}");
    }
    for (change, why) in [
        (
            json!({"iss": "https://accounts.google.com.evil.org"}),
            "the issuer of the token (iss) is not an issuer of this Receiver",
        ),
        (json!({"aud": "https://other.example.com"}), "the audience of the token (aud) is not that of this Receiver"),
    ] {
        assert_eq!(post(&url, &of_google(change), &body).await, (400, why.to_owned()));
    }
    let (status, text) = post(&url, &of_google(json!({})), r#"{"message": {"data": ""}}"#).await;
    assert!(status == 400 && text.contains("message.data must be JSON in Base64"), "{text}");
    assert_eq!(post(&url, &of_google(json!({})), &body).await, (200, WOKEN.to_owned()));
    world.until("the delivery is acted on", |w| w.data("a") == "2").await;
    assert_eq!(issuers.asked(), [format!("{GOOGLE}/oauth2/v3/certs")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cdevent_of_a_selected_type_looks_up_all_sources() {
    let (mut world, server, _) = followed_in(World::with_functions().await).await;
    let merged = "dev.cdevents.change.merged.0.2.0";
    world.receiver("events", json!({"type": "cdevents", "events": [merged]}));
    let url = world.receiver_url("events").await;
    let deliver = async |header: &str, body: String| {
        let request = client().post(&url).header("Ce-Type", header).header("Content-Type", "application/json");
        send(request.body(body)).await
    };
    let event = json!({
        "context": {"version": "0.4.1", "id": "1", "source": "/ci", "type": merged, "timestamp": "2026-01-01T00:00:00Z"},
        "subject": {"id": "7", "type": "change", "content": {"repository": {"id": server.url(NAME)}}},
    });
    world.remote.file("objects/a.yaml", config_map("a", "2")).commit("two");
    let ignored = (200, "ignored: the Receiver does not select this event type".to_owned());
    assert_eq!(deliver("dev.cdevents.change.created.0.2.0", event.to_string()).await, ignored);
    let (status, text) = deliver(merged, json!({"context": {}, "subject": {}}).to_string()).await;
    assert!(status == 400 && text.starts_with("the body is not a payload of this type of host"), "{text}");
    assert_eq!(world.data("a"), "1");
    assert_eq!(deliver(merged, event.to_string()).await, (200, WOKEN.to_owned()));
    world.until("the delivery is acted on", |w| w.data("a") == "2").await;
}
