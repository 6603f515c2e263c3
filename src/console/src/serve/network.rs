//! Reads the network of a GitSync or of a Function with the permissions of the user, and renders its page.
//!
//! Invariant: the number of namespaces and of lists is limited, and each list has a maximum number of objects. Invariant: each
//! object is reduced to its part of the picture as soon as it was read. Invariant: no object of a remote cluster is read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use axum::Extension;
use axum::extract::Path;
use axum::response::Response;
use futures::TryStreamExt as _;
use maud::Markup;
use serde_json::Value;
use tokio::time::Instant;

use super::function;
use super::page_memory::Heavy;
use super::pages::{fleet_object, heavy, not_shown, respond, stream, tree_of};
use super::session::{Its, Session};
use super::watched::said;
use crate::network::{Listed, Part, Seen, Subject, picture};
use crate::objects_cluster::ObjectsCluster;
use crate::page::{self, NetworkPage};
use crate::row::FleetKind;
use crate::text::{SHORT, plain};
use crate::tree::Children;
use mainstay_cluster::{Cluster, MemoryBudget, Selection};
use mainstay_object::Key;

/// Maximum number of objects of a list that are read.
const MOST: usize = 1000;
/// Maximum number of namespaces, and of those that have only Services of the routes.
const NAMESPACES: usize = 10;
const OF_BACKENDS: usize = 5;
/// Maximum memory of the parts of all objects of a page, in bytes.
const MEMORY: usize = 2 << 20;
/// Maximum time for the page. The tree has half of it.
const WITHIN: Duration = Duration::from_secs(20);
const FAILED: &str = "The picture cannot be computed.";
const LATE: &str = "the page took too long";
const OTHER_ROUTES: &str = "this page does not read the routes of this namespace";

/// The lists of a namespace, by group and kind. Routes come first, because they name Services.
const LISTS: [(Listed, &str, &str); 10] = [
    (Listed::Routes, "networking.k8s.io", "Ingress"),
    (Listed::Routes, "gateway.networking.k8s.io", "HTTPRoute"),
    (Listed::Routes, "gateway.networking.k8s.io", "GRPCRoute"),
    (Listed::Routes, "gateway.networking.k8s.io", "TLSRoute"),
    (Listed::Routes, "gateway.kyma-project.io", "APIRule"),
    (Listed::Routes, "serving.knative.dev", "Service"),
    (Listed::Routes, "networking.istio.io", "VirtualService"),
    (Listed::Services, "", "Service"),
    (Listed::Slices, "discovery.k8s.io", "EndpointSlice"),
    (Listed::Pods, "", "Pod"),
];
const POLICIES: (Listed, &str, &str) = (Listed::Policies, "networking.k8s.io", "NetworkPolicy");

/// Why a list was not read as a whole.
enum Unread {
    /// The user lacks the permission to list this kind.
    Forbidden(String),
    Failed(String),
}

/// The reading of the lists of a page.
struct Reading<'s> {
    cluster: &'s Cluster,
    seen: Seen,
    budget: MemoryBudget,
    /// The end of the time for the page.
    until: Instant,
    notes: Vec<String>,
    /// The kinds that the user may not list, by namespace.
    forbidden: BTreeMap<String, Vec<String>>,
}

impl<'s> Reading<'s> {
    fn new(session: &'s Session, until: Instant) -> Self {
        Self {
            cluster: &session.cluster,
            seen: Seen::default(),
            budget: MemoryBudget::new(MEMORY),
            until,
            notes: Vec::new(),
            forbidden: BTreeMap::new(),
        }
    }

    /// Adds the objects of a list. Objects of a kind that is not installed do not exist.
    async fn list(&mut self, namespace: &str, (listed, group, kind): (Listed, &str, &str)) -> Result<(), Unread> {
        let kind = match self.cluster.preferred_kind(group, kind).await {
            Ok(Some(kind)) => kind,
            Ok(None) => return Ok(()),
            Err(error) => return Err(Unread::Failed(said(&error))),
        };
        let mut found = self.cluster.list(&kind, Selection::default().within(namespace));
        for _ in 0..MOST {
            let live = match found.try_next().await {
                Ok(Some(live)) => live,
                Ok(None) => return Ok(()),
                Err(error) if error.is_forbidden() => return Err(Unread::Forbidden(kind.resource.to_string())),
                Err(error) => {
                    return Err(Unread::Failed(format!("{} cannot be listed: {}", kind.resource, said(&error))));
                }
            };
            let Some(part) = kind.key_of(&live).and_then(|key| Part::of(listed, key, &live)) else { continue };
            if !self.budget.take(part.bytes()) {
                return Err(Unread::Failed(format!("not all {} are read, because they are too large", kind.resource)));
            }
            self.seen.add(part);
        }
        match found.try_next().await {
            Ok(None) => Ok(()),
            Ok(Some(_)) | Err(_) => Err(Unread::Failed(format!("only the first {MOST} {} are read", kind.resource))),
        }
    }

    /// Adds the objects of a list within the time of the page, or records why they were not read.
    async fn read(&mut self, namespace: &str, one: (Listed, &'static str, &'static str)) {
        let until = self.until;
        let list = if Instant::now() < until {
            tokio::time::timeout_at(until, self.list(namespace, one)).await.unwrap_or_else(|_| late())
        } else {
            late()
        };
        let unread = match list {
            Ok(()) => None,
            Err(Unread::Forbidden(resource)) => {
                let why = format!("you may not list {resource} in {}", plain(namespace, SHORT));
                self.forbidden.entry(namespace.to_owned()).or_default().push(resource);
                Some(why)
            }
            Err(Unread::Failed(why)) => {
                let note = format!("In {}: {why}.", plain(namespace, SHORT));
                if !self.notes.contains(&note) {
                    self.notes.push(note);
                }
                Some(why)
            }
        };
        self.seen.set_read(one.0, namespace, unread);
    }

    /// Reads the objects of the application's namespaces, and the Services in other namespaces that its routes name.
    async fn read_all(&mut self, subject: &Subject) {
        let own: BTreeSet<String> = subject.namespaces().into_iter().map(str::to_owned).collect();
        for namespace in own.iter().take(NAMESPACES) {
            for one in LISTS.into_iter().chain([POLICIES]) {
                self.read(namespace, one).await;
            }
        }
        let left_out: Vec<String> = own.iter().skip(NAMESPACES).map(|name| plain(name, SHORT)).collect();
        if !left_out.is_empty() {
            let first = left_out.iter().take(NAMESPACES).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = left_out.len().saturating_sub(NAMESPACES);
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            self.notes.push(format!("The page reads {NAMESPACES} namespaces. These are left out: {first}{more}."));
        }
        let others = self.seen.namespaces_of_backends(subject);
        for namespace in others.iter().filter(|name| !own.contains(*name)).take(OF_BACKENDS) {
            for one in LISTS.into_iter().chain([POLICIES]).filter(|(listed, ..)| *listed != Listed::Routes) {
                self.read(namespace, one).await;
            }
            self.seen.set_read(Listed::Routes, namespace, Some(OTHER_ROUTES.to_owned()));
        }
    }

    /// Returns what was read, and the notes about the rest.
    fn finish(self) -> (Seen, Vec<String>) {
        let Self { seen, mut notes, forbidden, .. } = self;
        for (namespace, kinds) in forbidden {
            let namespace = plain(&namespace, SHORT);
            notes.push(format!(
                "Objects of these kinds are not shown, because you may not list them in {namespace}: {}",
                kinds.join(", ")
            ));
        }
        (seen, notes)
    }
}

fn late() -> Result<(), Unread> {
    Err(Unread::Failed(LATE.to_owned()))
}

/// Reads the network of an application, and returns its page with these further notes.
async fn rendered(session: &Session, key: Key, subject: Subject, mut notes: Vec<String>, until: Instant) -> Markup {
    let mut reading = Reading::new(session, until);
    reading.read_all(&subject).await;
    let (seen, more) = reading.finish();
    notes.extend(more);
    let work = move || {
        let picture = picture(&subject, &seen);
        page::network(&NetworkPage { key: &key, picture: Some(&picture), notes: &notes })
    };
    session.pages.compute(work).await.unwrap_or_else(|| maud::html! { p.note { (FAILED) } })
}

pub(super) async fn of_git_sync(Extension(session): Its, Path((namespace, name)): Path<(String, String)>) -> Response {
    heavy(&session, Heavy::Network, Box::pin(git_sync_page(&session, &namespace, &name))).await
}

async fn git_sync_page(session: &Session, namespace: &str, name: &str) -> Response {
    let kind = FleetKind::GitSync;
    let (key, seen, live) = match fleet_object(session, kind, namespace, name).await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let until = Instant::now() + WITHIN;
    let body = if ObjectsCluster::of(&live) == ObjectsCluster::Remote {
        page::network(&NetworkPage { key: &key, picture: None, notes: &[] })
    } else {
        let (subject, notes) = subject_of(session, &live, until).await;
        rendered(session, key, subject, notes, until).await
    };
    let title = format!("Network of GitSync {}", plain(name, SHORT));
    respond(session, &title, (Some(stream(kind, namespace, name)), seen), body)
}

/// Reads the objects of a GitSync, and returns them with notes.
async fn subject_of(session: &Session, live: &Value, until: Instant) -> (Subject, Vec<String>) {
    let tree = tokio::time::timeout_at(until - WITHIN / 2, tree_of(session, live, Children::Read)).await;
    match tree.unwrap_or_else(|_| Err(LATE.to_owned())) {
        Ok(tree) => (Subject::of_tree(&tree.objects), tree.notes),
        Err(why) => (Subject::default(), vec![format!("The objects of the GitSync cannot be read: {why}")]),
    }
}

pub(super) async fn of_function(Extension(session): Its, Path((namespace, name)): Path<(String, String)>) -> Response {
    heavy(&session, Heavy::Network, Box::pin(function_page(&session, &namespace, &name))).await
}

async fn function_page(session: &Session, namespace: &str, name: &str) -> Response {
    let kind = FleetKind::Function;
    let key = kind.key(namespace, name);
    let seen = session.watched().seen();
    if let Err(response) = not_shown(session, &key, function::read(&session.cluster, &key).await) {
        return response;
    }
    let subject = Subject::of_function(&key);
    let body = rendered(session, key, subject, Vec::new(), Instant::now() + WITHIN).await;
    let title = format!("Network of Function {}", plain(name, SHORT));
    respond(session, &title, (Some(stream(kind, namespace, name)), seen), body)
}
