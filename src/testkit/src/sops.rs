//! The official `sops` with age and OpenPGP keys. `sops` encrypts files for tests, and its decryption is the reference.

use std::{fs, path::Path, process::Command};

use serde_json::Value;
use tempfile::TempDir;

/// A directory in which `sops` finds only its own keys.
pub struct Sops {
    room: TempDir,
}

/// An age key.
#[derive(Clone)]
pub struct AgeKey {
    pub identity: String,
    pub recipient: String,
}

impl AgeKey {
    /// Creates a key.
    pub fn new() -> Self {
        let output = crate::isolated("age-keygen").output().expect("install age (apt-get install age)");
        let text = String::from_utf8(output.stdout).unwrap();
        let identity = text.lines().find(|line| line.starts_with("AGE-SECRET-KEY-1")).unwrap().to_owned();
        let recipient = text.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap().to_owned();
        Self { identity, recipient }
    }
}

impl Sops {
    pub fn new() -> Self {
        Self { room: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.room.path()
    }

    fn command(&self, program: &str) -> Command {
        let mut command = crate::isolated(program);
        let home = self.room.path().join("home");
        fs::create_dir_all(home.join("gnupg")).unwrap();
        command.env("HOME", &home);
        command.env("GNUPGHOME", home.join("gnupg")).env("SOPS_DISABLE_VERSION_CHECK", "1");
        command.current_dir(self.room.path());
        command
    }

    /// Returns the output of a program, which must succeed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = self.command(program).args(arguments).output();
        let output = output.unwrap_or_else(|error| panic!("{program}: {error}; .ci/test installs it"));
        assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Encrypts a string as the content of a file with this name.
    pub fn encrypt(&self, name: &str, text: &str, arguments: &[&str]) -> String {
        fs::write(self.room.path().join(name), text).unwrap();
        self.run("sops", &[&["--encrypt"], arguments, &[name]].concat())
    }

    /// Decrypts a file with `sops` and these identities.
    pub fn decrypt(&self, name: &str, text: &str, keys: &[&AgeKey]) -> Result<String, i32> {
        fs::write(self.room.path().join(name), text).unwrap();
        let keys: Vec<&str> = keys.iter().map(|key| key.identity.as_str()).collect();
        let mut command = self.command("sops");
        let output = command.env("SOPS_AGE_KEY", keys.join("\n")).args(["--decrypt", name]).output().unwrap();
        match output.status.code() {
            Some(0) => Ok(String::from_utf8(output.stdout).unwrap()),
            code => Err(code.unwrap_or(-1)),
        }
    }

    /// Decrypts a file to documents.
    pub fn documents(&self, name: &str, text: &str, keys: &[&AgeKey]) -> Vec<Value> {
        let plain = self.decrypt(name, text, keys).unwrap();
        plain.split("\n---\n").map(|document| serde_yaml::from_str(document).unwrap()).collect()
    }

    /// Creates an OpenPGP key. Returns its fingerprint, and the private key without a passphrase.
    pub fn gpg_key(&self, algorithm: &str) -> (String, String) {
        let home = self.room.path().join("home/gnupg");
        fs::create_dir_all(&home).unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        }
        let batch = ["--batch", "--pinentry-mode", "loopback", "--passphrase", ""];
        let name = format!("{algorithm} <sops@example.com>");
        self.run("gpg", &[&batch[..], &["--quick-generate-key", &name, algorithm, "default", "never"]].concat());
        let listed = self.run("gpg", &["--with-colons", "--list-keys", &name]);
        let fingerprint = listed.lines().find_map(|line| line.strip_prefix("fpr:::::::::")).unwrap();
        let fingerprint = fingerprint.trim_end_matches(':').to_owned();
        if algorithm.starts_with("rsa") {
            self.run("gpg", &[&batch[..], &["--quick-add-key", &fingerprint, algorithm, "encr"]].concat());
        }
        let private = self.run("gpg", &[&batch[..], &["--armor", "--export-secret-keys", &fingerprint]].concat());
        (fingerprint, private)
    }
}

impl Drop for Sops {
    fn drop(&mut self) {
        // Stops the agent that gpg started.
        let _ = self.command("gpgconf").args(["--kill", "all"]).status();
    }
}
