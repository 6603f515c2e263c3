//! Reads: one object, or a collection page by page.
//!
//! Invariant: at most one page of a collection is in memory. A page with several objects has at most 4 MiB; if objects
//! are large, a page contains fewer of them.
//! Invariant: the number of pages that are read concurrently is limited for all callers together, except for urgent lists.
//! These are few and small.
//! Invariant: an item of a list has `apiVersion` and `kind`, although servers omit them in lists.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::answer_limits::PAGE;
use super::connect::{Cluster, Turn};
use super::count::Verb;
use super::error::{Attempt, Cause, Error};
use super::kind::Kind;
use super::object::{self, Read};
use super::request::{Call, JSON};
use super::selection::{Content, Selection, and};

const ONE_METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const LIST_METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// Page size of metadata lists.
const METADATA_PAGE: u32 = 500;
/// Page size of other lists. Small, because an object may have more than a megabyte.
pub(super) const WHOLE_PAGE: u32 = 50;
/// Maximum size of a page with several objects. A larger page is requested again with fewer objects.
const PAGE_BYTES: usize = 4 << 20;

/// One page of a collection.
pub(super) struct Page {
    pub items: VecDeque<Box<RawValue>>,
    /// Continue token; `None` on the last page.
    pub next: Option<String>,
    /// Resource version of the snapshot to which all pages of a list belong.
    pub version: String,
    /// Page size for the next request.
    pub limit: u32,
    /// Time of the request, without the wait for other lists of this agent.
    pub took: Duration,
}

#[derive(Deserialize)]
struct PageBody {
    #[serde(default)]
    metadata: PageMetadata,
    #[serde(default)]
    items: Option<VecDeque<Box<RawValue>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: String,
}

impl Page {
    /// Parses the response to a request with this page size.
    pub(super) fn read(answer: &[u8], limit: u32) -> Result<Self, serde_json::Error> {
        let body: PageBody = serde_json::from_slice(answer)?;
        Ok(Self {
            items: body.items.unwrap_or_default(),
            next: Some(body.metadata.next).filter(|token| !token.is_empty()),
            version: body.metadata.resource_version,
            limit,
            took: Duration::ZERO,
        })
    }
}

impl Cluster {
    /// Reads one object; `None` if the object, its namespace or its kind does not exist.
    pub async fn get(&self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<Value>, Error> {
        let most = self.0.limits.bytes;
        self.read((kind, namespace, name), JSON, most, |answer| serde_json::from_slice(answer)).await
    }

    /// Same as `get`, for a response of at most `most` bytes. A larger one is the error [`Cause::TooLarge`].
    pub async fn get_within(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
        most: usize,
    ) -> Result<Option<Value>, Error> {
        self.read((kind, namespace, name), JSON, most, |answer| serde_json::from_slice(answer)).await
    }

    /// Reads the metadata of one object; `None` if the object does not exist.
    pub async fn get_metadata(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<ObjectMeta>, Error> {
        self.read((kind, namespace, name), ONE_METADATA, self.0.limits.bytes, object::read_metadata).await
    }

    async fn read<T>(
        &self,
        (kind, namespace, name): (&Kind, Option<&str>, &str),
        accept: &'static str,
        most: usize,
        understand: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<Option<T>, Error> {
        let mut call = Call::object(Attempt::Read, Verb::Get, kind, namespace, name, None)?;
        call.accept = accept;
        match self.ask_within(&call, most).await {
            Ok(answer) => understand(&answer).map(Some).map_err(|error| call.failed(error)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Streams the metadata of every selected object. Ends after the first error.
    pub fn list_metadata(
        &self,
        kind: &Arc<Kind>,
        selection: Selection,
    ) -> BoxStream<'static, Result<ObjectMeta, Error>> {
        let selection = selection.metadata_only();
        let kind_of_errors = Arc::clone(kind);
        self.list_raw(kind, selection)
            .map(move |item| {
                object::read_metadata(item?.get().as_bytes())
                    .map_err(|error| list_call(&kind_of_errors, &Selection::default(), String::new()).failed(error))
            })
            .boxed()
    }

    /// Streams every selected object. Ends after the first error. If the snapshot of the list expires, the list
    /// continues with the current state: objects that changed in the meantime may be missing or occur twice.
    pub fn list(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, Result<Value, Error>> {
        let owner = Arc::clone(kind);
        self.list_raw(kind, selection)
            .map(move |item| {
                let failed = |error| list_call(&owner, &Selection::default(), String::new()).failed(error);
                match object::read_item(&owner, item?.get()) {
                    Ok(Read::Whole(object)) => Ok(object),
                    Ok(Read::Identity(_, error)) | Err(error) => Err(failed(error)),
                }
            })
            .boxed()
    }

    fn list_raw(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, Result<Box<RawValue>, Error>> {
        let (cluster, kind) = (self.clone(), Arc::clone(kind));
        match <[Selection; 1]>::try_from(self.scoped(&kind, selection)) {
            Ok([selection]) => cluster.list_one(&kind, selection),
            Err(selections) => {
                stream::iter(selections).flat_map(move |selection| cluster.list_in(&kind, selection)).boxed()
            }
        }
    }

    /// Lists one of the namespaces to which the agent is limited; empty if it does not exist.
    fn list_in(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, Result<Box<RawValue>, Error>> {
        let namespace: Arc<str> = selection.namespace().unwrap_or_default().into();
        let (cluster, items) = (self.clone(), self.list_one(kind, selection));
        let found = items.filter_map(move |item| {
            let (cluster, namespace) = (cluster.clone(), Arc::clone(&namespace));
            async move {
                match item {
                    Err(error) if cluster.counts_as_empty(&namespace, &error).await => None,
                    item => Some(item),
                }
            }
        });
        found.boxed()
    }

    fn list_one(&self, kind: &Arc<Kind>, selection: Selection) -> BoxStream<'static, Result<Box<RawValue>, Error>> {
        let limit = if selection.content() == Content::Metadata { METADATA_PAGE } else { WHOLE_PAGE };
        let (items, version, took) = (VecDeque::new(), String::new(), Duration::ZERO);
        let page = Page { items, next: Some(String::new()), version, limit, took };
        let start = (self.clone(), Arc::clone(kind), selection, page, 0);
        stream::try_unfold(start, |(cluster, kind, selection, mut page, mut listed)| async move {
            loop {
                listed += if page.items.is_empty() { PAGE } else { 1 };
                let failed = |cause| list_call(&kind, &selection, String::new()).failed(cause);
                cluster.0.limits.check_list(listed).map_err(failed)?;
                if let Some(item) = page.items.pop_front() {
                    return Ok(Some((item, (cluster, kind, selection, page, listed))));
                }
                let Some(next) = page.next.take() else { return Ok(None) };
                page = match cluster.page(&kind, &selection, &next, page.limit).await {
                    Err(error) => match error.refusal().and_then(|refusal| refusal.continue_at.clone()) {
                        Some(later) if error.is_expired() => {
                            cluster.page(&kind, &selection, &later, page.limit).await?
                        }
                        _ => return Err(error),
                    },
                    Ok(page) => page,
                };
            }
        })
        .boxed()
    }

    /// Reads one page. `next` is the continue token, empty for the first page.
    pub(super) async fn page(
        &self,
        kind: &Kind,
        selection: &Selection,
        next: &str,
        mut limit: u32,
    ) -> Result<Page, Error> {
        loop {
            match self.page_of(kind, selection, next, limit).await {
                Err(error) if limit > 1 && matches!(*error.cause, Cause::TooLarge(_) | Cause::TooManyValues(_)) => {
                    limit = (limit / 4).max(1);
                }
                page => return page,
            }
        }
    }

    /// Reads one page of at most `limit` objects.
    async fn page_of(&self, kind: &Kind, selection: &Selection, next: &str, limit: u32) -> Result<Page, Error> {
        let mut path = selection.path(kind);
        and(&mut path, "limit", &limit.to_string());
        if !next.is_empty() {
            and(&mut path, "continue", next);
        }
        let mut call = list_call(kind, selection, path);
        if selection.content() == Content::Metadata {
            call.accept = LIST_METADATA;
        }
        let most = if limit > 1 { PAGE_BYTES } else { self.0.limits.bytes };
        // The semaphore is never closed. Urgent lists are few and small, and do not wait for others.
        let _permit = match self.2 {
            Turn::Waits => self.0.pages.acquire().await.ok(),
            Turn::AtOnce => None,
        };
        let asked = Instant::now();
        let answer = self.ask_within(&call, most).await?;
        let page = Page::read(&answer, limit).map_err(|error| call.failed(error))?;
        Ok(Page { took: asked.elapsed(), ..page })
    }
}

fn list_call(kind: &Kind, selection: &Selection, path: String) -> Call {
    Call::collection(Attempt::List, Verb::List, kind, selection.namespace(), path)
}
