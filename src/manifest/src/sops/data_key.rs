//! Decrypts the data key of a file with private keys.
//!
//! Invariant: if no key matches a file, the error names the file's recipients, provided their form is valid. Recipients
//! are not encrypted.

use zeroize::Zeroizing;

use super::age::{self, Identity, Miss};
use super::keys::Keys;
use super::metadata::{KeyKind, MasterKey, Metadata};
use super::openpgp::{self, PrivateKey};
use super::shamir;

/// Maximum number of attempts per file to decrypt with a key. Each attempt takes up to a millisecond.
const ATTEMPTS: u32 = 2000;
/// Maximum number of recipients in a message.
const SHOWN: usize = 10;
/// Maximum length of a displayed recipient, in characters.
const LONGEST: usize = 120;

/// The reason that there is no data key.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoKey {
    pub(super) what: String,
    pub(super) hint: &'static str,
}

const ADD_KEY: &str = "put a private key of one of these into the Secret that spec.decryption.secretRef names, or encrypt the file to a key \
     that is there, with `sops updatekeys`";
const RE_ENCRYPT: &str = "let `sops updatekeys` write the keys of the file again";
const ADD_RECIPIENT: &str =
    "only age and OpenPGP keys are used: add one to .sops.yaml, and run `sops updatekeys` on the file";

/// Decrypts the data key of a file.
pub(super) fn data_key(metadata: &Metadata, keys: &Keys) -> Result<Zeroizing<Vec<u8>>, NoKey> {
    let mut attempts = ATTEMPTS;
    let mut parts = Vec::new();
    let (mut missing, mut worst): (Vec<&MasterKey>, _) = (Vec::new(), Miss::NoKey);
    for group in &metadata.groups {
        match of_group(group, keys, &mut attempts) {
            Ok(part) => parts.push(part),
            Err(miss) => {
                worst = if miss == Miss::NoKey { worst } else { miss };
                missing.extend(group);
            }
        }
        if parts.len() >= metadata.threshold {
            break;
        }
    }
    if parts.len() >= metadata.threshold {
        let whole = if metadata.groups.len() == 1 { parts.pop() } else { shamir::combine(&parts) };
        return whole.ok_or_else(damaged);
    }
    Err(match worst {
        Miss::TooMany => NoKey { what: "it takes too many attempts to find a key for it".to_owned(), hint: RE_ENCRYPT },
        Miss::Damaged => damaged(),
        Miss::NoKey => no_key(metadata, &missing, parts.len()),
    })
}

fn damaged() -> NoKey {
    NoKey { what: "its data key is damaged: it was changed, or is cut short".to_owned(), hint: RE_ENCRYPT }
}

/// Returns the part of the data key that a group of keys encrypts.
fn of_group(group: &[MasterKey], keys: &Keys, attempts: &mut u32) -> Result<Zeroizing<Vec<u8>>, Miss> {
    let mut worst = Miss::NoKey;
    let by_age = group.iter().filter(|key| key.kind == KeyKind::Age).map(|key| of_age(key, &keys.age, attempts));
    // age is tried first, because it costs less.
    let mut results: Vec<_> = Vec::new();
    for result in by_age {
        let is_found = result.is_ok();
        results.push(result);
        if is_found {
            break;
        }
    }
    if !results.iter().any(Result::is_ok) {
        let by_pgp = group.iter().filter(|key| key.kind == KeyKind::OpenPgp);
        results.extend(by_pgp.map(|key| of_pgp(key, &keys.pgp, attempts)));
    }
    for result in results {
        match result {
            Ok(part) => return Ok(part),
            Err(Miss::NoKey) => {}
            Err(miss) => worst = miss,
        }
    }
    Err(worst)
}

/// Tries first the identity that the recipient names, and then all others.
fn of_age(key: &MasterKey, identities: &[Identity], attempts: &mut u32) -> Result<Zeroizing<Vec<u8>>, Miss> {
    let is_named = |identity: &&Identity| identity.recipient() == key.name;
    if identities.is_empty() {
        return Err(Miss::NoKey);
    }
    match age::decrypt(&key.encrypted, identities.iter().filter(is_named), attempts) {
        Err(Miss::NoKey) => {
            age::decrypt(&key.encrypted, identities.iter().filter(|identity| !is_named(identity)), attempts)
        }
        result => result,
    }
}

fn of_pgp(key: &MasterKey, keys: &[PrivateKey], attempts: &mut u32) -> Result<Zeroizing<Vec<u8>>, Miss> {
    if keys.is_empty() {
        return Err(Miss::NoKey);
    }
    match openpgp::decrypt(&key.encrypted, keys.iter().filter(|own| own.is_named(&key.name)), attempts) {
        Err(Miss::NoKey) => {
            openpgp::decrypt(&key.encrypted, keys.iter().filter(|own| !own.is_named(&key.name)), attempts)
        }
        result => result,
    }
}

fn no_key(metadata: &Metadata, missing: &[&MasterKey], found: usize) -> NoKey {
    let mut services: Vec<&str> = missing
        .iter()
        .filter_map(|key| match key.kind {
            KeyKind::Service(name) => Some(name),
            KeyKind::Age | KeyKind::OpenPgp => None,
        })
        .collect();
    services.dedup();
    let recipients: Vec<String> = missing.iter().filter_map(|key| recipient(key)).collect();
    if recipients.is_empty() {
        let what = format!("its data key is encrypted by {}, which is not supported", services.join(" and "));
        return NoKey { what, hint: ADD_RECIPIENT };
    }
    let mut shown: Vec<&str> = recipients.iter().take(SHOWN).map(String::as_str).collect();
    let more = format!("{} more", recipients.len().saturating_sub(SHOWN));
    if recipients.len() > SHOWN {
        shown.push(&more);
    }
    let shares = match (metadata.groups.len(), metadata.threshold) {
        (1, _) => String::new(),
        (groups, threshold) => {
            format!(" (decrypted key groups: {found}; needed: {threshold} of {groups})")
        }
    };
    NoKey { what: format!("no key decrypts it; it is encrypted to {}{shares}", shown.join(", ")), hint: ADD_KEY }
}

/// Returns a recipient in the form in which it is displayed; `None` for a key service.
fn recipient(key: &MasterKey) -> Option<String> {
    let is_plain = !key.name.is_empty()
        && key.name.len() <= LONGEST
        && key.name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'-' | b'/' | b'+' | b'='));
    let name = if is_plain { &*key.name } else { "(unreadable)" };
    match key.kind {
        KeyKind::Age if name.starts_with("age1pq1") => Some(format!("{name} (post-quantum, not supported)")),
        KeyKind::Age if name.starts_with("ssh-") => Some(format!("{name} (an SSH key, not supported)")),
        KeyKind::Age if is_plugin(name) => Some(format!("{name} (for an age plug-in, not supported)")),
        KeyKind::Age => Some(name.to_owned()),
        KeyKind::OpenPgp => Some(format!("OpenPGP {name}")),
        KeyKind::Service(_) => None,
    }
}

/// Returns whether a recipient is that of a plug-in. Such a recipient has the form `age1NAME1…`; a plain recipient has
/// no second `1`.
fn is_plugin(recipient: &str) -> bool {
    recipient.strip_prefix("age1").is_some_and(|rest| rest.contains('1'))
}
