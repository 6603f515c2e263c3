//! Sessions of users.

use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use maud::Markup;
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::answer;
use super::connection_permits::SessionConnections;
use super::lists::{List, ListName, Lists};
use super::page_memory::SessionPages;
use super::row_memory::RowMemory;
use super::watched::Watched;
use crate::page::{self, Page, SessionEnd, Visitor};
use crate::readers::Readers;
use crate::row::FleetKind;
use crate::session::Owner;
use crate::text::{SHORT, plain};
use mainstay_cluster::Cluster;

/// Interval after which the API server is asked whether it still accepts the token of a session.
const CHECKED_EVERY: SignedDuration = SignedDuration::from_secs(15);

/// Maximum number of logs that a session follows.
pub(super) const LOGS: usize = 8;

/// The session of a request, as a handler receives it.
pub(super) type Its = Extension<Arc<Session>>;

/// The credentials of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// A token. The session ends when the API server refuses it.
    Token,
    /// Those of the user's kubeconfig, which may be renewed.
    Kubeconfig,
}

/// A session: its connection, its user and its fleet.
pub(super) struct Session {
    pub(super) cluster: Cluster,
    user: String,
    /// The name of the cluster on pages; empty without a name.
    pub(super) cluster_name: String,
    /// The namespace to show first.
    namespace: Mutex<String>,
    /// The token of the session's forms.
    pub(super) csrf: String,
    /// How the session ends; `None` for a session of the command or of a proxy.
    end: Option<SessionEnd>,
    pub(super) credentials: Credentials,
    fleet: Mutex<WatchedFleet>,
    lists: Lists,
    /// The group of users that shares limits of watches and of pages.
    group: String,
    memory: RowMemory,
    pub(super) pages: SessionPages,
    checked: Mutex<Timestamp>,
    pub(super) readers: Readers,
    /// Limits the number of logs that are followed.
    pub(super) logs: Arc<Semaphore>,
    /// Limits the number of streams and of calls.
    pub(super) connections: SessionConnections,
    pub(super) stop: CancellationToken,
    _end: DropGuard,
}

/// A fleet. Its watches and its streams end when another one replaces it.
struct WatchedFleet {
    watched: Arc<Watched>,
    stop: CancellationToken,
    _end: DropGuard,
}

impl Session {
    /// Begins a session. The session's watches stop when the session is dropped, or at `stop`.
    pub(super) fn begin(
        cluster: &Cluster,
        (user, owner): (&str, &Owner),
        namespace: &str,
        readers: &Readers,
        csrf: String,
        memory: &RowMemory,
        stop: &CancellationToken,
    ) -> Self {
        let stop = stop.child_token();
        let group = owner.share().to_owned();
        Self {
            cluster: cluster.clone(),
            user: plain(user, SHORT),
            cluster_name: String::new(),
            namespace: Mutex::new(namespace.to_owned()),
            csrf,
            end: None,
            credentials: Credentials::Token,
            fleet: Mutex::new(WatchedFleet::begin(cluster, namespace, (memory, &group), &stop)),
            lists: Lists::default(),
            memory: memory.clone(),
            pages: memory.pages(&group),
            connections: memory.connections(&group),
            group,
            checked: Mutex::new(Timestamp::now()),
            readers: readers.clone(),
            logs: Arc::new(Semaphore::new(LOGS)),
            _end: stop.clone().drop_guard(),
            stop,
        }
    }

    pub(super) fn with_cluster_name(self, name: &str) -> Self {
        Self { cluster_name: name.to_owned(), ..self }
    }

    pub(super) fn with_end(self, end: Option<SessionEnd>) -> Self {
        Self { end, ..self }
    }

    pub(super) fn with_kubeconfig(self) -> Self {
        Self { credentials: Credentials::Kubeconfig, ..self }
    }

    /// Returns whether it is a session of a user whose name the API server reports as this one.
    pub(super) fn is_of(&self, user: &str) -> bool {
        self.user == plain(user, SHORT)
    }

    /// Returns the current fleet.
    pub(super) fn watched(&self) -> Arc<Watched> {
        self.followed().0
    }

    /// Returns the current fleet, and the token that is cancelled when another one replaces it.
    pub(super) fn followed(&self) -> (Arc<Watched>, CancellationToken) {
        let fleet = self.fleet.lock();
        (Arc::clone(&fleet.watched), fleet.stop.clone())
    }

    /// Watches this namespace instead, for kinds that the user may not list in all namespaces. Streams of the previous
    /// fleet end.
    pub(super) fn watch_within(&self, namespace: &str) {
        namespace.clone_into(&mut self.namespace.lock());
        *self.fleet.lock() = WatchedFleet::begin(&self.cluster, namespace, (&self.memory, &self.group), &self.stop);
        self.lists.end();
    }

    /// Returns a list beside the fleet, whose kinds are watched while it is used; `None` if no watch is free.
    pub(super) fn list(&self, name: ListName) -> Option<Arc<List>> {
        self.lists.open(name, &self.cluster, &self.namespace(), (&self.memory, &self.group), &self.stop)
    }

    /// Reads a list without watches; `None` if the server reads too many such lists.
    pub(super) async fn list_once(&self, name: ListName) -> Option<Arc<Watched>> {
        self.lists.once(name, &self.cluster, &self.namespace(), (&self.memory, &self.group)).await
    }

    /// Returns the namespace to show first.
    pub(super) fn namespace(&self) -> String {
        self.namespace.lock().clone()
    }

    /// Returns the part of its rows in the memory of the server, in KiB.
    pub(super) fn memory(&self) -> usize {
        self.watched().memory() + self.lists.memory()
    }

    /// Returns the user, as pages show it.
    pub(super) fn visitor(&self) -> Visitor<'_> {
        Visitor {
            user: &self.user,
            cluster: &self.cluster_name,
            csrf: &self.csrf,
            end: self.end,
            now: Timestamp::now(),
        }
    }

    /// Returns a page of the user that does not follow changes.
    pub(super) fn page(&self, status: StatusCode, title: &str, body: Markup) -> Response {
        answer::page(status, page::render(Page { title, visitor: Some(self.visitor()), live: None, body }))
    }

    /// Returns whether the API server no longer accepts the token. The API server is asked at intervals, and again
    /// after a question to which it did not respond.
    pub(super) async fn is_refused(&self, now: Timestamp) -> bool {
        let is_due = {
            let mut checked = self.checked.lock();
            let is_due = now.duration_since(*checked) >= CHECKED_EVERY || self.cluster.is_in_trouble();
            if is_due {
                *checked = now;
            }
            is_due
        };
        is_due && self.cluster.user_name().await.is_err_and(|error| error.code() == Some(401))
    }
}

impl WatchedFleet {
    fn begin(
        cluster: &Cluster,
        namespace: &str,
        (memory, group): (&RowMemory, &str),
        stop: &CancellationToken,
    ) -> Self {
        let stop = stop.child_token();
        Self {
            watched: Watched::begin(&FleetKind::ALL, cluster, namespace, memory.share(group), &stop),
            _end: stop.clone().drop_guard(),
            stop,
        }
    }
}

/// Returns a new random token.
pub(super) fn token() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system provides no random numbers"))?;
    Ok(hex::encode(bytes))
}

#[cfg(test)]
pub(super) mod tests {
    use std::convert::Infallible;

    use axum::body::Body;
    use http::{Request, Response};
    use serde_json::Value;

    use super::*;
    use crate::freshness::Agent;
    use crate::readers::{FunctionRules, ObjectRules};
    use crate::trace::Trace;
    use crate::tree::Tree;
    use mainstay_api::git_sync::Change;

    /// Returns a session whose API server refuses everything.
    pub(in crate::serve) fn session(memory: &RowMemory) -> Session {
        let service = tower::service_fn(|_: Request<kube::client::Body>| {
            std::future::ready(Ok::<_, Infallible>(Response::builder().status(403).body(Body::empty()).unwrap()))
        });
        session_of(memory, kube::Client::new(service, "default"))
    }

    /// Returns a session with this client.
    pub(in crate::serve) fn session_of(memory: &RowMemory, client: kube::Client) -> Session {
        let readers = Readers {
            tree: Arc::new(|_, _, _| Box::pin(std::future::pending::<Result<Tree, String>>())),
            trace: Arc::new(|_, _| Box::pin(std::future::pending::<Result<Trace, String>>())),
            part: Arc::new(|_: &Value, _: &[Change]| None),
            functions: FunctionRules {
                runtimes: Arc::default(),
                changed_inputs: Arc::new(|_: Option<&Value>, _: &Value| Ok(Vec::new())),
            },
            rules: ObjectRules { git_repository: Arc::new(|_: &Value| Ok(())), api_rule: Arc::new(|_: &Value| Ok(())) },
            agent: Arc::new(|_| Box::pin(std::future::ready(Agent::Unknown))),
            files: None,
        };
        let cluster = Cluster::from_clients(client.clone(), client);
        let user = ("alice", &Owner::of("alice"));
        Session::begin(&cluster, user, "a", &readers, String::new(), memory, &CancellationToken::new())
    }

    #[tokio::test]
    async fn another_namespace_ends_what_follows_the_previous_fleet() {
        let memory = RowMemory::default();
        let session = session(&memory);
        let (before, ended) = session.followed();
        session.watch_within("b");
        assert!(ended.is_cancelled() && session.namespace() == "b");
        let (after, stop) = session.followed();
        assert!(!Arc::ptr_eq(&before, &after) && !stop.is_cancelled());
        // The stream of the new fleet ends with the session.
        drop(session);
        assert!(stop.is_cancelled());
    }
}
