//! What the Secrets that a Function names say of themselves: one that is a token of a ServiceAccount, or a key that the agent
//! has made, is a credential whatever its name is.
//!
//! Invariant: of a Secret only its metadata are read, and only if the Function hands it to its code, or has its own repository read
//! with it.
//!
//! Deliberately absent: the data and the types of Secrets, which would cost memory; a token is known by the annotation
//! without which no API server takes one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::credentials::named;
use crate::bindings::Bound;
use mainstay_api::FunctionSpec;
use mainstay_cluster::secrets::{Purpose, by_metadata};
use mainstay_cluster::{Cluster, Error, Kind, Scope};

/// How long it counts what a Secret said.
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// What is known of the Secrets that one Function names.
#[derive(Debug, Default)]
pub(super) struct NamedSecrets(BTreeMap<String, (Instant, Option<Purpose>)>);

impl NamedSecrets {
    /// Which of the Secrets are credentials by their own account, and for what. Otherwise the name of the Secret that cannot be
    /// read, with the cause.
    pub(super) async fn look(
        &mut self,
        cluster: &Cluster,
        namespace: &str,
        spec: &FunctionSpec,
        bound: &[Bound],
    ) -> Result<BTreeMap<String, Purpose>, (String, Error)> {
        let bound = bound.iter().map(|bound| bound.secret.as_str());
        let names = named(spec).chain(bound).map(str::to_owned).collect::<BTreeSet<_>>();
        self.0.retain(|name, (at, _)| names.contains(name) && at.elapsed() < COUNTS_FOR);
        let kind = Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced);
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            if self.0.contains_key(&name) {
                continue;
            }
            match cluster.get_metadata(&kind, Some(namespace), &name).await {
                Ok(Some(meta)) => _ = self.0.insert(name, (Instant::now(), by_metadata(&meta))),
                // Its pods wait for it; when it is there, it is looked at.
                Ok(None) => {}
                Err(error) => return Err((name, error)),
            }
        }
        Ok(self.0.iter().filter_map(|(name, (_, purpose))| Some((name.clone(), (*purpose)?))).collect())
    }
}
