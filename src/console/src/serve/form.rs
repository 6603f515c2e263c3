//! Shows the forms that create or change an object, reviews the change, and writes it with the permissions of the user.
//!
//! Invariant: only a change that the same form has reviewed is written, and only to the generation that it was reviewed
//! for. Invariant: an object of a GitSync, or of another object that controls it, is not written, and neither is one that the
//! agent would refuse. Invariant: only a write has no time limit, because the user has to know whether it was performed.

use axum::Extension;
use axum::extract::{Path, Request};
use axum::response::Response;
use http::{StatusCode, Uri};
use serde_json::{Value, json};

use super::held::{held, held_memory};
use super::keeper::keeper;
use super::own::{Sent, unread};
use super::page_memory::{Heavy, PagePermit};
use super::pages::{heavy, in_time, keeping, not_shown, query, room};
use super::session::{Its, Session};
use super::suggestions::suggestions;
use super::unread::not_processed;
use super::unwritten::{unwritten, unwritten_because};
use super::watched::said;
use super::{answer, read};
use crate::deletion::controller;
use crate::difference::short_difference;
use crate::filter::Query;
use crate::form::{EditForm, Keeper, ObjectForm, Suggested, digest, generation, manifest, patch};
use crate::page::{self, FormFields, FormPage, Page, Review, Right};
use crate::text::{SHORT, plain};
use mainstay_cluster::body::BodyFault;
use mainstay_cluster::{Error, Kind, Persistence, Scope};
use mainstay_object::Key;

/// Maximum size of a form whose copies take little memory, in bytes.
const SMALL: usize = 256 << 10;
/// The text in place of a refusal that may contain a login.
const HIDDEN: &str = "the reason may contain the login in the address, so it is not shown.";
/// Maximum size of a page without the fields of its form, in bytes.
const FRAME: usize = 16 << 10;
/// The field manager of changes by these forms.
const MANAGER: &str = "mainstay-console";

/// Reads a form that a page of this session has sent.
async fn sent<F: ObjectForm>(session: &Session, request: &mut Request) -> Result<Sent, Response> {
    match session.read_form(request, F::SIZE, F::WITHIN).await {
        Ok(sent) => session.own(sent),
        Err(BodyFault::TooLarge) => {
            let why = format!("The form is too large. Change the manifest of the {}.", F::KIND.name());
            Err(answer::message(StatusCode::BAD_REQUEST, "Wrong form", &why))
        }
        Err(fault) => Err(unread(fault)),
    }
}

/// The object of a form.
struct Subject {
    /// The object; for a new one, its name is not known yet.
    key: Option<Key>,
    namespace: String,
    live: Option<Value>,
    keeper: Option<Keeper>,
    right: Right,
}

impl Subject {
    fn generation(&self) -> String {
        self.live.as_ref().map(generation).unwrap_or_default()
    }
}

/// Reads an object, the GitSync that keeps it, and the permission of the user.
async fn existing<F: EditForm>(session: &Session, key: &Key) -> Result<Subject, Response> {
    let live = not_shown(session, key, read::of_version(&session.cluster, F::KIND, key).await)?;
    if let Some(why) = unchangeable(key, &live) {
        return Err(answer::message(StatusCode::CONFLICT, "The object is not changed here", &why));
    }
    if let Some(text) = F::refusal(&live) {
        return Err(answer::message(StatusCode::UNPROCESSABLE_ENTITY, "Too many fields", text));
    }
    let (keeper, right) = futures::join!(keeper(session, key, &live), read::may_patch(&session.cluster, key));
    let namespace = key.namespace.as_deref().unwrap_or_default().to_owned();
    Ok(Subject { key: Some(key.clone()), namespace, live: Some(live), keeper, right })
}

/// Returns why a change of an object would not last.
fn unchangeable(key: &Key, live: &Value) -> Option<String> {
    if live.pointer("/metadata/deletionTimestamp").is_some() {
        return Some("It is being deleted. Create a new one when it is gone.".to_owned());
    }
    let controller = controller(key, live)?;
    let name = plain(&format!("{} {}", controller.kind, controller.name), SHORT);
    Some(format!("The {name} controls it and would revert a change. Change that one instead."))
}

/// Returns the subject of the form for a new object.
async fn new<F: ObjectForm>(session: &Session, uri: &Uri) -> Subject {
    let asked = query(uri).get("namespace").to_owned();
    let namespace = if asked.is_empty() { session.namespace() } else { asked };
    let right = may_create::<F>(session, &namespace).await;
    Subject { key: None, namespace, live: None, keeper: None, right }
}

/// Asks whether the user may create an object of the form in a namespace.
async fn may_create<F: ObjectForm>(session: &Session, namespace: &str) -> Right {
    let (kind, group) = (F::KIND.name(), F::KIND.group());
    match session.cluster.kind(F::KIND.api_version(), kind).await {
        Ok(Some(_)) => {}
        Ok(None) => {
            return Err(format!("The kind {kind} of {} is not installed in this cluster.", F::KIND.api_version()));
        }
        Err(error) => return Err(said(&error)),
    }
    let attributes = json!({"verb": "create", "group": group, "resource": F::PLURAL, "namespace": namespace});
    match read::may(&session.cluster, attributes).await {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "You may not create {kind} objects in the namespace {}: that needs the verb `create` on {}.{group}.",
            plain(namespace, SHORT),
            F::PLURAL
        )),
        Err(error) => Err(said(&error)),
    }
}

pub(super) async fn edit<F: EditForm + FormFields>(
    Extension(session): Its,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    let key = F::KIND.key(&namespace, &name);
    let shown = async {
        match existing::<F>(&session, &key).await {
            Err(response) => response,
            Ok(subject) => {
                let fields = subject.live.as_ref().map(F::of).unwrap_or_default();
                show(&session, &subject, &fields, StatusCode::OK, "", None).await
            }
        }
    };
    heavy(&session, Heavy::Object, Box::pin(shown)).await
}

pub(super) async fn change<F: EditForm + FormFields>(
    Extension(session): Its,
    Path((namespace, name)): Path<(String, String)>,
    mut request: Request,
) -> Response {
    let sent = match sent::<F>(&session, &mut request).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    let path = request.uri().path();
    let room = match room(&session, Heavy::Object).await {
        Ok(room) => room,
        Err(busy) => return unsent::<F>(&session, path, sent, (busy, None)),
    };
    let key = F::KIND.key(&namespace, &name);
    match in_time(&session, Box::pin(existing::<F>(&session, &key))).await {
        Ok(Ok(subject)) => Box::pin(respond::<F>(&session, &subject, path, (sent, room))).await,
        Ok(Err(failed)) if failed.status() == StatusCode::BAD_GATEWAY => {
            unsent::<F>(&session, path, sent, (failed, Some(room)))
        }
        Ok(Err(response)) => response,
        Err(late) => unsent::<F>(&session, path, sent, (late, Some(room))),
    }
}

/// Returns the page that sends a form again which the server had no room or time to process, or whose object could not be
/// read. The page keeps the memory of the form, and the room that was taken for it.
fn unsent<F: ObjectForm>(
    session: &Session,
    path: &str,
    sent: Sent,
    (cause, room): (Response, Option<PagePermit>),
) -> Response {
    // A large form takes several times its size once more. A session has few rooms, so it takes no second one.
    let is_large = sent.size > SMALL;
    let room = room.or_else(|| if is_large { session.pages.try_acquire(Heavy::Single) } else { None });
    if is_large && room.is_none() {
        return not_processed(cause);
    }
    let why = match cause.status() {
        StatusCode::SERVICE_UNAVAILABLE => "The server is busy.".to_owned(),
        StatusCode::BAD_GATEWAY => format!("The API server did not return the {}.", F::KIND.name()),
        _ => format!("The {} was not read in time.", F::KIND.name()),
    };
    let body = page::unsent(path, &sent, &why);
    let page = Page { title: "The form was not read", visitor: Some(session.visitor()), live: None, body };
    let html = page::render(page);
    // A browser encodes each character that the page escapes, so the page has at most twice the size of the form.
    let is_of_browser = html.len() <= 2 * sent.size + FRAME;
    let (response, own) = (not_processed(answer::page(cause.status(), html)), sent.into_memory());
    match room {
        Some(room) => keeping(room, held(response, own)),
        // The page needs no other memory, so it is sent even if none is free.
        None if is_of_browser => held_memory(response, own),
        None => held(response, own),
    }
}

pub(super) async fn blank<F: FormFields>(Extension(session): Its, uri: Uri) -> Response {
    let shown = async {
        let subject = new::<F>(&session, &uri).await;
        show(&session, &subject, &F::blank(&query(&uri)), StatusCode::OK, "", None).await
    };
    match F::SUGGESTED {
        Suggested::Secrets => heavy(&session, Heavy::Single, Box::pin(shown)).await,
        Suggested::Repositories | Suggested::None => Box::pin(shown).await,
    }
}

pub(super) async fn create<F: FormFields>(Extension(session): Its, uri: Uri, mut request: Request) -> Response {
    let sent = match sent::<F>(&session, &mut request).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    // The copies of a large form take several times its size.
    let page = if sent.size > SMALL { Heavy::Object } else { Heavy::Single };
    let path = uri.path_and_query().map_or(F::PATH, |path| path.as_str());
    let room = match room(&session, page).await {
        Ok(room) => room,
        Err(busy) => return unsent::<F>(&session, path, sent, (busy, None)),
    };
    match in_time(&session, Box::pin(new::<F>(&session, &uri))).await {
        Ok(subject) => Box::pin(respond::<F>(&session, &subject, path, (sent, room))).await,
        Err(late) => unsent::<F>(&session, path, sent, (late, Some(room))),
    }
}

/// Reviews the change of a form, and writes it if the form has already been reviewed. The response keeps a part of the room of
/// the form.
async fn respond<F: FormFields>(
    session: &Session,
    subject: &Subject,
    path: &str,
    (form, room): (Sent, PagePermit),
) -> Response {
    let mut fields = F::read(&form);
    let is_same = form.get("generation") == subject.generation();
    if !is_same {
        fields.forget_positions();
    }
    let wanted = match fields.wanted(subject.live.as_ref(), &subject.namespace) {
        Ok(wanted) => wanted,
        Err(why) => {
            let page = show(session, subject, &fields, StatusCode::UNPROCESSABLE_ENTITY, &why, None);
            return keeping(room, page.await);
        }
    };
    match in_time(session, Box::pin(review::<F>(session, subject, &wanted))).await {
        Ok(review) => {
            let reviewed = Reviewed { fields: &fields, is_same, wanted: &wanted, review: &review };
            keeping(room, perform(session, subject, &form, reviewed).await)
        }
        Err(late) => unsent::<F>(session, path, form, (late, Some(room))),
    }
}

/// A form, the object that it describes, and the review of the change.
struct Reviewed<'r, F> {
    fields: &'r F,
    /// Whether the form is about the present generation of the live object.
    is_same: bool,
    wanted: &'r Value,
    review: &'r Review,
}

/// Shows the review of a form, or writes the change if the form has already been reviewed.
async fn perform<F: FormFields>(
    session: &Session,
    subject: &Subject,
    form: &Query,
    Reviewed { fields, is_same, wanted, review }: Reviewed<'_, F>,
) -> Response {
    if form.get("step") != "apply" {
        let why = if is_same { "" } else { "The object was changed meanwhile. The review is about its present state." };
        return show(session, subject, fields, StatusCode::OK, why, Some(review)).await;
    }
    let managed = format!("A GitSync manages this {}, so nothing was changed.", F::KIND.name());
    let refusal = match (&subject.keeper, &subject.right) {
        (Some(_), _) => Some(managed.as_str()),
        (None, Err(why)) => Some(why.as_str()),
        _ if form.get("reviewed") != review.digest => {
            Some("The form or the object differs from what was reviewed, so nothing was changed. Review it again.")
        }
        _ if review.effect.is_err() => Some("The agent would refuse the object, so nothing was changed."),
        _ if matches!(review.dry_run, Some(Err(_))) => {
            Some("The API server refuses the change in a dry run, so nothing was changed.")
        }
        _ => None,
    };
    if let Some(why) = refusal {
        return show(session, subject, fields, StatusCode::CONFLICT, why, Some(review)).await;
    }
    match write::<F>(session, subject, wanted, Persistence::Kept).await {
        Ok(live) => {
            let name = live.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(fields.name());
            let key = F::KIND.key(&subject.namespace, name);
            let body = page::written::<F>(&key, subject.live.is_none());
            session.page(StatusCode::OK, F::KIND.name(), body)
        }
        Err(error) => {
            // The API server may repeat a wrong value.
            let why = if review.is_hidden { unwritten_because(&error, HIDDEN) } else { unwritten(&error) };
            show(session, subject, fields, StatusCode::CONFLICT, &why, Some(review)).await
        }
    }
}

/// Returns the change, its effect, and the outcome of a dry run.
async fn review<F: ObjectForm>(session: &Session, subject: &Subject, wanted: &Value) -> Review {
    let change = match &subject.live {
        Some(live) => patch(live, wanted),
        None => Some(wanted.clone()),
    };
    let effect = F::effect(&session.readers, subject.live.as_ref(), wanted);
    let may_write = subject.keeper.is_none() && subject.right.is_ok() && change.is_some();
    let dry_run = if may_write { Some(write::<F>(session, subject, wanted, Persistence::DryRun).await) } else { None };
    // The API server may add defaults.
    let afterwards = dry_run.as_ref().and_then(|outcome| outcome.as_ref().ok()).unwrap_or(wanted);
    let text = |object: &Value| {
        let mut shown = manifest(F::KIND, object);
        let is_hidden = F::hide(&mut shown);
        (serde_yaml::to_string(&shown).unwrap_or_default(), is_hidden)
    };
    let lines = subject.live.as_ref().map(|live| short_difference(&text(live).0, &text(afterwards).0));
    let (manifest, is_hidden) = text(wanted);
    // The API server may repeat a wrong value.
    let refused = |error: &Error| if is_hidden { HIDDEN.to_owned() } else { said(error) };
    Review {
        manifest,
        is_hidden,
        lines: lines.unwrap_or_default(),
        is_changed: change.is_some(),
        effect,
        digest: digest(&change.unwrap_or_default(), &subject.generation()),
        dry_run: dry_run.map(|outcome| outcome.map(drop).map_err(|error| refused(&error))),
    }
}

/// Writes the difference between the live object and the wanted one, or creates it.
async fn write<F: ObjectForm>(
    session: &Session,
    subject: &Subject,
    wanted: &Value,
    how: Persistence,
) -> Result<Value, Error> {
    let cluster = &session.cluster;
    let kind = Kind::fixed(F::KIND.api_version(), F::KIND.name(), F::PLURAL, Scope::Namespaced);
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

async fn show<F: FormFields>(
    session: &Session,
    subject: &Subject,
    fields: &F,
    status: StatusCode,
    problem: &str,
    review: Option<&Review>,
) -> Response {
    let suggestions = match review {
        None => suggestions(session, F::SUGGESTED, &subject.namespace).await,
        Some(_) => Vec::new(),
    };
    let body = page::form(&FormPage {
        key: subject.key.as_ref(),
        live: subject.live.as_ref(),
        namespace: &subject.namespace,
        keeper: subject.keeper.as_ref(),
        right: &subject.right,
        csrf: &session.csrf,
        fields,
        generation: &subject.generation(),
        runtimes: &session.readers.functions.runtimes,
        suggestions: &suggestions,
        problem,
        review,
    });
    let title = subject.key.as_ref().map_or(F::TITLE.to_owned(), |key| format!("Edit {}", key.name));
    session.page(status, &title, body)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use axum::body::Body;

    use super::*;
    use crate::function_form::FunctionFields;
    use crate::serve::held::has_memory;
    use crate::serve::pages::busy;
    use crate::serve::row_memory::RowMemory;
    use crate::serve::session::tests::{session, session_of};

    #[tokio::test]
    async fn the_page_with_a_form_that_was_not_read_has_the_memory_of_the_form() {
        let session = session(&RowMemory::default());
        let unsent_page = async |body: String| {
            let sent = sent::<FunctionFields>(&session, &mut Request::new(Body::from(body))).await.ok().unwrap();
            unsent::<FunctionFields>(&session, "/create", sent, (busy(&session), None))
        };
        let lines = "a%22%0D%0A".repeat(10 << 10);
        for (source, has) in [(lines, true), ("a".repeat(200 << 10), true), ("\"".repeat(200 << 10), false)] {
            let page = unsent_page(format!("name=a&source={source}")).await;
            assert_eq!((page.status(), has_memory(&page)), (StatusCode::SERVICE_UNAVAILABLE, has));
            let text = axum::body::to_bytes(page.into_body(), 4 << 20).await.unwrap();
            assert!(String::from_utf8_lossy(&text).contains("Send the form again"));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_form_comes_back_from_a_slow_api_server_while_its_session_reads_another_page() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let session = Arc::new(session_of(&RowMemory::default(), kube::Client::new(service, "default")));
        let other = session.pages.try_acquire(Heavy::Single);
        assert!(other.is_some());
        let form = Body::from(format!("source={}", "a".repeat(300 << 10)));
        let path = Path(("shop".to_owned(), "web".to_owned()));
        let page = change::<FunctionFields>(Extension(Arc::clone(&session)), path, Request::new(form)).await;
        assert_eq!((page.status(), has_memory(&page)), (StatusCode::GATEWAY_TIMEOUT, true));
        let text = axum::body::to_bytes(page.into_body(), 4 << 20).await.unwrap();
        assert!(String::from_utf8_lossy(&text).contains("Send the form again"));
    }

    #[tokio::test]
    async fn a_form_comes_back_if_its_object_cannot_be_read() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
            let response = http::Response::builder().status(500).body(Body::empty()).unwrap();
            std::future::ready(Ok::<_, Infallible>(response))
        });
        let session = Arc::new(session_of(&RowMemory::default(), kube::Client::new(service, "default")));
        let path = Path(("shop".to_owned(), "web".to_owned()));
        let page = change::<FunctionFields>(Extension(session), path, Request::new(Body::from("source=abc"))).await;
        assert_eq!(page.status(), StatusCode::BAD_GATEWAY);
        let text = axum::body::to_bytes(page.into_body(), 4 << 20).await.unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("name=\"source\" value=\"abc\"") && text.contains("Send the form again"), "{text}");
    }
}
