//! Keys for signing commits with `ssh-keygen` and `gpg`. The signatures of these tools are the reference for tests.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tempfile::TempDir;

/// An SSH key.
pub struct SshKey {
    room: TempDir,
}

impl SshKey {
    /// Creates a key of this type, for example `ed25519` or `rsa`.
    pub fn new(kind: &str) -> Self {
        let room = tempfile::tempdir().unwrap();
        let mut command = crate::isolated("ssh-keygen");
        command.args(["-q", "-N", "", "-C", "alice@example.com", "-t", kind, "-f"]).arg(room.path().join("key"));
        if kind == "rsa" {
            command.args(["-b", "2048"]);
        }
        run(&mut command, b"");
        Self { room }
    }

    fn path(&self) -> PathBuf {
        self.room.path().join("key")
    }

    /// Returns the line with the public key.
    pub fn public(&self) -> String {
        fs::read_to_string(self.path().with_extension("pub")).unwrap().trim().to_owned()
    }

    /// Returns the private key.
    pub fn private(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }

    /// Returns the key's fingerprint, `SHA256:…`.
    pub fn fingerprint(&self) -> String {
        let shown = run(crate::isolated("ssh-keygen").args(["-l", "-E", "sha256", "-f"]).arg(self.path()), b"");
        shown.split(' ').nth(1).unwrap().to_owned()
    }

    /// Returns a signature by the key for Git.
    pub fn sign(&self, payload: &str) -> String {
        self.sign_for("git", payload)
    }

    /// Returns a signature by the key for this namespace of SSH signatures.
    pub fn sign_for(&self, namespace: &str, payload: &str) -> String {
        let mut command = crate::isolated("ssh-keygen");
        command.args(["-q", "-Y", "sign", "-n", namespace, "-f"]).arg(self.path());
        run(&mut command, payload.as_bytes())
    }
}

/// A `gpg` home with one key.
pub struct Gpg {
    home: TempDir,
}

impl Drop for Gpg {
    fn drop(&mut self) {
        // Stops the agent that gpg started.
        let _ = crate::isolated("gpgconf").arg("--homedir").arg(self.home.path()).args(["--kill", "all"]).status();
    }
}

impl Gpg {
    /// Creates a key with this algorithm and lifetime.
    pub fn new(algorithm: &str, expire: &str) -> Self {
        let gpg = Self { home: tempfile::tempdir().unwrap() };
        gpg.run(&["--quick-generate-key", "Alice <alice@example.com>", algorithm, "sign,cert", expire], b"");
        gpg
    }

    /// Creates a key with this creation time, for example `20200101T000000`, and lifetime.
    pub fn past(time: &str, expire: &str) -> Self {
        let gpg = Self { home: tempfile::tempdir().unwrap() };
        let person = "Alice <alice@example.com>";
        let make = ["--faked-system-time", time, "--quick-generate-key", person, "ed25519", "sign,cert", expire];
        gpg.run(&make, b"");
        gpg
    }

    /// Creates a key that is protected with a passphrase.
    pub fn protected(passphrase: &str) -> Self {
        let gpg = Self { home: tempfile::tempdir().unwrap() };
        // A key that opens fast, also without optimisation.
        fs::write(gpg.home.path().join("gpg-agent.conf"), "s2k-count 65536\n").unwrap();
        let make = ["--quick-generate-key", "Alice <alice@example.com>", "ed25519", "sign,cert", "never"];
        gpg.run(&[&["--passphrase", passphrase][..], &make[..]].concat(), b"");
        gpg
    }

    /// Returns the private key. The passphrase is empty for a key without one.
    pub fn private(&self, passphrase: &str) -> String {
        self.run(&["--passphrase", passphrase, "--armor", "--export-secret-keys"], b"")
    }

    /// Returns whether a detached signature by the key is good.
    pub fn verifies(&self, payload: &str, signature: &str) -> bool {
        let path = self.home.path().join("signature.asc");
        fs::write(&path, signature).unwrap();
        let mut command = crate::isolated("gpg");
        command.arg("--homedir").arg(self.home.path()).args(["--batch", "--no-tty", "--verify"]).arg(path).arg("-");
        output(&mut command, payload.as_bytes()).status.success()
    }

    /// Returns a detached signature without armour.
    pub fn binary_signature(&self, payload: &str) -> Vec<u8> {
        let armored = self.sign(payload);
        let lines = armored.lines().skip_while(|line| !line.is_empty()).skip(1);
        let lines = lines.take_while(|line| !line.starts_with('=') && !line.starts_with('-'));
        BASE64_STANDARD.decode(lines.collect::<String>()).unwrap()
    }

    /// Returns these packets in the armour of a signature, without a checksum.
    pub fn armored(packets: &[u8]) -> String {
        let encoded = BASE64_STANDARD.encode(packets);
        let lines: Vec<_> = encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN PGP SIGNATURE-----\n\n{}\n-----END PGP SIGNATURE-----\n", lines.join("\n"))
    }

    /// Runs gpg without a terminal.
    pub fn run(&self, arguments: &[&str], input: &[u8]) -> String {
        let mut command = crate::isolated("gpg");
        command.arg("--homedir").arg(self.home.path());
        command.args(["--batch", "--no-tty", "--yes", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]);
        run(command.args(arguments), input)
    }

    /// Returns the fingerprints of the keys, the primary key first.
    pub fn fingerprints(&self) -> Vec<String> {
        let listed = self.run(&["--with-colons", "--list-keys"], b"");
        let lines = listed.lines().filter_map(|line| line.strip_prefix("fpr:")?.split(':').nth(8));
        lines.map(str::to_owned).collect()
    }

    /// Returns the public key.
    pub fn public(&self) -> String {
        self.run(&["--armor", "--export"], b"")
    }

    /// Returns a detached signature.
    pub fn sign(&self, payload: &str) -> String {
        self.sign_with(&[], payload)
    }

    /// Returns a detached signature with these options of gpg.
    pub fn sign_with(&self, options: &[&str], payload: &str) -> String {
        let sign = ["--armor", "--detach-sign"];
        self.run(&[options, &sign[..]].concat(), payload.as_bytes())
    }

    /// Adds a subkey for this use and returns its fingerprint.
    pub fn add_subkey(&self, usage: &str, expire: &str) -> String {
        let primary = self.fingerprints().remove(0);
        self.run(&["--quick-add-key", &primary, "ed25519", usage, expire], b"");
        self.fingerprints().pop().unwrap()
    }

    /// Revokes the key and returns the revocation certificate.
    pub fn revoke(&self) -> String {
        let primary = self.fingerprints().remove(0);
        let path = self.home.path().join("openpgp-revocs.d").join(format!("{primary}.rev"));
        // gpg puts a colon before the armour, to prevent an accidental revocation.
        let revocation = fs::read_to_string(path).unwrap().replace(":-----BEGIN", "-----BEGIN");
        self.run(&["--import"], revocation.as_bytes());
        revocation[revocation.find("-----BEGIN").unwrap()..].to_owned()
    }
}

/// Runs a tool to its end, which must be a success.
#[track_caller]
fn run(command: &mut Command, input: &[u8]) -> String {
    let output = output(command, input);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a tool to its end.
#[track_caller]
fn output(command: &mut Command, input: &[u8]) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("gpg and ssh-keygen are there: apt-get install gnupg openssh-client");
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}
