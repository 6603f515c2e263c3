//! Providers of type `azureeventhub`, `googlepubsub` and `azuredevops` with identities of clouds and keys. The token
//! endpoints and the services are fakes at their real host names, which check what a real one checks.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, header};
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine as _};
use jiff::Timestamp;
use parking_lot::Mutex;
use ring::hmac;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use serde_json::{Value, json};

use super::{OURS, alert, create, is, world};
use mainstay_testkit::canary::nothing_is_shown;
use mainstay_testkit::tls::{PrivateCa, TlsListener};
use mainstay_testkit::world::{NAMESPACE, World};
use mainstay_testkit::{logs, rsa_key};

const ENTRA: &str = "login.microsoftonline.com";
const STS: &str = "sts.googleapis.com";
const OAUTH: &str = "oauth2.googleapis.com";
const TOPICS: &str = "pubsub.googleapis.com";
const HUBS: &str = "shop.servicebus.windows.net";
const DEV_OPS: &str = "dev.azure.com";
const HOSTS: [&str; 6] = [ENTRA, STS, OAUTH, TOPICS, HUBS, DEV_OPS];
const TENANT: &str = "azure.workload.identity/tenant-id";
const CLIENT: &str = "azure.workload.identity/client-id";
const POOL: &str = "gcp.auth.fluxcd.io/workload-identity-provider";
const IDENTITY_PROVIDER: &str = "projects/1/locations/global/workloadIdentityPools/pool/providers/cluster";
const EMAIL: &str = "sender@shop.iam.gserviceaccount.com";
/// The beginning of all tokens that the fakes issue.
const TOKEN: &str = "canary-of-the-tokens";
const KEY: &str = "canary-of-the-key";

/// The state of the fakes.
#[derive(Default)]
struct Fakes {
    /// The public key of the service account at Google.
    public: Vec<u8>,
    /// Token endpoints refuse.
    refuses: bool,
    /// Services refuse.
    forbids: bool,
    /// Requests for tokens, as `HOST WHAT`.
    asked: Vec<String>,
    /// The accepted events, as the login and the event; for a topic also its attributes.
    received: Vec<(&'static str, Value, Value)>,
}

type Shared = Arc<Mutex<Fakes>>;

/// Serves the fakes. The agent of the world finds them, and trusts their CA.
async fn serve(world: &mut World) -> (Shared, String) {
    let ca = PrivateCa::new();
    let fakes = Shared::default();
    let listener = TlsListener::bind(ca.server_for(&HOSTS)).await;
    let address: SocketAddr = axum::serve::Listener::local_addr(&listener).unwrap();
    let router = Router::new().fallback(answer).with_state(Arc::clone(&fakes));
    tokio::spawn(async move { axum::serve(listener, router).await });
    world.clouds.authorities = Some(ca.pem());
    for host in HOSTS {
        world.hosts.insert(host.to_owned(), address);
    }
    (fakes, ca.pem())
}

fn response(status: u16, body: impl Into<Body>) -> Response<Body> {
    Response::builder().status(status).header("content-type", "application/json").body(body.into()).unwrap()
}

async fn answer(State(fakes): State<Shared>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let host = head.headers[header::HOST].to_str().unwrap().to_owned();
    let mut fakes = fakes.lock();
    let token = match (&*host, head.uri.path()) {
        (ENTRA, "/contoso/oauth2/v2.0/token") => entra(&body),
        (STS, "/v1/token") => sts(&body),
        (OAUTH, "/token") => key_token(&fakes.public, &body),
        _ if fakes.forbids => return response(403, TOKEN),
        (host, path) => {
            let received = accepted(host, path, &head.headers, &body);
            let is_accepted = received.is_some();
            fakes.received.extend(received);
            return if is_accepted { response(201, "{}") } else { response(400, TOKEN) };
        }
    };
    let asked = format!("{host} {}", token.unwrap_or("invalid"));
    fakes.asked.push(asked);
    match token {
        Some(_) if fakes.refuses => {
            response(401, json!({"error": "invalid_client", "error_codes": [700_213], "x": TOKEN}).to_string())
        }
        Some(name) => response(
            200,
            json!({"token_type": "Bearer", "expires_in": 3600, "access_token": format!("{TOKEN}-{name}")}).to_string(),
        ),
        None => response(400, TOKEN),
    }
}

fn form(body: &[u8]) -> Value {
    form_urlencoded::parse(body).map(|(name, value)| (name.into_owned(), Value::from(value.into_owned()))).collect()
}

/// Returns the claims of a token.
fn claims(token: &str) -> Value {
    let claims = token.split('.').nth(1).and_then(|claims| BASE64_URL_SAFE_NO_PAD.decode(claims).ok());
    claims.and_then(|claims| serde_json::from_slice(&claims).ok()).unwrap_or_default()
}

/// Whether a token is of the ServiceAccount `sender` for exactly this audience.
fn is_of_sender(token: &Value, audience: &str) -> bool {
    let claims = claims(token.as_str().unwrap_or_default());
    claims["aud"] == json!([audience]) && claims["sub"] == format!("system:serviceaccount:{NAMESPACE}:sender")
}

fn entra(body: &[u8]) -> Option<&'static str> {
    let form = form(body);
    let is_right = form["grant_type"] == "client_credentials"
        && form["client_id"].as_str()?.starts_with("client-")
        && is_of_sender(&form["client_assertion"], "api://AzureADTokenExchange");
    let name = match form["scope"].as_str()? {
        "https://eventhubs.azure.net//.default" => "hubs",
        "499b84ac-1321-427f-aa17-267ca6975798/.default" => "statuses",
        _ => return None,
    };
    is_right.then_some(name)
}

fn sts(body: &[u8]) -> Option<&'static str> {
    let (form, audience) = (form(body), format!("//iam.googleapis.com/{IDENTITY_PROVIDER}"));
    let is_right = form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
        && form["audience"] == *audience
        && is_of_sender(&form["subject_token"], &audience);
    is_right.then_some("topics")
}

fn key_token(public: &[u8], body: &[u8]) -> Option<&'static str> {
    let form = form(body);
    let assertion = form["assertion"].as_str()?;
    let (signed, signature) = assertion.rsplit_once('.')?;
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
    UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, public).verify(signed.as_bytes(), &signature).ok()?;
    let (claims, now) = (claims(assertion), Timestamp::now().as_second());
    let is_right = form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        && claims["iss"] == EMAIL
        && claims["aud"] == format!("https://{OAUTH}/token")
        && claims["scope"] == "https://www.googleapis.com/auth/pubsub"
        && claims["iat"].as_i64()? <= now
        && now < claims["exp"].as_i64()?;
    is_right.then_some("key")
}

/// Whether a value of `Authorization` is a signature with the shared access key.
fn is_signature(given: &str) -> bool {
    let given = form(given.strip_prefix("SharedAccessSignature ").unwrap_or_default().as_bytes());
    let at = |name: &str| given[name].as_str().unwrap_or_default().to_owned();
    let encoded: String = form_urlencoded::byte_serialize(format!("https://{HUBS}/events").as_bytes()).collect();
    let key = hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes());
    let expected = BASE64_STANDARD.encode(hmac::sign(&key, format!("{encoded}\n{}", at("se")).as_bytes()));
    let is_valid = at("se").parse::<i64>().is_ok_and(|end| end > Timestamp::now().as_second());
    is_valid && at("sig") == expected && at("skn") == "send" && at("sr") == format!("https://{HUBS}/events")
}

/// Returns the login and the event if a service accepts a request, with its attributes.
fn accepted(host: &str, path: &str, headers: &HeaderMap, body: &[u8]) -> Option<(&'static str, Value, Value)> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let token = given.strip_prefix(&format!("Bearer {TOKEN}-"));
    let body: Value = serde_json::from_slice(body).ok()?;
    match (host, path, token) {
        (HUBS, "/events/messages", Some("hubs")) => Some(("hub by identity", body, Value::Null)),
        (HUBS, "/events/messages", None) if is_signature(given) => Some(("hub by key", body, Value::Null)),
        (TOPICS, "/v1/projects/shop/topics/events:publish", Some(by @ ("topics" | "key"))) => {
            let message = &body["messages"][0];
            let event = serde_json::from_slice(&BASE64_STANDARD.decode(message["data"].as_str()?).ok()?).ok()?;
            let login = if by == "key" { "topic by key" } else { "topic by identity" };
            Some((login, event, message["attributes"].clone()))
        }
        (DEV_OPS, path, Some("statuses")) if path.starts_with("/o/p/_apis/git/repositories/r/commits/") => {
            Some(("status by identity", body, Value::Null))
        }
        _ => None,
    }
}

/// Creates the ServiceAccount `sender` with annotations.
fn sender(world: &World, annotations: Value) {
    let metadata = json!({"name": "sender", "namespace": NAMESPACE, "annotations": annotations});
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    world.create("v1", "serviceaccounts", NAMESPACE, account);
}

fn provider(world: &World, name: &str, spec: Value) {
    create(world, "Provider", "providers", name, spec);
    create(world, "Alert", "alerts", name, alert(name));
}

/// Waits until a service has received the event about the commit.
async fn received(world: &World, fakes: &Shared, login: &str) -> (Value, Value) {
    let revision = format!("sha1:{}", world.remote.head());
    let find = || {
        let fakes = fakes.lock();
        let is_it = |(by, event, _): &&(&'static str, Value, Value)| {
            *by == login && (event["metadata"]["revision"] == *revision || event["state"] == "succeeded")
        };
        fakes.received.iter().find(is_it).map(|(_, event, attributes)| (event.clone(), attributes.clone()))
    };
    let shown = || {
        let fakes = fakes.lock();
        format!("{:?} {:?}", fakes.asked, fakes.received)
    };
    world.until_or(login, |_| find().is_some(), shown).await;
    find().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_reach_hubs_and_topics_by_identities_and_by_keys() {
    logs::keep();
    let mut world = world().await;
    let (fakes, ca) = serve(&mut world).await;
    let pem = rsa_key();
    let der: String = pem.lines().filter(|line| !line.starts_with("-----")).collect();
    let pair = RsaKeyPair::from_der(&BASE64_STANDARD.decode(der).unwrap()).unwrap();
    fakes.lock().public = pair.public().as_ref().to_vec();
    let key = json!({
        "type": "service_account", "private_key": pem, "private_key_id": "k1", "client_email": EMAIL,
        "token_uri": format!("https://{OAUTH}/token"),
    });
    let address = format!("Endpoint=sb://{HUBS}/;SharedAccessKeyName=send;SharedAccessKey={KEY};EntityPath=events");
    world.set_secret("ca", json!({"ca.crt": ca}));
    world.set_secret("hub", json!({"address": address}));
    world.set_secret("topic", json!({"token": key.to_string(), "headers": "team: web"}));
    sender(&world, json!({TENANT: "contoso", CLIENT: "client-1", POOL: IDENTITY_PROVIDER}));
    let hub = json!({"type": "azureeventhub", "address": "events", "channel": "shop", "serviceAccountName": "sender"});
    provider(&world, "hub-identity", hub);
    let by_secret = |name: &str| json!({"secretRef": {"name": name}, "certSecretRef": {"name": "ca"}});
    let with = |mut spec: Value, more: Value| {
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    provider(&world, "hub-key", with(json!({"type": "azureeventhub"}), by_secret("hub")));
    let topic = json!({"type": "googlepubsub", "address": "shop", "channel": "events"});
    provider(&world, "topic-identity", with(topic.clone(), json!({"serviceAccountName": "sender"})));
    provider(&world, "topic-key", with(topic, by_secret("topic")));
    let repository = "https://dev.azure.com/o/p/_git/r";
    let statuses = json!({"type": "azuredevops", "address": repository, "serviceAccountName": "sender"});
    provider(&world, "statuses", statuses);
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    for login in ["hub by identity", "hub by key", "topic by identity"] {
        let (event, attributes) = received(&world, &fakes, login).await;
        assert_eq!((&event["involvedObject"]["kind"], &event["severity"]), (&json!("GitSync"), &json!("info")));
        assert_eq!(attributes, Value::Null, "{login}");
    }
    let (event, attributes) = received(&world, &fakes, "topic by key").await;
    assert_eq!((&event["involvedObject"]["name"], attributes), (&json!("demo"), json!({"team": "web"})));
    let (status, _) = received(&world, &fakes, "status by identity").await;
    assert_eq!(status["state"], "succeeded");
    for (name, host) in [
        ("hub-identity", HUBS),
        ("hub-key", HUBS),
        ("topic-identity", TOPICS),
        ("topic-key", TOPICS),
        ("statuses", DEV_OPS),
    ] {
        is(&mut world, "providers", name, &format!("True Sending: sends to {host}")).await;
    }
    let mut asked = fakes.lock().asked.clone();
    asked.sort();
    let [hubs, statuses] = ["hubs", "statuses"].map(|name| format!("{ENTRA} {name}"));
    assert_eq!(asked, [hubs, statuses, format!("{OAUTH} key"), format!("{STS} topics")], "tokens are kept");
    nothing_is_shown(&mut world, &[TOKEN, KEY, EMAIL]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_annotation_and_a_refusal_of_the_cloud_are_named() {
    logs::keep();
    let mut world = world().await;
    let (fakes, _) = serve(&mut world).await;
    sender(&world, json!({}));
    let hub = |account: &str| json!({"type": "azureeventhub", "address": "events", "channel": "shop", "serviceAccountName": account});
    provider(&world, "hub", hub("sender"));
    provider(&world, "absent", hub("nobody"));
    provider(&world, "agent", json!({"type": "azureeventhub", "address": "events", "channel": "shop"}));
    world.sync("demo", json!({"baseDir": "/objects"}));
    world.start();
    world.ready("demo").await;
    let missing = format!(
        "False SpecInvalid: ServiceAccount {NAMESPACE}/sender is not set up for provider azure: the annotation {TENANT} is \
         missing; set it to the id of the application or tenant"
    );
    is(&mut world, "providers", "hub", &missing).await;
    let absent =
        format!("False SpecInvalid: the ServiceAccount {NAMESPACE}/nobody, which spec.serviceAccountName names");
    is(&mut world, "providers", "absent", &absent).await;
    let unset =
        "False SpecInvalid: the agent is not set up for provider azure: the variable AZURE_TENANT_ID is missing";
    is(&mut world, "providers", "agent", unset).await;
    assert_eq!(fakes.lock().asked, [""; 0]);

    // The Provider changes, too, because ServiceAccounts are only read again after a minute.
    fakes.lock().refuses = true;
    let annotate = |client: &str| json!({"metadata": {"annotations": {TENANT: "contoso", CLIENT: client}}});
    world.edit("v1", "serviceaccounts", "sender", annotate("client-1"));
    world.edit(OURS, "providers", "hub", json!({"spec": {"timeout": "10s"}}));
    let refused = format!(
        "False NotDelivered: {HUBS}: {ENTRA} refused ServiceAccount {NAMESPACE}/sender an access token (401 invalid_client \
         AADSTS700213); the application needs a federated credential"
    );
    is(&mut world, "providers", "hub", &refused).await;
    {
        let mut fakes = fakes.lock();
        (fakes.refuses, fakes.forbids) = (false, true);
    }
    world.edit("v1", "serviceaccounts", "sender", annotate("client-2"));
    let forbidden = format!(
        "False NotDelivered: {HUBS}: the service refuses the identity of ServiceAccount sender (status 403); grant it the \
         role Azure Event Hubs Data Sender"
    );
    is(&mut world, "providers", "hub", &forbidden).await;
    fakes.lock().forbids = false;
    received(&world, &fakes, "hub by identity").await;
    is(&mut world, "providers", "hub", "True Sending").await;
    nothing_is_shown(&mut world, &[TOKEN]).await;
}
