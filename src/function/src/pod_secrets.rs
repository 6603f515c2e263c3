//! Follows the Secrets that become environment variables of one Function's pods, for a digest of their values.
//!
//! A pod reads the values only at its start, so a change has to restart it. Mounted Secrets need no restart.
//!
//! Invariant: only a digest of each value is kept. The digest reveals nothing about the value without access to the
//! Secret. Invariant: deleting a Secret causes no restart, because running pods have its values. This holds for
//! optional Secrets, and after a restart of the agent.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;

use super::ResolvedFunction;
use super::resolve::SecretsDigest;
use super::secret_digests::SecretDigests;
use mainstay_cluster::secrets::{Followed, Known, Secrets};
use mainstay_object::failure::Class;

/// Keys of a Secret; `None` means all keys.
type Keys<'k> = Option<BTreeSet<&'k str>>;

/// The Secrets in the environment of one Function.
#[derive(Debug, Default)]
pub(super) struct PodSecrets {
    followed: Vec<Followed>,
    /// The last known digests; `None` until they are restored.
    last: Option<SecretDigests>,
}

impl PodSecrets {
    /// Restores the digests from the record of an earlier agent, unless they are known.
    pub(super) fn restore(&mut self, record: impl FnOnce() -> String) {
        if self.last.is_none() {
            self.last = Some(SecretDigests::parse(&record()));
        }
    }

    /// Returns the digest of all values; `None` if there are no values. Fails if the values are unknown.
    pub(super) async fn digest(
        &mut self,
        all: &Secrets,
        function: &ResolvedFunction,
    ) -> Result<Option<SecretsDigest>, String> {
        let wanted = read_by(function);
        let last = self.last.get_or_insert_default();
        last.retain(|name| wanted.contains_key(name));
        self.followed.retain(|followed| wanted.contains_key(followed.of().1));
        for name in wanted.keys() {
            if !self.followed.iter().any(|followed| followed.of().1 == *name) {
                self.followed.push(all.follow_digests(&function.namespace, name));
            }
        }
        let known = join_all(self.followed.iter_mut().map(Followed::known)).await;
        for (followed, known) in self.followed.iter().zip(known) {
            let name = followed.of().1;
            match &known {
                Known::Data(contents) => {
                    let keys = wanted.get(name).and_then(Option::as_ref);
                    last.insert(name, &contents.data, keys);
                }
                // New pods wait for the Secret, and running pods keep its values.
                Known::Absent | Known::Withheld { .. } | Known::Unreadable { class: Class::Denied, .. } => {}
                Known::Nothing | Known::Unreadable { .. } => {
                    let why = known.problem().map(|(_, why)| why).unwrap_or_default();
                    return Err(format!("Secret {name}, from which it gets environment variables, {why}"));
                }
            }
        }
        Ok(last.total().map(|total| SecretsDigest { total, record: last.record() }))
    }

    /// Waits until one of the Secrets changes.
    pub(super) async fn changed(&mut self) {
        Followed::any_changed(self.followed.iter_mut()).await;
    }
}

/// Returns the Secrets in the environment, with the keys that are used.
fn read_by(function: &ResolvedFunction) -> BTreeMap<&str, Keys<'_>> {
    let mut all: BTreeMap<&str, Keys<'_>> = BTreeMap::new();
    let sources = function.env.iter().filter_map(|variable| variable.value_from.as_ref());
    for source in sources.filter_map(|from| from.secret_key_ref.as_ref()).filter(|source| !source.name.is_empty()) {
        let keys = all.entry(&source.name).or_insert_with(|| Some(BTreeSet::new()));
        if let Some(keys) = keys {
            keys.insert(&source.key);
        }
    }
    all.extend(function.bound_secrets.iter().map(|bound| (bound.secret.as_str(), None)));
    all
}
