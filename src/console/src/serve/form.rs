//! Shows the form of a Function, reviews its change, and writes it with the permissions of the user.
//!
//! Invariant: only a change that the same form has reviewed is written, and only to the generation that it was reviewed
//! for. Invariant: a Function of a GitSync is not written.

use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, Request};
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Value, json};

use super::held::held;
use super::own::{Sent, unread};
use super::page_memory::Heavy;
use super::pages::{heavy, in_time, keeping, not_shown, query, room};
use super::session::{Its, Session};
use super::watched::said;
use super::{answer, function, read};
use crate::difference::short_difference;
use crate::filter::Query;
use crate::form::{Fields, Keeper, digest, has_too_many_rows, keeper_of_label, manifest, patch};
use crate::page::{self, FormPage, Page, Review, Right};
use crate::row::FleetKind;
use crate::source::is_git;
use crate::text::{SHORT, plain};
use crate::trace::Trace;
use mainstay_api::Function;
use mainstay_cluster::body::BodyFault;
use mainstay_cluster::{Error, Kind, Persistence};
use mainstay_object::Key;

/// Maximum size of a form, in bytes, and of one whose copies take little memory.
const FORM: usize = 2 << 20;
const SMALL: usize = 256 << 10;
/// Maximum time for a form.
const WITHIN: Duration = Duration::from_secs(20);
/// Maximum number of GitRepositories to select.
const REPOSITORIES: usize = 500;
/// The field manager of changes by this form.
const MANAGER: &str = "mainstay-console";

/// Reads a form that a page of this session has sent.
async fn sent(session: &Session, request: &mut Request) -> Result<Sent, Response> {
    match session.read_form(request, FORM, WITHIN).await {
        Ok(sent) => session.own(sent),
        Err(BodyFault::TooLarge) => {
            let why = "The form is too large. Change the manifest of the Function.";
            Err(answer::message(StatusCode::BAD_REQUEST, "Wrong form", why))
        }
        Err(fault) => Err(unread(fault)),
    }
}

/// The Function of a form.
struct Subject {
    /// The Function; for a new one, its name is not known yet.
    key: Option<Key>,
    namespace: String,
    live: Option<Value>,
    keeper: Option<Keeper>,
    right: Right,
}

impl Subject {
    fn generation(&self) -> String {
        let live = self.live.as_ref();
        let number = live.and_then(|live| live.pointer("/metadata/generation")).and_then(Value::as_i64);
        number.map(|number| number.to_string()).unwrap_or_default()
    }
}

/// Reads a Function, the GitSync that keeps it, and the permission of the user.
async fn existing(session: &Session, key: &Key) -> Result<Subject, Response> {
    let live = not_shown(session, key, function::read(&session.cluster, key).await)?;
    if has_too_many_rows(&live) {
        let text = "The Function has more variables or Secrets as files than this form. Change its manifest.";
        return Err(answer::message(StatusCode::UNPROCESSABLE_ENTITY, "Too many fields", text));
    }
    let trace = (session.readers.trace)(session.cluster.clone(), key.clone());
    let (trace, right) = futures::join!(trace, read::may_patch(&session.cluster, key));
    let keeper = match trace {
        Ok(Trace { owners, manager: Some(manager), .. }) if owners.is_empty() => {
            Some(Keeper { git_sync: Some(manager.git_sync), file: manager.file })
        }
        Ok(Trace { notes, .. }) if notes.is_empty() => None,
        // Without the permission to read all inventories, the label decides.
        _ => keeper_of_label(&live),
    };
    let namespace = key.namespace.as_deref().unwrap_or_default().to_owned();
    Ok(Subject { key: Some(key.clone()), namespace, live: Some(live), keeper, right })
}

/// Returns the subject of the form for a new Function.
async fn new(session: &Session, uri: &Uri) -> Subject {
    let asked = query(uri).get("namespace").to_owned();
    let namespace = if asked.is_empty() { session.namespace() } else { asked };
    let kind = FleetKind::Function;
    let resource = format!("functions.{}", kind.key("", "").group);
    let attributes =
        json!({"verb": "create", "group": &*kind.key("", "").group, "resource": "functions", "namespace": namespace});
    let right = match read::may(&session.cluster, attributes).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "You may not create Functions in the namespace {}: that needs the verb `create` on {resource}.",
            plain(&namespace, SHORT)
        )),
        Err(error) => Err(said(&error)),
    };
    Subject { key: None, namespace, live: None, keeper: None, right }
}

pub(super) async fn edit(Extension(session): Its, Path((namespace, name)): Path<(String, String)>) -> Response {
    let key = FleetKind::Function.key(&namespace, &name);
    let shown = async {
        match existing(&session, &key).await {
            Err(response) => response,
            Ok(subject) => {
                let fields = subject.live.as_ref().map(Fields::of).unwrap_or_default();
                show(&session, &subject, &fields, StatusCode::OK, "", None)
            }
        }
    };
    heavy(&session, Heavy::Object, Box::pin(shown)).await
}

pub(super) async fn change(
    Extension(session): Its,
    Path((namespace, name)): Path<(String, String)>,
    mut request: Request,
) -> Response {
    let sent = match sent(&session, &mut request).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let path = request.uri().path();
    let room = match room(&session, Heavy::Object).await {
        Ok(room) => room,
        Err(busy) => return unsent(&session, path, sent, busy),
    };
    let key = FleetKind::Function.key(&namespace, &name);
    // Only the read has a time limit, because the user has to know whether the change was written.
    match in_time(&session, Box::pin(existing(&session, &key))).await {
        Ok(Ok(subject)) => keeping(room, respond(&session, &subject, &sent).await),
        Ok(Err(response)) => response,
        Err(late) => unsent(&session, path, sent, late),
    }
}

/// Returns the page that sends a form again which the server had no room or time to process. The page keeps the memory of
/// the form.
fn unsent(session: &Session, path: &str, sent: Sent, cause: Response) -> Response {
    // A large form takes several times its size once more.
    let memory = if sent.size > SMALL { session.pages.try_acquire(Heavy::Single) } else { None };
    if sent.size > SMALL && memory.is_none() {
        return cause;
    }
    let why = match cause.status() {
        StatusCode::SERVICE_UNAVAILABLE => "The server is busy.",
        _ => "The Function was not read in time.",
    };
    let body = page::unsent(path, &sent, why);
    let page = Page { title: "The form was not read", visitor: Some(session.visitor()), live: None, body };
    let response = held(answer::page(cause.status(), page::render(page)), sent);
    match memory {
        Some(memory) => keeping(memory, response),
        None => response,
    }
}

pub(super) async fn blank(Extension(session): Its, uri: Uri) -> Response {
    let subject = new(&session, &uri).await;
    show(&session, &subject, &Fields::default(), StatusCode::OK, "", None)
}

pub(super) async fn create(Extension(session): Its, uri: Uri, mut request: Request) -> Response {
    let sent = match sent(&session, &mut request).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    // The copies of a large form take several times its size.
    let page = if sent.size > SMALL { Heavy::Object } else { Heavy::Single };
    match room(&session, page).await {
        Ok(room) => keeping(room, respond(&session, &new(&session, &uri).await, &sent).await),
        Err(busy) => {
            let path = uri.path_and_query().map_or("/create", |path| path.as_str());
            unsent(&session, path, sent, busy)
        }
    }
}

/// Reviews the change of a form, and writes it if the form has already been reviewed.
async fn respond(session: &Session, subject: &Subject, form: &Query) -> Response {
    let fields = Fields::read(form);
    let wanted = match fields.wanted(subject.live.as_ref(), &subject.namespace) {
        Ok(wanted) => wanted,
        Err(why) => return show(session, subject, &fields, StatusCode::UNPROCESSABLE_ENTITY, &why, None),
    };
    let review = review(session, subject, &wanted).await;
    if form.get("step") != "apply" {
        let is_same = form.get("generation") == subject.generation();
        let why =
            if is_same { "" } else { "The Function was changed meanwhile. The review is about its present state." };
        return show(session, subject, &fields, StatusCode::OK, why, Some(&review));
    }
    let refusal = match (&subject.keeper, &subject.right) {
        (Some(_), _) => Some("A GitSync manages this Function, so nothing was changed."),
        (None, Err(why)) => Some(why.as_str()),
        _ if form.get("reviewed") != review.digest => {
            Some("The form or the Function differs from what was reviewed, so nothing was changed. Review it again.")
        }
        _ => None,
    };
    if let Some(why) = refusal {
        return show(session, subject, &fields, StatusCode::CONFLICT, why, Some(&review));
    }
    match write(session, subject, &wanted, Persistence::Kept).await {
        Ok(live) => {
            let name = live.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(&fields.name);
            let key = FleetKind::Function.key(&subject.namespace, name);
            let body = page::written(&key, subject.live.is_none());
            let page = Page { title: "Function", visitor: Some(session.visitor()), live: None, body };
            answer::page(StatusCode::OK, page::render(page))
        }
        Err(error) => {
            let why = format!("Nothing was changed: {}", said(&error));
            show(session, subject, &fields, StatusCode::CONFLICT, &why, Some(&review))
        }
    }
}

/// Returns the change, its effect, and the outcome of a dry run.
async fn review(session: &Session, subject: &Subject, wanted: &Value) -> Review {
    let change = match &subject.live {
        Some(live) => patch(live, wanted),
        None => Some(wanted.clone()),
    };
    let builds = (session.readers.functions.changed_inputs)(subject.live.as_ref(), wanted);
    let may_write = subject.keeper.is_none() && subject.right.is_ok() && change.is_some();
    let dry_run = if may_write { Some(write(session, subject, wanted, Persistence::DryRun).await) } else { None };
    // The API server may add defaults.
    let afterwards = dry_run.as_ref().and_then(|outcome| outcome.as_ref().ok()).unwrap_or(wanted);
    let text = |object: &Value| serde_yaml::to_string(&manifest(object)).unwrap_or_default();
    Review {
        manifest: text(wanted),
        lines: subject.live.as_ref().map(|live| short_difference(&text(live), &text(afterwards))).unwrap_or_default(),
        is_changed: change.is_some(),
        builds,
        digest: digest(&change.unwrap_or_default(), &subject.generation()),
        dry_run: dry_run.map(|outcome| outcome.map(drop).map_err(|error| said(&error))),
    }
}

/// Writes the difference between the live Function and the wanted one, or creates it.
async fn write(session: &Session, subject: &Subject, wanted: &Value, how: Persistence) -> Result<Value, Error> {
    let (cluster, kind) = (&session.cluster, Kind::of::<Function>());
    let name = wanted.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let namespace = Some(subject.namespace.as_str());
    match &subject.live {
        Some(live) => {
            let mut change = patch(live, wanted).unwrap_or_else(|| json!({}));
            // A change since this object was read is a conflict.
            change["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
            cluster.patch_merge_as(MANAGER, &kind, namespace, name, &change, how).await
        }
        None if how == Persistence::DryRun => cluster.create(&kind, namespace, name, wanted, how).await,
        None => cluster.create_as(MANAGER, &kind, namespace, name, wanted).await,
    }
}

/// Returns the names of the GitRepositories of the namespace of a new Function.
fn repositories(session: &Session, subject: &Subject) -> Vec<String> {
    if subject.live.is_some() {
        return Vec::new();
    }
    let rows = session.watched().rows();
    let own = rows.iter().filter(|row| row.kind == FleetKind::GitRepository && row.namespace == subject.namespace);
    let mut names: Vec<String> = own.map(|row| row.name.clone()).collect();
    names.sort_unstable();
    names.truncate(REPOSITORIES);
    names
}

fn show(
    session: &Session,
    subject: &Subject,
    fields: &Fields,
    status: StatusCode,
    problem: &str,
    review: Option<&Review>,
) -> Response {
    let body = page::form(&FormPage {
        key: subject.key.as_ref(),
        namespace: &subject.namespace,
        keeper: subject.keeper.as_ref(),
        right: &subject.right,
        csrf: &session.csrf,
        fields,
        is_git: subject.live.as_ref().is_some_and(is_git),
        generation: &subject.generation(),
        runtimes: &session.readers.functions.runtimes,
        repositories: &repositories(session, subject),
        problem,
        review,
    });
    let title = subject.key.as_ref().map_or("Create a Function".to_owned(), |key| format!("Edit {}", key.name));
    answer::page(status, page::render(Page { title: &title, visitor: Some(session.visitor()), live: None, body }))
}
