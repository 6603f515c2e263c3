//! Reads a Function and the objects that belong to it, and renders its page.
//!
//! Invariant: the number of lists is fixed, and each list has a maximum number of objects.

use axum::Extension;
use axum::extract::Path;
use axum::response::Response;
use futures::{StreamExt as _, TryStreamExt as _};
use http::Uri;
use jiff::Timestamp;
use serde_json::Value;

use super::log::{self, Wanted};
use super::page_memory::Heavy;
use super::pages::{address_of, not_shown, query, respond, room, stream, with_log};
use super::read::{self, Found};
use super::session::Its;
use super::watched::said;
use crate::belonging::{Belonging, add_children, bindings, rules, subscriptions};
use crate::page::{self, FunctionPage};
use crate::row::{FleetKind, row};
use crate::source::is_git;
use mainstay_api::names;
use mainstay_cluster::{Cluster, Kind, Selection};
use mainstay_object::Key;

/// Maximum number of objects of a list.
const MOST: usize = 500;

/// The kinds of children.
const CHILDREN: [(&str, &str); 7] = [
    ("", "ConfigMap"),
    ("batch", "Job"),
    ("apps", "Deployment"),
    ("serving.knative.dev", "Service"),
    ("", "Service"),
    ("autoscaling", "HorizontalPodAutoscaler"),
    ("", "Pod"),
];
const USAGE: (&str, &str) = ("servicecatalog.kyma-project.io", "ServiceBindingUsage");
const BINDING: (&str, &str) = ("servicecatalog.k8s.io", "ServiceBinding");
/// The kinds of objects that send events.
const EVENTS: [(&str, &str); 2] = [("eventing.knative.dev", "Trigger"), ("eventing.kyma-project.io", "Subscription")];
const RULE: (&str, &str) = ("gateway.kyma-project.io", "APIRule");

/// Reads a Function in the version that the pages understand, which need not be the one that the server prefers.
pub(super) async fn read(cluster: &Cluster, key: &Key) -> Found {
    let kind = FleetKind::Function;
    match cluster.kind(kind.api_version(), kind.name()).await {
        Ok(Some(served)) => read::of_kind(cluster, &served, key).await,
        Ok(None) => Found::Missing(format!("The kind {} is not installed in this cluster.", kind.name())),
        Err(error) => Found::Failed(said(&error)),
    }
}

/// The objects of a kind, or why they were not listed. `None` if the kind is not installed.
type List = Option<Result<Vec<(Key, Value)>, NotListed>>;

/// Why a list failed.
enum NotListed {
    /// The user lacks the permission to list this kind.
    Forbidden(String),
    Failed(String),
}

async fn list(cluster: &Cluster, (group, kind): (&str, &str), selection: Selection) -> List {
    let kind = match cluster.preferred_kind(group, kind).await {
        Ok(kind) => kind?,
        Err(error) => return Some(Err(NotListed::Failed(said(&error)))),
    };
    let selection = if is_confidential(&kind) { selection.metadata_only() } else { selection };
    let found: Result<Vec<Value>, _> = cluster.list(&kind, selection).take(MOST).try_collect().await;
    Some(match found {
        Ok(found) => Ok(found.into_iter().filter_map(|value| Some((kind.key_of(&value)?, value))).collect()),
        Err(error) if error.is_forbidden() => Err(NotListed::Forbidden(kind.resource.to_string())),
        Err(error) => Err(NotListed::Failed(format!("{} cannot be listed: {}", kind.resource, said(&error)))),
    })
}

/// Returns whether only the metadata of a kind is needed.
fn is_confidential(kind: &Kind) -> bool {
    kind.group.is_empty() && &*kind.kind == "ConfigMap"
}

/// Reads the objects that belong to a Function.
async fn belonging(cluster: &Cluster, key: &Key, function: &Value) -> Belonging {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let labelled = || Selection::labelled(names::FUNCTION_NAME, &key.name).within(namespace);
    let all = || Selection::default().within(namespace);
    let children = futures::future::join_all(CHILDREN.map(|kind| list(cluster, kind, labelled())));
    let events = futures::future::join_all(EVENTS.map(|kind| list(cluster, kind, all())));
    let (usages, of_bindings, of_rules) =
        (list(cluster, USAGE, all()), list(cluster, BINDING, all()), list(cluster, RULE, all()));
    let (children, events, usages, of_bindings, of_rules) =
        futures::join!(children, events, usages, of_bindings, of_rules);
    let mut belonging = Belonging::default();
    let mut unlisted = Vec::new();
    let mut listed = |list: List| match list? {
        Ok(found) => Some(found),
        Err(NotListed::Forbidden(resource)) => {
            unlisted.push(resource);
            None
        }
        Err(NotListed::Failed(why)) => {
            belonging.notes.push(why);
            None
        }
    };
    let children: Vec<_> = children.into_iter().filter_map(&mut listed).collect();
    let events: Vec<_> = events.into_iter().filter_map(&mut listed).collect();
    let (usages, of_bindings, of_rules) = (listed(usages), listed(of_bindings), listed(of_rules));
    for found in &children {
        add_children(&mut belonging, function, found);
    }
    for found in &events {
        belonging.subscriptions.extend(subscriptions(key, found));
    }
    belonging.bindings = bindings(&key.name, &usages.unwrap_or_default(), of_bindings.as_deref());
    belonging.rules = rules(&key.name, &of_rules.unwrap_or_default());
    if !unlisted.is_empty() {
        let kinds = unlisted.join(", ");
        belonging.notes.push(format!("Objects of these kinds are not shown, because you may not list them: {kinds}"));
    }
    belonging
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
    let _room = match room(&session, Heavy::Object).await {
        Ok(room) => room,
        Err(response) => return response,
    };
    let kind = FleetKind::Function;
    let key = kind.key(&namespace, &name);
    let seen = session.watched().seen();
    let live = match not_shown(&session, &key, read(&session.cluster, &key).await) {
        Ok(live) => live,
        Err(response) => return response,
    };
    let cluster = &session.cluster;
    let (pods, events, belonging, right, remote) = futures::join!(
        log::pods(cluster, &key),
        read::events_of(cluster, &key),
        belonging(cluster, &key, &live),
        read::may_patch(cluster, &key),
        remote_of(cluster, &namespace, &live),
    );
    let query = query(&uri);
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
        events: &events,
        now: Timestamp::now(),
    });
    let live = with_log(Some(stream(kind, &namespace, &name)), &key, log.as_ref());
    respond(&session, &format!("Function {}", row.name), (live, seen), body)
}
