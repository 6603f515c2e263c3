//! Sessions of users who have opened the link.

use std::io;
use std::sync::Arc;

use axum::Extension;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::watched::Watched;
use crate::text::{SHORT, plain};
use crate::tree::TreeReader;
use mainstay_cluster::Cluster;

/// The session of a handler.
pub(super) type Its = Extension<Arc<Session>>;

/// A session: its connection, its user and its fleet.
pub(super) struct Session {
    pub(super) cluster: Cluster,
    pub(super) user: String,
    /// The token of its forms.
    pub(super) csrf: String,
    pub(super) watched: Arc<Watched>,
    pub(super) tree: TreeReader,
    pub(super) stop: CancellationToken,
    _end: DropGuard,
}

impl Session {
    /// Begins a session. Its watches end with it, or with `stop`.
    pub(super) async fn begin(
        cluster: &Cluster,
        namespace: &str,
        tree: &TreeReader,
        csrf: String,
        stop: &CancellationToken,
    ) -> Self {
        // A server that does not say it, or refuses it, does not keep the page from opening.
        let user = cluster.user_name().await.ok().flatten().unwrap_or_else(|| "unknown user".to_owned());
        let stop = stop.child_token();
        Self {
            cluster: cluster.clone(),
            user: plain(&user, SHORT),
            csrf,
            watched: Watched::begin(cluster, namespace, &stop),
            tree: Arc::clone(tree),
            _end: stop.clone().drop_guard(),
            stop,
        }
    }
}

/// Returns a new token.
pub(super) fn token() -> io::Result<String> {
    let mut bytes = [0_u8; 32];
    SystemRandom::new().fill(&mut bytes).map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(hex::encode(bytes))
}
