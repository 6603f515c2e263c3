//! Readers of hostile input, for a fuzzer: each takes any bytes, ends soon, does not panic, and keeps its promise.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;

use super::RemoteUrl;
use super::known_hosts::HostKeys;
use super::ssh_key::SshIdentity;

pub use super::transport::fuzz::{pack, pkt_line};

/// The address of a repository: what is shown of it is an address as well, and the same one.
pub fn url(bytes: &[u8]) {
    let Ok(url) = RemoteUrl::parse(&String::from_utf8_lossy(bytes)) else { return };
    let shown = url.to_string();
    let again = RemoteUrl::parse(&shown).map(|url| url.to_string());
    assert!(again.is_ok_and(|again| again == shown), "what is shown of an address is one");
}

/// A file `known_hosts`, after a line with the name of the host.
pub fn known_hosts(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (host, text) = text.split_once('\n').unwrap_or(("example.org", &text));
    let keys = HostKeys::read(text, host);
    assert!(keys.are_known() || keys.shown().is_empty(), "only known keys are shown");
}

/// A private key in a Secret, after a line with its passphrase.
pub fn ssh_key(bytes: &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (passphrase, key) = bytes.split_at(end);
    let field = |name: &str, bytes: &[u8]| (name.to_owned(), ByteString(bytes.to_vec()));
    let data = BTreeMap::from([field("key", key), field("password", passphrase)]);
    if let Ok(identity) = SshIdentity::read(&data) {
        // Whether it can be opened is no promise.
        let _ = identity.private_key();
    }
}
