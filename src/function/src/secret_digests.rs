//! The digests of the Secrets that become environment variables of one Function's pods.
//!
//! Invariant: a Secret that no longer exists keeps its digest, also after a restart of the agent: the object that runs
//! the pods has a record of the digests. So the deletion of a Secret changes no digest. A value counts as its digest that
//! is salted with the UID of the Secret, so a reader of the record cannot guess it.
//!
//! Not here: reading Secrets; see `pod_secrets`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use mainstay_api::names::SECRETS_DIGEST;
use mainstay_cluster::secrets::SecretData;
use mainstay_object::Digest;

/// Maximum bytes of a record. A Function with more Secrets has no record.
const MAX_RECORD: usize = 8 << 10;

/// The last known digest of each Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SecretDigests(BTreeMap<String, Digest>);

/// Returns the record of an object that runs a Function's pods; empty without one.
pub(super) fn recorded(live: &Value) -> String {
    let annotations = live.pointer("/metadata/annotations");
    let record = annotations.and_then(|all| all.get(SECRETS_DIGEST)).and_then(Value::as_str).unwrap_or_default();
    if record.len() > MAX_RECORD { String::new() } else { record.to_owned() }
}

impl SecretDigests {
    /// Parses a record. Invalid records and entries count as missing.
    pub(super) fn parse(record: &str) -> Self {
        let all: BTreeMap<String, String> = serde_json::from_str(record).unwrap_or_default();
        Self(all.into_iter().filter_map(|(name, digest)| Some((name, digest.parse().ok()?))).collect())
    }

    /// Returns the record of all digests; `None` if there are none, or too many.
    pub(super) fn record(&self) -> Option<String> {
        let all: BTreeMap<&str, String> = self.0.iter().map(|(name, digest)| (&**name, digest.to_string())).collect();
        let record = serde_json::to_string(&all).ok()?;
        (!all.is_empty() && record.len() <= MAX_RECORD).then_some(record)
    }

    /// Returns the digest of all values; `None` if there are no values.
    pub(super) fn total(&self) -> Option<String> {
        let mut bytes = Vec::new();
        for (name, digest) in &self.0 {
            append(&mut bytes, name.as_bytes());
            append(&mut bytes, digest.as_bytes());
        }
        (!self.0.is_empty()).then(|| Digest::of(&bytes).to_string())
    }

    /// Drops the digests of other Secrets.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_wanted(name));
    }

    /// Sets the digest of an existing Secret. `keys` are the used keys; `None` means all of them.
    pub(super) fn insert(&mut self, name: &str, data: &SecretData, keys: Option<&BTreeSet<&str>>) {
        self.0.insert(name.to_owned(), digest_of(data, keys));
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

    #[test]
    fn a_deleted_secret_counts_after_a_restart_as_before() {
        let before = digests(&[("deleted", "1"), ("other", "1")]);
        let live = json!({"metadata": {"annotations": {SECRETS_DIGEST: before.record().unwrap()}}});
        // The Secret `deleted` is absent, so only the other one is inserted.
        let mut after = SecretDigests::parse(&recorded(&live));
        after.insert("other", &data(&[("key", "1")]), None);
        assert_eq!(after.total(), before.total());
        assert_ne!(digests(&[("other", "1")]).total(), before.total(), "without the record, the pods restart");
        // A change of the other Secret, and a new Secret with the deleted name, restart the pods.
        let mut changed = after.clone();
        changed.insert("other", &data(&[("key", "2")]), None);
        assert_ne!(changed.total(), before.total());
        after.insert("deleted", &data(&[("key", "2")]), None);
        assert_ne!(after.total(), before.total());
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
    fn a_record_is_small_and_an_invalid_one_counts_as_missing() {
        let long = "s".repeat(MAX_RECORD + 1);
        assert_eq!(digests(&[(long.as_str(), "1")]).record(), None);
        let live = |record: &str| json!({"metadata": {"annotations": {SECRETS_DIGEST: record}}});
        assert_eq!((recorded(&live(long.as_str())), recorded(&json!({}))), (String::new(), String::new()));
        for invalid in ["", "[]", r#"{"a": 1}"#, r#"{"a": "x"}"#] {
            assert_eq!(SecretDigests::parse(&recorded(&live(invalid))), SecretDigests::default(), "{invalid}");
        }
    }
}
