//! APIRules: hosts that route to Services, and their effects on the gateway of the embedded cluster.

mod addresses;
pub(crate) mod istio;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use devcluster::fault_injection::Fault;
use devcluster::gateway::{Issuer, issuer::Wanted};
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Gateway, gateway};
use reqwest::{Method, header};
use serde_json::{Value, json};

use mainstay_testkit::definitions;
use mainstay_testkit::server::TestServer;
use mainstay_testkit::world::{NAMESPACE, World, condition_of};

const API: &str = "gateway.kyma-project.io/v1alpha1";
pub(crate) const SERVICES: (&str, &str) = ("networking.istio.io/v1beta1", "virtualservices");
pub(crate) const RULES: (&str, &str) = ("oathkeeper.ory.sh/v1alpha1", "rules");
pub(crate) const ROUTES: (&str, &str) = ("gateway.networking.k8s.io/v1", "httproutes");
const OTHER: &str = "mainstay-tests-other";
const HOST: &str = "my-function.kyma.local";

/// Returns a world that serves APIRules, with the CRDs of these kinds. The agent does not run yet.
pub(crate) async fn world_with(kinds: &[(&str, &str)]) -> World {
    let world = World::new().await;
    let own = serde_json::to_value(mainstay_api::api_rule::definition()).unwrap();
    world.define_only(std::iter::once(own).chain(kinds.iter().map(|kind| definition(*kind))).collect());
    world.create("v1", "namespaces", "", json!({"metadata": {"name": OTHER}}));
    world
}

/// The gateway of the embedded cluster. Other clusters have none, so requests to hosts are not checked there.
struct Front(Option<Gateway>);

impl Front {
    async fn of(world: &World, issuer: Option<Issuer>) -> Self {
        match &world.server {
            TestServer::Embedded(server) => {
                let issuers = issuers_inside();
                Self(Some(Gateway::start_with(server, loopback(), issuer, &issuers).await.unwrap()))
            }
            TestServer::External(_) => Self(None),
        }
    }

    /// Checks the status of a request.
    async fn is(&self, method: Method, host: &str, path: &str, status: u16) {
        if let Some(gateway) = &self.0 {
            assert_eq!(ask(gateway, method, host, path).await.0, status, "{host}{path}");
        }
    }

    /// Waits for this status.
    async fn answers(&self, host: &str, path: &str, status: u16) {
        if let Some(gateway) = &self.0 {
            answers(gateway, host, path, status).await;
        }
    }
}

/// Returns a world with Istio and Oathkeeper, a Service `my-function`, an agent, and a gateway.
async fn exposing() -> (World, Front) {
    exposing_with(None).await
}

/// Returns the same world for tests of the gateway itself.
async fn with_gateway(issuer: Option<Issuer>) -> (World, Gateway) {
    let (world, front) = exposing_with(issuer).await;
    (world, front.0.expect("this test needs the gateway of the embedded cluster"))
}

/// Returns the same world with an issuer of tokens.
async fn exposing_with(issuer: Option<Issuer>) -> (World, Front) {
    let mut world = world_with(&[SERVICES, RULES]).await;
    world.exposure.allowed_issuers = issuers_inside().iter().map(|url| url.parse().unwrap()).collect();
    let front = Front::of(&world, issuer).await;
    let backend = backend().await;
    world.service(NAMESPACE, "my-function", backend);
    world.service(OTHER, "my-function", backend);
    world.start();
    (world, front)
}

/// Returns the internal issuers that these tests allow.
fn issuers_inside() -> Vec<String> {
    let service = format!("http://issuer.{NAMESPACE}.svc.cluster.local");
    vec![service, "http://issuer.localhost".to_owned(), "http://issuer.localhost:8080".to_owned()]
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Returns the name of a kind's CRD.
fn defines((version, plural): (&str, &str)) -> String {
    format!("{plural}.{}", version.split_once('/').unwrap().0)
}

/// Returns a kind's CRD.
pub(crate) fn definition(kind: (&str, &str)) -> Value {
    let all = format!("{}\n---\n{}", gateway::DEFINITIONS, istio::definitions());
    definitions::definition(&defines(kind), &all)
}

/// Starts a server that echoes its requests.
async fn backend() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let said = |request: Request| async move {
        let header = |name: &str| request.headers().get(name).and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
        let (host, forwarded) = (header("host"), header("x-forwarded-host"));
        format!("Hello Serverless: {} {} {host} {forwarded}", request.method(), request.uri())
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(said)).await });
    address
}

/// Returns the spec of the tutorial.
fn tutorial(service: &str) -> Value {
    json!({
        "gateway": "kyma-gateway.kyma-system.svc.cluster.local",
        "service": {"host": HOST, "name": service, "port": 80},
        "rules": [path("/.*", &["GET", "POST", "PUT", "DELETE"], "noop", json!({}))],
    })
}

pub(crate) fn path(path: &str, methods: &[&str], handler: &str, config: Value) -> Value {
    json!({"path": path, "methods": methods, "accessStrategies": [{"handler": handler, "config": config}]})
}

pub(crate) fn with_rules(rules: Value) -> Value {
    let mut spec = tutorial("my-function");
    spec["rules"] = rules;
    spec
}

/// Requests a path of a host from the gateway. Returns status and body.
async fn ask(gateway: &Gateway, method: Method, host: &str, path: &str) -> (u16, String) {
    ask_with(gateway, method, host, path, &[]).await
}

async fn ask_with(
    gateway: &Gateway,
    method: Method,
    host: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> (u16, String) {
    // An error means that a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}{path}", gateway.address());
    let mut request = client.request(method, url).header(header::HOST, host);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// Repeats a request until it has this status.
async fn answers(gateway: &Gateway, host: &str, path: &str, status: u16) {
    let asking = async {
        while ask(gateway, Method::GET, host, path).await.0 != status {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let within = std::time::Duration::from_secs(30);
    assert!(tokio::time::timeout(within, asking).await.is_ok(), "{host}{path} is not answered with {status}");
}

/// Helpers of these tests.
pub(crate) trait ExposureWorld {
    /// Creates a Service without pods, with this endpoint. Other clusters allow no endpoint on loopback.
    fn service(&self, namespace: &str, name: &str, backend: SocketAddr);
    fn api_rule_in(&self, namespace: &str, name: &str, spec: Value);
    fn api_rule(&self, spec: Value);
    fn change_rule(&self, spec: Value);
    fn rule_status(&self, namespace: &str, name: &str) -> Value;
    /// Returns the three codes of an APIRule, and its condition, once they are about the newest spec.
    fn rule_said(&self, namespace: &str, name: &str) -> (String, String);
    async fn says_of(&self, namespace: &str, name: &str, codes: &str, condition: &str);
    /// Waits until the condition of the APIRule begins with this text.
    async fn rule_is_said(&self, condition: &str);
    async fn rule_is(&self, codes: &str, condition: &str);
    fn all(&self, kind: (&str, &str)) -> Vec<Arc<Value>>;
}

impl ExposureWorld for World {
    fn service(&self, namespace: &str, name: &str, backend: SocketAddr) {
        let metadata = json!({"name": name, "namespace": namespace});
        let ports = json!([{"port": 80, "targetPort": backend.port()}]);
        self.create("v1", "services", namespace, json!({"metadata": metadata, "spec": {"ports": ports}}));
        if let TestServer::External(_) = self.server {
            return;
        }
        let subset = json!({"addresses": [{"ip": backend.ip().to_string()}], "ports": [{"port": backend.port()}]});
        self.create("v1", "endpoints", namespace, json!({"metadata": metadata, "subsets": [subset]}));
    }

    fn api_rule_in(&self, namespace: &str, name: &str, spec: Value) {
        let metadata = json!({"name": name, "namespace": namespace});
        let rule = json!({"apiVersion": API, "kind": "APIRule", "metadata": metadata, "spec": spec});
        self.create(API, "apirules", namespace, rule);
    }

    fn api_rule(&self, spec: Value) {
        self.api_rule_in(NAMESPACE, "my-function", spec);
    }

    fn change_rule(&self, spec: Value) {
        self.edit(API, "apirules", "my-function", json!({"spec": spec}));
    }

    fn rule_status(&self, namespace: &str, name: &str) -> Value {
        self.server.object(API, "apirules", namespace, name).map(|rule| rule["status"].clone()).unwrap_or_default()
    }

    fn rule_said(&self, namespace: &str, name: &str) -> (String, String) {
        let Some(rule) = self.server.object(API, "apirules", namespace, name) else { return Default::default() };
        let status = &rule["status"];
        if status["observedGeneration"] != rule["metadata"]["generation"] {
            return Default::default();
        }
        let code = |field: &str| status[field]["code"].as_str().unwrap_or("-").to_owned();
        let codes = [code("APIRuleStatus"), code("virtualServiceStatus"), code("accessRuleStatus")].join(" ");
        (codes, condition_of(status, "Exposed"))
    }

    async fn says_of(&self, namespace: &str, name: &str, codes: &str, condition: &str) {
        let is = |w: &Self| {
            let (is, says) = w.rule_said(namespace, name);
            is == codes && says.starts_with(condition)
        };
        let shown = || format!("{:#}", self.rule_status(namespace, name));
        self.until_or(&format!("{namespace}/{name} to be {codes}, {condition}"), is, shown).await;
    }

    async fn rule_is_said(&self, condition: &str) {
        let is = |w: &Self| w.rule_said(NAMESPACE, "my-function").1.starts_with(condition);
        let shown = || format!("{:#}", self.rule_status(NAMESPACE, "my-function"));
        self.until_or(&format!("it is {condition}"), is, shown).await;
    }

    async fn rule_is(&self, codes: &str, condition: &str) {
        self.says_of(NAMESPACE, "my-function", codes, condition).await;
    }

    fn all(&self, kind: (&str, &str)) -> Vec<Arc<Value>> {
        self.server.objects(kind.0, kind.1, None)
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

const SERVED: (&str, &str) = ("OK OK OK", "True Served");

/// Checks that the Function of the tutorial is reachable only with the methods of its rule.
async fn is_called(gateway: &Gateway) {
    for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
        let own = format!("my-function.{NAMESPACE}.svc.cluster.local:80");
        let expected = (200, format!("Hello Serverless: {method} /a?b=c {own} {HOST}"));
        assert_eq!(ask(gateway, method, HOST, "/a?b=c").await, expected);
    }
    let missing = r#"{"error":{"code":404,"status":"Not Found","request":"7","message":"The requested resource could not be found"}}"#;
    let (status, body) = ask_with(gateway, Method::PATCH, HOST, "/", &[("x-request-id", "7")]).await;
    let as_json = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!((status, as_json(&body)), (404, as_json(missing)));
    assert!(body.ends_with("}\n"), "{body}");
    assert_eq!(ask(gateway, Method::GET, "nobody.kyma.local", "/").await, (404, String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_exposed_as_in_the_tutorial() {
    let (world, gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    gateway.answers(HOST, "/", 200).await;
    if let Some(gateway) = &gateway.0 {
        is_called(gateway).await;
    }

    let service = world.all(SERVICES).pop().unwrap();
    let label = json!(format!("my-function.{NAMESPACE}"));
    assert_eq!(service["metadata"]["labels"]["apirule.gateway.kyma-project.io/v1alpha1"], label);
    assert_eq!(service["spec"]["http"][0]["match"][0]["uri"]["regex"], "/.*");
    let rule = world.all(RULES).pop().unwrap();
    assert_eq!(rule["spec"]["match"]["url"], format!("<http|https>://{HOST}</.*>"));

    // Manual changes and deletions are reverted.
    world.delete(SERVICES.0, SERVICES.1, &name(&service));
    world.delete(RULES.0, RULES.1, &name(&rule));
    world.until("they are made again", |w| w.all(SERVICES).len() == 1 && w.all(RULES).len() == 1).await;
    let edit = json!({"spec": {"authenticators": [{"handler": "unauthorized"}]}, "metadata": {"labels": null}});
    world.edit(RULES.0, RULES.1, &name(&rule), edit);
    let is_back = |w: &World| {
        let rule = w.all(RULES).pop().unwrap();
        rule["spec"]["authenticators"][0]["handler"] == "noop" && rule["metadata"]["labels"].is_object()
    };
    world.until("it is reverted", is_back).await;

    // Another handler and another path.
    world.change_rule(json!({"rules": [path("/open", &["GET"], "allow", json!({}))]}));
    world.until("its Rule is gone", |w| w.all(RULES).is_empty()).await;
    world.rule_is(SERVED.0, SERVED.1).await;
    if let Some(gateway) = &gateway.0 {
        let open = (200, format!("Hello Serverless: PATCH /open {HOST} {HOST}"));
        assert_eq!(ask(gateway, Method::PATCH, HOST, "/open").await, open);
    }
    gateway.is(Method::GET, HOST, "/", 404).await;

    // All objects are deleted with the APIRule.
    world.delete(API, "apirules", "my-function");
    gateway.answers(HOST, "/open", 404).await;
    world.until("nothing is left", |w| w.all(SERVICES).is_empty() && w.all(RULES).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_is_one_apirules_and_the_next_gets_it_at_once() {
    let (world, gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.api_rule_in(OTHER, "late", tutorial("my-function"));
    let taken = r#"Validation error: Attribute ".spec.service.host": This host is occupied by another Virtual Service"#;
    let condition = format!("False HostOccupied: {taken}");
    world.says_of(OTHER, "late", "ERROR SKIPPED SKIPPED", &condition).await;
    assert_eq!(world.rule_status(OTHER, "late")["APIRuleStatus"]["desc"], taken);
    assert_eq!(world.all(SERVICES).len(), 1);
    world.delete(API, "apirules", "my-function");
    world.says_of(OTHER, "late", SERVED.0, SERVED.1).await;
    let other = format!("my-function.{OTHER}.svc.cluster.local:80");
    gateway.answers(HOST, "/", 200).await;
    if let Some(gateway) = &gateway.0 {
        assert!(ask(gateway, Method::GET, HOST, "/").await.1.contains(&other));
    }

    // A VirtualService of another owner counts, too.
    let theirs = json!({
        "apiVersion": SERVICES.0, "kind": "VirtualService", "metadata": {"name": "theirs", "namespace": NAMESPACE}, "spec": {"hosts": ["free.kyma.local"], "http": []},
    });
    let mut free = tutorial("my-function");
    free["service"]["host"] = json!("FREE.kyma.local");
    world.create(SERVICES.0, SERVICES.1, NAMESPACE, theirs);
    world.api_rule(free);
    world.rule_is("ERROR SKIPPED SKIPPED", "False HostOccupied").await;
    world.delete(SERVICES.0, SERVICES.1, "theirs");
    world.rule_is(SERVED.0, SERVED.1).await;
    world.says_of(OTHER, "late", SERVED.0, SERVED.1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_change_keeps_the_last_valid_version_and_reverts_its_drift() {
    let (world, gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "foo", json!({}))]}));
    let why =
        r#"Validation error: Attribute ".spec.rules[0].accessStrategies[0].handler": Unsupported accessStrategy: foo"#;
    world.rule_is("ERROR SKIPPED SKIPPED", &format!("False Invalid: {why}\nThe last valid version")).await;
    gateway.is(Method::GET, HOST, "/", 200).await;
    let rule = name(&world.all(RULES)[0]);
    world.delete(RULES.0, RULES.1, &rule);
    world.until("it is made again", |w| w.all(RULES).len() == 1).await;
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "noop", json!({}))]}));
    world.rule_is(SERVED.0, SERVED.1).await;
    assert_eq!(world.rule_status(NAMESPACE, "my-function")["APIRuleStatus"], json!({"code": "OK"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_paths_are_distinguished_by_path_and_method() {
    let (world, gateway) = with_gateway(None).await;
    let mut post = path("/post", &["POST"], "noop", json!({}));
    post["mutators"] = json!([{"handler": "noop"}]);
    world.api_rule(with_rules(json!([path("/.*", &["GET"], "noop", json!({})), post])));
    world.rule_is(SERVED.0, SERVED.1).await;
    answers(&gateway, HOST, "/ip", 200).await;
    assert_eq!(ask(&gateway, Method::POST, HOST, "/post").await.0, 200);
    assert_eq!(ask(&gateway, Method::POST, HOST, "/ip").await.0, 404);
    assert_eq!(ask(&gateway, Method::GET, HOST, "/post").await.0, 200);
    assert_eq!(ask(&gateway, Method::GET, HOST, "/ip/../post").await.0, 200, "the client makes it /post");
    let raw = [("origin", "https://page.example.com"), ("access-control-request-method", "GET")];
    assert_eq!(ask_with(&gateway, Method::OPTIONS, HOST, "/ip", &raw).await, (200, String::new()));

    // A missing Service is reported, and no route points to it.
    world.delete("v1", "services", "my-function");
    world.rule_is("ERROR SKIPPED SKIPPED", "False ServiceNotFound: Service my-function not found").await;
    assert_eq!(ask(&gateway, Method::GET, HOST, "/ip").await, (404, String::new()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_checked() {
    use base64::Engine as _;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING as SIGNING, EcdsaKeyPair, KeyPair as _};
    let encode = |bytes: &[u8]| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(bytes);
    let random = ring::rand::SystemRandom::new();
    let document = EcdsaKeyPair::generate_pkcs8(&SIGNING, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&SIGNING, document.as_ref(), &random).unwrap();
    let point = pair.public_key().as_ref().to_vec();
    let key = json!({"kty": "EC", "crv": "P-256", "kid": "one", "x": encode(&point[1..33]), "y": encode(&point[33..])});
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("keys.json");
    std::fs::write(&file, json!({"keys": [key]}).to_string()).unwrap();
    let sign = |head: Value, claims: Value| {
        let text = format!("{}.{}", encode(head.to_string().as_bytes()), encode(claims.to_string().as_bytes()));
        format!("Bearer {text}.{}", encode(pair.sign(&random, text.as_bytes()).unwrap().as_ref()))
    };
    let (head, end) = (json!({"alg": "ES256", "kid": "one"}), jiff::Timestamp::now().as_second() + 600);
    let claims = |scope: &str| json!({"iss": "https://issuer.example.com", "exp": end, "scope": scope});

    let (world, gateway) = with_gateway(None).await;
    let config = json!({
        "trusted_issuers": ["https://issuer.example.com"], "required_scope": ["read"], "allowed_algorithms": ["ES256"],
        "jwks_urls": [format!("http://issuer.{NAMESPACE}.svc.cluster.local/none")],
    });
    world.api_rule(with_rules(json!([path("/.*", &["GET"], "jwt", config)])));
    world.rule_is(SERVED.0, SERVED.1).await;
    let good = sign(head.clone(), claims("read"));
    let ask = async |token: &str| {
        let headers = [("authorization", token)];
        ask_with(&gateway, Method::GET, HOST, "/", if token.is_empty() { &[] } else { &headers }).await
    };
    let (status, body) = ask("").await;
    assert_eq!((status, body.contains("The request could not be authorized")), (401, true), "{body}");
    assert_eq!(ask(&good).await.0, 401, "its keys cannot be had");
    // A Service of the cluster serves the issuer's keys.
    let keys = std::fs::read_to_string(&file).unwrap();
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    world.service(NAMESPACE, "issuer", listener.local_addr().unwrap());
    let issuer = Router::new().route("/keys", axum::routing::get(move || std::future::ready(keys.clone())));
    tokio::spawn(async move { axum::serve(listener, issuer).await });
    let url = format!("http://issuer.{NAMESPACE}.svc.cluster.local/keys");
    let config = json!({
        "trusted_issuers": ["https://issuer.example.com"], "required_scope": ["read"], "allowed_algorithms": ["ES256"],
        "jwks_urls": [url],
    });
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "jwt", config)]}));
    world.rule_is(SERVED.0, SERVED.1).await;
    let rule_of_keys = |w: &World| w.all(RULES)[0]["spec"]["authenticators"][0]["config"]["jwks_urls"][0] == *url;
    world.until("the Rule names the keys", rule_of_keys).await;
    answers_with(&gateway, &good).await;
    let expired = json!({"iss": "https://issuer.example.com", "exp": end - 1200, "scope": "read"});
    let foreign = json!({"iss": "https://other.example.com", "exp": end, "scope": "read"});
    let unsigned = format!(
        "Bearer {}.{}.",
        encode(br#"{"alg":"none","kid":"one"}"#),
        encode(claims("read").to_string().as_bytes())
    );
    for bad in [
        sign(head.clone(), claims("write")),
        sign(head.clone(), expired),
        sign(head, foreign),
        sign(json!({"alg": "ES256", "kid": "two"}), claims("read")),
        sign(json!({"alg": "none", "kid": "one"}), claims("read")),
        unsigned,
        "Bearer x".to_owned(),
    ] {
        assert_eq!(ask(&bad).await.0, 401, "{bad}");
    }
}

/// Returns two issuers with one key: one for the gateway, and one that creates tokens.
fn issuers() -> (Issuer, Issuer) {
    let key = Issuer::new_key().unwrap();
    (Issuer::new(&key).unwrap(), Issuer::new(&key).unwrap())
}

fn token(issuer: &Issuer, scope: &str, seconds: i64) -> String {
    let now = jiff::Timestamp::now().as_second();
    let (scopes, end) = ([scope.to_owned()], now + seconds);
    format!("Bearer {}", issuer.token(Wanted { subject: "me", scopes: &scopes, audiences: &[], now, end }).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secured_function_is_called_with_tokens_of_the_gateways_own_issuer() {
    let (own, issuer) = issuers();
    let (world, gateway) = with_gateway(Some(own)).await;
    let scope = json!({"required_scope": ["read"]});
    world.api_rule(with_rules(json!([
        path("/function", &["GET"], "oauth2_introspection", scope.clone()),
        path("/jwt", &["GET"], "jwt", scope.clone()),
        path("/urls", &["GET"], "jwt", json!({"jwks_urls": ["http://issuer.localhost:8080/keys"]})),
    ])));
    world.rule_is(SERVED.0, SERVED.1).await;
    answers(&gateway, HOST, "/function", 401).await;
    let ask = async |path: &str, token: &str| {
        ask_with(&gateway, Method::GET, HOST, path, &[("authorization", token)]).await.0
    };
    let (good, other, over) = (token(&issuer, "read", 600), token(&issuer, "write", 600), token(&issuer, "read", 0));
    let foreign = token(&issuers().0, "read", 600);
    let statuses = async |path: &str| {
        let mut all = Vec::new();
        for token in [&good, &other, &over, &foreign, &"Bearer x".to_owned()] {
            all.push(ask(path, token).await);
        }
        all
    };
    assert_eq!(statuses("/function").await, [200, 403, 401, 401, 401]);
    assert_eq!(statuses("/jwt").await, [200, 401, 401, 401, 401]);
    assert_eq!(statuses("/urls").await, [200, 200, 401, 401, 401]);
    // The issuer is reached through the gateway like any other host.
    let (status, keys) = self::ask(&gateway, Method::GET, "issuer.localhost:8080", "/keys").await;
    let keys: Value = serde_json::from_str(&keys).unwrap();
    assert_eq!((status, &keys["keys"][0]["alg"]), (200, &json!("ES256")));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let said = async |token: &str| -> Value {
        let asked =
            client.post(format!("http://{}/introspect", gateway.address())).header(header::HOST, "issuer.localhost");
        let answer = asked.body(format!("token={}", token.trim_start_matches("Bearer "))).send().await.unwrap();
        serde_json::from_str(&answer.text().await.unwrap()).unwrap()
    };
    assert_eq!(said(&good).await["scope"], "read");
    assert_eq!(said(&foreign).await, json!({"active": false}));
    assert_eq!(self::ask(&gateway, Method::GET, "issuer.localhost", "/introspect").await.0, 405);
    assert_eq!(self::ask(&gateway, Method::GET, "issuer.localhost", "/token").await.0, 404, "nobody is given one");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_issuer_elsewhere_says_what_a_token_may() {
    let (world, gateway) = with_gateway(None).await;
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let listener = tokio::net::TcpListener::bind(loopback()).await.unwrap();
    world.service(NAMESPACE, "issuer", listener.local_addr().unwrap());
    let counted = Arc::clone(&asked);
    let says = move |form: String| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let token = form.trim_start_matches("token=").to_owned();
        async move {
            match token.as_str() {
                "good" => Ok(json!({"active": true, "scope": "read"}).to_string()),
                "other" => Ok(json!({"active": true, "scope": "write"}).to_string()),
                "odd" => Ok("[1]".to_owned()),
                "broken" => Err(reqwest::StatusCode::BAD_GATEWAY),
                _ => Ok(json!({"active": false}).to_string()),
            }
        }
    };
    let issuer = Router::new().route("/introspect", axum::routing::post(says));
    tokio::spawn(async move { axum::serve(listener, issuer).await });
    let url = format!("http://issuer.{NAMESPACE}.svc.cluster.local/introspect");
    let config = |url: &str| json!({"introspection_url": url, "required_scope": ["read"]});
    let mut kept = config(&url);
    kept["cache"] = json!({"enabled": true, "ttl": "5m"});
    let get = |at: &str, config: Value| path(at, &["GET"], "oauth2_introspection", config);
    world.api_rule(with_rules(json!([
        get("/asked", config(&url)),
        get("/kept", kept),
        get("/none", json!({"required_scope": ["read"]})),
        get("/odd", json!({"introspection_url": url, "pre_authorization": {"enabled": true}})),
    ])));
    world.rule_is(SERVED.0, SERVED.1).await;
    answers(&gateway, HOST, "/odd", 401).await;
    let ask = async |path: &str, token: &str| {
        let token = format!("Bearer {token}");
        ask_with(&gateway, Method::GET, HOST, path, &[("authorization", token.as_str())]).await.0
    };
    for (token, status) in [("good", 200), ("other", 403), ("bad", 401), ("odd", 500), ("broken", 500)] {
        assert_eq!(ask("/asked", token).await, status, "{token}");
    }
    let count = || asked.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!((count(), ask("/asked", "good").await, count()), (5, 200, 6), "nothing is kept unasked");
    assert_eq!((ask("/kept", "good").await, ask("/kept", "good").await, count()), (200, 200, 7));
    for (path, status) in [("/none", 500), ("/odd", 401)] {
        assert_eq!(ask(path, "good").await, status, "{path}");
    }
    assert_eq!(count(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_are_served_over_https_by_an_authority_of_their_own() {
    let (world, mut gateway) = with_gateway(None).await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    answers(&gateway, HOST, "/", 200).await;
    let (address, authority) = gateway.secure(loopback()).await.unwrap();
    let (_, other) = gateway.secure(loopback()).await.unwrap();
    let ask = async |host: &str, authority: &str| {
        let root = reqwest::Certificate::from_pem(authority.as_bytes()).unwrap();
        let client = reqwest::Client::builder().no_proxy().tls_certs_only([root]).resolve(host, address);
        let answer = client.build().unwrap().get(format!("https://{host}:{}/", address.port())).send().await;
        match answer {
            Ok(answer) => Some(answer.status().as_u16()),
            Err(_) => None,
        }
    };
    assert_eq!(ask(HOST, &authority).await, Some(200));
    assert_eq!(ask("nobody.localhost", &authority).await, Some(404));
    assert_eq!(ask("localhost", &authority).await, Some(404));
    assert_eq!(ask("example.com", &authority).await, None, "nobody is vouched for who is elsewhere");
    assert_eq!(ask(HOST, &other).await, None, "another authority does not vouch for it");
    assert!(gateway.secure("192.0.2.1:0".parse().unwrap()).await.is_err());
}

/// Repeats a request with a token until it is accepted.
async fn answers_with(gateway: &Gateway, token: &str) {
    let asking = async {
        while ask_with(gateway, Method::GET, HOST, "/", &[("authorization", token)]).await.0 != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(mainstay_testkit::PATIENCE, asking).await.is_ok(), "the token is not good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_served_kinds_decide_and_may_change() {
    let mut world = world_with(&[]).await;
    world.service(NAMESPACE, "my-function", loopback());
    world.start();
    let closed = json!({"trusted_issuers": ["https://issuer.example.com"]});
    let rules = json!([path("/open", &["GET"], "noop", json!({})), path("/closed", &["GET"], "jwt", closed)]);
    world.api_rule(with_rules(rules));
    let none = "False NoRouteApi: no Istio and no Gateway API in this cluster";
    world.rule_is("ERROR SKIPPED SKIPPED", none).await;

    world.define(definition(ROUTES));
    let not_yet =
        "False AuthNotSupported: .spec.rules[1] is not routed: the Gateway API cannot check what it asks for (jwt)";
    world.rule_is("ERROR OK ERROR", not_yet).await;
    let route = world.all(ROUTES).pop().unwrap();
    let paths = &route["spec"]["rules"];
    assert_eq!((paths.as_array().unwrap().len(), &paths[0]["matches"][0]["path"]["value"]), (1, &json!("/open")));
    world.change_rule(json!({"rules": [path("/open", &["GET"], "noop", json!({}))]}));
    world.rule_is("ERROR ERROR OK", "Unknown NotAccepted: no gateway has accepted the route yet").await;
    let judge = |world: &World, status: &str, reason: &str| {
        let route = world.all(ROUTES).pop().unwrap();
        let condition = json!({
            "type": "Accepted", "status": status, "reason": reason, "observedGeneration": route["metadata"]["generation"],
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
        });
        let parent = json!({
            "parentRef": route["spec"]["parentRefs"][0], "controllerName": "example.org/gateway", "conditions": [condition],
        });
        let status = json!({"status": {"parents": [parent]}});
        let call =
            Call::new(ROUTES.0, ROUTES.1, NAMESPACE, &name(&route), Action::Patch(Form::Merge, status)).on("status");
        world.try_as("gateway", call).unwrap();
    };
    judge(&world, "False", "NoMatchingParent");
    world.rule_is("ERROR ERROR OK", "False NotAccepted: the route is not accepted: NoMatchingParent").await;
    judge(&world, "True", "Accepted");
    world.rule_is(SERVED.0, SERVED.1).await;

    // Istio is installed, then Oathkeeper.
    world.define(definition(SERVICES));
    let by_istio = |w: &World| w.all(ROUTES).is_empty() && w.all(SERVICES).len() == 1;
    world.until("the route is Istio's", by_istio).await;
    let service = world.all(SERVICES).pop().unwrap();
    let target = format!("my-function.{NAMESPACE}.svc.cluster.local");
    let (found, to) = (&service["spec"]["http"][0]["match"][0], &service["spec"]["http"][0]["route"][0]["destination"]);
    assert_eq!((&found["method"]["regex"], &to["host"]), (&json!("GET"), &json!(target)));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.define(definition(RULES));
    world.until("the check is Oathkeeper's", |w| w.all(RULES).len() == 1).await;
    world.rule_is(SERVED.0, SERVED.1).await;

    // Both are uninstalled again.
    for kind in [RULES, SERVICES] {
        world.undefine(&defines(kind));
    }
    world.until("the route is the Gateway's", |w| w.all(ROUTES).len() == 1).await;
    world.rule_is("ERROR ERROR OK", "Unknown NotAccepted").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_whose_check_is_unavailable_is_not_routed() {
    let mut world = world_with(&[ROUTES]).await;
    let gateway = Front::of(&world, None).await;
    world.service(NAMESPACE, "my-function", backend().await);
    world.start();
    let jwt = || json!({"trusted_issuers": ["https://issuer.example.com"]});
    let closed = path("/closed", &["GET"], "jwt", jwt());
    world.api_rule(with_rules(json!([path("/open", &["GET"], "noop", json!({})), closed])));
    world.rule_is("ERROR OK ERROR", "False AuthNotSupported").await;
    gateway.answers(HOST, "/open", 200).await;
    gateway.is(Method::GET, HOST, "/closed", 404).await;
    // An open path that would match its requests is not routed either.
    world.change_rule(json!({"rules": [path("/.*", &["GET"], "noop", json!({})), closed]}));
    let also = "may match the same requests, so they are not routed either";
    let says = |w: &World| w.rule_said(NAMESPACE, "my-function").1.contains(also);
    world.until("it is said", says).await;
    world.until("there is no route", |w| w.all(ROUTES).is_empty()).await;
    gateway.answers(HOST, "/open", 404).await;
    gateway.is(Method::GET, HOST, "/closed", 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_another_controller_are_left_to_it() {
    let (world, _gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    let uid = world.uid(API, "apirules", "my-function");
    let owner = json!({"apiVersion": API, "kind": "APIRule", "name": "my-function", "uid": uid, "controller": true});
    let label = json!({"apirule.gateway.kyma-project.io/v1alpha1": format!("my-function.{NAMESPACE}")});
    let metadata =
        |name: &str| json!({"name": name, "namespace": NAMESPACE, "labels": label, "ownerReferences": [owner]});
    let theirs = json!({"apiVersion": SERVICES.0, "kind": "VirtualService", "metadata": metadata("my-function-x7k2p"), "spec": {"hosts": [HOST], "http": []}});
    world.create(SERVICES.0, SERVICES.1, NAMESPACE, theirs);
    let elsewhere =
        "Unknown ManagedElsewhere: another controller serves this APIRule: it created VirtualService my-function-x7k2p";
    world.rule_is(SERVED.0, elsewhere).await;
    let is_theirs = |w: &World| {
        w.all(SERVICES).len() == 1 && name(&w.all(SERVICES)[0]) == "my-function-x7k2p" && w.all(RULES).is_empty()
    };
    world.until("only theirs is left", is_theirs).await;
    world.delete(SERVICES.0, SERVICES.1, "my-function-x7k2p");
    world.rule_is(SERVED.0, SERVED.1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apirule_whose_status_another_controller_writes_is_left_to_it_until_it_changes() {
    let (world, _gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    let later = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string();
    let status = |time: &str| json!({"status": {"lastProcessedTime": time}});
    let call = Call::new(API, "apirules", NAMESPACE, "my-function", Action::Patch(Form::Merge, status(&later)));
    world.try_as("kyma", call.on("status")).unwrap();
    world
        .rule_is(SERVED.0, "Unknown ManagedElsewhere: another controller serves this APIRule and writes its status")
        .await;
    // The other controller decides about reverts.
    world.delete(SERVICES.0, SERVICES.1, &name(&world.all(SERVICES)[0]));
    world.quiet().await;
    assert_eq!(world.all(SERVICES), Vec::<Arc<Value>>::new());
    let methods = json!([path("/.*", &["GET"], "noop", json!({}))]);
    world.change_rule(json!({"rules": methods}));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.until("it is served again", |w| w.all(SERVICES).len() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unused_and_unchanged_exposure_costs_no_request() {
    let (world, _gateway) = exposing().await;
    let watches = |w: &World| {
        let counts = w.levers().counts();
        let watched = |name: &str| counts.iter().any(|c| c.verb == "watch" && c.resource.starts_with(name));
        (watched("apirules"), watched("virtualservices") || watched("rules"))
    };
    world.until("APIRules are watched", |w| watches(w).0).await;
    world.quiet().await;
    assert!(!watches(&world).1, "and nothing else for them");
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    world.quiet().await;
    let before = world.requests();
    // A change of an unrelated Service, or of the status of the agent's own Rule, causes no request.
    world.service(OTHER, "another", loopback());
    let rule = name(&world.all(RULES)[0]);
    let status = json!({"status": {"validation": {"valid": true}}});
    let call = Call::new(RULES.0, RULES.1, NAMESPACE, &rule, Action::Patch(Form::Merge, status));
    world.try_as("oathkeeper", call).unwrap();
    world.quiet().await;
    assert_eq!(world.requests(), before);
    assert_eq!(world.all(SERVICES).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_is_written_as_later_versions_are_is_served() {
    let (world, gateway) = exposing().await;
    let spec = json!({
        "host": HOST, "gateway": "kyma-system/kyma-gateway", "service": {"name": "my-function", "port": 80},
        "rules": [path("/a", &["GET"], "noop", json!({})), path("/a", &["POST"], "noop", json!({}))],
    });
    let newer = "gateway.kyma-project.io/v1beta1";
    let metadata = json!({"name": "my-function", "namespace": NAMESPACE});
    let rule = json!({"apiVersion": newer, "kind": "APIRule", "metadata": metadata, "spec": spec});
    world.create(newer, "apirules", NAMESPACE, rule);
    world.rule_is(SERVED.0, SERVED.1).await;
    gateway.answers(HOST, "/a", 200).await;
    gateway.is(Method::POST, HOST, "/a", 200).await;
    assert_eq!(world.all(RULES).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_apirules_harm_no_other_rule() {
    let (world, gateway) = exposing().await;
    world.api_rule_in(OTHER, "fine", tutorial("my-function"));
    world.says_of(OTHER, "fine", SERVED.0, SERVED.1).await;
    let many: Vec<Value> = (0..600).map(|at| path(&format!("/{at}"), &["GET"], "noop", json!({}))).collect();
    let nulls = json!({"trusted_issuers": [null, {"a": null}], "jwks_urls": null, "password": "hunter2"});
    let strange = |host: &str, rules: Value| {
        let mut spec = with_rules(rules);
        spec["service"]["host"] = json!(host);
        spec
    };
    let all = [
        (
            "many",
            strange("many.kyma.local", json!(many)),
            "False Invalid: Validation error: Attribute \".spec.rules\": more than 500 rules",
        ),
        ("nulls", strange("nulls.kyma.local", json!([path("/", &["GET"], "jwt", nulls)])), "False Invalid"),
        ("bracket", strange("[a_b.kyma.loca[l", json!([path("/.*", &["GET"], "noop", json!({}))])), ""),
        (
            "regex",
            strange("regex.kyma.local", json!([path("/(a+)+b|(((", &["GET"], "noop", json!({}))])),
            "False Invalid: Validation error: Attribute \".spec.rules[0].path\": not a path of this host",
        ),
        (
            "reach",
            strange("my-function.ky", json!([path("ma.local/.*", &["GET"], "noop", json!({}))])),
            "False Invalid: Multiple validation errors: ",
        ),
        (
            "slow",
            strange("slow.kyma.local", json!([path("/(a+)+b", &["GET"], "noop", json!({}))])),
            "False AuthNotSupported: .spec.rules[0] is not routed",
        ),
        (
            "blow",
            strange("blow.kyma.local", json!([path("/(a{1000}){1000}", &["GET"], "noop", json!({}))])),
            "False Invalid: Validation error: Attribute \".spec.rules[0].path\": not a valid path: column 3: it repeats too often",
        ),
    ];
    for (name, spec, _) in &all {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        let rule = json!({"apiVersion": API, "kind": "APIRule", "metadata": metadata, "spec": spec});
        // The schema refuses some of the rules.
        let made = world.try_as("test", Call::new(API, "apirules", NAMESPACE, "", Action::Create(rule)));
        assert!(made.is_ok() || *name == "bracket", "{name}: {made:?}");
    }
    for (name, _, condition) in &all {
        if !condition.is_empty() {
            let is = |w: &World| w.rule_said(NAMESPACE, name).1.starts_with(condition);
            world
                .until_or(&format!("{name}: {condition}"), is, || format!("{:#}", world.rule_status(NAMESPACE, name)))
                .await;
        }
    }
    assert!(!world.rule_status(NAMESPACE, "nulls").to_string().contains("hunter2"));
    let long = format!("/{}", "a".repeat(8_000));
    gateway.is(Method::GET, "regex.kyma.local", &long, 404).await;
    gateway.is(Method::GET, "slow.kyma.local", &long, 404).await;
    gateway.is(Method::GET, "blow.kyma.local", &long, 404).await;
    gateway.is(Method::GET, HOST, "/", 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_paths_of_a_namespace_have_a_common_limit() {
    let (world, _gateway) = exposing().await;
    let spec = |host: &str, paths: usize| {
        let rules: Vec<Value> = (0..paths).map(|at| path(&format!("/{at}"), &["GET"], "noop", json!({}))).collect();
        let mut spec = with_rules(json!(rules));
        spec["service"]["host"] = json!(host);
        spec
    };
    for (name, host) in [("my-function", HOST), ("second", "second.kyma.local")] {
        world.api_rule_in(NAMESPACE, name, spec(host, 500));
        world.says_of(NAMESPACE, name, SERVED.0, SERVED.1).await;
    }
    world.api_rule_in(NAMESPACE, "third", spec("third.kyma.local", 2));
    let why = format!(
        "False Invalid: Validation error: Attribute \".spec.rules\": 2 paths with a guard exceed the limit of 1000 in a \
         namespace: the other APIRules of {NAMESPACE} have 1000."
    );
    world.until(&why, |w| w.rule_said(NAMESPACE, "third").1.starts_with(&why)).await;
    let mut open = spec("open.kyma.local", 1);
    open["rules"][0]["accessStrategies"] = json!([{"handler": "allow"}]);
    world.api_rule_in(NAMESPACE, "open", open);
    world.api_rule_in(OTHER, "other", spec("other.kyma.local", 2));
    for (namespace, name) in [(NAMESPACE, "open"), (OTHER, "other")] {
        world.says_of(namespace, name, SERVED.0, SERVED.1).await;
    }
    assert_eq!(world.all(RULES).len(), 1002);
    world.change_rule(spec(HOST, 1));
    world.says_of(NAMESPACE, "third", SERVED.0, SERVED.1).await;
    world.until("removed paths have no Rule", |w| w.all(RULES).len() == 505).await;
}

/// Refuses all further writes of a kind, each with another message.
fn refuse(world: &World, verb: &str, resource: &str, code: u16) {
    world.levers().fail_next(Fault {
        verb: verb.into(),
        resource: resource.into(),
        code,
        message: format!("not today (request {{nth}} for {resource})"),
        times: 1_000_000,
        ..Fault::default()
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanently_refused_write_is_retried_rarely_and_reported_once() {
    let (world, _gateway) = exposing().await;
    for (verb, kind, code) in [("apply", SERVICES, 403), ("apply", RULES, 422), ("apply", RULES, 409)] {
        let (what, name) = (format!("{verb} {} {code}", kind.1), format!("f{}{code}", kind.1));
        refuse(&world, verb, kind.1, code);
        let mut spec = tutorial("my-function");
        spec["service"]["host"] = json!(format!("{name}.kyma.local"));
        world.api_rule_in(NAMESPACE, &name, spec);
        world.says_of(NAMESPACE, &name, "ERROR ERROR ERROR", "False ApplyFailed").await;
        let within = std::time::Duration::from_secs(10);
        let is_quiet = tokio::time::timeout(within, world.quiet()).await.is_ok();
        assert!(is_quiet, "{what} is tried again and again: {:?}", world.requests());
        let said = world.rule_said(NAMESPACE, &name).1;
        assert!(said.contains("(request 1 for"), "{what}: {said}");
        assert!(!said.contains("goes on serving"), "{what}: {said}");
        world.levers().clear_faults();
        // A change of the spec causes a retry.
        let rules = json!([path("/a", &["GET"], "noop", json!({}))]);
        world.edit(API, "apirules", &name, json!({"spec": {"rules": rules}}));
        world.says_of(NAMESPACE, &name, SERVED.0, SERVED.1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rule_that_is_not_wanted_any_more_does_not_answer_for_one_that_cannot_be_written() {
    let (world, gateway) = exposing().await;
    world.api_rule(tutorial("my-function"));
    world.rule_is(SERVED.0, SERVED.1).await;
    gateway.answers(HOST, "/closed", 200).await;
    refuse(&world, "apply", RULES.1, 403);
    let config = json!({"trusted_issuers": ["https://issuer.example.com"]});
    world.change_rule(json!({"rules": [path("/closed", &["GET"], "jwt", config)]}));
    world.rule_is("ERROR ERROR ERROR", "False ApplyFailed").await;
    assert_eq!(world.all(RULES), Vec::<Arc<Value>>::new(), "what everybody may pass is gone");
    gateway.answers(HOST, "/closed", 404).await;
    // If a Rule becomes unnecessary and the other write fails, the old Rule stays, and the status reports it.
    world.levers().clear_faults();
    world.change_rule(json!({"rules": [path("/open", &["GET"], "noop", json!({}))]}));
    world.rule_is(SERVED.0, SERVED.1).await;
    let rule = name(&world.all(RULES)[0]);
    refuse(&world, "apply", SERVICES.1, 403);
    world.change_rule(json!({"rules": [path("/other", &["GET"], "noop", json!({}))]}));
    world.rule_is("ERROR ERROR ERROR", "False ApplyFailed").await;
    let said = world.rule_said(NAMESPACE, "my-function").1;
    assert!(said.contains(&format!("; until then, Rule {rule} goes on serving as it is")), "{said}");
}
