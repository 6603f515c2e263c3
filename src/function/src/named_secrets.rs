//! Checks by their metadata whether the Secrets in a Function are credentials: tokens of ServiceAccounts, and keys that
//! the agent generated. The names of the Secrets do not matter.
//!
//! Invariant: only the metadata of a Secret is read, and only if the Function exposes it to its code or uses it for its
//! own repository.
//!
//! Not here: the data and types of Secrets, which would cost memory. Tokens are recognized by their mandatory
//! annotation.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::credentials::named;
use crate::bindings::Bound;
use mainstay_api::FunctionSpec;
use mainstay_cluster::secrets::{Purpose, by_metadata};
use mainstay_cluster::{Cluster, Error, Kind, Scope};

/// How long a result of a check is valid.
const COUNTS_FOR: Duration = Duration::from_secs(60);

/// The Secrets that one Function references.
#[derive(Debug, Default)]
pub(super) struct NamedSecrets {
    /// The known purposes of existing Secrets.
    known: BTreeMap<String, (Instant, Option<Purpose>)>,
    /// The Secrets that did not exist at the last check.
    missing: BTreeSet<String>,
}

impl NamedSecrets {
    /// Returns the Secrets that are credentials, with their purposes. Fails with the name of a Secret that cannot be
    /// read, and the cause.
    pub(super) async fn look(
        &mut self,
        cluster: &Cluster,
        namespace: &str,
        spec: &FunctionSpec,
        bound: &[Bound],
    ) -> Result<BTreeMap<String, Purpose>, (String, Error)> {
        let bound = bound.iter().map(|bound| bound.secret.as_str());
        let names = named(spec).chain(bound).map(str::to_owned).collect::<BTreeSet<_>>();
        self.known.retain(|name, (at, _)| names.contains(name) && at.elapsed() < COUNTS_FOR);
        self.missing.clear();
        let kind = Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced);
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            if self.known.contains_key(&name) {
                continue;
            }
            match cluster.get_metadata(&kind, Some(namespace), &name).await {
                Ok(Some(meta)) => _ = self.known.insert(name, (Instant::now(), by_metadata(&meta))),
                // The pods wait for the Secret. It is checked once it exists.
                Ok(None) => _ = self.missing.insert(name),
                Err(error) => return Err((name, error)),
            }
        }
        Ok(self.known.iter().filter_map(|(name, (_, purpose))| Some((name.clone(), (*purpose)?))).collect())
    }

    /// Returns the Secrets that did not exist at the last check.
    pub(super) fn missing(&self) -> &BTreeSet<String> {
        &self.missing
    }
}
