//! Answers HTTP requests, from connections and from clients in this process.
//!
//! [`resource`] handles objects and [`fault_injection`] the settings of tests; this module handles everything else.
//! [`respond`] builds responses, and [`fault`] builds the responses of injected faults.
//!
//! Invariant: every error is a `Status` body, except where a real server answers in plain text.
//!
//! Not here: connections and their admission (`listen`). [`stream`] handles upgraded requests.

mod binding;
pub mod fault;
mod fault_injection;
mod health;
mod log;
#[expect(clippy::disallowed_methods, reason = "it connects to pods")]
mod proxy;
#[expect(clippy::disallowed_methods, reason = "bodies have deadlines")]
pub(crate) mod request;
#[expect(clippy::disallowed_methods, reason = "requests have deadlines")]
mod resource;
pub mod respond;
mod settings;
#[expect(clippy::disallowed_methods, reason = "connections go on")]
pub(crate) mod stream;
mod yaml;

use self::request::{Asked, read, sent};
pub use crate::body::Body;
use crate::{
    access::{self, authenticate::authenticate, rbac},
    discovery, media, openapi,
    route::{Query, Route, route},
    server::Server,
    status::Status,
};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, header};
use std::{
    convert::Infallible,
    task::{Context, Poll},
};

/// A cluster as a `tower::Service`, for in-process clients.
#[derive(Clone, Debug)]
pub struct ClientService(Server);

impl Server {
    /// Returns the cluster as a service, for `kube::Client::new(server.client_service(), "default")`.
    pub fn client_service(&self) -> ClientService {
        ClientService(self.clone())
    }
}

impl<B> tower::Service<Request<B>> for ClientService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.0.clone();
        Box::pin(async move { Ok(answer(&server, request).await) })
    }
}

/// Answers a request.
pub async fn answer<B>(server: &Server, request: Request<B>) -> Response<Body>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let accept = request.headers().get(header::ACCEPT).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let yaml = media::wants_yaml(accept) && yaml::is_offered(request.uri().path());
    let response = answer_in_json(server, request).await;
    if yaml { yaml::instead_of_json(response).await } else { response }
}

async fn answer_in_json<B>(server: &Server, request: Request<B>) -> Response<Body>
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    if let Some(extension) = server.extension(parts.uri.path()) {
        return extension.answer(server.faults(), parts, sent(body)).await;
    }
    let body = match read(server.room(), &parts, body).await {
        Ok(body) => body,
        Err(status) => return respond::status(&status),
    };
    let user = match authenticate(server, &parts.headers) {
        Ok(user) => user,
        Err(status) => return respond::status(&status),
    };
    let path = parts.uri.path().to_owned();
    let asked = Asked { query: Query::parse(parts.uri.query().unwrap_or_default()), parts, body, user };
    let route = route(&path);
    let (route, asked) = watched(route, asked);
    if !matches!(route, Route::Resource(_)) {
        let verb = asked.parts.method.as_str().to_lowercase();
        let request = access::Request { verb, place: access::Place::Path(path.clone()) };
        if let Err(status) = rbac::authorize(server, &asked.user, &request) {
            return respond::status(&status);
        }
    }
    match route {
        Route::Resource(address) => resource::answer(server, address, asked).await,
        Route::FaultInjection(name) => fault_injection::answer(server, &name, &asked),
        Route::Health { group, check } => {
            server.faults().count("get", &path, asked.user_agent());
            health::answer(&group, &check, &asked.query)
        }
        _ if !matches!(asked.parts.method, Method::GET | Method::HEAD) => {
            respond::status(&respond::method_not_allowed())
        }
        other => {
            server.faults().count("get", &path, asked.user_agent());
            document(server, other, &asked)
        }
    }
}

/// Converts a path below `watch` to a watch. A watch of one object selects objects by its name.
fn watched(route: Route, mut asked: Asked) -> (Route, Asked) {
    let Route::Watch(mut address) = route else { return (route, asked) };
    if asked.parts.method == Method::GET {
        let name = std::mem::take(&mut address.name);
        if !name.is_empty() {
            asked.query = asked.query.with("fieldSelector", &format!("metadata.name={name}"));
        }
        asked.query = asked.query.with("watch", "true");
        (Route::Resource(address), asked)
    } else {
        // Such paths support only watches.
        (Route::Watch(address), asked)
    }
}

/// Answers requests for documents about the server.
fn document(server: &Server, route: Route, asked: &Asked) -> Response<Body> {
    let table = server.table();
    let found = match route {
        Route::Groups { core } => {
            let accept = asked.header(header::ACCEPT);
            if wants_aggregated(accept) {
                return aggregated(server, core, asked);
            }
            Some(if core { discovery::core_versions() } else { discovery::groups(&table) })
        }
        Route::Group(name) => discovery::group(&table, &name),
        Route::Version { group, version } => discovery::resources(&table, &group, &version),
        Route::VersionInfo if media::wants_yaml(asked.header(header::ACCEPT)) => {
            return respond::status(&only_json());
        }
        Route::VersionInfo => Some(discovery::version()),
        Route::OpenApiLegacy => return legacy_openapi(asked.header(header::ACCEPT)),
        Route::OpenApiIndex => Some(openapi::index(&table)),
        Route::OpenApi(path) => openapi::document(&table, &path),
        Route::Issuer => Some(issuer(asked)),
        Route::Keys => return keys(server),
        Route::Health { .. } | Route::Resource(_) | Route::Watch(_) | Route::FaultInjection(_) | Route::Unknown => None,
    };
    found.map_or_else(respond::page_not_found, |document| respond::json(200, document.to_string().into()))
}

/// Returns the 406 for documents that exist as JSON only.
fn only_json() -> Status {
    Status::new(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: application/json").unspecific()
}

/// Returns an OpenAPI v2 document without kinds, which `kubectl` requests for kinds unknown to v3. An empty protobuf
/// message has no bytes.
fn legacy_openapi(accept: &str) -> Response<Body> {
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    if !accept.contains("application/com.github.proto-openapi.spec.v2@v1.0+protobuf") {
        let info = serde_json::json!({"title": "devcluster", "version": "v1.36.2"});
        let document = serde_json::json!({"swagger": "2.0", "info": info, "paths": {}});
        return respond::json(200, document.to_string().into());
    }
    let mut response = respond::json(200, Bytes::new());
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(PROTOBUF));
    response
}

/// Returns the OpenID discovery document.
fn issuer(asked: &Asked) -> serde_json::Value {
    let host = asked.header(header::HOST);
    serde_json::json!({
        "issuer": access::tokens::ISSUER, "jwks_uri": format!("http://{host}/openid/v1/jwks"),
        "response_types_supported": ["id_token"], "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"],
    })
}

/// Returns the public keys of ServiceAccount tokens.
fn keys(server: &Server) -> Response<Body> {
    let Some(signer) = server.signer() else {
        return respond::status(&Status::internal("there is no key to sign with"));
    };
    let mut response = respond::json(200, signer.keys().to_string().into());
    let media = http::HeaderValue::from_static("application/jwk-set+json");
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// Returns whether the first supported clause requests aggregated discovery in its stable version.
fn wants_aggregated(accept: &str) -> bool {
    let parameter = |clause: &str, wanted: &str| clause.split(';').any(|part| part.trim() == wanted);
    let met = |clause: &&str| !clause.contains("as=") || parameter(clause, "v=v2");
    accept.split(',').find(met).is_some_and(|clause| parameter(clause, "as=APIGroupDiscoveryList"))
}

fn aggregated(server: &Server, core: bool, asked: &Asked) -> Response<Body> {
    let (document, etag) = discovery::aggregated(&server.table(), core);
    let known = asked.header(header::IF_NONE_MATCH) == etag;
    let (code, body) = if known { (304, Bytes::new()) } else { (200, document.to_string().into()) };
    let mut response = respond::json(code, body);
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static(media));
    if let Ok(etag) = etag.parse() {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}
