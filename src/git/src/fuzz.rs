//! Fuzz targets for parsers of untrusted input. Each accepts any bytes, ends soon, does not panic, and checks an
//! invariant.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;

use super::known_hosts::HostKeys;
use super::ssh_key::SshIdentity;
use super::{GoogleKey, RemoteUrl};

pub use super::transport::fuzz::{pack, pkt_line};

/// Parses the address of a repository. The displayed form must parse to the same address.
pub fn url(bytes: &[u8]) {
    let Ok(url) = RemoteUrl::parse(&String::from_utf8_lossy(bytes)) else { return };
    let shown = url.to_string();
    let again = RemoteUrl::parse(&shown).map(|url| url.to_string());
    assert!(again.is_ok_and(|again| again == shown), "what is shown of an address is one");
}

/// Parses a `known_hosts` file, after a line with the host's name.
pub fn known_hosts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (host, text) = text.split_once('\n').unwrap_or(("example.org", &text));
    let keys = HostKeys::read(text, host);
    assert!(keys.are_known() || keys.shown().is_empty(), "only known keys are shown");
}

/// Parses the JSON of a key of Google. No field of it is shown.
pub fn google_key(bytes: &[u8]) {
    if let Ok(key) = GoogleKey::read(&String::from_utf8_lossy(bytes)) {
        assert_eq!(format!("{key:?}"), "GoogleKey(…)", "no field is shown");
    }
}

/// Parses a private key of a Secret, after a line with its passphrase.
pub fn ssh_key(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (passphrase, key) = bytes.split_at(end);
    let field = |name: &str, bytes: &[u8]| (name.to_owned(), ByteString(bytes.to_vec()));
    let data = BTreeMap::from([field("key", key), field("password", passphrase)]);
    if let Ok(identity) = SshIdentity::read(&data) {
        // A parsed key need not be usable.
        let _ = identity.private_key();
    }
}
