//! Requests about objects: determines verb, target and options, and renders the response in the accepted form.
//!
//! Not here: the verbs themselves (`verbs`).

use super::{
    binding, fault, log, proxy,
    request::Asked,
    respond,
    settings::{admit, answered, body_of, settings},
    stream,
};
use crate::body::Body;
use crate::{
    access::{Place, Request, rbac},
    admission::{Stop, drive::admitted},
    fault_injection,
    kinds::table::Kind,
    media,
    present::{self, Form, Route},
    route::{Address, Query},
    server::{Server, stamp},
    status::{Cause, Status},
    verbs::{
        self, Done, Settings, Shown, Target, create, decode,
        delete::{self, DeleteOptions, Deleted},
        eviction, patch, read, review, scale, token, update, watch, write,
    },
};
use bytes::Bytes;
use http::{Response, header};
use serde_json::json;

/// Answers a request about objects.
pub(super) async fn answer(server: &Server, address: Address, asked: Asked) -> Response<Body> {
    let table = server.table();
    let Some(kind) = table.find(&address.group, &address.version, &address.resource) else {
        return unknown(server, &address, &asked);
    };
    let target = Target {
        kind: kind.clone(),
        namespace: address.namespace,
        name: address.name,
        // The rest of the path belongs to the request that is forwarded to a pod.
        subresource: if kind.subresource("proxy").is_some() && proxy::is_proxy(&address.subresource) {
            "proxy".to_owned()
        } else {
            address.subresource
        },
    };
    let verb = fault::verb(
        &asked.parts.method,
        target.name.is_empty(),
        asked.query.flag("watch"),
        asked.header(header::CONTENT_TYPE),
    );
    let seen = fault_injection::Asked {
        verb,
        group: &target.kind.group,
        resource: &target.kind.plural,
        subresource: &target.subresource,
        namespace: &target.namespace,
        name: &target.name,
        query: asked.parts.uri.query().unwrap_or_default(),
    };
    server.faults().count(verb, &resource_name(&target), asked.user_agent());
    let request = request_of(&target, verb, &asked);
    if let Err(status) = rbac::authorize(server, &asked.user, &request) {
        return respond::status(&status);
    }
    let fault = server.faults().fault(&seen);
    if let Some(fault) = fault {
        tokio::time::sleep(fault.delay()).await;
        if fault.code != 0 {
            if fault.after {
                // The request is executed, and only its response is lost.
                let _ = perform(server, &target, verb, &asked).await;
            }
            return fault::answer(&seen, &fault);
        }
    }
    let mut response = match perform(server, &target, verb, &asked).await {
        Ok(response) => response,
        Err(status) => respond::status(&status),
    };
    if let Some(text) = deprecation(&target.kind) {
        respond::warn(&mut response, &[text]);
    }
    response
}

/// Returns the response for an unknown resource: a Status in the groups of Kubernetes, plain text elsewhere.
/// Unauthorised clients get a 403 instead.
fn unknown(server: &Server, address: &Address, asked: &Asked) -> Response<Body> {
    let verb = fault::verb(
        &asked.parts.method,
        address.name.is_empty(),
        asked.query.flag("watch"),
        asked.header(header::CONTENT_TYPE),
    );
    let request = Request {
        verb: if verb == "apply" { "patch" } else { verb }.to_owned(),
        place: Place::Resource {
            group: address.group.clone(),
            resource: address.resource.clone(),
            subresource: address.subresource.clone(),
            namespace: address.namespace.clone(),
            name: address.name.clone(),
        },
    };
    if let Err(status) = rbac::authorize(server, &asked.user, &request) {
        return respond::status(&status);
    }
    let own = server.table().iter().any(|kind| kind.custom.is_none() && kind.group == address.group);
    if own { respond::status(&respond::no_such_resource()) } else { respond::page_not_found() }
}

/// Returns the warning about a deprecated kind.
fn deprecation(kind: &Kind) -> Option<String> {
    if (kind.api_version.as_str(), kind.plural.as_str()) == ("v1", "endpoints") {
        return Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned());
    }
    kind.custom.as_ref().and_then(|custom| custom.deprecation.clone())
}

/// Returns the attributes of a request for authorization.
fn request_of(target: &Target, verb: &str, asked: &Asked) -> Request {
    let collection = matches!(verb, "list" | "watch" | "deletecollection");
    // A field selector for one name counts as a request for that object.
    let named = asked.query.text("fieldSelector").strip_prefix("metadata.name=").unwrap_or_default();
    let named = named.trim_start_matches('=');
    let name = if collection && !named.contains(',') { named } else { &target.name };
    // A Namespace is in its own namespace.
    let namespaces = &*target.kind.storage == "namespaces";
    Request {
        verb: match verb {
            "apply" => "patch",
            "none" => "",
            verb => verb,
        }
        .to_owned(),
        place: Place::Resource {
            group: target.kind.group.clone(),
            resource: target.kind.plural.clone(),
            subresource: target.subresource.clone(),
            namespace: if namespaces { &target.name } else { &target.namespace }.clone(),
            name: name.to_owned(),
        },
    }
}

fn resource_name(target: &Target) -> String {
    let mut name = target.kind.group_resource().to_string();
    if !target.subresource.is_empty() {
        name.push('/');
        name.push_str(&target.subresource);
    }
    name
}

async fn perform(server: &Server, target: &Target, verb: &str, asked: &Asked) -> Result<Response<Body>, Status> {
    let is_proxy = target.subresource == "proxy" && target.kind.subresource("proxy").is_some();
    if asked.parts.method == http::Method::HEAD && !is_proxy {
        return Err(respond::method_not_allowed());
    }
    if target.kind.namespaced && target.namespace.is_empty() && !target.name.is_empty() {
        return Err(respond::no_such_resource());
    }
    if !target.kind.namespaced && !target.namespace.is_empty() {
        return Err(respond::no_such_resource());
    }
    if is_proxy {
        return proxy::answer(server, target, asked).await;
    }
    if !target.subresource.is_empty() {
        return subresource(server, target, verb, asked).await;
    }
    if &*target.kind.storage == "bindings" && (target.namespace.is_empty() || !target.name.is_empty()) {
        return Err(respond::no_such_resource());
    }
    let allowed = if verb == "apply" { "patch" } else { verb };
    if !target.kind.allows(allowed) || verb == "create" && !target.name.is_empty() {
        return Err(respond::method_not_allowed());
    }
    match verb {
        "get" => get(server, target, asked).await,
        "list" => list(server, target, asked).await,
        "watch" => open_watch(server, target, asked),
        "delete" | "deletecollection" => remove(server, target, verb, asked).await,
        "create" if review::is_review(&target.kind.plural) => {
            let (body, _) = decode::body(asked.header(header::CONTENT_TYPE), &asked.body)?;
            let settings = settings(server, asked, "CreateOptions")?;
            let (outcome, warnings) = admit(server, target, &settings, "CREATE", body).await;
            let answer = outcome.and_then(|body| review::answer(server, target, &asked.user, body));
            Ok(answered(answer.map(|answer| respond::json(201, answer.to_string().into())), &warnings))
        }
        "create" if &*target.kind.storage == "bindings" => binding::answer(server, target, asked).await,
        "create" if target.kind.namespaced && target.namespace.is_empty() => Err(respond::method_not_allowed()),
        _ => write(server, target, verb, asked).await,
    }
}

async fn subresource(server: &Server, target: &Target, verb: &str, asked: &Asked) -> Result<Response<Body>, Status> {
    let Some(sub) = target.kind.subresource(&target.subresource) else {
        let custom = target.kind.custom.is_some() && matches!(target.subresource.as_str(), "status" | "scale");
        return Err(if custom { target.not_found() } else { respond::no_such_resource() });
    };
    let (allowed, kind) = (if verb == "apply" { "patch" } else { verb }, sub.kind.as_str());
    if !sub.verbs.iter().any(|v| v == allowed) {
        return Err(respond::method_not_allowed());
    }
    match (target.subresource.as_str(), verb) {
        ("scale", "get") => Ok(respond::json(200, scale::get(server, target)?.to_string().into())),
        ("scale", _) => {
            let form = if verb == "update" {
                None
            } else {
                Some(patch::Form::of(asked.header(header::CONTENT_TYPE), target.kind.custom.is_some())?)
            };
            let settings = match form {
                Some(form) => patch_settings(server, asked, form)?,
                None => settings(server, asked, "UpdateOptions")?,
            };
            let (body, _) = body_of(kind, asked, form)?;
            let write = |settings: &Settings| scale::write(server, target, settings, form, &body);
            let (outcome, warnings) = admitted(server, &settings, write).await;
            Ok(answered(outcome.map(|done| written(&target.kind, done, Form::Whole)), &warnings))
        }
        ("status" | "ephemeralcontainers" | "resize", "get") => get(server, target, asked).await,
        ("status" | "finalize" | "ephemeralcontainers" | "resize", _) => write(server, target, verb, asked).await,
        ("exec" | "attach" | "portforward", _) => connect(server, target, verb, asked).await,
        ("token", "create") => {
            let settings = settings(server, asked, "CreateOptions")?;
            let (body, _) = body_of(kind, asked, None)?;
            let (outcome, warnings) = admit(server, target, &settings, "CREATE", body).await;
            let answer = outcome.and_then(|body| token::request(server, target, &settings, &body));
            Ok(answered(answer.map(|answer| respond::json(201, answer.to_string().into())), &warnings))
        }
        ("binding", "create") => binding::answer(server, target, asked).await,
        ("log", "get") => log::answer(server, target, &asked.query),
        ("eviction", "create") => {
            let plain = Target { subresource: String::new(), ..target.clone() };
            let settings = settings(server, asked, "CreateOptions")?;
            let (body, _) = body_of(kind, asked, None)?;
            write::same_namespace(target, &body)?;
            let (outcome, warnings) = admit(server, target, &settings, "CREATE", body).await;
            // Webhooks review the eviction, not the resulting deletion.
            let done = outcome
                .and_then(|body| eviction::evict(server, &plain, &settings, &body).map_err(Stop::refusal))
                .map(|()| json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}));
            Ok(answered(done.map(|body| respond::json(201, body.to_string().into())), &warnings))
        }
        _ => Err(respond::method_not_allowed()),
    }
}

/// Opens a connection to a pod.
async fn connect(server: &Server, target: &Target, verb: &str, asked: &Asked) -> Result<Response<Body>, Status> {
    if asked.query.all("dryRun").next().is_some() {
        return Err(Status::bad_request("dryRun is not supported"));
    }
    let settings = settings(server, asked, "CreateOptions")?;
    let options = verbs::connect::options(&target.subresource, &asked.query);
    let (outcome, warnings) = admit(server, target, &settings, "CONNECT", options).await;
    let allowed = outcome.and_then(|_| if verb == "get" { may_connect(server, target, asked) } else { Ok(()) });
    Ok(answered(allowed.and_then(|()| stream::answer(server, target, asked)), &warnings))
}

/// Requires the permission of a POST. Browsers can upgrade GET requests only.
fn may_connect(server: &Server, target: &Target, asked: &Asked) -> Result<(), Status> {
    let decision = rbac::decide(server, &asked.user, &request_of(target, "create", asked));
    if decision.allowed {
        return Ok(());
    }
    // As on a real server, the message contains only the authorizer's reason, which is often empty.
    Err(Status::forbidden(&target.kind.group_resource(), &target.name, &decision.reason))
}

/// Returns the form of the response; 406 if it is not supported.
fn wanted(target: &Target, asked: &Asked, route: Route) -> Result<Form, Status> {
    let accept = asked.header(header::ACCEPT);
    if target.kind.custom.is_none() {
        route.check(accept)?;
    }
    Form::of(accept, asked.query.text("includeObject"))
}

async fn get(server: &Server, target: &Target, asked: &Asked) -> Result<Response<Body>, Status> {
    let form = wanted(target, asked, Route::Object)?;
    wait_for(server, read::version_of(&asked.query)?).await?;
    let stored = server.store().get(&target.kind.storage, &target.key()).ok_or_else(|| target.not_found())?;
    Ok(respond::json(200, present::object(&target.kind, &stored, form, server.now())?))
}

/// Waits briefly for a future resource version; 504 if it does not arrive.
async fn wait_for(server: &Server, wanted: u64) -> Result<(), Status> {
    if wanted <= server.store().version() {
        return Ok(());
    }
    let mut signal = server.store().signal_all();
    let reached = async {
        while server.store().version() < wanted {
            if signal.changed().await.is_err() {
                break;
            }
        }
    };
    let waited = tokio::time::timeout(server.options().future_wait, reached).await;
    waited.map_err(|_| read::too_large(wanted, server.store().version()))
}

async fn list(server: &Server, target: &Target, asked: &Asked) -> Result<Response<Body>, Status> {
    let form = wanted(target, asked, Route::Collection)?;
    let options = read::ListOptions::parse(target, &asked.query)?;
    options.check_list(&asked.query)?;
    if options.continuation.is_empty() {
        wait_for(server, options.version.unwrap_or(0)).await?;
    }
    let page = read::list(server, target, &options)?;
    Ok(respond::json(200, present::page(&target.kind, &page, form, server.now())?))
}

fn open_watch(server: &Server, target: &Target, asked: &Asked) -> Result<Response<Body>, Status> {
    let form = wanted(target, asked, Route::Collection)?;
    if media::wants_yaml(asked.header(header::ACCEPT)) {
        return Err(present::not_streamed());
    }
    let options = watch::WatchOptions::parse(target, &asked.query, form)?;
    Ok(respond::stream(watch::open(server, target, options)))
}

/// Requires the permission to create for a write that may create.
fn may_create(server: &Server, target: &Target, verb: &str, asked: &Asked) -> Result<(), Status> {
    let creates = verb == "apply" || verb == "update" && update::creates_on_update(&target.kind);
    if !server.options().rbac || !creates || !target.subresource.is_empty() {
        return Ok(());
    }
    if server.store().get(&target.kind.storage, &target.key()).is_some() {
        return Ok(());
    }
    rbac::authorize(server, &asked.user, &request_of(target, "create", asked))
}

async fn write(server: &Server, target: &Target, verb: &str, asked: &Asked) -> Result<Response<Body>, Status> {
    may_create(server, target, verb, asked)?;
    // Checked before the write, so that a request with an unsupported form changes nothing.
    let shape = wanted(target, asked, Route::Object)?;
    let kind = target.kind.kind.as_str();
    let (outcome, warnings) = match verb {
        "create" => {
            let mut settings = settings(server, asked, "CreateOptions")?;
            let (body, duplicates) = body_of(kind, asked, None)?;
            settings.duplicate_fields = duplicates;
            admitted(server, &settings, |settings| create::create(server, target, settings, body.clone())).await
        }
        "update" => {
            let mut settings = settings(server, asked, "UpdateOptions")?;
            let (body, duplicates) = body_of(kind, asked, None)?;
            settings.duplicate_fields = duplicates;
            admitted(server, &settings, |settings| update::update(server, target, settings, body.clone())).await
        }
        "patch" | "apply" => {
            let form = patch::Form::of(asked.header(header::CONTENT_TYPE), target.kind.custom.is_some())?;
            let mut settings = patch_settings(server, asked, form)?;
            let (body, duplicates) = body_of(kind, asked, Some(form))?;
            settings.duplicate_fields = duplicates;
            admitted(server, &settings, |settings| patch::patch(server, target, settings, form, &body)).await
        }
        _ => return Err(respond::method_not_allowed()),
    };
    Ok(answered(outcome.map(|done| written(&target.kind, done, shape)), &warnings))
}

fn written(kind: &Kind, done: Done, shape: Form) -> Response<Body> {
    let body: Bytes = if shape == Form::Metadata {
        present::metadata(&done.object.value(kind)).to_string().into()
    } else {
        done.object.json(kind)
    };
    let mut response = respond::json(done.code, body);
    respond::warn(&mut response, &done.warnings);
    response
}

fn patch_settings(server: &Server, asked: &Asked, form: patch::Form) -> Result<Settings, Status> {
    let mut settings = settings(server, asked, "PatchOptions")?;
    let refuse = |cause| Err(Status::invalid("meta.k8s.io", "PatchOptions", "", vec![cause]));
    if form == patch::Form::Apply {
        if asked.query.text("fieldManager").is_empty() {
            return refuse(Cause::required("fieldManager", "is required for apply patch"));
        }
        settings.force = asked.query.flag("force");
    } else if !asked.query.text("force").is_empty() {
        return refuse(Cause::forbidden("force", "may not be specified for non-apply patch"));
    }
    Ok(settings)
}

async fn remove(server: &Server, target: &Target, verb: &str, asked: &Asked) -> Result<Response<Body>, Status> {
    let body = if asked.body.is_empty() {
        json!({})
    } else {
        decode::body(asked.header(header::CONTENT_TYPE), &asked.body)?.0
    };
    delete::is_options(&body)?;
    // A body overrides the query.
    let query = if asked.body.is_empty() { asked.query.clone() } else { Query::default() };
    let options = DeleteOptions::parse(&body, &query)?;
    let settings = Settings {
        now: stamp(server.now()),
        dry_run: options.dry_run,
        options: options.to_options(),
        user: asked.user.clone(),
        ..Settings::default()
    };
    if verb == "deletecollection" {
        return remove_all(server, target, &settings, &options, asked).await;
    }
    let attempt = |settings: &Settings| delete::delete(server, target, settings, &options);
    let (outcome, warnings_of_webhooks) = admitted(server, &settings, attempt).await;
    let outcome = outcome.map(|(deleted, warnings)| {
        let body: Bytes = match deleted {
            Deleted::Gone(value) if delete::answers_object(&target.kind) => value.to_string().into(),
            Deleted::Gone(value) => delete::success(target, &value).to_string().into(),
            Deleted::Marked(shown) => shown.json(&target.kind),
        };
        let mut response = respond::json(200, body);
        respond::warn(&mut response, &warnings);
        response
    });
    Ok(answered(outcome, &warnings_of_webhooks))
}

async fn remove_all(
    server: &Server,
    target: &Target,
    settings: &Settings,
    options: &DeleteOptions,
    asked: &Asked,
) -> Result<Response<Body>, Status> {
    if target.kind.namespaced && target.namespace.is_empty() {
        return Err(respond::method_not_allowed());
    }
    let list = read::ListOptions::parse(target, &asked.query)?;
    list.check_list(&asked.query)?;
    let mut page = read::list(server, target, &list)?;
    for stored in &mut page.items {
        let value = stored.value();
        let one = Target {
            namespace: verbs::text(&value, "/metadata/namespace").to_owned(),
            name: verbs::text(&value, "/metadata/name").to_owned(),
            ..target.clone()
        };
        let attempt = |settings: &Settings| delete::delete(server, &one, settings, options);
        match admitted(server, settings, attempt).await.0 {
            Ok((Deleted::Marked(Shown::Stored(marked)), _)) => *stored = marked,
            Ok(_) => {}
            Err(status) if status.code == 404 => {}
            Err(status) => return Err(status),
        }
    }
    Ok(respond::json(200, present::page(&target.kind, &page, Form::Whole, server.now())?))
}
