//! Repositories over SSH, with OpenSSH's server and keys from `ssh-keygen` and `openssl`.

use std::fs;

use k8s_openapi::ByteString;
use mainstay_api::git_repository::{AuthType, RepositoryAuth};
use mainstay_git::{SharedHostKeys, access};

use super::*;
use mainstay_testkit::ssh_server::{SshServer, USER, fingerprint, generate};

const ALL: &[&str] = &["ed25519", "ecdsa", "rsa"];

/// A repository behind an SSH server, a source, and a directory for keys.
pub(super) struct SshBench {
    pub(super) origin: Origin,
    pub(super) server: SshServer,
    pub(super) source: Source,
    room: TempDir,
}

impl SshBench {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(adjust: impl FnOnce(&mut Settings)) -> Self {
        let origin = small();
        let server = SshServer::start(origin.root()).await;
        Self::of(origin, server, adjust)
    }

    fn of(origin: Origin, server: SshServer, adjust: impl FnOnce(&mut Settings)) -> Self {
        let room = tempfile::tempdir().unwrap();
        let mut settings = settings(&room.path().join("mirrors"));
        adjust(&mut settings);
        Self { origin, server, source: Source::new(settings), room }
    }

    /// Creates a key pair that the server accepts, and returns the private key.
    pub(super) fn key(&self, name: &str, kind: &str, more: &[&str]) -> String {
        let path = self.room.path().join(name);
        generate(&path, kind, more);
        self.server.authorize(&fs::read_to_string(path.with_extension("pub")).unwrap());
        fs::read_to_string(path).unwrap()
    }

    /// Returns the path of a private key. The public key is beside it with `.pub`.
    pub(super) fn path(&self, name: &str) -> std::path::PathBuf {
        self.room.path().join(name)
    }

    fn fingerprint(&self, name: &str) -> String {
        fingerprint(&self.room.path().join(name).with_extension("pub"))
    }

    /// Returns the remote with the Secret's data, or the error.
    pub(super) fn try_remote(url: &str, data: &[(&str, &str)]) -> Result<Remote, Error> {
        let data = data.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect();
        let auth = RepositoryAuth { kind: AuthType::Key, secret_name: "git".into() };
        Ok(Remote::new(RemoteUrl::parse(url)?, access(Some(&auth), Some(&data))?.credentials))
    }

    pub(super) fn remote(&self, data: &[(&str, &str)]) -> Remote {
        let known = self.server.known_hosts(ALL);
        let known = [("known_hosts", &*known)];
        Self::try_remote(&self.server.url(NAME), &[data, &known].concat()).unwrap()
    }

    /// Fetches the branch. Returns `good`, or class and text without the attempt.
    pub(super) async fn outcome(&self, remote: &Remote) -> String {
        match sync(&self.source, remote, "main").await {
            Ok(snapshot) => {
                assert_eq!(files(&snapshot, "/").await.len(), 2);
                "good".to_owned()
            }
            Err(error) => {
                assert!(chain(&error).starts_with("look up main at "), "{}", chain(&error));
                format!("{:?}: {}", error.class(), error.fault())
            }
        }
    }
}

#[tokio::test]
async fn every_kind_of_key_opens_both_forms_of_address() {
    let origin = small();
    let server = SshServer::start_on_port_22(origin.root()).await;
    let bench = SshBench::of(origin, server, |_| {});
    let known = bench.server.known_hosts(ALL);
    let kinds: [(&str, &str, &[&str]); 6] = [
        ("ed25519", "ed25519", &[]),
        ("p256", "ecdsa", &["-b", "256"]),
        ("p384", "ecdsa", &["-b", "384"]),
        ("p521", "ecdsa", &["-b", "521"]),
        ("rsa", "rsa", &[]),
        ("passphrase", "ed25519", &["-N", "correct horse"]),
    ];
    for (name, kind, more) in kinds {
        let key = bench.key(name, kind, more);
        for url in [bench.server.scp(NAME), bench.server.url(NAME).replace(":22/", "/")] {
            let secret = [("key", &*key), ("password", "correct horse\n"), ("known_hosts", &known)];
            let remote = SshBench::try_remote(&url, &secret).unwrap();
            assert_eq!(bench.outcome(&remote).await, "good", "{name} {url}");
        }
    }
}

#[tokio::test]
async fn a_key_is_read_in_every_usual_form_and_place() {
    let bench = SshBench::new().await;
    let converted = |name: &str, arguments: &[&str]| {
        let path = bench.room.path().join(name);
        let made = mainstay_testkit::isolated("openssl").args(arguments).arg("-in").arg(&path).output();
        let made = made.expect("`openssl` is installed (apt-get install openssl)");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap()
    };
    let rsa = bench.key("rsa", "rsa", &["-m", "PEM", "-b", "2048"]);
    assert!(rsa.starts_with("-----BEGIN RSA PRIVATE KEY"));
    let sec1 = bench.key("sec1", "ecdsa", &["-m", "PEM"]);
    assert!(sec1.starts_with("-----BEGIN EC PRIVATE KEY"));
    let legacy = bench.key("legacy", "rsa", &["-m", "PEM", "-N", "pass phrase"]);
    assert!(legacy.contains("Proc-Type: 4,ENCRYPTED"));
    let pkcs8 = bench.key("pkcs8", "ecdsa", &["-m", "PKCS8"]);
    let encrypted = bench.key("encrypted", "rsa", &["-m", "PKCS8", "-N", "pass phrase"]);
    assert!(encrypted.starts_with("-----BEGIN ENCRYPTED PRIVATE KEY"));
    let scrypt = converted("rsa", &["pkcs8", "-topk8", "-scrypt", "-passout", "pass:pass phrase"]);
    let openssh = bench.key("openssh", "ed25519", &[]);
    let indented = openssh.lines().map(|line| format!("  {line}\r\n")).collect::<Vec<_>>().concat();
    let forms =
        [&rsa, &converted("rsa", &["pkcs8", "-topk8", "-nocrypt"]), &sec1, &legacy, &pkcs8, &encrypted, &scrypt];
    for form in forms {
        let remote = bench.remote(&[("key", form), ("password", "pass phrase")]);
        assert_eq!(bench.outcome(&remote).await, "good", "{}", form.lines().next().unwrap());
    }
    for (field, key) in [("ssh-privatekey", &openssh), ("identity", &openssh), ("key", &indented)] {
        // An unnecessary passphrase is ignored.
        let remote = bench.remote(&[(field, key), ("password", "unused")]);
        assert_eq!(bench.outcome(&remote).await, "good", "{field}");
    }
}

#[tokio::test]
async fn reports_an_invalid_key() {
    let bench = SshBench::new().await;
    let (good, locked) = (bench.key("good", "ed25519", &[]), bench.key("locked", "ed25519", &["-N", "right"]));
    let url = bench.server.url(NAME);
    let missing = SshBench::try_remote(&url, &[("password", "x")]).unwrap_err();
    let text = "missing field key: the Secret needs the private SSH key there (or under ssh-privatekey or identity)";
    assert_eq!((missing.class(), missing.fault().to_string()), (Class::Invalid, text.to_owned()));

    let check = async |data: &[(&str, &str)], expected: &str| {
        let outcome = bench.outcome(&bench.remote(data)).await;
        assert_eq!(outcome, expected);
    };
    let unreadable = |why: &str| format!("Invalid: the private key under key of the Secret cannot be read: {why}");
    let no_key = "it must be a private key in OpenSSH, PEM or PKCS#8 format (which begins with `-----BEGIN`)";
    check(&[("key", "hunter2")], &unreadable(no_key)).await;
    let damaged = "it is damaged; copy the whole file, with its first and last line";
    check(&[("key", &good[..good.len() / 2])], &unreadable(damaged)).await;
    let public = fs::read_to_string(bench.room.path().join("good.pub")).unwrap();
    let half = "it is the public key; the private key is in the file without `.pub`";
    check(&[("key", &public)], &unreadable(half)).await;
    let absent = "Invalid: the private key is encrypted: put its passphrase into the Secret under password";
    check(&[("key", &locked)], absent).await;
    check(&[("key", &locked), ("password", "")], absent).await;
    let wrong = "Invalid: the passphrase under password of the Secret does not open the private key";
    check(&[("key", &locked), ("password", "wrong")], wrong).await;
    let small = bench.key("small", "rsa", &["-b", "1024"]);
    check(&[("key", &small)], &unreadable("an RSA key must have 2048 to 8192 bits; generate an ed25519 key")).await;
    assert_eq!(bench.server.take_connections(), 0, "nobody is asked with a key that does not read");

    bench.server.authorize_nobody();
    let refused = format!(
        "Denied: the server does not accept the key {} for the user {}: add its public half to the repository as a \
         deploy \
         key, or correct the key in the Secret",
        bench.fingerprint("good"),
        USER,
    );
    check(&[("key", &good)], &refused).await;
}

#[tokio::test]
async fn a_server_that_wants_more_than_the_key_is_reported_as_such() {
    let bench = SshBench::new().await;
    let key = bench.key("key", "ed25519", &[]);
    bench.server.want_two_keys();
    let expected = format!(
        "Denied: the server accepts the key {}, but requires a second factor (publickey): allow the key alone for this \
         repository",
        bench.fingerprint("key"),
    );
    assert_eq!(bench.outcome(&bench.remote(&[("key", &key)])).await, expected);
}

#[tokio::test]
async fn a_key_is_opened_once_for_all_remotes_and_attempts_and_forgotten_with_the_last() {
    let mut bench = SshBench::new().await;
    let locked = bench.key("locked", "ed25519", &["-N", "right"]);
    let wrong = bench.remote(&[("key", &locked), ("password", "wrong")]);
    for _ in 0..3 {
        let expected = "Invalid: the passphrase under password of the Secret does not open the private key";
        assert_eq!(bench.outcome(&wrong).await, expected);
    }
    assert_eq!(bench.source.traffic().keys, 1, "that it does not open is remembered");
    bench.origin.file("a.yaml", "a: 2\n").commit("second");
    let right = bench.remote(&[("key", &locked), ("password", "right")]);
    let mut same = right.clone();
    same.url = RemoteUrl::parse(&bench.server.url(&format!("./{NAME}"))).unwrap();
    let consumers = ["one", "two"].map(|name| Consumer::new(ConsumerKind::GitSync, "default", name));
    for (consumer, remote) in consumers.iter().zip([&right, &same]) {
        bench.source.set_remote(consumer, Some(remote));
        assert_eq!(bench.outcome(remote).await, "good");
    }
    assert_eq!(bench.source.traffic().keys, 2);
    bench.source.set_remote(&consumers[0], None);
    assert_eq!(bench.outcome(&same).await, "good");
    assert_eq!(bench.source.traffic().keys, 2, "somebody still uses it");
    bench.source.set_remote(&consumers[1], None);
    assert_eq!(bench.outcome(&same).await, "good");
    assert_eq!(bench.source.traffic().keys, 3, "nobody used it any more");
}

#[tokio::test]
async fn known_hosts_that_are_too_long_are_not_read_in_part() {
    let bench = SshBench::new().await;
    let key = bench.key("key", "ed25519", &[]);
    let known = bench.server.known_hosts(ALL);
    let long = format!("{known}{}@revoked * {}\n", "# a comment\n".repeat(30_000), bench.server.host_key("ed25519"));
    let error = SshBench::try_remote(&bench.server.url(NAME), &[("key", &key), ("known_hosts", &long)]).unwrap_err();
    let text = "known_hosts of the Secret is longer than 256 KiB; put only the lines of the repository's host there";
    assert_eq!((error.class(), error.fault().to_string()), (Class::Invalid, text.to_owned()));
}

#[tokio::test]
async fn a_host_is_trusted_only_by_a_key_that_is_known() {
    let bench = SshBench::new().await;
    let key = bench.key("key", "ed25519", &[]);
    let url = bench.server.url(NAME);
    let check = async |known: &str, expected: &str| {
        let remote = SshBench::try_remote(&url, &[("key", &key), ("known_hosts", known)]).unwrap();
        assert_eq!(bench.outcome(&remote).await, expected, "{known}");
    };
    let name = bench.server.name();
    let unknown = format!(
        "Denied: the host key of {name} is not known: it presented {}. Compare that with what its operator publishes, \
         then \
         add it to the Secret under known_hosts (ssh-keyscan -p {} 127.0.0.1 prints the lines)",
        bench.server.fingerprint("ed25519"),
        bench.server.port(),
    );
    check("", &unknown).await;
    check(&format!("example.org {}\n", bench.server.host_key("ed25519")), &unknown).await;
    check(&format!("127.0.0.1 {}\n", bench.server.host_key("ed25519")), &unknown).await;
    // The client requests the known kind of key.
    for kind in ALL {
        check(&bench.server.known_hosts(&[kind]), "good").await;
    }
    let hashed = bench.room.path().join("hashed");
    fs::write(&hashed, bench.server.known_hosts(ALL)).unwrap();
    let made = mainstay_testkit::isolated("ssh-keygen").args(["-q", "-H", "-f"]).arg(&hashed).status().unwrap();
    assert!(made.success());
    let hashed = fs::read_to_string(hashed).unwrap();
    assert!(hashed.starts_with("|1|"), "{hashed}");
    check(&hashed, "good").await;

    let revoked = format!("{}@revoked * {}\n", bench.server.known_hosts(ALL), bench.server.host_key("ed25519"));
    let expected = format!(
        "Denied: the host key of {name} is revoked: it presented {}, which known_hosts marks as @revoked",
        bench.server.fingerprint("ed25519"),
    );
    check(&revoked, &expected).await;
}

#[tokio::test]
async fn a_host_key_that_changed_is_refused_until_the_secret_says_so_too() {
    let bench = SshBench::new().await;
    let key = bench.key("key", "ed25519", &[]);
    let url = bench.server.url(NAME);
    let with = |known: &str| SshBench::try_remote(&url, &[("key", &key), ("known_hosts", known)]).unwrap();
    let (known, old) = (bench.server.known_hosts(&["ed25519"]), bench.server.fingerprint("ed25519"));
    assert_eq!(bench.outcome(&with(&known)).await, "good");
    // Another key of the same kind, and another kind.
    for kind in ["ed25519", "rsa"] {
        bench.server.rotate(&[kind]);
        let changed = format!(
            "Denied: the host key of {} has changed: it presented {}, known is {old} (from known_hosts of the Secret). \
             The connection may be intercepted, so nothing was sent; if its operator changed the key, put the new one \
             into the \
             Secret under known_hosts",
            bench.server.name(),
            bench.server.fingerprint(kind),
        );
        assert_eq!(bench.outcome(&with(&known)).await, changed);
        let both = format!("{known}{}", bench.server.known_hosts(&[kind]));
        assert_eq!(bench.outcome(&with(&both)).await, "good");
    }
}

#[tokio::test]
async fn reports_an_invalid_ssh_server() {
    let bench = SshBench::new().await;
    let key = bench.key("key", "ed25519", &[]);
    let known = bench.server.known_hosts(ALL);
    let check = async |url: &str, expected: &str| {
        let remote = SshBench::try_remote(url, &[("key", &key), ("known_hosts", &known)]).unwrap();
        let outcome = bench.outcome(&remote).await;
        assert!(outcome.starts_with(expected), "{url}: {outcome}");
    };
    check("ssh://git@nowhere.invalid/x", "Unavailable: no connection: the name nowhere.invalid is not found (").await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check(&format!("ssh://git@{free}/x"), "Unavailable: no connection: Connection refused").await;
    let http = GitServer::start(bench.origin.root()).await;
    let address = http.base().replace("http://", "ssh://git@");
    check(&format!("{address}/x"), "Unavailable: the server ended the connection during the key exchange").await;
    let gone = bench.server.url("gone.git");
    let path = format!("{}/gone.git", bench.origin.root().display());
    let expected = format!(
        "Invalid: the server has no repository there (fatal: '{path}' does not appear to be a git repository); check \
         the \
         address, and that the key may read it"
    );
    check(&gone, &expected).await;
    let nobody = bench.server.url(NAME).replace(&format!("{USER}@"), "nobody-here@");
    check(&nobody, "Denied: the server does not accept the key SHA256:").await;
}

#[tokio::test]
async fn an_unchanged_branch_costs_few_bytes_and_a_server_of_version_zero_serves_as_well() {
    let mut bench = SshBench::new().await;
    let key = bench.key("key", "ed25519", &[]);
    for number in 0..2000 {
        bench.origin.tag(&format!("some-quite-long-name-of-a-tag-{number}"));
    }
    let remote = bench.remote(&[("key", &key)]);
    assert_eq!(bench.outcome(&remote).await, "good");
    bench.server.take_bytes();
    let main = Reference::parse("main").unwrap();
    bench.source.lookup(&remote, &main, NOW).await.unwrap();
    let small = bench.server.take_bytes();
    assert!(small < 10_000, "{small} bytes");

    bench.server.speak_version_zero();
    bench.source.lookup(&remote, &main, NOW).await.unwrap();
    let large = bench.server.take_bytes();
    assert!(large > 100_000, "{large} bytes: all references are told");
    let second = bench.origin.file("a.yaml", "a: 2\n").commit("second");
    let snapshot = sync(&bench.source, &remote, "main").await.unwrap();
    assert_eq!((snapshot.commit.to_string(), files(&snapshot, "/").await.len()), (second.clone(), 2));
    // A commit by its ID, which such a server serves only with its branch.
    let first = bench.origin.orphan("third");
    let pinned = sync(&bench.source, &remote, &first).await.unwrap();
    assert_eq!(pinned.commit.to_string(), first);
}

#[tokio::test]
async fn an_empty_repository_is_empty_over_ssh_too() {
    let origin = Origin::new();
    let server = SshServer::start(origin.root()).await;
    let bench = SshBench::of(origin, server, |_| {});
    let key = bench.key("key", "ed25519", &[]);
    let remote = bench.remote(&[("key", &key)]);
    let empty = "Invalid: there is no such branch or tag; the repository is empty";
    assert_eq!(bench.outcome(&remote).await, empty);
    bench.server.speak_version_zero();
    assert_eq!(bench.outcome(&remote).await, empty);
}

#[tokio::test]
async fn the_host_keys_of_a_build_are_waited_for_until_they_are_known() {
    let mirrors = tempfile::tempdir().unwrap();
    let source = Source::new(settings(mirrors.path()));
    let url = RemoteUrl::parse("git@git.example.org:shop.git").unwrap();
    source.set_host_keys(SharedHostKeys::Unknown(None));
    let keys = source.host_keys_of(&url, &Credentials::Anonymous);
    tokio::pin!(keys);
    assert!(futures::poll!(&mut keys).is_pending(), "a build without them would trust other keys");
    let line = "git.example.org ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL0EGFZvQ5IlMnvgEyG4dRAiFKfTTfHNN3vzvpRXjmGS";
    source.set_host_keys(SharedHostKeys::Lines(line.into()));
    assert_eq!(keys.await, Ok(Some(vec![line.to_owned()])));

    source.set_host_keys(SharedHostKeys::Unknown(Some("forbidden".to_owned())));
    assert_eq!(source.host_keys_of(&url, &Credentials::Anonymous).await, Err("forbidden".to_owned()));
    let other = RemoteUrl::parse("https://git.example.org/shop.git").unwrap();
    assert_eq!(source.host_keys_of(&other, &Credentials::Anonymous).await, Ok(None));
}
