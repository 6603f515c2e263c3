//! Checks requests, finds their session, and routes them to their page.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::{get, post};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use super::anonymous_bodies::AnonymousBodies;
use super::certificate::Certificate;
use super::issuer::{Issuer, IssuerSettings};
use super::openings::{Openings, Unjudged};
use super::row_memory::RowMemory;
use super::session::{Session, token};
use super::shared::{Entry, Nobody, Shared};
use super::unread::{reserved, unread};
use super::{act, answer, assets, batch, call, differences, files, form, function, live, network, own, pages, sources};
use crate::address;
use crate::form::ObjectForm as _;
use crate::function_form::FunctionFields;
use crate::guard::{self, Gate, Links, Permitted};
use crate::page;
use crate::readers::Readers;
use crate::repository_form::RepositoryFields;
use crate::rule_form::RuleFields;
use crate::session::TokenDigest;
use crate::text::{SHORT, plain};
use crate::web_origin::{OWN_HOST, WebOrigin};
use loopback::Listener;
use mainstay_cluster::listener::{self, Limits};
use mainstay_cluster::{ApiServer, Cluster};

/// The path of probes. It needs no session, and reveals nothing about the cluster.
const HEALTH: &str = "/healthz";

/// Maximum time for the body of a request. Until it is complete, the connection gives way to a new client if all are
/// taken, so that clients that send slowly keep no probe and no user out.
const BODY: Duration = Duration::from_secs(30);

/// Number of spare connections, on which probes get a response while all others are busy.
const SPARE: usize = 8;

/// Numbers of connections of a server for all users of a cluster, and of one for the user of a command.
const CONNECTIONS: usize = 1024;
const OWN_CONNECTIONS: usize = 64;

const NO_CONNECTION: &str =
    "The server has no free connection. Close other pages of this server, or open this page later.\n";
const NO_CONNECTION_FORM: &str = "The server has no free connection, so the form was not read. Close other pages of this server, \
                                  go back, and send the form again.\n";
const ENDED: &str = "The session ended before the response. Open the page again.\n";
const ENDED_FORM: &str =
    "The session ended while the form was processed. Open the page again, and check whether the form had its effect.";

/// Returns the limits for browsers, whose streams stay open.
fn limits(connections: usize) -> Limits {
    Limits {
        connections,
        spare: SPARE,
        head: Duration::from_secs(10),
        whole: Duration::from_secs(24 * 3600),
        kept: Some(Duration::from_secs(60)),
        // A page or a call may take more than a minute until its response begins.
        idle: Some(Duration::from_secs(300)),
        farewell: Duration::from_secs(1),
    }
}

/// The users of a console.
pub enum Users {
    /// The user of the command, who opens one session with a link.
    Own(Cluster),
    /// Users who sign in with a token of the cluster, at these origins.
    Tokens(ApiServer, Vec<WebOrigin>),
    /// Users who sign in with an issuer of OpenID Connect, at these origins. The API server must trust the same issuer.
    Issuer(ApiServer, Vec<WebOrigin>, IssuerSettings),
    /// Users of a proxy at these origins. The proxy sends a user's token with each request.
    Proxy(ApiServer, Vec<WebOrigin>),
}

/// Settings of a console.
pub struct Settings {
    /// The users of the console.
    pub users: Users,
    /// The name of the cluster on each page; empty without a name.
    pub cluster_name: String,
    /// The namespace to show if a user may not list the objects of all namespaces.
    pub namespace: String,
    /// Functions of the program that read inventories.
    pub readers: Readers,
}

/// A web server.
pub struct Console {
    shared: Shared,
    listener: Listener,
    port: u16,
    stop: CancellationToken,
}

impl Console {
    /// Creates a server for a listener. The server runs until `stop`.
    ///
    /// # Errors
    /// Fails if the listener has no address, or if the system has no random numbers.
    pub fn new(settings: Settings, listener: Listener, stop: CancellationToken) -> io::Result<Self> {
        let port = listener.local_addr()?.port();
        let Settings { users, cluster_name, namespace, readers } = settings;
        let names = [OWN_HOST, "127.0.0.1", "localhost", "[::1]"];
        let (entry, origins, links) = match users {
            Users::Own(cluster) => {
                let origins = names.map(|name| WebOrigin::of_this_machine(name, port)).into();
                (Entry::link(cluster), origins, Links::Session)
            }
            Users::Tokens(server, origins) => (Entry::form(server), origins, Links::Pages),
            Users::Issuer(server, origins, settings) => {
                (Entry::issuer(server, Issuer::new(settings), &token()?), origins, Links::Pages)
            }
            Users::Proxy(server, origins) => (Entry::proxy(server, &token()?), origins, Links::Pages),
        };
        let memory = if matches!(entry, Entry::Link(_)) { RowMemory::of_command() } else { RowMemory::default() };
        let shared = Shared {
            entry,
            gate: Gate { origins, links },
            cluster_name: plain(&cluster_name, SHORT),
            namespace,
            readers,
            port,
            sessions: Mutex::default(),
            memory,
            bodies: AnonymousBodies::default(),
            openings: Openings::default(),
            stop: stop.clone(),
            router: router(),
        };
        Ok(Self { shared, listener, port, stop })
    }

    /// Returns a link that opens one session.
    ///
    /// # Errors
    /// Fails if the system has no random numbers.
    pub fn link(&self) -> io::Result<String> {
        let token = token()?;
        self.shared.sessions.lock().add_link(TokenDigest::of(&token));
        Ok(format!("{}{}{token}", WebOrigin::of_this_machine(OWN_HOST, self.port).text(), guard::OPEN))
    }

    /// Serves requests until `stop`, over TLS if there is a certificate.
    pub async fn serve(self, certificate: Option<Certificate>) {
        let Self { shared, listener, stop, .. } = self;
        let limits = limits(if shared.gate.links == Links::Session { OWN_CONNECTIONS } else { CONNECTIONS });
        let shared = Arc::new(shared);
        let removing = stop.clone().run_until_cancelled_owned(make_room(Arc::clone(&shared)));
        let answer = move |request: http::Request<hyper::body::Incoming>| {
            let shared = Arc::clone(&shared);
            async move { answer::secured(shared.answer(listener::receive(request, BODY).map(Body::new)).await) }
        };
        let Some(certificate) = certificate else {
            tokio::join!(removing, listener::serve(listener, limits, answer, stop));
            return;
        };
        let tls = TlsAcceptor::from(certificate.config());
        let following = stop.clone().run_until_cancelled_owned(certificate.follow());
        tokio::join!(removing, following, listener::serve_tls(listener, tls, limits, answer, stop));
    }
}

/// Removes expired sessions, because their watches would continue otherwise. Closes a session if the rows of all
/// sessions are too large.
async fn make_room(shared: Arc<Shared>) {
    let mut often = tokio::time::interval(Duration::from_secs(30));
    loop {
        tokio::select! {
            _ = often.tick() => shared.sessions.lock().remove_ended(Timestamp::now()),
            () = shared.memory.wanted() => {
                let is_ended = shared.sessions.lock().end_heaviest(|session: &Arc<Session>| session.memory());
                if is_ended {
                    tracing::warn!("a session was ended: the rows of all sessions have their maximum size");
                }
            }
        }
    }
}

fn router() -> Router {
    Router::new()
        .route("/", get(pages::fleet))
        .route("/gitsync/{namespace}/{name}", get(pages::git_sync))
        .route("/gitsync/{namespace}/{name}/differences", get(differences::differences))
        .route("/gitsync/{namespace}/{name}/network", get(network::of_git_sync))
        .route("/function/{namespace}/{name}", get(function::function))
        .route("/gitrepository/{namespace}/{name}", get(pages::git_repository))
        .route("/function/{namespace}/{name}/call", get(call::form).post(call::call))
        .route("/function/{namespace}/{name}/files", get(files::files))
        .route("/function/{namespace}/{name}/network", get(network::of_function))
        .route(
            "/function/{namespace}/{name}/edit",
            get(form::edit::<FunctionFields>).post(form::change::<FunctionFields>),
        )
        .route(FunctionFields::PATH, get(form::blank::<FunctionFields>).post(form::create::<FunctionFields>))
        .route(
            "/gitrepository/{namespace}/{name}/edit",
            get(form::edit::<RepositoryFields>).post(form::change::<RepositoryFields>),
        )
        .route(RepositoryFields::PATH, get(form::blank::<RepositoryFields>).post(form::create::<RepositoryFields>))
        .route(RuleFields::PATH, get(form::blank::<RuleFields>).post(form::create::<RuleFields>))
        .route("/object", get(pages::object))
        .route("/sources", get(sources::sources))
        .route("/served", get(sources::served))
        .route("/drift", get(pages::drift))
        .route("/drift.csv", get(pages::drift_csv))
        .route("/events", get(live::events))
        .route("/act", get(act::confirm).post(act::perform))
        .route("/sync", get(batch::confirm).post(batch::perform))
        .route("/namespace", post(own::select_namespace))
        .fallback(pages::unknown)
}

/// Lets the browser read a page again for which the server had no memory. A form is not sent again.
fn read_again(mut response: Response, method: &Method) -> Response {
    let delay = response.headers().get(header::RETRY_AFTER).filter(|_| *method == Method::GET).cloned();
    if let Some(delay) = delay {
        response.headers_mut().insert(header::REFRESH, delay);
    }
    response
}

/// Returns the response to a probe, and to any request on a spare connection.
fn early<B>(request: &http::Request<B>) -> Option<Response> {
    if request.uri().path() == HEALTH {
        return Some(answer::of_type(StatusCode::OK, "text/plain; charset=utf-8", "ok\n"));
    }
    let text = if *request.method() == Method::POST { NO_CONNECTION_FORM } else { NO_CONNECTION };
    listener::is_spare(request.extensions()).then(|| read_again(answer::busy(text), request.method()))
}

/// A request, as far as a response without a session depends on it.
struct Asked {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
}

impl Asked {
    fn of(request: &Request) -> Self {
        Self { method: request.method().clone(), uri: request.uri().clone(), headers: request.headers().clone() }
    }

    /// Returns whether it is a form, which may have an effect.
    fn is_form(&self) -> bool {
        self.method == Method::POST
    }

    /// Returns whether the user opens a page.
    fn is_document(&self) -> bool {
        self.method == Method::GET && guard::opens_document(&self.headers)
    }
}

impl Shared {
    async fn answer(&self, mut request: Request) -> Response {
        if let Some(response) = early(&request) {
            return response;
        }
        let path = request.uri().path().to_owned();
        let origin = match guard::judge(request.method(), &path, request.headers(), &self.gate) {
            Ok(Permitted::Own(origin)) => origin,
            Ok(Permitted::Link) => return answer::page(StatusCode::OK, page::opened_again()),
            Err(refusal) => return answer::message(StatusCode::FORBIDDEN, "Refused", refusal.message()),
        };
        if let Some(asset) = assets::asset(&path) {
            return asset;
        }
        if let Some(answer) = self.enter(&path, &mut request, origin).await {
            return answer;
        }
        let asked = Asked::of(&request);
        let (digest, session) = match self.find(&asked.headers, origin).await {
            Ok(found) => found,
            Err(nobody) => return self.nobody(&nobody, &asked, origin).await,
        };
        // All that may wait follows the permit.
        let permit = match session.connections.try_request(&asked.method) {
            Ok(permit) => permit,
            Err(full) => return read_again(answer::busy(full.of_requests(&asked.method)), &asked.method),
        };
        if let Err(nobody) = self.check(digest, &session).await {
            return self.nobody(&nobody, &asked, origin).await;
        }
        let memory = match reserved(&session, &asked.method) {
            Ok(memory) => memory,
            Err(busy) => return busy,
        };
        request.extensions_mut().insert(Arc::clone(&session));
        let Some(response) = self.within_session(&session, request).await else {
            drop((permit, memory, session));
            return self.ended(&asked, origin).await;
        };
        let response = read_again(unread(&session, permit, memory, response), &asked.method);
        if !session.cluster.is_in_trouble() {
            return response;
        }
        // The token may have expired during the request.
        drop(session);
        let found = match self.find(&asked.headers, origin).await {
            Ok((digest, session)) => self.check(digest, &session).await,
            Err(nobody) => Err(nobody),
        };
        match found {
            Ok(()) | Err(Nobody::Unjudged(_)) => response,
            // The response may be about an effect that the form had before.
            Err(_) if asked.is_form() => self.ended(&asked, origin).await,
            Err(nobody) => self.nobody(&nobody, &asked, origin).await,
        }
    }

    /// Returns the response of a page; `None` if the session ends first. Requests in flight at the end of the server are
    /// completed.
    async fn within_session(&self, session: &Session, request: Request) -> Option<Response> {
        let mut responding = Box::pin(self.router.clone().oneshot(request));
        let response = session.stop.run_until_cancelled(responding.as_mut()).await;
        let response = match response {
            Some(response) => response,
            None if self.stop.is_cancelled() => responding.await,
            None => return None,
        };
        let Ok(response) = response;
        Some(response)
    }

    /// Returns the response to a request whose session has ended meanwhile.
    async fn ended(&self, asked: &Asked, origin: &WebOrigin) -> Response {
        match &self.entry {
            _ if asked.is_form() => answer::message(StatusCode::UNAUTHORIZED, "The session has ended", ENDED_FORM),
            // The next request opens another session.
            Entry::Proxy { .. } => read_again(answer::busy(ENDED), &asked.method),
            _ => self.nobody(&Nobody::NoSession, asked, origin).await,
        }
    }

    /// Returns the page for a request without a session.
    async fn nobody(&self, nobody: &Nobody, asked: &Asked, origin: &WebOrigin) -> Response {
        let next = address::within(asked.uri.path_and_query().map_or("/", |to| to.as_str()));
        let (status, title, text) = match (nobody, &self.entry) {
            (Nobody::NoSession, Entry::Issuer(by))
                if asked.is_document() && self.cookie(&asked.headers, origin).is_some() =>
            {
                return self.renew(by, next, origin).await;
            }
            (Nobody::NoSession, Entry::Form(_) | Entry::Issuer(_)) => {
                return self.sign_in_page(StatusCode::UNAUTHORIZED, next, "", origin);
            }
            (Nobody::NoSession, Entry::Link(_)) => (
                StatusCode::UNAUTHORIZED,
                "No session",
                "This browser has no session, or it has ended. Run `mainstay ui` again and open the link that it prints."
                    .to_owned(),
            ),
            (Nobody::NoSession, Entry::Proxy { .. }) => (
                StatusCode::UNAUTHORIZED,
                "No token",
                "The request has no header `Authorization: Bearer TOKEN`, which the proxy in front of this server must \
                 send. Open the address of the proxy, and check that it passes the token."
                    .to_owned(),
            ),
            (Nobody::Refused, _) => (
                StatusCode::UNAUTHORIZED,
                "Token refused",
                "The API server does not accept this token: it has expired, or is not of this cluster.".to_owned(),
            ),
            (Nobody::Unjudged(Unjudged::Busy), _) => {
                return read_again(answer::busy(Unjudged::Busy.message()), &asked.method);
            }
            (Nobody::Unjudged(late), _) => (late.status(), "No session", late.message().to_owned()),
            (Nobody::Failed(why), _) => (StatusCode::BAD_GATEWAY, "No session", why.clone()),
        };
        answer::message(status, title, &text)
    }
}

#[cfg(test)]
mod tests;
