//! Discovery: which kinds the cluster serves, as a table from group, version and kind to [`Kind`].
//!
//! Aggregated discovery takes two requests; servers without it are asked group by group. The table is read again when a
//! kind is missing, at most once per second, and after [`Cluster::kinds_changed`].
//!
//! Invariant: one broken group does not fail the others. Its kinds stay as they were last known, and an unknown kind of
//! it is an error. A kind is reported as not served only if every group answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use mainstay_object::Key;

use super::capabilities::{Capabilities, Known, Version};
use super::connect::Cluster;
use super::count::Verb;
use super::error::{Attempt, Cause, Error};
use super::kind::Kind;
use super::request::Call;
use super::served::{Aggregated, Head, Legacy, LegacyList, Table};

/// Minimum time between two reads that a missing kind causes.
const PAUSE: Duration = Duration::from_secs(1);

/// Age from which the table is read again for a caller that asks for all of it.
const OLD: Duration = Duration::from_secs(600);

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The table and the time of the last read.
#[derive(Default)]
pub(super) struct Discovery {
    table: Mutex<Arc<Table>>,
    /// The table is out of date.
    stale: AtomicBool,
    /// The time of the last read. Locked during a read, so that concurrent callers share it.
    reading: tokio::sync::Mutex<Option<Instant>>,
    /// The last answer about the table. Locked during a request for it.
    capabilities: tokio::sync::Mutex<Known>,
}

impl Discovery {
    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock())
    }
}

impl Cluster {
    /// The kind with this `apiVersion` and `kind`; `None` if the cluster does not serve it. A known kind costs no
    /// request.
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

    /// The server's preferred version of a kind; `None` if the cluster does not serve the kind.
    pub async fn preferred_kind(&self, group: &str, kind: &str) -> Result<Option<Arc<Kind>>, Error> {
        let find = |table: &Table| -> Option<Arc<Kind>> {
            let mut versions = table.kinds.values().filter(|row| &*row.group == group && &*row.kind == kind);
            versions.clone().find(|row| row.preferred).or_else(|| versions.next()).cloned()
        };
        let table = self.table_with(|table| find(table).is_some()).await?;
        Ok(find(&table))
    }

    /// The kind with this name: kind, plural, singular or short name in any case, with `.group` if it is ambiguous
    /// (`deploy`, `Deployment`, `deployments.apps`). The core group wins, then the first by name.
    pub async fn kind_called(&self, word: &str) -> Result<Option<Arc<Kind>>, Error> {
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name.to_lowercase(), Some(group)),
            None => (word.to_lowercase(), None),
        };
        let find = |table: &Table| -> Option<Arc<Kind>> {
            let called = |row: &&Arc<Kind>| {
                // A group, or a version and a group; other than the preferred version only if it is named.
                let in_group = |group: &str| {
                    let rest = group.strip_prefix(&*row.version).and_then(|rest| rest.strip_prefix('.'));
                    (row.preferred && *row.group == *group) || rest == Some(&*row.group)
                };
                group.map_or(row.preferred, in_group)
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

    /// Every kind in the server's preferred version, by group and name.
    pub async fn kinds(&self) -> Result<Vec<Arc<Kind>>, Error> {
        let table = self.table_with(|table| !table.kinds.is_empty()).await?;
        Ok(table.kinds.values().filter(|row| row.preferred).cloned().collect())
    }

    /// Groups and versions whose server does not answer, so that [`kinds`](Self::kinds) lacks what they serve.
    pub async fn silent_groups(&self) -> Result<Vec<String>, Error> {
        let table = self.table_with(|table| !table.kinds.is_empty()).await?;
        Ok(table.broken.iter().map(|(group, version)| format!("{group}/{version}")).collect())
    }

    /// Returns the capabilities of the cluster, at most ten minutes old. (Other lookups notice a missing kind; a caller that
    /// asks for everything misses none.)
    ///
    /// # Errors
    /// The cluster cannot be asked, and was not asked before; or it names no version.
    pub async fn capabilities(&self) -> Result<Arc<Capabilities>, Error> {
        if self.0.discovery.reading.lock().await.is_some_and(|at| at.elapsed() > OLD) {
            self.kinds_changed();
        }
        let table = self.table_with(|table| !table.kinds.is_empty()).await?;
        let mut known = self.0.discovery.capabilities.lock().await;
        if let Some((of, capabilities)) = &*known
            && Arc::ptr_eq(of, &table)
        {
            return Ok(Arc::clone(capabilities));
        }
        let call = discovery_call("/version".to_owned());
        let version = match self.ask(&call).await {
            Ok(answer) => Version::parse(&answer).map_err(|error| call.failed(error))?,
            // While the server is away, what was known is the best there is.
            Err(error) => return known.as_ref().map(|(_, known)| Arc::clone(known)).ok_or(error),
        };
        let capabilities = Arc::new(Capabilities::of(&version, &table));
        *known = Some((table, Arc::clone(&capabilities)));
        Ok(capabilities)
    }

    /// Marks the table as out of date because a CustomResourceDefinition or an APIService changed. The next lookup
    /// reads discovery again.
    pub fn kinds_changed(&self) {
        self.0.discovery.stale.store(true, Ordering::Release);
    }

    /// The table, read again if it is out of date, or if `has` is false and the last read is long enough ago.
    async fn table_with(&self, has: impl Fn(&Table) -> bool) -> Result<Arc<Table>, Error> {
        let discovery = &self.0.discovery;
        let table = discovery.table();
        if !discovery.stale.load(Ordering::Acquire) && has(&table) {
            return Ok(table);
        }
        let mut read_at = discovery.reading.lock().await;
        let table = discovery.table();
        let found = has(&table);
        // Another caller may have read it while this one waited for the lock.
        if !discovery.stale.load(Ordering::Acquire) && (found || read_at.is_some_and(|at| at.elapsed() < PAUSE)) {
            return Ok(table);
        }
        // Set before the requests: a change during the read must cause another read.
        discovery.stale.store(false, Ordering::Release);
        match self.read_table(&table).await {
            Ok(fresh) => {
                let fresh = Arc::new(fresh);
                *discovery.table.lock() = Arc::clone(&fresh);
                *read_at = Some(Instant::now());
                Ok(fresh)
            }
            Err(error) => {
                discovery.stale.store(true, Ordering::Release);
                // While the server is away, the old table is the best there is.
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

    /// Reads every group version. One that does not answer is broken; if none answers, the server is away.
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
