//! The Secrets that become environment variables of one Function's pods, and a digest of their values.
//!
//! A pod reads the values only at its start, so a change has to restart it. Mounted Secrets need no restart.
//!
//! Invariant: only a digest of each value is kept. The digest reveals nothing about the value without access to the
//! Secret. Invariant: deleting a Secret causes no restart, because running pods have its values.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;

use super::ResolvedFunction;
use mainstay_cluster::secrets::{Followed, Known, SecretData, Secrets};
use mainstay_object::Digest;
use mainstay_object::failure::Class;

/// Keys of a Secret; `None` means all keys.
type Keys<'k> = Option<BTreeSet<&'k str>>;

/// The Secrets in the environment of one Function.
#[derive(Debug, Default)]
pub(super) struct PodSecrets {
    followed: Vec<Followed>,
    /// The last known digest of each Secret.
    last: BTreeMap<String, Digest>,
}

impl PodSecrets {
    /// Returns the digest of all values; `None` if there are no values. Fails if the values are unknown.
    pub(super) async fn digest(
        &mut self,
        all: &Secrets,
        function: &ResolvedFunction,
    ) -> Result<Option<String>, String> {
        let wanted = read_by(function);
        self.last.retain(|name, _| wanted.contains_key(name.as_str()));
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
                    self.last.insert(name.to_owned(), digest_of(&contents.data, keys));
                }
                // New pods wait for the Secret, and running pods keep its values.
                Known::Absent | Known::Withheld { .. } | Known::Unreadable { class: Class::Denied, .. } => {}
                Known::Nothing | Known::Unreadable { .. } => {
                    let why = known.problem().map(|(_, why)| why).unwrap_or_default();
                    return Err(format!("Secret {name}, from which it gets environment variables, {why}"));
                }
            }
        }
        Ok((!self.last.is_empty()).then(|| total(&self.last)))
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

/// Returns the digest of some values of a Secret.
fn digest_of(data: &SecretData, keys: Option<&BTreeSet<&str>>) -> Digest {
    let counts = |key: &str| keys.is_none_or(|keys| keys.contains(key));
    let mut bytes = Vec::new();
    for (key, value) in data.iter().filter(|(key, _)| counts(key)) {
        append(&mut bytes, key.as_bytes());
        append(&mut bytes, &value.0);
    }
    Digest::of(&bytes)
}

fn total(all: &BTreeMap<String, Digest>) -> String {
    let mut bytes = Vec::new();
    for (name, digest) in all {
        append(&mut bytes, name.as_bytes());
        append(&mut bytes, digest.as_bytes());
    }
    Digest::of(&bytes).to_string()
}

/// Appends a part with its length, so different sequences of parts result in different bytes.
fn append(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u64).to_be_bytes());
    bytes.extend(part);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;

    use super::*;

    fn data(all: &[(&str, &str)]) -> SecretData {
        all.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
    }

    #[test]
    fn only_the_keys_that_are_read_count() {
        let keys = BTreeSet::from(["a"]);
        let of = |all: &[(&str, &str)], keys: Option<&BTreeSet<&str>>| digest_of(&data(all), keys);
        let before = [("a", "1"), ("b", "1")];
        assert_eq!(of(&before, Some(&keys)), of(&[("a", "1"), ("b", "2")], Some(&keys)));
        assert_ne!(of(&before, Some(&keys)), of(&[("a", "2"), ("b", "1")], Some(&keys)));
        assert_ne!(of(&before, None), of(&[("a", "1"), ("b", "2")], None));
        assert_ne!(of(&[("ab", "c")], None), of(&[("a", "bc")], None));
    }
}
