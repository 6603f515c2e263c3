//! The SOPS metadata of a file: master keys, encryption rule, and MAC.

use super::rules::Rule;
use super::tree::Node;

/// Maximum number of keys in all groups of a file.
const MOST_KEYS: usize = 200;

/// The metadata of a file.
#[derive(Clone)]
pub(super) struct Metadata {
    /// Groups of keys. All keys of a group encrypt the same data: the whole data key, or one share of it.
    pub(super) groups: Vec<Vec<MasterKey>>,
    /// Number of required shares.
    pub(super) threshold: usize,
    pub(super) mac: String,
    pub(super) last_modified: String,
    /// Whether the MAC covers only encrypted values.
    pub(super) mac_only_encrypted: bool,
    pub(super) rule: Rule,
}

/// A master key, which encrypts a data key.
#[derive(Clone)]
pub(super) struct MasterKey {
    pub(super) kind: KeyKind,
    /// The recipient or the fingerprint.
    pub(super) name: String,
    /// The encrypted data key.
    pub(super) encrypted: String,
}

/// The kind of a master key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Age,
    OpenPgp,
    /// A key service, which is not supported.
    Service(&'static str),
}

/// The lists of keys in the metadata, with the kind of their keys and the field that names a key.
const LISTS: [(&str, KeyKind, &str); 7] = [
    ("age", KeyKind::Age, "recipient"),
    ("pgp", KeyKind::OpenPgp, "fp"),
    ("kms", KeyKind::Service("AWS KMS"), "arn"),
    ("gcp_kms", KeyKind::Service("GCP KMS"), "resource_id"),
    ("azure_kv", KeyKind::Service("Azure Key Vault"), "name"),
    ("hc_vault", KeyKind::Service("HashiCorp Vault"), "key_name"),
    ("hckms", KeyKind::Service("Huawei Cloud KMS"), "key_id"),
];

/// Returns the MAC of a document; `None` without metadata.
pub(super) fn mac_of(document: &Node) -> Option<&str> {
    document.get("sops")?.text("mac")
}

impl Metadata {
    /// Parses the metadata in the value of `sops`.
    ///
    /// # Errors
    /// The error.
    pub(super) fn of(sops: &Node) -> Result<Self, String> {
        let direct = group(sops);
        let groups = if direct.is_empty() { sops.items("key_groups").map(group).collect() } else { vec![direct] };
        let count: usize = groups.iter().map(Vec::len).sum();
        if count == 0 {
            return Err("it names no key that decrypts it".to_owned());
        }
        if count > MOST_KEYS {
            return Err(format!("it names more than {MOST_KEYS} keys"));
        }
        let threshold = match sops.get("shamir_threshold") {
            Some(Node::Leaf(super::scalar::Scalar::Int(int))) => usize::try_from(*int).unwrap_or_default(),
            _ => sops.text("shamir_threshold").and_then(|text| text.parse().ok()).unwrap_or_default(),
        };
        let threshold = if threshold == 0 { groups.len() } else { threshold };
        if threshold > groups.len() {
            return Err("it needs more groups of keys than it has".to_owned());
        }
        let text = |key: &str| sops.text(key).unwrap_or_default().to_owned();
        let mac_only = sops.get("mac_only_encrypted");
        let mac_only_encrypted = mac_only == Some(&Node::Leaf(super::scalar::Scalar::Bool(true)))
            || sops.text("mac_only_encrypted") == Some("true");
        let (mac, last_modified) = (text("mac"), text("lastmodified"));
        if mac.is_empty() || last_modified.is_empty() {
            return Err("it has no MAC, so its changes cannot be verified".to_owned());
        }
        // The version is the last line, so a file without it is truncated. `sops` also refuses such a file.
        if matches!(sops.get("version"), None | Some(Node::Leaf(super::scalar::Scalar::Null))) {
            return Err("it has no version of SOPS: it is cut short".to_owned());
        }
        Ok(Self { groups, threshold, mac, last_modified, mac_only_encrypted, rule: Rule::of(sops)? })
    }
}

fn group(of: &Node) -> Vec<MasterKey> {
    let mut keys = Vec::new();
    for (list, kind, named_by) in LISTS {
        for item in of.items(list) {
            let text = |key: &str| item.text(key).unwrap_or_default().to_owned();
            keys.push(MasterKey { kind, name: text(named_by), encrypted: text("enc") });
        }
    }
    keys
}
