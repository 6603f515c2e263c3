//! Lists the objects of kinds that no session watches: sources, images, Providers and Alerts; APIRules, Triggers and
//! Subscriptions.
//!
//! A watch of each kind would need a connection to the API server for each session. So these kinds are listed when their
//! page is opened. Invariant: the rows of a page have a maximum size.

use std::sync::Arc;

use axum::Extension;
use axum::response::Response;
use futures::TryStreamExt as _;
use http::Uri;
use jiff::Timestamp;

use super::pages::{query, respond};
use super::session::{Its, Session};
use super::watched::said;
use crate::filter::{Filter, listing};
use crate::lookup::Lookups;
use crate::page::{self, Fleet};
use crate::row::{FleetKind, Row, row};
use mainstay_cluster::{Cluster, Error, Kind, Selection};

/// A page with a list.
struct Page {
    title: &'static str,
    path: &'static str,
    kinds: &'static [FleetKind],
}

const SOURCES: Page = Page { title: "Sources, images and alerts", path: "/sources", kinds: &FleetKind::LISTED };
const SERVED: Page = Page { title: "APIRules, Triggers and Subscriptions", path: "/served", kinds: &FleetKind::SERVED };

/// Maximum size of the rows of a page, in bytes.
const BYTES: usize = 2 << 20;

/// The rows of a page, and why others are missing.
#[derive(Default)]
struct Listed {
    rows: Vec<Arc<Row>>,
    bytes: usize,
    is_cut: bool,
    /// Kinds that are listed in one namespace only.
    within: Vec<&'static str>,
    not_installed: Vec<&'static str>,
    failures: Vec<String>,
}

impl Listed {
    /// Lists all kinds, those that the user may not list in all namespaces in this one.
    async fn of(cluster: &Cluster, kinds: &[FleetKind], namespace: &str) -> Self {
        let mut listed = Self::default();
        for kind in kinds {
            if let Err(error) = listed.add(cluster, *kind, namespace).await {
                listed.failures.push(format!("{} objects cannot be read: {}", kind.name(), said(&error)));
            }
        }
        listed
    }

    async fn add(&mut self, cluster: &Cluster, kind: FleetKind, namespace: &str) -> Result<(), Error> {
        let Some(served) = cluster.preferred_kind(kind.group(), kind.name()).await? else {
            self.not_installed.push(kind.name());
            return Ok(());
        };
        let everywhere = self.read(cluster, kind, &served, Selection::default()).await;
        if namespace.is_empty() || !everywhere.as_ref().is_err_and(Error::is_forbidden) {
            return everywhere;
        }
        self.read(cluster, kind, &served, Selection::default().within(namespace)).await?;
        self.within.push(kind.name());
        Ok(())
    }

    async fn read(
        &mut self,
        cluster: &Cluster,
        kind: FleetKind,
        served: &Arc<Kind>,
        selection: Selection,
    ) -> Result<(), Error> {
        let mut objects = cluster.list(served, selection);
        while let Some(live) = objects.try_next().await? {
            let row = row(kind, &live);
            let bytes = self.bytes + row.bytes();
            if bytes > BYTES {
                self.is_cut = true;
                break;
            }
            self.bytes = bytes;
            self.rows.push(Arc::new(row));
        }
        Ok(())
    }

    /// Returns which objects are missing on the page, and why.
    fn notes(&self, namespace: &str) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.within.is_empty() {
            let kinds = self.within.join(", ");
            notes.push(format!(
                "Objects of {kinds} are shown for the namespace {namespace} only: you may not list them in all namespaces."
            ));
        }
        if !self.not_installed.is_empty() {
            notes.push(format!("These kinds are not installed in this cluster: {}.", self.not_installed.join(", ")));
        }
        if self.is_cut {
            notes.push(
                "Some objects are not shown: a page keeps 2 MiB of them. Use `mainstay get` or `kubectl get`."
                    .to_owned(),
            );
        }
        notes.extend_from_slice(&self.failures);
        notes
    }
}

pub(super) async fn sources(Extension(session): Its, uri: Uri) -> Response {
    list(&session, &uri, &SOURCES).await
}

pub(super) async fn served(Extension(session): Its, uri: Uri) -> Response {
    list(&session, &uri, &SERVED).await
}

async fn list(session: &Session, uri: &Uri, list: &Page) -> Response {
    let namespace = session.namespace();
    let listed = Listed::of(&session.cluster, list.kinds, &namespace).await;
    let notes = listed.notes(&namespace);
    let filter = Filter::of(&query(uri));
    let body = page::fleet(&Fleet {
        title: list.title,
        path: list.path,
        kinds: list.kinds,
        listing: &listing(listed.rows, &filter),
        filter: &filter,
        lookups: &Lookups::new(),
        notes: &notes,
        within: None,
        now: Timestamp::now(),
    });
    respond(session, list.title, (None, 0), body)
}
