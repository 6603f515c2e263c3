//! Requests that bind pods to nodes.
//!
//! Not here: the binding itself (`verbs::binding`).

use super::{
    request::Asked,
    respond,
    settings::{answered, body_of, settings},
};
use crate::{
    admission::drive::admitted,
    body::Body,
    server::Server,
    status::Status,
    verbs::{Settings, Target, binding},
};
use http::Response;

/// Answers a POST of a Binding, to a pod or to the collection.
pub(super) async fn answer(server: &Server, target: &Target, asked: &Asked) -> Result<Response<Body>, Status> {
    let mut settings = settings(server, asked, "CreateOptions")?;
    let (body, duplicates) = body_of("Binding", asked, None)?;
    settings.duplicate_fields = duplicates;
    let bind = |settings: &Settings| binding::bind(server, target, settings, body.clone());
    let (outcome, warnings_of_webhooks) = admitted(server, &settings, bind).await;
    let outcome = outcome.map(|warnings| {
        let mut response = respond::json(201, binding::success().to_string().into());
        respond::warn(&mut response, &warnings);
        response
    });
    Ok(answered(outcome, &warnings_of_webhooks))
}
