//! APIRules: hosts that route to Services, and their effects on the gateway of the embedded cluster.

mod addresses;
mod api_rules;
mod failed_writes;
pub(crate) mod istio;
mod limits;
mod other_controllers;
mod requests;
mod served_kinds;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use devcluster::fault_injection::Fault;
use devcluster::gateway::{self, Issuer};
use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, Gateway};
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
