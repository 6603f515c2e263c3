//! The Secrets from which the pods of one Function get environment variables, and a digest of what they get.
//!
//! A pod reads them only when it begins, so another value has to restart it. What is mounted needs no restart.
//!
//! Invariant: of each value only a digest is kept, and the digest says nothing of the value to who may not read the Secret.
//! Invariant: a Secret that goes restarts nothing: what runs has its values.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;

use super::ResolvedFunction;
use mainstay_cluster::secrets::{Followed, Known, SecretData, Secrets};
use mainstay_object::Digest;
use mainstay_object::failure::Class;

/// Keys of a Secret; `None`: all of them.
type Keys<'k> = Option<BTreeSet<&'k str>>;

/// The Secrets that the environment of one Function is made of.
#[derive(Debug, Default)]
pub(super) struct PodSecrets {
    followed: Vec<Followed>,
    /// What was there last of each.
    last: BTreeMap<String, Digest>,
}

impl PodSecrets {
    /// The digest of all values; `None` if there are none. Otherwise why they are not known.
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
                // Its pods wait for it, or go on with what they have.
                Known::Absent | Known::Withheld { .. } | Known::Unreadable { class: Class::Denied, .. } => {}
                Known::Nothing | Known::Unreadable { .. } => {
                    let why = known.problem().map(|(_, why)| why).unwrap_or_default();
                    return Err(format!("Secret {name}, from which it gets environment variables, {why}"));
                }
            }
        }
        Ok((!self.last.is_empty()).then(|| total(&self.last)))
    }

    /// Waits until one of them is another.
    pub(super) async fn changed(&mut self) {
        Followed::any_changed(self.followed.iter_mut()).await;
    }
}

/// The Secrets that make the environment, with the keys that count.
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

/// The digest of some values of a Secret.
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

/// Appends a part with its length, so that no two sequences of parts are the same bytes.
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
