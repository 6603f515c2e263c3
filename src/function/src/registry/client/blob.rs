//! Blobs: checking, mounting, pushing and reading them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream, stream::BoxStream};
use parking_lot::Mutex;
use reqwest::header::{self, HeaderValue};
use reqwest::{Body, Method, Response, Url};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout_at};

use super::send::{Ask, network};
use super::{Client, Deadlines, Error, Fault};
use crate::registry::Digest;

/// Chunk size when reading a file.
const PIECE: usize = 64 << 10;

/// The source of a blob's bytes.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// In memory.
    Bytes(&'a Bytes),
    /// In a file of this size.
    File(&'a Path, u64),
    /// In another registry: digest and size.
    Remote(&'a Client, &'a Digest, u64),
}

/// The result of mounting a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mounted {
    /// The repository now has the blob.
    Yes,
    /// The blob has to be pushed.
    No,
}

impl Content<'_> {
    /// Returns the size in bytes.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, size) | Self::Remote(_, _, size) => *size,
        }
    }

    /// Returns a body that reports its progress.
    pub(super) async fn open(&self, progress: &Arc<Progress>) -> Result<Body, Fault> {
        match self {
            Self::Bytes(bytes) => Ok(Body::from((*bytes).clone())),
            Self::File(path, _) => {
                let file = tokio::fs::File::open(path).await.map_err(Fault::Content)?;
                Ok(watched(pieces(file).map_err(Fault::Content), progress))
            }
            Self::Remote(client, digest, size) => {
                let other = |error| Fault::Other(Box::new(error));
                let stream = Box::pin(client.blob(digest, *size)).await.map_err(other)?;
                let registry = client.registry.clone();
                let fail = move |fault| {
                    let registry = registry.clone();
                    Fault::Other(Box::new(Error { attempt: "could not read a layer from", registry, fault }))
                };
                Ok(watched(stream.map_err(fail), progress))
            }
        }
    }
}

/// The progress of a body.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes sent.
    pub(super) moved: AtomicU64,
    /// Why the body ended early. The HTTP client does not report the cause.
    broke: Mutex<Option<Fault>>,
}

impl Progress {
    /// Returns why the body ended early, if it did.
    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.broke.lock().take()
    }
}

fn pieces(file: tokio::fs::File) -> impl Stream<Item = std::io::Result<Bytes>> + Send {
    stream::try_unfold(file, |mut file| async move {
        let mut piece = Vec::with_capacity(PIECE);
        let length = (&mut file).take(PIECE as u64).read_to_end(&mut piece).await?;
        Ok((length > 0).then(|| (Bytes::from(piece), file)))
    })
}

fn watched(stream: impl Stream<Item = Result<Bytes, Fault>> + Send + 'static, progress: &Arc<Progress>) -> Body {
    let progress = Arc::clone(progress);
    Body::wrap_stream(stream.map(move |piece| match piece {
        Ok(bytes) => {
            progress.moved.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Ok(bytes)
        }
        Err(fault) => {
            *progress.broke.lock() = Some(fault);
            Err(std::io::Error::other("the content ended early"))
        }
    }))
}

impl Client {
    /// Whether the repository has a blob.
    pub(crate) async fn has_blob(&self, digest: &Digest) -> Result<bool, Error> {
        self.has_blob_in(&self.repository, digest).await
    }

    /// Whether another repository of the registry has a blob.
    pub(crate) async fn has_blob_in(&self, repository: &str, digest: &Digest) -> Result<bool, Error> {
        let mut url = self.origin.clone();
        url.set_path(&format!("/v2/{repository}/blobs/{digest}"));
        let asked = self.ask(&Ask::new(Method::HEAD), &url).await;
        match asked {
            Ok(_) => Ok(true),
            Err(Fault::Status { status: 404, .. }) => Ok(false),
            Err(fault) => Err(self.failed("could not look for a layer at")(fault)),
        }
    }

    /// Mounts a blob from another repository of the same registry, if the registry supports that.
    pub(crate) async fn mount_blob(&self, digest: &Digest, from: &str) -> Result<Mounted, Error> {
        let fail = self.failed("could not share a layer at");
        *self.mounting.lock() = Some(from.to_owned());
        let mut url = self.address("blobs", "uploads/");
        url.query_pairs_mut().append_pair("mount", digest.as_str()).append_pair("from", from);
        match self.begin(&url).await {
            Ok(response) if response.status().as_u16() == 201 => Ok(Mounted::Yes),
            Ok(response) => {
                // The registry started an upload instead, which is cancelled.
                if let Ok(url) = self.upload_at(&response) {
                    let _ = self.ask(&Ask::new(Method::DELETE), &url).await;
                }
                Ok(Mounted::No)
            }
            // The account may push to this repository but not read the other one.
            Err(Fault::Denied { .. } | Fault::Status { status: 400..=499, .. }) => Ok(Mounted::No),
            Err(fault) => Err(fail(fault)),
        }
    }

    /// Mounts a blob of this repository into `shared`, so that other repositories can mount it from there. Returns
    /// whether the mount succeeded.
    pub(crate) async fn share_blob(&self, digest: &Digest, shared: &str) -> Result<bool, Error> {
        let mut url = self.origin.clone();
        url.set_path(&format!("/v2/{shared}/blobs/uploads/"));
        url.query_pairs_mut().append_pair("mount", digest.as_str()).append_pair("from", &self.repository);
        let begun = self.begin(&url).await.map_err(self.failed("could not share a layer at"))?;
        Ok(begun.status().as_u16() == 201)
    }

    /// Checks that the registry accepts an upload of these bytes. The upload is cancelled and leaves no data.
    pub(crate) async fn try_upload(&self, bytes: &Bytes) -> Result<(), Error> {
        let fail = || self.failed("could not push a layer to");
        let begun = self.begin(&self.address("blobs", "uploads/")).await.map_err(fail())?;
        let at = self.upload_at(&begun).map_err(fail())?;
        let content = Content::Bytes(bytes);
        let mut ask = Ask::new(Method::PATCH);
        ask.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        ask.body = Some(&content);
        let sent = self.ask(&ask, &at).await;
        let next = sent.as_ref().ok().filter(|sent| sent.headers().contains_key(header::LOCATION));
        let at = next.and_then(|sent| self.upload_at(sent).ok()).unwrap_or(at);
        let _ = self.ask(&Ask::new(Method::DELETE), &at).await;
        sent.map(drop).map_err(fail())
    }

    /// Pushes a blob.
    pub(crate) async fn push_blob(&self, digest: &Digest, content: Content<'_>) -> Result<(), Error> {
        self.upload(digest, content).await.map_err(self.failed("could not push a layer to"))
    }

    async fn upload(&self, digest: &Digest, content: Content<'_>) -> Result<(), Fault> {
        let begun = self.begin(&self.address("blobs", "uploads/")).await?;
        let at = self.upload_at(&begun)?;
        let mut ask = Ask::new(Method::PATCH);
        ask.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        ask.body = Some(&content);
        let sent = self.ask(&ask, &at).await?;
        let at = if sent.headers().contains_key(header::LOCATION) { self.upload_at(&sent)? } else { at };
        let empty = Bytes::new();
        match self.complete(at, digest, Content::Bytes(&empty)).await {
            // The registry lost the accepted bytes. If a full volume is the cause, the registry reports it in response
            // to a single request.
            Err(fault) if fault.is_about_upload() => {
                let begun = self.begin(&self.address("blobs", "uploads/")).await?;
                self.complete(self.upload_at(&begun)?, digest, content).await
            }
            done => done,
        }
    }

    /// Completes an upload with its remaining bytes.
    async fn complete(&self, mut at: Url, digest: &Digest, rest: Content<'_>) -> Result<(), Fault> {
        at.query_pairs_mut().append_pair("digest", digest.as_str());
        let mut ask = Ask::new(Method::PUT);
        ask.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        ask.body = Some(&rest);
        let done = self.ask(&ask, &at).await?;
        self.same_digest(&done, digest, "the layer that it keeps")
    }

    async fn begin(&self, url: &Url) -> Result<Response, Fault> {
        let empty = Bytes::new();
        let nothing = Content::Bytes(&empty);
        self.ask(&Ask { body: Some(&nothing), ..Ask::new(Method::POST) }, url).await
    }

    /// Checks the digest in a response, if the response contains one.
    #[expect(clippy::unused_self, reason = "it reads like the other checks of a response")]
    pub(super) fn same_digest(&self, response: &Response, digest: &Digest, what: &'static str) -> Result<(), Fault> {
        let named = response.headers().get("docker-content-digest").and_then(|value| value.to_str().ok());
        // Digests of other algorithms are ignored.
        let other = named.is_some_and(|named| named.starts_with("sha256:") && named != digest.as_str());
        if other { Err(Fault::Digest { what }) } else { Ok(()) }
    }

    /// Returns the bytes of a blob of this size. The last item is an error if the bytes do not match the digest.
    pub async fn blob(&self, digest: &Digest, size: u64) -> Result<BoxStream<'static, Result<Bytes, Fault>>, Error> {
        let response = self.ask(&Ask::new(Method::GET), &self.address("blobs", digest.as_str())).await;
        let response = response.map_err(self.failed("could not read a layer from"))?;
        Ok(verified(response, digest.clone(), size, self.deadlines))
    }

    /// Returns a blob of at most `limit` bytes.
    ///
    /// # Errors
    /// The registry does not send it, it is longer, or its bytes do not match the digest.
    pub async fn small_blob(&self, digest: &Digest, size: u64, limit: u64) -> Result<Vec<u8>, Error> {
        let fail = |fault| Error { attempt: "could not read from", registry: self.registry.clone(), fault };
        if size > limit {
            return Err(fail(Fault::TooLarge { what: "a document of the image", limit }));
        }
        let chunks: Vec<Bytes> = self.blob(digest, size).await?.try_collect().await.map_err(fail)?;
        Ok(chunks.concat())
    }
}

fn verified(
    response: Response,
    digest: Digest,
    size: u64,
    deadlines: Deadlines,
) -> BoxStream<'static, Result<Bytes, Fault>> {
    let end = Instant::now() + deadlines.whole(size);
    let begin = Some((response, Sha256::new(), 0));
    stream::try_unfold(begin, move |state| {
        let digest = digest.clone();
        async move {
            let Some((mut response, mut hasher, length)) = state else { return Ok(None) };
            let silent = Instant::now() + deadlines.silence;
            let Ok(chunk) = timeout_at(silent.min(end), response.chunk()).await else {
                return Err(Fault::Timeout { after: deadlines.silence, what: "reading a layer" });
            };
            let Some(chunk) = chunk.map_err(|error| network(&error))? else {
                let whole = length == size && Digest::finished(hasher) == digest;
                return if whole { Ok(None) } else { Err(Fault::Digest { what: "a layer" }) };
            };
            let length = length + chunk.len() as u64;
            if length > size {
                return Err(Fault::TooLarge { what: "a layer", limit: size });
            }
            hasher.update(&chunk);
            Ok(Some((chunk, Some((response, hasher, length)))))
        }
    })
    .boxed()
}
