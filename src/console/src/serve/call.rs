//! Calls a Function through the API server with the permissions of the user.
//!
//! Invariant: the only target is the Service that the Function owns. Invariant: the number of calls at the same time is
//! limited for a session, for a group of users, and for the server. Invariant: a call has memory for its result before it is
//! sent.

use axum::Extension;
use axum::extract::{Path, Request};
use axum::response::Response;
use http::StatusCode;
use serde_json::json;

use super::page_memory::Heavy;
use super::pages::{not_shown, room};
use super::read::{self, Found};
use super::session::{Its, Session};
use super::unread::{keeping, not_processed};
use super::watched::said;
use crate::call::{LONGEST, METHODS, Shown, Wanted, Written, port, shown};
use crate::page::{self, CallPage, Methods};
use crate::row::FleetKind;
use crate::text::{SHORT, plain};
use mainstay_cluster::ServiceCall;
use mainstay_object::Key;

const NO_MEMORY: &str = "The call was not sent: the server has no memory for its result, because the results of other calls were \
                         not read. Send the form again later.";

pub(super) async fn form(Extension(session): Its, Path((namespace, name)): Path<(String, String)>) -> Response {
    let key = FleetKind::Function.key(&namespace, &name);
    match target(&session, &key).await {
        Ok(port) => respond(&session, &key, &methods(&session, &key, &port).await, &Written::new(), None),
        Err(response) => response,
    }
}

pub(super) async fn call(
    Extension(session): Its,
    Path((namespace, name)): Path<(String, String)>,
    mut request: Request,
) -> Response {
    let form = match session.form(&mut request).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let key = FleetKind::Function.key(&namespace, &name);
    let written = Written::of(&form);
    // A slow Function keeps the connection.
    let _calling = match session.connections.try_call() {
        Ok(permit) => permit,
        Err(full) => return refused(&session, &key, &written, (full.status(), full.of_calls())),
    };
    let port = match target(&session, &key).await {
        Ok(port) => port,
        Err(response) => return response,
    };
    let (answer, memory) = match (&port, written.parse()) {
        (Ok(port), Ok(wanted)) => {
            let Some(memory) = session.pages.try_result() else {
                return refused(&session, &key, &written, (StatusCode::SERVICE_UNAVAILABLE, NO_MEMORY));
            };
            (Some(send(&session, &key, *port, wanted).await), Some(memory))
        }
        (Ok(_), Err(why)) => (Some(Err(why)), None),
        // The page itself explains why there is no form.
        (Err(_), _) => (None, None),
    };
    let response = respond(&session, &key, &methods(&session, &key, &port).await, &written, answer.as_ref());
    match memory {
        Some(memory) => keeping(memory, response),
        None => not_processed(response),
    }
}

/// Returns the page of a call that was not sent, with the fields of its form.
fn refused(session: &Session, key: &Key, written: &Written, (status, why): (StatusCode, &str)) -> Response {
    let methods: Methods = Ok(METHODS.iter().map(|(method, _)| method.as_str()).collect());
    let mut response = respond(session, key, &methods, written, Some(&Err(why.to_owned())));
    *response.status_mut() = status;
    not_processed(response)
}

/// Returns the port of the Service, or the reason why the Function cannot be called. If the Function cannot be read,
/// returns a page that says so.
async fn target(session: &Session, key: &Key) -> Result<Result<u16, String>, Response> {
    // The call itself may take long, so it keeps no part of the memory.
    let _room = room(session, Heavy::Object).await?;
    let function = not_shown(session, key, read::object(&session.cluster, key).await)?;
    let service = Key::new("", "Service", key.namespace.as_deref(), &*key.name);
    Ok(match read::object(&session.cluster, &service).await {
        Found::There(service) => port(&function, &service, key),
        Found::Missing(_) => {
            Err("This Function has no Service, so it cannot be called. Its Service is made after its \
                                  first build. A Function on Knative is called at the URL of its Knative Service."
                .to_owned())
        }
        Found::Forbidden(why) | Found::Failed(why) => Err(format!("The Service of the Function cannot be read: {why}")),
    })
}

/// Returns the methods that the user may call. A method is included if the API server does not respond to the question
/// about it.
async fn methods(session: &Session, key: &Key, port: &Result<u16, String>) -> Methods {
    let port = port.as_ref().map_err(Clone::clone)?;
    let asked = METHODS.iter().map(|(method, verb)| async move {
        let attributes = json!({
            "verb": verb, "group": "", "resource": "services", "subresource": "proxy",
            "namespace": key.namespace.as_deref().unwrap_or_default(), "name": format!("{}:{port}", key.name),
        });
        let is_refused = matches!(read::may(&session.cluster, attributes).await, Ok(false));
        (!is_refused).then(|| method.as_str())
    });
    let permitted: Vec<&'static str> = futures::future::join_all(asked).await.into_iter().flatten().collect();
    if permitted.is_empty() {
        return Err(
            "You may not call this Function: that needs a verb on services/proxy, `get` for GET and `create` for \
                    POST."
                .to_owned(),
        );
    }
    Ok(permitted)
}

async fn send(session: &Session, key: &Key, port: u16, wanted: Wanted) -> Result<Shown, String> {
    let call = ServiceCall {
        namespace: key.namespace.as_deref().unwrap_or_default(),
        name: &key.name,
        port,
        method: wanted.method,
        path: &wanted.path,
        content_type: wanted.content_type,
        body: wanted.body,
    };
    let answer = session.cluster.call_service(&call, LONGEST).await;
    answer.map(|answer| shown(&answer)).map_err(|error| said(&error))
}

fn respond(
    session: &Session,
    key: &Key,
    methods: &Methods,
    written: &Written,
    answer: Option<&Result<Shown, String>>,
) -> Response {
    let body = page::call(&CallPage { key, methods, csrf: &session.csrf, written, answer });
    let title = plain(&format!("Call {}", key.name), SHORT);
    session.page(StatusCode::OK, &title, body)
}
