//! Fetches the submodules of a commit, recursively.
//!
//! Invariant: a submodule is a normal remote with its own mirror, limits and errors; only its commit comes from its
//! parent. The mirror of a submodule is removed with the last consumer of the outermost repository
//! (`submodule_mirrors`).
//! Invariant: the limits of one repository apply to all submodules together.
//! Invariant: the number and the depth of submodules are limited. (A repository cannot contain itself: a commit's id
//! depends on the commits in it.)

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::allowance::Allowance;
use super::consumers::Identity;
use super::error::{Error, Fault};
use super::reference::ResolvedRef;
use super::remote::Remote;
use super::remotes::Source;
use super::snapshot::{Snapshot, SubmoduleLink};
use super::submodules;

/// Maximum number of submodules of a repository, counted recursively.
const SUBMODULES: usize = 64;
/// Maximum depth of nested submodules.
const DEPTH: usize = 4;

/// The state of fetching the submodules of one repository.
struct Fetching<'f> {
    /// The outermost repository.
    root: Identity,
    allowance: &'f Allowance,
    /// Number of submodules found so far.
    count: usize,
}

impl Source {
    /// Returns the snapshot with the files of all submodules.
    pub(super) async fn with_submodules(
        &self,
        remote: &Remote,
        snapshot: Snapshot,
        allowance: &Allowance,
    ) -> Result<Snapshot, Error> {
        let mut fetching = Fetching { root: remote.identity(), allowance, count: 0 };
        let fetched = self.fetch_below(remote.clone(), snapshot, 0, &mut fetching).await;
        if fetching.count > 0 {
            self.note_submodules(fetching.root).await;
        }
        fetched
    }

    /// Adds the submodules to the snapshot of a repository. `depth` is its nesting depth.
    fn fetch_below<'s>(
        &'s self,
        parent: Remote,
        snapshot: Snapshot,
        depth: usize,
        fetching: &'s mut Fetching<'_>,
    ) -> BoxFuture<'s, Result<Snapshot, Error>> {
        Box::pin(async move {
            let links = snapshot.blocking(Snapshot::submodules).await??;
            if links.is_empty() {
                return Ok(snapshot);
            }
            // The limits are checked before any fetch.
            fetching.count += links.len();
            if fetching.count > SUBMODULES {
                return Err(too_large("the number of submodules", SUBMODULES));
            }
            if depth >= DEPTH {
                return Err(too_large("the depth of submodules in submodules", DEPTH));
            }
            let mut found = BTreeMap::new();
            for link in links {
                let fetched = self.fetch_submodule(&parent, &link, depth + 1, fetching).await;
                let submodule =
                    fetched.map_err(|cause| Error::Submodule { path: link.path.clone(), cause: Arc::new(cause) })?;
                found.insert(link.path, submodule);
            }
            Ok(snapshot.with_submodules(found))
        })
    }

    async fn fetch_submodule(
        &self,
        parent: &Remote,
        link: &SubmoduleLink,
        depth: usize,
        fetching: &mut Fetching<'_>,
    ) -> Result<Snapshot, Error> {
        let remote = submodules::remote(parent, &link.address)?;
        self.use_submodule(fetching.root, &remote);
        let fetched = self.snapshot(&remote, &ResolvedRef::pinned(link.commit), fetching.allowance).await;
        let url = remote.url.clone();
        let snapshot = fetched.map_err(|cause| Error::Fetch { url, commit: link.commit, cause })?;
        self.fetch_below(remote, snapshot, depth, fetching).await
    }
}

fn too_large(what: &'static str, limit: usize) -> Error {
    Error::parse("submodules", Fault::TooLarge { what, limit: limit as u64 })
}
