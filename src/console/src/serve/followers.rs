//! Reads the objects that follow a GitRepository: those of its namespace that the user may list.
//!
//! Invariant: the number of lists is fixed, and each list has a maximum number of objects and a maximum time.

use std::time::Duration;

use futures::TryStreamExt as _;
use mainstay_cluster::{Cluster, Selection};
use mainstay_object::Key;

use super::session::Session;
use super::watched::said;
use crate::deletion::{FOLLOWING, Followers, follows};
use crate::row::FleetKind;

/// Maximum number of objects of a list that are read, and of followers that are kept.
const MOST: usize = 2000;
const KEPT: usize = 500;
/// Maximum time for a list.
const WITHIN: Duration = Duration::from_secs(8);

/// Returns the objects that follow a GitRepository.
pub(super) async fn followers(session: &Session, repository: &Key) -> Followers {
    let mut all = Followers::default();
    for kind in FOLLOWING {
        let list = list(&session.cluster, kind, repository, &mut all.keys);
        let late = || Err(format!("{} objects were not read within {} s", kind.name(), WITHIN.as_secs()));
        if let Err(why) = session.pages.within(WITHIN, list).await.unwrap_or_else(late) {
            all.unread.push(why);
        }
    }
    all
}

/// Adds the followers of a kind. Fails with the reason why not all of them are known.
async fn list(cluster: &Cluster, kind: FleetKind, repository: &Key, keys: &mut Vec<Key>) -> Result<(), String> {
    let served = match cluster.kind(kind.api_version(), kind.name()).await {
        Ok(Some(served)) => served,
        Ok(None) => return Ok(()),
        Err(error) => return Err(said(&error)),
    };
    let namespace = repository.namespace.as_deref().unwrap_or_default();
    let mut found = cluster.list(&served, Selection::default().within(namespace));
    for _ in 0..MOST {
        let live = match found.try_next().await {
            Ok(Some(live)) => live,
            Ok(None) => return Ok(()),
            Err(error) if error.is_forbidden() => {
                return Err(format!("you may not list {} in {namespace}", served.resource));
            }
            Err(error) => return Err(format!("{} cannot be listed: {}", served.resource, said(&error))),
        };
        if !follows(kind, &live, repository) {
            continue;
        }
        if keys.len() == KEPT {
            return Err(format!("only the first {KEPT} are shown"));
        }
        keys.extend(served.key_of(&live));
    }
    match found.try_next().await {
        Ok(None) => Ok(()),
        Ok(Some(_)) | Err(_) => Err(format!("only the first {MOST} {} were read", served.resource)),
    }
}
