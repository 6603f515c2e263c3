//! Reads the data for a page, and renders the page.

use axum::Extension;
use axum::body::HttpBody as _;
use axum::extract::Path;
use axum::response::Response;
use http::{HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;
use maud::Markup;
use serde_json::Value;

use super::answer;
use super::held::held_memory;
use super::log::{self, Wanted};
use super::page_memory::{Heavy, LONGEST, PagePermit};
use super::read::{self, Found};
use super::session::{Its, Session};
use crate::action::Action;
use crate::address;
use crate::again::again;
use crate::csv::csv;
use crate::drift::{Choice, contended, managers, newest_first, remaining_first, table};
use crate::filter::{Filter, Query, listing};
use crate::lookup::lookups;
use crate::page::{self, Drift, Fleet, GitRepositoryPage, GitSyncPage, Live, Log, ObjectPage, Page, Right};
use crate::row::{FleetKind, row};
use crate::text::{MESSAGE, SHORT, plain};
use crate::trace::Trace;
use crate::tree::{Children, Tree, TreeFilter};
use mainstay_cluster::Cluster;
use mainstay_object::Key;

/// Maximum size of the file with hand edits, in bytes.
const CSV: usize = 4 << 20;

pub(super) fn query(uri: &Uri) -> Query {
    Query::parse(uri.query().unwrap_or_default().as_bytes())
}

/// Returns a page. `seen` is the number of changes before it was read.
pub(super) fn respond(session: &Session, title: &str, (url, seen): (Option<String>, u64), body: Markup) -> Response {
    let live = url.map(|url| Live { url, seen });
    answer::page(StatusCode::OK, page::render(Page { title, visitor: Some(session.visitor()), live, body }))
}

/// Returns the object that was found, or else a page that says why it is not shown.
pub(super) fn not_shown(session: &Session, key: &Key, found: Found) -> Result<Value, Response> {
    // A page that could not be read is read again once the API server responds.
    let seen = session.watched().seen();
    let live = matches!(found, Found::Failed(_)).then(|| Live { url: "/events".to_owned(), seen });
    let (status, why) = match found {
        Found::There(live) => return Ok(live),
        Found::Missing(why) => (StatusCode::NOT_FOUND, why),
        Found::Forbidden(why) => (StatusCode::FORBIDDEN, why),
        Found::Failed(why) => (StatusCode::BAD_GATEWAY, why),
    };
    let title = plain(&key.to_string(), SHORT);
    Err(not_read(session, live, status, &title, &why))
}

/// Reads an object of the fleet for its page, with its key and the number of changes before the read. Returns a page that says
/// why if the object is not shown.
pub(super) async fn fleet_object(
    session: &Session,
    kind: FleetKind,
    namespace: &str,
    name: &str,
) -> Result<(Key, u64, Value), Response> {
    let key = kind.key(namespace, name);
    let seen = session.watched().seen();
    let live = not_shown(session, &key, read::object(&session.cluster, &key).await)?;
    Ok((key, seen, live))
}

/// Returns the response of a page, which keeps a part of the memory of the page until the client has read it.
pub(super) fn keeping(mut room: PagePermit, response: Response) -> Response {
    if let Some(size) = response.body().size_hint().exact() {
        room.shrink_to(size);
    }
    held_memory(response, room)
}

/// Reads a page within its memory and its time. Otherwise, returns a page that says why it was not read.
pub(super) async fn heavy(session: &Session, page: Heavy, read: impl Future<Output = Response>) -> Response {
    match room(session, page).await {
        Ok(room) => keeping(room, in_time(session, read).await.unwrap_or_else(|late| late)),
        Err(busy) => busy,
    }
}

/// Waits for the memory of a page. Returns a page that says that the server is busy if there is none in time.
pub(super) async fn room(session: &Session, page: Heavy) -> Result<PagePermit, Response> {
    session.pages.acquire(page).await.ok_or_else(|| busy(session))
}

/// Reads the objects of a page. Returns a page that says that it takes too long after the time limit.
pub(super) async fn in_time<T>(session: &Session, read: impl Future<Output = T>) -> Result<T, Response> {
    session.pages.within(LONGEST, read).await.ok_or_else(|| {
        let why = format!(
            "The objects of this page were not read within {} s. `mainstay tree`, `mainstay trace` and `mainstay get` read \
             them without this limit.",
            LONGEST.as_secs()
        );
        not_read(session, None, StatusCode::GATEWAY_TIMEOUT, "The page takes too long", &why)
    })
}

/// Returns the page for an address without a page.
pub(super) async fn unknown(Extension(session): Its) -> Response {
    not_read(&session, None, StatusCode::NOT_FOUND, "Not found", "There is no such page.")
}

/// Returns the page that says that the server is busy.
pub(super) fn busy(session: &Session) -> Response {
    let why = "Too many pages are being read. The browser reads this page again in a few seconds. Send a form again yourself.";
    let mut response = not_read(session, None, StatusCode::SERVICE_UNAVAILABLE, "The server is busy", why);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

fn not_read(session: &Session, live: Option<Live>, status: StatusCode, title: &str, why: &str) -> Response {
    let body = maud::html! { h1 { (title) } p.note { (page::coded(why)) } p { a href="/" { "Back to the fleet" } } };
    answer::page(status, page::render(Page { title, visitor: Some(session.visitor()), live, body }))
}

pub(super) async fn fleet(Extension(session): Its, uri: Uri) -> Response {
    let watched = session.watched();
    watched.settled().await;
    let seen = watched.seen();
    let filter = Filter::of(&query(&uri));
    let rows = watched.rows();
    let listing = listing(rows.clone(), &filter);
    let notes = watched.notes();
    let body = page::fleet(&Fleet {
        title: "Fleet",
        path: "/",
        kinds: &FleetKind::ALL,
        listing: &listing,
        filter: &filter,
        lookups: &lookups(rows.iter().filter_map(|row| row.next_lookup())),
        notes: &notes,
        within: watched.is_limited().then_some(&session.csrf),
        now: Timestamp::now(),
    });
    respond(&session, "Fleet", (Some("/events".to_owned()), seen), body)
}

pub(super) async fn drift(Extension(session): Its, uri: Uri) -> Response {
    session.watched().settled().await;
    heavy(&session, Heavy::Single, async { drift_page(&session, &uri) }).await
}

fn drift_page(session: &Session, uri: &Uri) -> Response {
    let watched = session.watched();
    let seen = watched.seen();
    let (rows, choice) = (watched.rows(), Choice::of(&query(uri)));
    let all = || rows.iter().map(|row| &**row);
    let notes: Vec<String> = watched.notes().into_iter().filter(|note| note.contains("GitSync")).collect();
    let body = page::drift(&Drift {
        edits: &remaining_first(newest_first(all(), &choice)),
        contended: &contended(all(), &choice),
        managers: &managers(all()),
        choice: &choice,
        notes: &notes,
        now: Timestamp::now(),
    });
    respond(session, "Drift", (Some("/events".to_owned()), seen), body)
}

pub(super) async fn drift_csv(Extension(session): Its, uri: Uri) -> Response {
    session.watched().settled().await;
    heavy(&session, Heavy::Single, async { drift_table(&session, &uri) }).await
}

fn drift_table(session: &Session, uri: &Uri) -> Response {
    let rows = session.watched().rows();
    let edits = newest_first(rows.iter().map(AsRef::as_ref), &Choice::of(&query(uri)));
    let mut response = answer::of_type(StatusCode::OK, "text/csv; charset=utf-8", csv(table(&edits), CSV));
    let attachment = HeaderValue::from_static("attachment; filename=\"drift.csv\"");
    response.headers_mut().insert(header::CONTENT_DISPOSITION, attachment);
    response
}

/// Returns the URL of the stream for one object.
pub(super) fn stream(kind: FleetKind, namespace: &str, name: &str) -> String {
    address::with_query("/events", &[("kind", kind.name()), ("namespace", namespace), ("name", name)])
}

/// Returns the address of a GitRepository whose name is in a field, as far as the user may read it.
pub(super) async fn address_of(cluster: &Cluster, namespace: &str, name: Option<&Value>) -> Option<String> {
    let repository = name?.as_str()?;
    let Found::There(repository) = read::object(cluster, &FleetKind::GitRepository.key(namespace, repository)).await
    else {
        return None;
    };
    Some(repository.pointer("/spec/url")?.as_str()?.to_owned())
}

/// Reads the tree of a GitSync.
pub(super) async fn tree_of(session: &Session, sync: &Value, children: Children) -> Result<Tree, String> {
    match serde_json::from_value(sync.clone()) {
        Ok(sync) => {
            let tree = (session.readers.tree)(session.cluster.clone(), sync, children).await;
            tree.map_err(|why| plain(&why, SHORT))
        }
        Err(error) => Err(plain(&format!("The GitSync cannot be read: {error}"), SHORT)),
    }
}

pub(super) async fn git_sync(
    Extension(session): Its,
    Path((namespace, name)): Path<(String, String)>,
    uri: Uri,
) -> Response {
    heavy(&session, Heavy::Tree, Box::pin(git_sync_page(&session, &namespace, &name, &uri))).await
}

async fn git_sync_page(session: &Session, namespace: &str, name: &str, uri: &Uri) -> Response {
    let kind = FleetKind::GitSync;
    let (key, seen, live) = match fleet_object(session, kind, namespace, name).await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let (tree, events, right, remote) = futures::join!(
        session.pages.part(tree_of(session, &live, Children::Read)),
        read::events_of(&session.cluster, &key),
        read::may_patch(&session.cluster, &key),
        address_of(&session.cluster, namespace, live.pointer("/spec/gitRepository")),
    );
    let row = row(kind, &live);
    let body = page::git_sync(&GitSyncPage {
        key: &key,
        live: &live,
        state: row.state,
        edits: &row.edits,
        tree: &tree,
        filter: &TreeFilter::of(&query(uri)),
        remote: remote.as_deref(),
        events: &events,
        right: &right,
        now: Timestamp::now(),
    });
    respond(session, &format!("GitSync {}", row.name), (Some(stream(kind, namespace, name)), seen), body)
}

pub(super) async fn git_repository(
    Extension(session): Its,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    heavy(&session, Heavy::Single, Box::pin(git_repository_page(&session, &namespace, &name))).await
}

async fn git_repository_page(session: &Session, namespace: &str, name: &str) -> Response {
    let kind = FleetKind::GitRepository;
    let (key, seen, live) = match fleet_object(session, kind, namespace, name).await {
        Ok(found) => found,
        Err(response) => return response,
    };
    let watched = session.watched();
    let (events, right, deletion, ()) = futures::join!(
        read::events_of(&session.cluster, &key),
        read::may_patch(&session.cluster, &key),
        read::may_delete(&session.cluster, &key),
        watched.settled()
    );
    let row = row(kind, &live);
    let body = page::git_repository(&GitRepositoryPage {
        key: &key,
        live: &live,
        state: row.state,
        followers: &page::followers(watched.rows(), &row.namespace, &row.name),
        unread: &watched.unread(&[FleetKind::GitSync, FleetKind::Function], namespace),
        events: &events,
        right: &right,
        deletion: &deletion,
        now: Timestamp::now(),
    });
    let live = Some(stream(kind, namespace, name));
    respond(session, &format!("GitRepository {}", row.name), (live, seen), body)
}

/// Adds the log that a page follows to the URL of its stream.
pub(super) fn with_log(stream: Option<String>, key: &Key, log: Option<&Log>) -> Option<String> {
    let Some(log) = log.filter(|log| !log.is_previous && log.lines.is_ok()) else { return stream };
    let followed = [
        ("log-group", &*key.group),
        ("log-kind", &*key.kind),
        ("log-namespace", key.namespace.as_deref().unwrap_or_default()),
        ("log-name", &*key.name),
        ("pod", &log.pod),
        ("container", &log.container),
    ];
    Some(address::and_query(stream.as_deref().unwrap_or("/events"), &followed))
}

/// Returns the stream of the GitSync that manages an object, or of the object itself if it is in the fleet.
fn stream_of(key: &Key, trace: &Result<Trace, String>) -> Option<String> {
    let namespace = key.namespace.as_deref().unwrap_or_default();
    let own = FleetKind::ALL.into_iter().find(|kind| kind.key(namespace, &key.name) == *key).map(|kind| (kind, key));
    let manager = trace.as_ref().ok().and_then(|trace| trace.manager.as_ref());
    let manager = manager.map(|manager| (FleetKind::GitSync, &manager.git_sync));
    let (kind, key) = own.or(manager)?;
    Some(stream(kind, key.namespace.as_deref().unwrap_or_default(), &key.name))
}

pub(super) async fn object(Extension(session): Its, uri: Uri) -> Response {
    heavy(&session, Heavy::Object, Box::pin(object_page(&session, &uri))).await
}

/// Asks whether the user may delete an object, if its kind has this action.
async fn may_delete_here(session: &Session, key: &Key) -> Right {
    if Action::Delete.is_of(key) { read::may_delete(&session.cluster, key).await } else { Ok(()) }
}

async fn object_page(session: &Session, uri: &Uri) -> Response {
    let query = query(uri);
    let key = Key::new(query.get("group"), query.get("kind"), Some(query.get("namespace")), query.get("name"));
    let seen = session.watched().seen();
    let (events, right, deletion, trace) = futures::join!(
        read::events_of(&session.cluster, &key),
        read::may_patch(&session.cluster, &key),
        may_delete_here(session, &key),
        session.pages.part((session.readers.trace)(session.cluster.clone(), key.clone())),
    );
    // The trace reads the object, too, and no longer has it.
    let found = read::object(&session.cluster, &key).await;
    let trace = trace.map_err(|why| plain(&why, MESSAGE));
    let is_wanted = trace.as_ref().is_ok_and(|trace| trace.manager.is_some() && trace.owners.is_empty());
    let live = match found {
        Found::Missing(_) if is_wanted => None,
        found => match not_shown(session, &key, found) {
            Ok(live) => Some(live),
            Err(response) => return response,
        },
    };
    let pods = match &live {
        Some(live) => log::pods_of(&session.cluster, &key, live).await,
        None => None,
    };
    let log = match &pods {
        Some(Ok(pods)) => log::log(&session.cluster, &key, pods, &Wanted::of(&query)).await,
        _ => None,
    };
    let again = match trace.as_ref().ok().and_then(|trace| again(&key, live.as_ref(), trace)) {
        Some(again) => {
            let right = read::may_patch(&session.cluster, &again.asked.key).await;
            Some((again, right))
        }
        None => None,
    };
    let body = page::object(&ObjectPage {
        key: &key,
        live: live.as_ref(),
        trace: &trace,
        events: &events,
        pods: &pods,
        log: &log,
        right: &right,
        deletion: &deletion,
        again: &again,
        now: Timestamp::now(),
    });
    let stream = with_log(stream_of(&key, &trace), &key, log.as_ref());
    respond(session, &plain(&key.to_string(), SHORT), (stream, seen), body)
}
