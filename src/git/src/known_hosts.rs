//! Known SSH host keys, in the format of OpenSSH's `known_hosts`, and how they decide about a key that a server
//! presents.
//!
//! Invariant: a key is accepted only if a line lists it for this host and port. A line that cannot be parsed lists no
//! key and does not affect the other lines.
//! Invariant: a key marked as `@revoked` is always refused, and so is a certificate that it signed.
//! Invariant: a certificate is accepted only for its own names and within its validity.
//!
//! Not here: clocks, and keys that are pinned at first use (`pinning`).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ring::hmac;
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate, EcdsaCurve, HashAlg, PublicKey};

/// The published keys of large Git hosts, for repositories whose Secret has no `known_hosts`.
pub const PUBLISHED: &str = include_str!("known_hosts.txt");

/// Maximum size of a `known_hosts`, in bytes. A longer one is refused completely, because it may end with a revocation.
pub(super) const MAX_BYTES: usize = 256 << 10;

/// The known keys of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HostKeys {
    accepted: Vec<PublicKey>,
    revoked: Vec<PublicKey>,
    /// CAs that sign the host's certificates.
    authorities: Vec<PublicKey>,
}

/// The result of checking a host key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HostKeyCheck {
    /// The key is a known key of the host.
    Accepted,
    /// No key of the host is known.
    Unknown,
    /// The known keys of the host are different.
    Changed,
    /// The key, or the CA that signed it, is revoked.
    Revoked,
    /// A known CA has signed the host's certificate, but it is invalid for this reason.
    BadCertificate(&'static str),
}

/// Returns whether the text lists a key or a CA for the host `name`, which includes the port unless that is 22.
pub fn lists_host(text: &str, name: &str) -> bool {
    HostKeys::read(text, name).are_known()
}

impl HostKeys {
    /// Reads the keys of the host `name` from `text`. The name includes the port unless that is 22.
    pub(super) fn read(text: &str, name: &str) -> Self {
        let mut keys = Self::default();
        for line in text.lines() {
            let Some((marker, key)) = entry(line.trim(), name) else { continue };
            match marker {
                None if !keys.accepted.contains(&key) => keys.accepted.push(key),
                Some("@revoked") => keys.revoked.push(key),
                Some("@cert-authority") => keys.authorities.push(key),
                _ => {}
            }
        }
        keys
    }

    /// Returns whether a key or a CA of the host is known.
    pub(super) fn are_known(&self) -> bool {
        !self.accepted.is_empty() || !self.authorities.is_empty()
    }

    /// Adds a key, given as type and base64 text. An unreadable key is ignored.
    pub(super) fn with(mut self, key: &str) -> Self {
        self.accepted.extend(PublicKey::from_openssh(key));
        self
    }

    /// Removes the keys that `other` revokes.
    pub(super) fn without_revoked_in(mut self, other: Self) -> Self {
        self.revoked.extend(other.revoked);
        self
    }

    /// Returns the parts that distinguish sets of keys.
    pub(super) fn parts(&self) -> Vec<String> {
        let lists = [("accepted", &self.accepted), ("revoked", &self.revoked), ("authorities", &self.authorities)];
        let part = |word: &'static str| move |key: &PublicKey| format!("{word} {}", key.fingerprint(HashAlg::Sha256));
        lists.into_iter().flat_map(|(word, keys)| keys.iter().map(part(word))).collect()
    }

    /// Checks a host's certificate. `now` is in seconds since 1970.
    pub(super) fn judge_certificate(&self, certificate: &Certificate, host: &str, now: u64) -> HostKeyCheck {
        let by_itself = self.judge(&PublicKey::from(certificate.public_key().clone()));
        let signed_by = |keys: &[PublicKey]| keys.iter().any(|key| key.key_data() == certificate.signature_key());
        if by_itself == HostKeyCheck::Revoked || signed_by(&self.revoked) {
            return HostKeyCheck::Revoked;
        }
        if by_itself == HostKeyCheck::Accepted || !signed_by(&self.authorities) {
            return by_itself;
        }
        let names_host = certificate.valid_principals().iter().any(|name| matches(name, &host.to_ascii_lowercase()));
        let is_sha1 = certificate.signature().algorithm() == Algorithm::Rsa { hash: None };
        let trusted: Vec<_> = self.authorities.iter().map(|key| key.fingerprint(HashAlg::Sha256)).collect();
        let why = match certificate {
            _ if is_sha1 => "it is signed with SHA-1",
            _ if certificate.verify_signature().is_err() => "its signature is wrong",
            _ if certificate.cert_type() != CertType::Host => "it is a certificate for users",
            _ if !certificate.critical_options().is_empty() => "it has critical options, and none are known for hosts",
            _ if !names_host => "it is valid for other names only",
            _ if certificate.valid_after() > now => "it is not valid yet; compare the clocks of both sides",
            _ if certificate.valid_before() <= now => "it has expired",
            _ if certificate.validate_at(now, &trusted).is_err() => "it is not valid",
            _ => return HostKeyCheck::Accepted,
        };
        HostKeyCheck::BadCertificate(why)
    }

    pub(super) fn judge(&self, presented: &PublicKey) -> HostKeyCheck {
        let lists = |keys: &[PublicKey]| keys.iter().any(|key| key.key_data() == presented.key_data());
        if lists(&self.revoked) {
            HostKeyCheck::Revoked
        } else if lists(&self.accepted) {
            HostKeyCheck::Accepted
        } else if self.accepted.is_empty() {
            HostKeyCheck::Unknown
        } else {
            HostKeyCheck::Changed
        }
    }

    /// Returns types and fingerprints of the host's keys, for messages.
    pub(super) fn shown(&self) -> String {
        const SHOWN: usize = 4;
        let shown: Vec<_> = self.accepted.iter().take(SHOWN).map(shown).collect();
        let more = if self.accepted.len() > SHOWN { ", …" } else { "" };
        format!("{}{more}", shown.join(", "))
    }

    /// Returns the host certificate algorithms to offer; none unless a CA is known.
    pub(super) fn certificate_algorithms(&self) -> Vec<Algorithm> {
        if self.authorities.is_empty() { Vec::new() } else { self.algorithms() }
    }

    /// Returns the host key algorithms to offer, those of known keys first. A host with a known key then presents this
    /// key. Other hosts present a key that is refused by its fingerprint.
    pub(super) fn algorithms(&self) -> Vec<Algorithm> {
        let known = self.accepted.iter().flat_map(|key| signed_by(&key.algorithm()));
        let all = [EcdsaCurve::NistP256, EcdsaCurve::NistP384, EcdsaCurve::NistP521];
        let ecdsa = all.into_iter().map(|curve| Algorithm::Ecdsa { curve });
        let usual = std::iter::once(Algorithm::Ed25519).chain(ecdsa).chain(signed_by(&Algorithm::Rsa { hash: None }));
        let mut algorithms = Vec::new();
        for algorithm in known.chain(usual) {
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        algorithms
    }
}

/// Returns the signature algorithms of a key type, without SHA-1 and DSA.
fn signed_by(kind: &Algorithm) -> Vec<Algorithm> {
    match kind {
        Algorithm::Rsa { .. } => {
            [HashAlg::Sha512, HashAlg::Sha256].map(|hash| Algorithm::Rsa { hash: Some(hash) }).to_vec()
        }
        Algorithm::Ed25519 | Algorithm::Ecdsa { .. } => vec![kind.clone()],
        _ => Vec::new(),
    }
}

/// Returns the lines of `text` that apply to a host.
pub(super) fn lines<'t>(text: &'t str, name: &str) -> impl Iterator<Item = &'t str> {
    text.lines().map(str::trim).filter(move |line| entry(line, name).is_some())
}

/// Returns type and fingerprint of a key, as `ssh-keygen -l` prints them.
pub(super) fn shown(key: &PublicKey) -> String {
    let kind = match key.algorithm() {
        Algorithm::Rsa { .. } => "RSA",
        Algorithm::Ecdsa { .. } => "ECDSA",
        Algorithm::Ed25519 => "ED25519",
        _ => "other",
    };
    format!("{} ({kind})", key.fingerprint(HashAlg::Sha256))
}

/// Returns type and base64 string of a key, as in `known_hosts`.
pub(super) fn text(key: &PublicKey) -> Option<String> {
    PublicKey::from(key.key_data().clone()).to_openssh().ok()
}

/// Returns marker and key of a line, if the line applies to the host.
fn entry<'l>(line: &'l str, name: &str) -> Option<(Option<&'l str>, PublicKey)> {
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    let (marker, hosts) = if first.starts_with('@') { (Some(first), words.next()?) } else { (None, first) };
    if !is_about(hosts, name) {
        return None;
    }
    let (kind, key) = (words.next()?, words.next()?);
    Some((marker, PublicKey::from_openssh(&format!("{kind} {key}")).ok()?))
}

fn is_about(hosts: &str, name: &str) -> bool {
    if let Some(hashed) = hosts.strip_prefix("|1|") {
        return is_hash_of(hashed, name).unwrap_or(false);
    }
    let mut is_listed = false;
    for pattern in hosts.split(',') {
        match pattern.strip_prefix('!') {
            Some(excluded) if matches(excluded, name) => return false,
            Some(_) => {}
            None => is_listed |= matches(pattern, name),
        }
    }
    is_listed
}

/// Checks whether `<salt>|<hash>` is the HMAC-SHA1 of the name. OpenSSH hides host names in this form.
fn is_hash_of(hashed: &str, name: &str) -> Option<bool> {
    let (salt, hash) = hashed.split_once('|')?;
    let (salt, hash) = (BASE64_STANDARD.decode(salt).ok()?, BASE64_STANDARD.decode(hash).ok()?);
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
    Some(hmac::verify(&key, name.as_bytes(), &hash).is_ok())
}

/// Returns whether a pattern with `*` and `?` matches the whole name, ignoring case. The cost is the product of both
/// lengths.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.to_ascii_lowercase().into_bytes(), name.as_bytes());
    let (mut at, mut here, mut retry) = (0, 0, None);
    while here < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                retry = Some((at, here));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[here] => (at, here) = (at + 1, here + 1),
            _ => match retry {
                Some((star, from)) => {
                    (at, here) = (star + 1, from + 1);
                    retry = Some((star, here));
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use russh::keys::PrivateKey;
    use russh::keys::ssh_key::certificate;
    use russh::keys::ssh_key::private::Ed25519Keypair;

    use super::*;

    const ED: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl";
    const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAfuCHKVTjquxvt6CM6tdG4SLp1Btn/nOeHHE5UOzRdf";

    fn key(text: &str) -> PublicKey {
        PublicKey::from_openssh(text).unwrap()
    }

    #[track_caller]
    fn check(hosts: &str, name: &str, expected: HostKeyCheck) {
        let judged = HostKeys::read(&format!("# hosts\n\n{hosts} {ED} comment\n"), name).judge(&key(ED));
        assert_eq!(judged, expected, "{hosts} {name}");
    }

    #[test]
    fn finds_the_lines_for_a_host() {
        use HostKeyCheck::{Accepted, Unknown};
        check("github.com", "github.com", Accepted);
        check("GitHub.com,140.82.121.4", "github.com", Accepted);
        check("gitlab.com", "github.com", Unknown);
        check("github.com", "[github.com]:2222", Unknown);
        check("[github.com]:2222", "[github.com]:2222", Accepted);
        check("[github.com]:2222", "github.com", Unknown);
        check("*.example.org", "git.sub.example.org", Accepted);
        check("*.example.org", "example.org", Unknown);
        check("git?.example.org", "git1.example.org", Accepted);
        check("[*.example.org]:*", "[git.example.org]:7", Accepted);
        check("*.example.org,!bad.example.org", "bad.example.org", Unknown);
        check("!bad.example.org,*.example.org", "git.example.org", Accepted);
        check("|1|AAECAwQFBgcICQoLDA0ODxAREhM=|/vGHEQmgsSrggHW81/s0OAW0mAs=", "github.com", Accepted);
        check("|1|AAECAwQFBgcICQoLDA0ODxAREhM=|/vGHEQmgsSrggHW81/s0OAW0mAs=", "gitlab.com", Unknown);
        check("|1|AAECAwQFBgcICQoLDA0ODxAREhM=|JpYA5Ksbib/ek1AkZ8xbfqfFdFM=", "[ssh.github.com]:443", Accepted);
        check("|1|nonsense", "github.com", Unknown);
        check("@cert-authority *", "github.com", Unknown);
        check("@revoked *", "github.com", HostKeyCheck::Revoked);
    }

    #[test]
    fn accepts_any_listed_key_unless_it_is_revoked() {
        let judge = |lines: &str| HostKeys::read(lines, "h").judge(&key(ED));
        assert_eq!(judge(&format!("h {OTHER}\nh {ED}")), HostKeyCheck::Accepted);
        assert_eq!(judge(&format!("h {OTHER}")), HostKeyCheck::Changed);
        assert_eq!(judge(&format!("h {ED}\n@revoked * {ED}")), HostKeyCheck::Revoked);
        assert_eq!(judge("h ssh-ed25519 nonsense\nh\n@revoked"), HostKeyCheck::Unknown);
        assert_eq!(
            judge(&format!("h ssh-ed25519 nonsense\r\nh {ED}\r\n")),
            HostKeyCheck::Accepted,
            "an unreadable line does not affect the others"
        );
    }

    #[test]
    fn a_key_revoked_by_another_list_is_refused() {
        let keys = HostKeys::read(&format!("h {ED}"), "h");
        let other = HostKeys::read(&format!("@revoked * {ED}\nh {OTHER}"), "h");
        let keys = keys.without_revoked_in(other);
        assert_eq!(keys.judge(&key(ED)), HostKeyCheck::Revoked);
        assert_eq!(keys.judge(&key(OTHER)), HostKeyCheck::Changed, "only what is revoked is taken over");
    }

    #[test]
    fn gives_the_lines_about_a_host() {
        let text = format!("# a\nh {ED}\ni {ED}\n@revoked * {OTHER}\nh nonsense\n");
        assert_eq!(lines(&text, "h").collect::<Vec<_>>(), [format!("h {ED}"), format!("@revoked * {OTHER}")]);
    }

    #[test]
    fn offers_the_algorithms_of_known_keys_first_and_never_sha1() {
        let names = |keys: HostKeys| keys.algorithms().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        let usual = "ssh-ed25519 ecdsa-sha2-nistp256 ecdsa-sha2-nistp384 ecdsa-sha2-nistp521 rsa-sha2-512 rsa-sha2-256";
        assert_eq!(names(HostKeys::default()), usual);
        let azure = HostKeys::read(PUBLISHED, "ssh.dev.azure.com");
        assert!(names(azure).starts_with("rsa-sha2-512 rsa-sha2-256 ssh-ed25519"));
    }

    #[test]
    fn knows_the_published_keys_of_large_hosts() {
        let shown = |host: &str| HostKeys::read(PUBLISHED, host).shown();
        assert_eq!(shown("github.com"), "SHA256:+DiY3wvvV6TuJJhbpZisF/zLDA0zPMSvHdkr4UvCOqU (ED25519)");
        assert_eq!(shown("[ssh.github.com]:443"), shown("github.com"));
        assert_eq!(shown("gitlab.com"), "SHA256:eUXGGm1YGsMAS7vkcx6JOJdOGHPem5gQp4taiCfCLB8 (ED25519)");
        assert_eq!(shown("[altssh.gitlab.com]:443"), shown("gitlab.com"));
        assert_eq!(shown("bitbucket.org"), "SHA256:ybgmFkzwOSotHTHLJgHO0QN8L0xErw6vd0VhFA9m3SM (ED25519)");
        assert_eq!(shown("vs-ssh.visualstudio.com"), "SHA256:ohD8VZEXGWo6Ez8GSEJQ9WpafgLFsOfLOtGGQCQo6Og (RSA)");
        assert_eq!(shown("example.org"), "");
    }

    /// A key that no line lists.
    const NOWHERE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIazEu89wgQZ4bqs3d63QSMzYVa0MuJ2e2gKTKqu+UUO";

    /// Generates a line similar to OpenSSH's, for the host `h` or a different one.
    fn line() -> impl Strategy<Value = String> {
        let markers = ["", "@cert-authority ", "@revoked ", "@other ", "#"];
        let hosts = [
            "h",
            "H,192.0.2.7",
            "*",
            "!h,*",
            "[h]:2222",
            "?",
            "|1|AAECAwQFBgcICQoLDA0ODxAREhM=|/vGHEQmgsSrggHW81/s0OAW0mAs=",
            "|1|AAEC|",
        ];
        let rsa = PUBLISHED.lines().find_map(|line| line.split_once(" ssh-rsa ")).expect("a key is RSA").1;
        let keys = [ED.to_owned(), OTHER.to_owned(), format!("ssh-rsa {rsa}"), format!("ssh-rsa {}", &ED[12..])];
        let select = proptest::sample::select::<&str>;
        let ends = vec!["", " somebody@h", "\r", "\t# a"];
        (select(markers.to_vec()), select(hosts.to_vec()), proptest::sample::select(keys.to_vec()), select(ends))
            .prop_map(|(marker, hosts, key, end)| format!("{marker}{hosts} {key}{end}"))
    }

    /// Generates positions in a text, each with a change: replace, remove or insert a byte.
    fn damage() -> impl Strategy<Value = Vec<(proptest::sample::Index, u8, u8)>> {
        proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 0..3_u8), 1..6)
    }

    fn damaged(mut bytes: Vec<u8>, damage: &[(proptest::sample::Index, u8, u8)]) -> Vec<u8> {
        for (place, byte, kind) in damage {
            if bytes.is_empty() {
                break;
            }
            let at = place.index(bytes.len());
            match kind {
                0 => bytes[at] = *byte,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, *byte),
            }
        }
        bytes
    }

    fn authority() -> PrivateKey {
        Ed25519Keypair::from_seed(&[7; 32]).into()
    }

    /// Returns a certificate of the host `h`.
    fn certificate() -> Certificate {
        let mut builder = certificate::Builder::new([9; 16], key(ED).key_data().clone(), 0, 2000).unwrap();
        builder.cert_type(CertType::Host).unwrap().valid_principal("h").unwrap();
        builder.sign(&authority()).unwrap()
    }

    proptest! {
        #[test]
        fn reads_any_text_without_panic(text in "(\\PC|\n| |@|\\||,|h){0,80}") {
            let _ = HostKeys::read(&text, "h");
        }

        #[test]
        fn damaged_lines_accept_no_other_key_and_harm_no_other_line(
            lines in proptest::collection::vec(line(), 0..6), damage in damage(), before: bool,
        ) {
            let text = damaged(lines.join("\n").into_bytes(), &damage);
            let text = String::from_utf8_lossy(&text);
            let judge = |text: &str, presented: &str| HostKeys::read(text, "h").judge(&key(presented));
            let nowhere = judge(&text, NOWHERE);
            prop_assert!(matches!(nowhere, HostKeyCheck::Unknown | HostKeyCheck::Changed), "{:?} {}", nowhere, text);
            let with = |line: &str| if before { format!("{line}\n{text}") } else { format!("{text}\n{line}") };
            prop_assert_eq!(judge(&with(&format!("h {NOWHERE}")), NOWHERE), HostKeyCheck::Accepted);
            prop_assert_eq!(judge(&with(&format!("@revoked h {ED}")), ED), HostKeyCheck::Revoked);
        }

        #[test]
        fn a_damaged_certificate_is_not_accepted(damage in damage(), as_text: bool) {
            static GOOD: LazyLock<Certificate> = LazyLock::new(certificate);
            static AUTHORITY: LazyLock<String> =
                LazyLock::new(|| format!("@cert-authority h {}", authority().public_key().to_openssh().unwrap()));
            let keys = HostKeys::read(&AUTHORITY, "h");
            let good = &*GOOD;
            prop_assert_eq!(keys.judge_certificate(good, "h", 1000), HostKeyCheck::Accepted);
            let read = if as_text {
                let text = damaged(good.to_openssh().unwrap().into_bytes(), &damage);
                Certificate::from_openssh(&String::from_utf8_lossy(&text))
            } else {
                Certificate::from_bytes(&damaged(good.to_bytes().unwrap(), &damage))
            };
            if let Ok(read) = read {
                let is_same = read.to_bytes().unwrap() == good.to_bytes().unwrap();
                let judged = keys.judge_certificate(&read, "h", 1000);
                prop_assert!(is_same || judged != HostKeyCheck::Accepted, "{:?}", read);
            }
        }

        #[test]
        fn a_pattern_costs_little(stars in 0usize..200) {
            let is_match = matches(&format!("{}b", "*a".repeat(stars)), &"a".repeat(250));
            prop_assert!(!is_match);
        }
    }
}
