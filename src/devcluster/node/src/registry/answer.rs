//! Serves requests below `/v2/`.

use super::{
    error::Refusal,
    manifest::MAX_MANIFEST,
    name::{Digest, Repository},
    route::{self, Place},
    store::Registry,
    upload::{Content, MAX_BLOB, Upload},
};
use bytes::Bytes;
use devcluster_apiserver::{
    body::Body,
    extension::{Extension, Sent},
    fault_injection::{Asked, FaultInjection},
    route::Query,
    service::respond,
};
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, Method, Response, header, request::Parts};
use http_body::{Body as _, Frame};
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use std::{convert::Infallible, io::SeekFrom, net::SocketAddr, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncSeekExt as _},
    time::timeout,
};

/// Header with the digest of the content.
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");
/// Bytes of a blob that are read at a time.
const PIECE: usize = 64 << 10;
/// Deadline of waiting for a permit, and of receiving a manifest.
const MANIFEST_WITHIN: Duration = Duration::from_secs(10);
/// Maximum and default page size of a list.
const MAX_PAGE: usize = 1000;

type Answer = Result<Response<Body>, Refusal>;

impl Extension for Registry {
    fn serves(&self, path: &str) -> bool {
        path == "/v2" || path.starts_with("/v2/")
    }

    fn listening(&self, address: SocketAddr) {
        self.serve_at(address);
    }

    fn answer<'a>(&'a self, faults: &'a FaultInjection, parts: Parts, body: Sent) -> BoxFuture<'a, Response<Body>> {
        Box::pin(answer(faults, self, parts, body))
    }
}

async fn answer(faults: &FaultInjection, registry: &Registry, parts: Parts, body: Sent) -> Response<Body> {
    let outcome = match route::place(parts.uri.path()) {
        Ok(place) => match injected(faults, &parts, &place).await {
            Some(response) => Ok(response),
            None => served(registry, place, &parts, body).await,
        },
        Err(refusal) => Err(refusal),
    };
    let mut response = outcome.unwrap_or_else(|refusal| refused(&refusal));
    let version = HeaderName::from_static("docker-distribution-api-version");
    response.headers_mut().insert(version, HeaderValue::from_static("registry/2.0"));
    response
}

/// Counts the request and returns the injected fault, if there is one. A fault matches the resource `registry`, the
/// subresource `blobs`, `uploads`, `manifests` or `tags`, the method in lower case as verb, and the repository as name.
async fn injected(faults: &FaultInjection, parts: &Parts, place: &Place) -> Option<Response<Body>> {
    let verb = parts.method.as_str().to_ascii_lowercase();
    let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    faults.count(&verb, &format!("registry/{}", place.kind()), agent);
    let (subresource, name) = (place.kind(), place.repository());
    let asked = Asked { verb: &verb, group: "", resource: "registry", subresource, namespace: "", name, query: "" };
    let fault = faults.fault(&asked)?;
    tokio::time::sleep(fault.delay()).await;
    (fault.code != 0).then(|| refused(&Refusal::new(fault.code, "UNKNOWN", fault.message)))
}

async fn served(registry: &Registry, place: Place, parts: &Parts, body: Sent) -> Answer {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let header = |name: HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
    match (&parts.method, place) {
        (&Method::GET | &Method::HEAD, Place::Root) => Ok(respond::json(200, Bytes::from_static(b"{}"))),
        (&Method::GET, Place::Catalog) => {
            let all = registry.repositories().await?;
            let (page, link) = page(all.iter().map(Repository::as_str), &query, "/v2/_catalog");
            Ok(listed(&json!({"repositories": page}), link))
        }
        (&Method::GET, Place::Tags(name)) => {
            let index = registry.index(&name).await?.ok_or_else(Refusal::name_unknown)?;
            let (page, link) = page(index.tags().into_iter(), &query, &format!("/v2/{}/tags/list", name.as_str()));
            Ok(listed(&json!({"name": name.as_str(), "tags": page}), link))
        }
        (method @ (&Method::GET | &Method::HEAD), Place::Blob(name, digest)) => {
            blob(registry, &name, &digest, header(header::RANGE), *method == Method::HEAD).await
        }
        (&Method::DELETE, Place::Blob(name, digest)) => {
            let removed = registry.remove_blob(&name, &digest).await?;
            if removed { Ok(empty(202, &[])) } else { Err(Refusal::blob_unknown()) }
        }
        (&Method::POST, Place::Uploads(name)) => begin(registry, &name, &query, body).await,
        (method, Place::Upload(name, id)) => {
            let upload = registry.uploads.find(&name, &id)?;
            match *method {
                Method::GET => Ok(accepted(&name, &upload, &*content(&upload)?, 204)),
                Method::PATCH => {
                    let mut content = content(&upload)?;
                    starts_at_the_end(header(header::CONTENT_RANGE), &content)?;
                    receive(&mut content, body).await?;
                    Ok(accepted(&name, &upload, &content, 202))
                }
                Method::PUT => {
                    let asked = Digest::parse(query.text("digest")).ok_or_else(Refusal::digest_invalid)?;
                    let mut content = content(&upload)?;
                    starts_at_the_end(header(header::CONTENT_RANGE), &content)?;
                    receive(&mut content, body).await?;
                    finish(registry, &name, &upload, &mut content, &asked).await
                }
                Method::DELETE => {
                    registry.uploads.forget(&upload).await?;
                    Ok(empty(204, &[]))
                }
                _ => Err(Refusal::unsupported()),
            }
        }
        (method @ (&Method::GET | &Method::HEAD), Place::Manifest(name, reference)) => {
            let (entry, bytes) = registry.manifest(&name, &reference).await?;
            let length = bytes.len() as u64;
            let full = if *method == Method::HEAD { Bytes::new() } else { bytes.into() };
            Ok(whole(&entry.media_type, &entry.digest, length, Full::new(full).boxed_unsync()))
        }
        (&Method::PUT, Place::Manifest(name, reference)) => {
            let slow = |_| Refusal::manifest_invalid("the body did not come in time");
            let busy = || Refusal::new(429, "TOOMANYREQUESTS", "too many manifests are received at the same time");
            let room = timeout(MANIFEST_WITHIN, registry.manifests.acquire()).await;
            let _room = room.map_err(|_| busy())?.map_err(|_| busy())?;
            let bytes = timeout(MANIFEST_WITHIN, manifest_of(body)).await.map_err(slow)??;
            let content_type = header(header::CONTENT_TYPE).unwrap_or_default();
            let digest = registry.put_manifest(&name, &reference, content_type, &bytes).await?;
            let place = format!("/v2/{}/manifests/{}", name.as_str(), digest.as_str());
            Ok(empty(201, &[(header::LOCATION, &place), (CONTENT_DIGEST, digest.as_str())]))
        }
        (&Method::DELETE, Place::Manifest(name, reference)) => {
            let removed = registry.remove_manifest(&name, &reference).await?;
            if removed { Ok(empty(202, &[])) } else { Err(Refusal::manifest_unknown()) }
        }
        _ => Err(Refusal::unsupported()),
    }
}

/// Receives a manifest into memory.
async fn manifest_of(mut body: Sent) -> Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::manifest_invalid("the body could not be read"))?;
        let Ok(data) = frame.into_data() else { continue };
        if (bytes.len() + data.len()) as u64 > MAX_MANIFEST {
            return Err(Refusal::too_large(MAX_MANIFEST));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes)
}

/// `POST …/blobs/uploads/`: mounts a blob, receives one in one piece, or begins an upload.
async fn begin(registry: &Registry, name: &Repository, query: &Query, body: Sent) -> Answer {
    if let (Some(digest), Some(from)) = (Digest::parse(query.text("mount")), Repository::parse(query.text("from")))
        && registry.mount(&from, name, &digest).await?
    {
        return Ok(created(name, &digest));
    }
    let one_piece = match query.text("digest") {
        "" => None,
        text => Some(Digest::parse(text).ok_or_else(Refusal::digest_invalid)?),
    };
    let upload = registry.uploads.begin(name).await?;
    let mut content = content(&upload)?;
    let Some(asked) = one_piece else { return Ok(accepted(name, &upload, &content, 202)) };
    let outcome = match receive(&mut content, body).await {
        Ok(()) => finish(registry, name, &upload, &mut content, &asked).await,
        Err(refusal) => Err(refusal),
    };
    if outcome.is_err() {
        registry.uploads.forget(&upload).await?;
    }
    outcome
}

/// Locks the content of an upload. Fails if another request is writing it.
fn content(upload: &Upload) -> Result<tokio::sync::MutexGuard<'_, Content>, Refusal> {
    upload.content.try_lock().map_err(|_| Refusal::upload_invalid("another request is writing this upload"))
}

/// Checks that a part with a range begins where the previous part ended.
fn starts_at_the_end(range: Option<&str>, content: &Content) -> Result<(), Refusal> {
    let Some(range) = range else { return Ok(()) };
    let first = range.trim_start_matches("bytes ").split('-').next().and_then(|first| first.parse().ok());
    if first == Some(content.size) { Ok(()) } else { Err(Refusal::range_invalid()) }
}

async fn receive(content: &mut Content, mut body: Sent) -> Result<(), Refusal> {
    if body.size_hint().lower() > MAX_BLOB {
        return Err(Refusal::too_large(MAX_BLOB));
    }
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Refusal::upload_invalid("the body could not be read"))?;
        if let Ok(data) = frame.into_data() {
            content.append(&data).await?;
        }
    }
    Ok(())
}

async fn finish(
    registry: &Registry,
    name: &Repository,
    upload: &Upload,
    content: &mut Content,
    asked: &Digest,
) -> Answer {
    let digest = content.finish().await?;
    if digest != *asked {
        registry.uploads.forget(upload).await?;
        return Err(Refusal::digest_invalid());
    }
    registry.keep(name, &digest, upload.path()).await?;
    registry.uploads.forget(upload).await?;
    Ok(created(name, &digest))
}

async fn blob(registry: &Registry, name: &Repository, digest: &Digest, range: Option<&str>, head: bool) -> Answer {
    let size = registry.blob_size(name, digest).await?.ok_or_else(Refusal::blob_unknown)?;
    let part = route::range(range, size)?;
    let (first, length) = part.map_or((0, size), |(first, last)| (first, last - first + 1));
    let body = if head {
        Full::default().boxed_unsync()
    } else {
        let mut file = tokio::fs::File::open(registry.blob_path(name, digest)).await?;
        file.seek(SeekFrom::Start(first)).await?;
        pieces(file.take(length))
    };
    let mut response = whole("application/octet-stream", digest.as_str(), length, body);
    response.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some((first, last)) = part {
        *response.status_mut() = http::StatusCode::PARTIAL_CONTENT;
        set(&mut response, header::CONTENT_RANGE, &format!("bytes {first}-{last}/{size}"));
    }
    Ok(response)
}

/// Returns a file as a body. A read error ends the body early, which clients detect by its length.
fn pieces(file: tokio::io::Take<tokio::fs::File>) -> Body {
    let stream = futures::stream::unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE);
        match (&mut file).take(PIECE as u64).read_to_end(&mut piece).await {
            Ok(0) => None,
            Ok(_) => Some((Ok::<_, Infallible>(Frame::data(Bytes::from(piece))), file)),
            Err(error) => {
                tracing::warn!(%error, "a blob cannot be read to its end");
                None
            }
        }
    });
    StreamBody::new(stream).boxed_unsync()
}

/// Returns a page of a list and the link to the next page.
fn page<'a>(all: impl Iterator<Item = &'a str>, query: &Query, path: &str) -> (Vec<&'a str>, Option<String>) {
    let wanted = query.number("n").and_then(|n| usize::try_from(n).ok()).unwrap_or(MAX_PAGE).min(MAX_PAGE);
    let last = query.text("last");
    let mut rest = all.skip_while(|name| !last.is_empty() && *name <= last);
    let page: Vec<&str> = rest.by_ref().take(wanted).collect();
    let more = rest.next().is_some();
    let next = page.last().filter(|_| more).map(|last| format!("<{path}?n={wanted}&last={last}>; rel=\"next\""));
    (page, next)
}

fn listed(body: &Value, link: Option<String>) -> Response<Body> {
    let mut response = respond::json(200, body.to_string().into());
    if let Some(link) = link {
        set(&mut response, header::LINK, &link);
    }
    response
}

fn whole(media: &str, digest: &str, length: u64, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    for (name, value) in [
        (header::CONTENT_TYPE, media),
        (CONTENT_DIGEST, digest),
        (header::CONTENT_LENGTH, &length.to_string()),
        (header::ETAG, &format!("\"{digest}\"")),
    ] {
        set(&mut response, name, value);
    }
    response
}

fn accepted(name: &Repository, upload: &Upload, content: &Content, status: u16) -> Response<Body> {
    let place = format!("/v2/{}/blobs/uploads/{}", name.as_str(), upload.id);
    let range = format!("0-{}", content.size.saturating_sub(1));
    let id = HeaderName::from_static("docker-upload-uuid");
    empty(status, &[(header::LOCATION, &place), (header::RANGE, &range), (id, &upload.id)])
}

fn created(name: &Repository, digest: &Digest) -> Response<Body> {
    let place = format!("/v2/{}/blobs/{}", name.as_str(), digest.as_str());
    empty(201, &[(header::LOCATION, &place), (CONTENT_DIGEST, digest.as_str())])
}

fn empty(status: u16, headers: &[(HeaderName, &str)]) -> Response<Body> {
    let mut response = Response::new(Full::default().boxed_unsync());
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    for (name, value) in headers {
        set(&mut response, name.clone(), value);
    }
    response
}

fn refused(refusal: &Refusal) -> Response<Body> {
    if let Some(cause) = &refusal.cause {
        tracing::warn!(%cause, "the image registry cannot use its directory");
    }
    let body = json!({"errors": [{"code": refusal.code, "message": refusal.message, "detail": null}]});
    respond::json(refusal.status, body.to_string().into())
}

fn set(response: &mut Response<Body>, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}
