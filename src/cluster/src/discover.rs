//! Discovery: the table of the kinds that the cluster serves, by group, version and kind.
//!
//! Aggregated discovery takes two requests. Servers without it need one request for each group. The table is read again
//! when a kind is missing, at most once per second, and after [`Cluster::kinds_changed`].
//!
//! Invariant: a broken group does not affect others, and its known kinds stay. Looking up a different kind that this
//! group may contain fails, because it is unknown whether the kind is served.

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

/// Minimum time between two reads because of a missing kind.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum age of the table for `capabilities`.
const OLD: Duration = Duration::from_secs(600);

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
     application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// The table and the time of the last read.
#[derive(Default)]
pub(super) struct Discovery {
    table: Mutex<Arc<Table>>,
    /// Whether the table is outdated.
    stale: AtomicBool,
    /// The time of the last read. The lock is held during a read, so that concurrent callers share the read.
    reading: tokio::sync::Mutex<Option<Instant>>,
    /// The cached capabilities, and the table that they belong to. The lock is held while the version is read, so that
    /// concurrent callers share one request.
    capabilities: tokio::sync::Mutex<Known>,
}

impl Discovery {
    fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table.lock())
    }
}

impl Cluster {
    /// Returns the kind with this `apiVersion` and `kind`; `None` if the cluster does not serve it. A known kind costs
    /// no request.
    pub async fn kind(&self, api_version: &str, kind: &str) -> Result<Option<Arc<Kind>>, Error> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let find = |table: &Table| table.find(group, version, kind);
        self.look_up(find, |of, at| of == group && at == version).await
    }

    /// Returns the server's preferred version of a kind; `None` if the cluster does not serve the kind.
    pub async fn preferred_kind(&self, group: &str, kind: &str) -> Result<Option<Arc<Kind>>, Error> {
        let find = |table: &Table| -> Option<Arc<Kind>> {
            let mut versions = table.kinds.values().filter(|row| &*row.group == group && &*row.kind == kind);
            versions.clone().find(|row| row.preferred).or_else(|| versions.next()).cloned()
        };
        self.look_up(find, |of, _| of == group).await
    }

    /// Returns the kind with this name: kind, plural, singular or short name in any case, with `.group` if it is
    /// ambiguous (`deploy`, `Deployment`, `deployments.apps`). If several kinds match, that of the core group takes
    /// precedence, then the first by name.
    pub async fn kind_called(&self, word: &str) -> Result<Option<Arc<Kind>>, Error> {
        let (name, group) = match word.split_once('.') {
            Some((name, group)) => (name.to_lowercase(), Some(group)),
            None => (word.to_lowercase(), None),
        };
        let find = |table: &Table| -> Option<Arc<Kind>> {
            let called = |row: &&Arc<Kind>| {
                // The suffix is a group, or a version and a group. The preferred version may be omitted.
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
        let may_hold = |of: &str, version: &str| {
            group.is_none_or(|group| {
                let rest = group.strip_prefix(version).and_then(|rest| rest.strip_prefix('.'));
                group == of || rest == Some(of)
            })
        };
        self.look_up(find, may_hold).await
    }

    /// Returns a kind; `None` if the cluster does not serve it. If a group that may contain the kind (`may_hold`) does
    /// not respond, the kind is unknown, which is an error.
    async fn look_up(
        &self,
        find: impl Fn(&Table) -> Option<Arc<Kind>>,
        may_hold: impl Fn(&str, &str) -> bool,
    ) -> Result<Option<Arc<Kind>>, Error> {
        let table = self.table_with(|table| find(table).is_some()).await?;
        let found = find(&table);
        let silent = table.broken.iter().find(|(group, version)| found.is_none() && may_hold(group, version));
        match silent {
            None => Ok(found),
            Some((group, version)) => {
                let api_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
                Err(discovery_call(String::new()).failed(Cause::GroupUnavailable(api_version)))
            }
        }
    }

    /// Returns every kind in the server's preferred version, by group and name.
    pub async fn kinds(&self) -> Result<Vec<Arc<Kind>>, Error> {
        let table = self.table_with(|table| !table.kinds.is_empty()).await?;
        Ok(table.kinds.values().filter(|row| row.preferred).cloned().collect())
    }

    /// Returns groups and versions whose server does not respond. [`kinds`](Self::kinds) may lack their kinds.
    pub async fn silent_groups(&self) -> Result<Vec<String>, Error> {
        let table = self.table_with(|table| !table.kinds.is_empty()).await?;
        Ok(table.broken.iter().map(|(group, version)| format!("{group}/{version}")).collect())
    }

    /// Returns the version and the API versions of the cluster, at most ten minutes old. Other lookups read discovery
    /// again if a kind is missing, but this function cannot notice a missing kind.
    ///
    /// # Errors
    /// Discovery or the version cannot be read and was not read before, or the version is invalid.
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
            // If the server is unavailable, the last capabilities are used.
            Err(error) => return known.as_ref().map(|(_, known)| Arc::clone(known)).ok_or(error),
        };
        let capabilities = Arc::new(Capabilities::of(&version, &table));
        *known = Some((table, Arc::clone(&capabilities)));
        Ok(capabilities)
    }

    /// Marks the table as outdated because a CustomResourceDefinition or an APIService changed. The next lookup reads
    /// discovery again.
    pub fn kinds_changed(&self) {
        self.0.discovery.stale.store(true, Ordering::Release);
    }

    /// Returns the table. Reads it again if it is outdated, or if `has` returns false and the last read is long enough
    /// ago.
    async fn table_with(&self, has: impl Fn(&Table) -> bool) -> Result<Arc<Table>, Error> {
        let discovery = &self.0.discovery;
        let table = discovery.table();
        if !discovery.stale.load(Ordering::Acquire) && has(&table) {
            return Ok(table);
        }
        let mut read_at = discovery.reading.lock().await;
        let table = discovery.table();
        let found = has(&table);
        // Another caller may have read it in the meantime.
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
                // If the server is unavailable, the old table is used.
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

    /// Reads each group and version. A group without a response is broken; if no group responds, the read fails.
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
