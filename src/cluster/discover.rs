//! What the cluster serves: discovery becomes a table from group, version and kind to [`Kind`].
//!
//! Two requests read everything (aggregated discovery); servers without it are asked group by group. The table is
//! read again when a kind is missing, at most once per second, and when someone says that a CustomResourceDefinition
//! changed.
//!
//! Invariant: one broken group does not fail the rest. Its kinds stay as they were last known, and a kind of it that
//! is not known is an error, not an absence: "nobody has this kind" is said only when everybody answered.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::object::Key;

use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Cause, Error};
use super::kind::Kind;
use super::request::Call;
use super::served::{Aggregated, Head, Legacy, LegacyList, Table};

/// Least time between two readings that a missing kind causes.
const PAUSE: Duration = Duration::from_secs(1);

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The table and when it was read.
#[derive(Default)]
pub(super) struct Discovery {
    table: Mutex<Arc<Table>>,
    /// Someone said that the table is out of date.
    stale: AtomicBool,
    /// When it was last read; held while it is read, so that readers at the same time share one reading.
    reading: tokio::sync::Mutex<Option<Instant>>,
}

impl Discovery {
    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Cluster {
    /// The kind of this `apiVersion` and `kind`, or `None` if the cluster does not serve it. A kind that is known costs
    /// no request.
    pub async fn kind(&self, api_version: &str, kind: &str) -> Result<Option<Arc<Kind>>, Error> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let table = self.table_with(|table| table.find(group, version, kind).is_some()).await?;
        match table.find(group, version, kind) {
            Some(found) => Ok(Some(found)),
            None if table.broken.contains(&(Arc::from(group), Arc::from(version))) => {
                Err(discovery_call(String::new()).failed(Cause::GroupUnavailable(api_version.to_owned())))
            }
            None => Ok(None),
        }
    }

    /// The version of a kind that the server prefers, or `None` if the cluster does not serve the kind at all.
    pub async fn preferred_kind(&self, group: &str, kind: &str) -> Result<Option<Arc<Kind>>, Error> {
        let find = |table: &Table| -> Option<Arc<Kind>> {
            let mut versions = table.kinds.values().filter(|row| &*row.group == group && &*row.kind == kind);
            versions.clone().find(|row| row.preferred).or_else(|| versions.next()).cloned()
        };
        let table = self.table_with(|table| find(table).is_some()).await?;
        Ok(find(&table))
    }

    /// The kind that a person means by a word: kind, plural, singular or short name in any case, with `.group` where
    /// it is ambiguous (`deploy`, `Deployment`, `deployments.apps`). The core group wins, then the first by name.
    pub async fn kind_called(&self, word: &str) -> Result<Option<Arc<Kind>>, Error> {
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name.to_lowercase(), Some(group)),
            None => (word.to_lowercase(), None),
        };
        let find = |table: &Table| -> Option<Arc<Kind>> {
            let called = |row: &&Arc<Kind>| {
                row.preferred
                    && group.is_none_or(|group| &*row.group == group)
                    && (*row.plural == *name
                        || *row.singular == *name
                        || row.kind.to_lowercase() == name
                        || row.short_names.iter().any(|short| **short == *name))
            };
            table.kinds.values().find(called).cloned()
        };
        let table = self.table_with(|table| find(table).is_some()).await?;
        Ok(find(&table))
    }

    /// Every kind in the version that the server prefers, by group and name. Reads discovery once if it never was.
    pub async fn kinds(&self) -> Result<Vec<Arc<Kind>>, Error> {
        let table = self.table_with(|table| !table.kinds.is_empty()).await?;
        Ok(table.kinds.values().filter(|row| row.preferred).cloned().collect())
    }

    /// Says that what the cluster serves may have changed (a CustomResourceDefinition or an APIService did). The next
    /// question about a kind reads discovery again.
    pub fn kinds_changed(&self) {
        self.0.discovery.stale.store(true, Ordering::Release);
    }

    /// The table; read again if it is out of date, or if it lacks what is wanted and was not read just now.
    async fn table_with(&self, has: impl Fn(&Table) -> bool) -> Result<Arc<Table>, Error> {
        let discovery = &self.0.discovery;
        let table = discovery.table();
        if !discovery.stale.load(Ordering::Acquire) && has(&table) {
            return Ok(table);
        }
        let mut read_at = discovery.reading.lock().await;
        let table = discovery.table();
        let found = has(&table);
        // A reading may have taken place while we waited for the lock.
        if !discovery.stale.load(Ordering::Acquire) && (found || read_at.is_some_and(|at| at.elapsed() < PAUSE)) {
            return Ok(table);
        }
        // Before the requests: what changes while they run must cause another reading.
        discovery.stale.store(false, Ordering::Release);
        match self.read_table(&table).await {
            Ok(fresh) => {
                let fresh = Arc::new(fresh);
                *discovery.table.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&fresh);
                *read_at = Some(Instant::now());
                Ok(fresh)
            }
            Err(error) => {
                discovery.stale.store(true, Ordering::Release);
                // What is known is better than nothing while the server is away.
                if found { Ok(table) } else { Err(error) }
            }
        }
    }

    async fn read_table(&self, old: &Table) -> Result<Table, Error> {
        let mut table = Table::default();
        for root in ["/api", "/apis"] {
            let mut call = discovery_call(root.to_owned());
            call.accept = AGGREGATED;
            let answer = self.ask(&call).await?;
            let head: Head = serde_json::from_slice(&answer).map_err(|error| call.failed(error))?;
            if head.kind == "APIGroupDiscoveryList" {
                let groups: Aggregated = serde_json::from_slice(&answer).map_err(|error| call.failed(error))?;
                groups.add_to(&mut table);
            } else {
                let roots: Legacy = serde_json::from_slice(&answer).map_err(|error| call.failed(error))?;
                self.read_legacy(roots, &mut table).await?;
            }
        }
        for (name, row) in &old.kinds {
            if table.broken.contains(&(Arc::clone(&row.group), Arc::clone(&row.version))) {
                table.kinds.entry(name.clone()).or_insert_with(|| Arc::clone(row));
            }
        }
        Ok(table)
    }

    /// Asks for every group and version. One that does not answer is broken; if none answers, the server is away.
    async fn read_legacy(&self, roots: Legacy, table: &mut Table) -> Result<(), Error> {
        let mut last = None;
        let mut answered = false;
        for (group, versions) in roots.group_versions() {
            for (rank, version) in versions.into_iter().enumerate() {
                let path =
                    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
                let call = discovery_call(path);
                let list = match self.ask(&call).await {
                    Ok(answer) => serde_json::from_slice::<LegacyList>(&answer).map_err(|error| call.failed(error)),
                    Err(error) => Err(error),
                };
                match list {
                    Ok(list) => {
                        answered = true;
                        list.add_to(table, &group, &version, rank == 0);
                    }
                    Err(error) => {
                        table.broken.insert((Arc::from(&*group), Arc::from(&*version)));
                        last = Some(error);
                    }
                }
            }
        }
        match last {
            Some(error) if !answered => Err(error),
            _ => Ok(()),
        }
    }
}

fn discovery_call(path: String) -> Call {
    let key = Key::new("", "APIGroup", None, "");
    Call::new(Attempt::Discover, Verb::Get, Arc::from("discovery"), key, path)
}

#[cfg(test)]
mod tests;
