//! Reads a Function and the objects that belong to it, and renders its page.
//!
//! Invariant: the number of lists is fixed, and each list has a maximum number of objects. Invariant: each object is reduced
//! to its part of the page as soon as it was read.

use std::time::Duration;

use axum::Extension;
use axum::extract::Path;
use axum::response::Response;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Uri;
use jiff::Timestamp;
use serde_json::Value;

use super::log::{self, Wanted};
use super::page_memory::Heavy;
use super::pages::{self, address_of, heavy, not_shown, query, respond, with_log};
use super::read::{self, Found};
use super::session::{Its, Session};
use super::watched::said;
use crate::belonging::{Belonging, Part, Role};
use crate::page::{self, FunctionPage};
use crate::row::{FleetKind, row};
use crate::source::is_git;
use mainstay_api::names;
use mainstay_cluster::{Cluster, Kind, MemoryBudget, Selection};
use mainstay_object::Key;

/// Maximum number of objects of a list that are read, and of those on the page.
const MOST: usize = 500;
const ROWS: usize = 100;
/// Maximum memory of the parts of all objects of a page, in bytes.
const MEMORY: usize = 2 << 20;
/// Maximum number of lists at the same time. Each one has a page of its response in memory.
const AT_ONCE: usize = 2;
/// Maximum time for a list. Other lists wait for it.
const WITHIN: Duration = Duration::from_secs(8);

/// The lists of objects that may belong to a Function, by group and kind.
const LISTS: [(Role, &str, &str); 12] = [
    (Role::Child, "", "ConfigMap"),
    (Role::Child, "batch", "Job"),
    (Role::Child, "apps", "Deployment"),
    (Role::Child, "serving.knative.dev", "Service"),
    (Role::Child, "", "Service"),
    (Role::Child, "autoscaling", "HorizontalPodAutoscaler"),
    (Role::Child, "", "Pod"),
    (Role::Sender, "eventing.knative.dev", "Trigger"),
    (Role::Sender, "eventing.kyma-project.io", "Subscription"),
    (Role::Usage, "servicecatalog.kyma-project.io", "ServiceBindingUsage"),
    (Role::Binding, "servicecatalog.k8s.io", "ServiceBinding"),
    (Role::Rule, "gateway.kyma-project.io", "APIRule"),
];

/// Reads a Function in the version that the pages understand.
pub(super) async fn read(cluster: &Cluster, key: &Key) -> Found {
    read::of_version(cluster, FleetKind::Function, key).await
}

/// Why a list failed.
enum NotListed {
    /// The user lacks the permission to list this kind.
    Forbidden(String),
    Failed(String),
}

/// A Function whose objects are read.
#[derive(Clone, Copy)]
struct Subject<'a> {
    key: &'a Key,
    uid: &'a str,
    budget: &'a MemoryBudget,
}

/// The parts of the objects of a list, and a note if it was cut.
type List = (Vec<Part>, Option<String>);

/// Returns the parts of the objects of a list, or why they were not listed. The parts are empty if the kind is not
/// installed.
async fn list(
    cluster: &Cluster,
    subject: Subject<'_>,
    (role, group, kind): (Role, &str, &str),
) -> Result<List, NotListed> {
    let kind = match cluster.preferred_kind(group, kind).await {
        Ok(Some(kind)) => kind,
        Ok(None) => return Ok((Vec::new(), None)),
        Err(error) => return Err(NotListed::Failed(said(&error))),
    };
    let namespace = subject.key.namespace.as_deref().unwrap_or_default();
    let all = match role {
        Role::Child => Selection::labelled(names::FUNCTION_NAME, &subject.key.name),
        Role::Usage | Role::Binding | Role::Sender | Role::Rule => Selection::default(),
    };
    let all = if is_confidential(&kind) { all.metadata_only() } else { all };
    let most = if role == Role::Binding { MOST } else { ROWS };
    let mut found = cluster.list(&kind, all.within(namespace));
    let (mut parts, mut read) = (Vec::new(), 0);
    loop {
        let live = match found.try_next().await {
            Ok(Some(live)) => live,
            Ok(None) => return Ok((parts, None)),
            Err(error) if error.is_forbidden() => return Err(NotListed::Forbidden(kind.resource.to_string())),
            Err(error) => {
                return Err(NotListed::Failed(format!("{} cannot be listed: {}", kind.resource, said(&error))));
            }
        };
        if read == MOST {
            return Ok((parts, Some(format!("Only the first {MOST} {} are read.", kind.resource))));
        }
        read += 1;
        let part = kind.key_of(&live).and_then(|key| Part::of(role, (subject.key, subject.uid), key, &live));
        let Some(part) = part else { continue };
        if parts.len() == most {
            return Ok((parts, Some(format!("Only the first {most} {} are shown.", kind.resource))));
        }
        // The budget has a note of its own.
        if !subject.budget.take(part.bytes()) {
            return Ok((parts, None));
        }
        parts.push(part);
    }
}

/// Lists a kind within its time, so that a slow one does not hide the others.
async fn list_in_time(
    session: &Session,
    subject: Subject<'_>,
    one: (Role, &'static str, &'static str),
) -> Result<List, NotListed> {
    let late = || {
        let why = format!("{} objects were not read within {} s", one.2, WITHIN.as_secs());
        Err(NotListed::Failed(why))
    };
    session.pages.within(WITHIN, list(&session.cluster, subject, one)).await.unwrap_or_else(late)
}

/// Returns whether only the metadata of a kind is needed.
fn is_confidential(kind: &Kind) -> bool {
    kind.group.is_empty() && &*kind.kind == "ConfigMap"
}

/// Reads the objects that belong to a Function.
pub(super) async fn belonging(session: &Session, key: &Key, function: &Value) -> Belonging {
    let budget = MemoryBudget::new(MEMORY);
    let uid = function.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let subject = Subject { key, uid, budget: &budget };
    let mut lists = Vec::new();
    for one in LISTS {
        lists.push(list_in_time(session, subject, one));
    }
    let mut lists = stream::iter(lists).buffered(AT_ONCE);
    let (mut parts, mut notes, mut unlisted) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(list) = lists.next().await {
        match list {
            Ok((found, note)) => {
                parts.extend(found);
                notes.extend(note);
            }
            Err(NotListed::Forbidden(resource)) => unlisted.push(resource),
            Err(NotListed::Failed(why)) => notes.push(why),
        }
    }
    if !unlisted.is_empty() {
        let kinds = unlisted.join(", ");
        notes.push(format!("Objects of these kinds are not shown, because you may not list them: {kinds}"));
    }
    notes.extend(budget.note("Not all objects are shown").map(|note| note + "."));
    Belonging::of(parts, notes)
}

/// Returns the address of the repository with the code of a Function, as far as the user may read it.
pub(super) async fn remote_of(cluster: &Cluster, namespace: &str, live: &Value) -> Option<String> {
    if !is_git(live) {
        return None;
    }
    match live.pointer("/spec/gitRepository/url").and_then(Value::as_str) {
        Some(own) => Some(own.to_owned()),
        None => address_of(cluster, namespace, live.pointer("/spec/source")).await,
    }
}

pub(super) async fn function(
    Extension(session): Its,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Response {
    heavy(&session, Heavy::Object, Box::pin(function_page(&session, &namespace, &name, &uri))).await
}

async fn function_page(session: &Session, namespace: &str, name: &str, uri: &Uri) -> Response {
    let kind = FleetKind::Function;
    let key = kind.key(namespace, name);
    let seen = session.watched().seen();
    let live = match not_shown(session, &key, read(&session.cluster, &key).await) {
        Ok(live) => live,
        Err(response) => return response,
    };
    let cluster = &session.cluster;
    let (pods, events, right, deletion, remote) = futures::join!(
        log::pods(cluster, &key),
        read::events_of(cluster, &key),
        read::may_patch(cluster, &key),
        read::may_delete(cluster, &key),
        remote_of(cluster, namespace, &live),
    );
    // These lists begin later, so that fewer responses are in memory at the same time.
    let belonging = belonging(session, &key, &live).await;
    let query = query(uri);
    let log = match &pods {
        Ok(pods) => log::log(cluster, &key, pods, &Wanted::of(&query)).await,
        Err(_) => None,
    };
    let row = row(kind, &live);
    let body = page::function(&FunctionPage {
        key: &key,
        live: &live,
        state: row.state,
        pods: &pods,
        log: &log,
        belonging: &belonging,
        remote: remote.as_deref(),
        has_files: session.readers.files.is_some(),
        right: &right,
        deletion: &deletion,
        events: &events,
        now: Timestamp::now(),
    });
    let live = with_log(Some(pages::stream(kind, namespace, name)), &key, log.as_ref());
    respond(session, &format!("Function {}", row.name), (live, seen), body)
}
