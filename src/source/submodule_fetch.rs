//! Fetches the submodules of a commit, and theirs.
//!
//! Invariant: a submodule is a remote like any other, with its own mirror, limits and errors; only its commit comes from its
//! parent.
//! Invariant: a repository has a limited number of submodules, to a limited depth. (None contains itself: the id of a commit
//! depends on those of the commits in it.)

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;

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

impl Source {
    /// The snapshot with the files of all submodules.
    pub(super) async fn with_submodules(&self, remote: &Remote, snapshot: Snapshot) -> Result<Snapshot, Error> {
        self.fetch_below(remote.clone(), snapshot, 0, &mut 0).await
    }

    /// The snapshot of a repository in so many others with its submodules; `count` are those of the outermost one so far.
    fn fetch_below<'s>(
        &'s self,
        parent: Remote,
        snapshot: Snapshot,
        depth: usize,
        count: &'s mut usize,
    ) -> BoxFuture<'s, Result<Snapshot, Error>> {
        Box::pin(async move {
            let links = snapshot.blocking(Snapshot::submodules).await??;
            let mut found = BTreeMap::new();
            for link in links {
                let fetched = self.fetch_submodule(&parent, &link, depth + 1, count).await;
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
        count: &mut usize,
    ) -> Result<Snapshot, Error> {
        *count += 1;
        if *count > SUBMODULES {
            return Err(too_large("the number of submodules", SUBMODULES));
        }
        if depth > DEPTH {
            return Err(too_large("the depth of submodules in submodules", DEPTH));
        }
        let remote = submodules::remote(parent, &link.address)?;
        let fetched = self.snapshot(&remote, &ResolvedRef::pinned(link.commit)).await;
        let url = remote.url.clone();
        let snapshot = fetched.map_err(|cause| Error::Fetch { url, commit: link.commit, cause: Arc::new(cause) })?;
        self.fetch_below(remote, snapshot, depth, count).await
    }
}

fn too_large(what: &'static str, limit: usize) -> Error {
    Error::parse("submodules", Fault::TooLarge { what, limit: limit as u64 })
}
