//! Fetches the submodules of a commit, and theirs.
//!
//! Invariant: a submodule is a remote like any other, with its own mirror, limits and errors; only its commit comes from its
//! parent. The mirror goes with the consumers of the outermost repository (`submodule_mirrors`).
//! Invariant: all of them together are limited as one repository is.
//! Invariant: a repository has a limited number of submodules, to a limited depth. (None contains itself: the id of a commit
//! depends on those of the commits in it.)

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

/// Submodules of a repository, with those of its submodules.
const SUBMODULES: usize = 64;
/// Submodules within submodules.
const DEPTH: usize = 4;

/// What is known while the submodules of one repository are fetched.
struct Fetching<'f> {
    /// The outermost repository.
    root: Identity,
    allowance: &'f Allowance,
    /// Submodules so far.
    count: usize,
}

impl Source {
    /// The snapshot with the files of all submodules.
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

    /// The snapshot of a repository in so many others with its submodules.
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
            // Before anything is fetched.
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
