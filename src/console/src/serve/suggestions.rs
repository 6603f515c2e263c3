//! Reads the names that a form suggests.
//!
//! Invariant: only the columns of Secrets are read that `kubectl get` prints, as far as the user may list them. No value is
//! among them, and no annotation, which may have a copy of the values.

use std::time::Duration;

use super::session::Session;
use crate::form::Suggested;
use crate::row::FleetKind;
use mainstay_cluster::{Kind, Scope, Selection};

/// Maximum number of names.
const NAMES: usize = 500;
/// Maximum time for a list. Without it, the form suggests nothing.
const WITHIN: Duration = Duration::from_secs(5);

/// Returns the names of a namespace that a form suggests.
pub(super) async fn suggestions(session: &Session, suggested: Suggested, namespace: &str) -> Vec<String> {
    let mut names = match suggested {
        Suggested::Repositories => repositories(session, namespace),
        Suggested::Secrets => session.pages.within(WITHIN, secrets(session, namespace)).await.unwrap_or_default(),
        Suggested::None => Vec::new(),
    };
    names.sort_unstable();
    names.truncate(NAMES);
    names
}

fn repositories(session: &Session, namespace: &str) -> Vec<String> {
    let rows = session.watched().rows();
    let own = rows.iter().filter(|row| row.kind == FleetKind::GitRepository && row.namespace == namespace);
    own.map(|row| row.name.clone()).collect()
}

/// Lists the names of Secrets. A refused list suggests nothing.
async fn secrets(session: &Session, namespace: &str) -> Vec<String> {
    let kind = Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced);
    let all = Selection::default().within(namespace);
    session.cluster.print_names(&kind, &all, NAMES).await.unwrap_or_default()
}
