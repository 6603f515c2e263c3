//! The digests of the Secrets that become environment variables of one Function's pods.
//!
//! Invariant: a Secret that no longer exists keeps its digest, also after a restart of the agent: the object that runs
//! the pods has a record of all digests. So the deletion of a Secret changes no digest.
//! Invariant: a record tells of one Secret's value no more than the total does. It has the sum of all digests, from which one
//! digest follows if all others are known. If two Secrets were deleted, their digests are unknown after a restart.
//!
//! Not here: reading Secrets; see `pod_secrets`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use mainstay_api::names::SECRETS_DIGEST;
use mainstay_cluster::secrets::SecretData;
use mainstay_object::Digest;

/// Maximum bytes of a record: two digests and a separator.
const MAX_RECORD: usize = 65;

/// The last known digest of each Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SecretDigests {
    known: BTreeMap<String, Digest>,
    /// The record of an earlier agent, until all Secrets were read.
    record: Option<Record>,
}

/// The total and the sum of all digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    total: Digest,
    sum: Digest,
}

impl Record {
    fn parse(text: &str) -> Option<Self> {
        let (total, sum) = text.split_once(' ')?;
        Some(Self { total: total.parse().ok()?, sum: sum.parse().ok()? })
    }
}

/// Returns the record of an object that runs a Function's pods; empty without one.
pub(super) fn recorded(live: &Value) -> String {
    let annotations = live.pointer("/metadata/annotations");
    let record = annotations.and_then(|all| all.get(SECRETS_DIGEST)).and_then(Value::as_str).unwrap_or_default();
    if record.len() > MAX_RECORD { String::new() } else { record.to_owned() }
}

impl SecretDigests {
    /// Returns the digests before any Secret was read. An invalid record counts as missing.
    pub(super) fn of_record(record: &str) -> Self {
        Self { known: BTreeMap::new(), record: Record::parse(record) }
    }

    /// Returns the record of all digests; `None` if there are none.
    pub(super) fn record(&self) -> Option<String> {
        (!self.known.is_empty()).then(|| format!("{} {}", self.digest(), self.sum()))
    }

    /// Returns the digest of all values; `None` if there are no values.
    pub(super) fn total(&self) -> Option<String> {
        (!self.known.is_empty()).then(|| self.digest().to_string())
    }

    fn digest(&self) -> Digest {
        let mut bytes = Vec::new();
        for (name, digest) in &self.known {
            append(&mut bytes, name.as_bytes());
            append(&mut bytes, digest.as_bytes());
        }
        Digest::of(&bytes)
    }

    /// Returns the sum of all digests without carries.
    fn sum(&self) -> Digest {
        let add = |sum: [u8; 16], digest: &Digest| std::array::from_fn(|at| sum[at] ^ digest.as_bytes()[at]);
        Digest::from_bytes(self.known.values().fold([0; 16], add))
    }

    /// Drops the digests of other Secrets.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.known.retain(|name, _| is_wanted(name));
    }

    /// Sets the digest of an existing Secret. `keys` are the used keys; `None` means all of them.
    pub(super) fn insert(&mut self, name: &str, data: &SecretData, keys: Option<&BTreeSet<&str>>) {
        self.known.insert(name.to_owned(), digest_of(data, keys));
    }

    /// Takes the digest of one missing Secret from the record of an earlier agent, if the others did not change. The caller
    /// has inserted the digests of all Secrets that exist.
    pub(super) fn recall<'n>(&mut self, missing: impl IntoIterator<Item = &'n str>) {
        let Some(record) = self.record.take() else { return };
        if self.digest() == record.total {
            return;
        }
        let rest = self.sum();
        let lost = Digest::from_bytes(std::array::from_fn(|at| record.sum.as_bytes()[at] ^ rest.as_bytes()[at]));
        for name in missing {
            if self.known.contains_key(name) {
                continue;
            }
            self.known.insert(name.to_owned(), lost);
            if self.digest() == record.total {
                return;
            }
            self.known.remove(name);
        }
    }
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

/// Appends a part with its length, so different sequences of parts result in different bytes.
fn append(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u64).to_be_bytes());
    bytes.extend(part);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;

    fn data(all: &[(&str, &str)]) -> SecretData {
        all.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
    }

    /// Returns digests of Secrets with one value each.
    fn digests(all: &[(&str, &str)]) -> SecretDigests {
        let mut digests = SecretDigests::default();
        for &(name, value) in all {
            digests.insert(name, &data(&[("key", value)]), None);
        }
        digests
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

    /// Returns the digests of a new agent, which has read these Secrets. The others are missing.
    fn restarted(before: &SecretDigests, read: &[(&str, &str)], missing: &[&str]) -> SecretDigests {
        let live = json!({"metadata": {"annotations": {SECRETS_DIGEST: before.record().unwrap()}}});
        let mut after = SecretDigests::of_record(&recorded(&live));
        after.known = digests(read).known;
        after.recall(missing.iter().copied());
        after
    }

    #[test]
    fn a_deleted_secret_counts_after_a_restart_as_before() {
        let before = digests(&[("deleted", "1"), ("other", "1")]);
        let mut after = restarted(&before, &[("other", "1")], &["absent", "deleted"]);
        assert_eq!((after.total(), after.record()), (before.total(), before.record()));
        // A change of the other Secret, and a new Secret with the deleted name, restart the pods.
        let changed = restarted(&before, &[("other", "2")], &["absent", "deleted"]);
        assert_eq!(changed, digests(&[("other", "2")]));
        after.insert("deleted", &data(&[("key", "2")]), None);
        assert_ne!(after.total(), before.total());
        // Without a deletion, nothing is taken from the record.
        assert_eq!(restarted(&before, &[("deleted", "1"), ("other", "1")], &["absent"]), before);
    }

    #[test]
    fn the_digests_of_two_deleted_secrets_are_unknown_after_a_restart() {
        let before = digests(&[("a", "1"), ("b", "1"), ("c", "1")]);
        assert_eq!(restarted(&before, &[("c", "1")], &["a", "b"]), digests(&[("c", "1")]));
    }

    #[test]
    fn a_record_tells_of_no_single_secret() {
        let both = digests(&[("strong", "1"), ("weak", "1")]).record().unwrap();
        for one in ["strong", "weak"] {
            let digest = digest_of(&data(&[("key", "1")]), None).to_string();
            assert!(!both.contains(&digest), "{one}");
        }
    }

    #[test]
    fn a_secret_that_the_function_no_longer_names_does_not_count() {
        let mut digests = digests(&[("a", "1"), ("b", "1")]);
        digests.retain(|name| name == "a");
        assert_eq!(digests, self::digests(&[("a", "1")]));
        digests.retain(|_| false);
        assert_eq!((digests.total(), digests.record()), (None, None));
    }

    #[test]
    fn an_invalid_record_counts_as_missing() {
        let live = |record: &str| json!({"metadata": {"annotations": {SECRETS_DIGEST: record}}});
        let record = digests(&[("a", "1")]).record().unwrap();
        assert_eq!(record.len(), MAX_RECORD);
        assert_eq!((recorded(&live(&format!("{record} "))), recorded(&json!({}))), (String::new(), String::new()));
        for invalid in ["", "[]", "x y", &record[1..]] {
            assert_eq!(SecretDigests::of_record(&recorded(&live(invalid))), SecretDigests::default(), "{invalid}");
        }
    }
}
