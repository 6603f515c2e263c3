//! The private keys in a Secret.
//!
//! Invariant: the error of an unusable key names the location of the key, and quotes no part of the key.

use std::collections::BTreeMap;
use std::fmt;

use super::age::Identity;
use super::openpgp::PrivateKey;
use mainstay_object::{Digest, printable};

/// Maximum number of keys of each kind in a Secret.
const MOST: usize = 100;
/// Maximum total size of all keys, in bytes.
const MAX_BYTES: usize = 1 << 20;

/// Private keys.
pub struct Keys {
    pub(super) age: Vec<Identity>,
    pub(super) pgp: Vec<PrivateKey>,
    id: KeyId,
}

/// An id that distinguishes sets of keys. The id is derived from private keys, so it is compared and never shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KeyId(Digest);

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyId(…)")
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({} of age, {} of OpenPGP)", self.age.len(), self.pgp.len())
    }
}

impl Keys {
    /// Reads the private keys in the data of a Secret: age identities in `*.agekey`, and OpenPGP keys in `*.asc`.
    ///
    /// # Errors
    /// The location of the first unusable key.
    pub fn of<'d>(data: impl Iterator<Item = (&'d str, &'d [u8])>) -> Result<Self, String> {
        let ours: BTreeMap<&str, &[u8]> =
            data.filter(|(name, _)| [".agekey", ".asc"].iter().any(|end| name.ends_with(end))).collect();
        if ours.is_empty() {
            return Err("has no key named *.agekey (identities of age) or *.asc (private keys of OpenPGP)".to_owned());
        }
        if ours.values().map(|value| value.len()).sum::<usize>() > MAX_BYTES {
            return Err("has more than 1 MiB of keys".to_owned());
        }
        let (mut age, mut pgp) = (Vec::new(), Vec::new());
        for (name, value) in &ours {
            let shown = printable(name).into_owned();
            let text = std::str::from_utf8(value).map_err(|_| format!("has {shown}, which is not UTF-8"))?;
            if name.ends_with(".agekey") {
                identities(&shown, text, &mut age)?;
            } else {
                let found = PrivateKey::all_in(text).map_err(|why| format!("has {shown}, which {why}"))?;
                pgp.extend(found);
            }
        }
        if age.len() > MOST || pgp.len() > MOST {
            return Err(format!("has more than {MOST} keys of one kind"));
        }
        let parts = ours.iter().map(|(name, value)| format!("{name} {} {}\n", value.len(), Digest::of(value)));
        let id = KeyId(Digest::of(parts.collect::<String>().as_bytes()));
        Ok(Self { age, pgp, id })
    }

    /// Returns the id of these keys. Different keys have different ids.
    pub fn id(&self) -> KeyId {
        self.id
    }
}

fn identities(name: &str, text: &str, all: &mut Vec<Identity>) -> Result<(), String> {
    let before = all.len();
    for (line, number) in text.lines().zip(1u32..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let refused = |why: &str| Err(format!("has an unusable line {number} in {name}: it {why}"));
        match Identity::parse(line) {
            Some(identity) => all.push(identity),
            None if line.starts_with("AGE-SECRET-KEY-PQ-") => {
                return refused("is a post-quantum identity, which is not supported: encrypt to one of X25519 as well");
            }
            None if line.starts_with("AGE-PLUGIN-") => {
                return refused("is for a plug-in of age, and plug-ins are not run");
            }
            None if line.starts_with("age1") => return refused("is a recipient, which cannot decrypt anything"),
            None if line.starts_with("-----BEGIN ") => {
                return refused("begins an SSH or OpenPGP key; *.agekey holds lines that begin with AGE-SECRET-KEY-1");
            }
            None => return refused("is not an age identity (AGE-SECRET-KEY-1…)"),
        }
    }
    if all.len() == before { Err(format!("has {name}, which has no identity of age")) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, text: &str) -> String {
        match Keys::of([(name, text.as_bytes())].into_iter()) {
            Ok(keys) => format!("{keys:?} {}", keys.age.iter().map(Identity::recipient).collect::<Vec<_>>().join(" ")),
            Err(why) => why,
        }
    }

    /// A key for tests.
    const IDENTITY: &str = "AGE-SECRET-KEY-1VJ8FSJRQU3QGLWZ6USVC7YYUK5F07QF7DAUZF5WWXRDGTLKK86KSM6DVM0";

    #[test]
    fn an_identity_names_its_recipient_and_what_is_none_its_line() {
        let recipient = "age1dt7g47vfc3jnh4tsyg0qxupanmp38w272denf4l5hknmlc405e5sv0zt9k";
        let cases = [
            ("a.agekey", format!("# created\n\n{IDENTITY}\r\n"), format!("Keys(1 of age, 0 of OpenPGP) {recipient}")),
            (
                "a.agekey",
                format!("# x\n{}\n", IDENTITY.replace('V', "W")),
                "has an unusable line 2 in a.agekey: it is not an age identity (AGE-SECRET-KEY-1…)".to_owned(),
            ),
            (
                "a.agekey",
                recipient.to_owned(),
                "has an unusable line 1 in a.agekey: it is a recipient, which cannot decrypt anything".to_owned(),
            ),
            (
                "a.agekey",
                "AGE-PLUGIN-YUBIKEY-1QQQQ".to_owned(),
                "has an unusable line 1 in a.agekey: it is for a plug-in of age, and plug-ins are not run".to_owned(),
            ),
            ("a.agekey", "# nothing\n".to_owned(), "has a.agekey, which has no identity of age".to_owned()),
            ("a.asc", "hunter2".to_owned(), "has a.asc, which holds no private key of OpenPGP".to_owned()),
            (
                "key.txt",
                IDENTITY.to_owned(),
                "has no key named *.agekey (identities of age) or *.asc (private keys of OpenPGP)".to_owned(),
            ),
        ];
        for (name, text, expected) in cases {
            assert_eq!(check(name, &text), expected);
        }
        assert!(check("a.agekey", "AGE-SECRET-KEY-PQ-1QQ").contains("post-quantum"));
    }

    #[test]
    fn keys_differ_when_one_of_them_does_and_not_for_what_lies_beside_them() {
        let id = |data: &[(&'static str, &[u8])]| Keys::of(data.iter().copied()).unwrap().id();
        let one = id(&[("a.agekey", IDENTITY.as_bytes())]);
        assert!(one == id(&[("a.agekey", IDENTITY.as_bytes()), ("note", b"x")]));
        assert!(one != id(&[("a.agekey", format!("{IDENTITY}\n").as_bytes())]));
        assert_eq!(format!("{one:?}"), "KeyId(…)");
    }
}
