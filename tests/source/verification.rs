//! Commits that must be signed: accepted and refused signatures of `gpg` and `ssh-keygen`.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use mainstay_api::git_repository::{Verify, VerifyMode, VerifySecretRef};
use mainstay_git::{Credentials, Reference, Remote, RemoteUrl, Settings, Source, Verification};
use mainstay_object::failure::chain;
use serde_json::{Value, json};

use mainstay_testkit::{
    git_server::GitServer,
    remote::{NAME, Remote as Origin},
    signers::{Gpg, SshKey},
    world::{World, config_map},
};

/// Creates a GitRepository `web` whose commits must be signed with the keys in the Secret `keys`.
fn web(world: &World, server: &GitServer, mode: &str) {
    world.repository("web", &server.url(NAME));
    let verify = json!({"verify": {"mode": mode, "secretRef": {"name": "keys"}}});
    world.edit("serverless.kyma-project.io/v1alpha1", "gitrepositories", "web", json!({"spec": verify}));
}

async fn world(mode: &str) -> (World, GitServer) {
    let world = World::with_functions().await;
    let server = GitServer::start(world.remote.root()).await;
    web(&world, &server, mode);
    (world, server)
}

fn follow(world: &World, spec: Value) {
    let mut whole = json!({"gitRepository": "web", "baseDir": "/apps"});
    json_patch::merge(&mut whole, &spec);
    world.sync("demo", whole);
}

/// Returns the message of the Ready condition after the commit and the address.
fn why(world: &World) -> String {
    let said = world.condition("demo", "Ready");
    let (_, why) = said.split_once("repo.git: ").unwrap_or_else(|| panic!("{said}"));
    why.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_signed_commits_are_applied_and_what_was_applied_stays_enforced() {
    let (mut world, _server) = world("HEAD").await;
    let (alice, mallory) = (SshKey::new("ed25519"), SshKey::new("ed25519"));
    world.set_secret("keys", json!({"alice.sshpub": alice.public()}));
    let one = world.remote.file("apps/a.yaml", config_map("a", "1")).signed("one", |raw| alice.sign(raw));
    follow(&world, json!({}));
    world.start();
    world.ready_at("demo", &one).await;

    world.remote.file("apps/a.yaml", config_map("a", "2")).remove("apps/b.yaml");
    let two = world.try_commit("demo", "two").await;
    world.condition_is("demo", "Ready", &format!("False VerificationFailed: verify commit {two} of http")).await;
    assert_eq!(why(&world), "it is not signed; sign it with a key that is in Secret keys");
    assert!(world.condition("demo", "Stalled").starts_with("True VerificationFailed"));
    assert_eq!((world.data("a"), world.status("demo")["attemptedCommit"].clone()), ("1".into(), json!(two)));

    // A new agent keeps the applied objects too.
    world.kill().await;
    world.start();
    world.condition_is("demo", "Ready", "False VerificationFailed").await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "by hand"}}));
    world.until("what was applied is enforced", |w| w.data("a") == "1").await;

    world.remote.file("apps/a.yaml", config_map("a", "3")).signed("three", |raw| mallory.sign(raw));
    world.ask("demo").await;
    let unknown = format!(
        "it is signed with SSH key {}, which is not in Secret keys; add that key if you trust it",
        mallory.fingerprint()
    );
    world.until("the key is named", |w| w.condition("demo", "Ready").ends_with(&unknown)).await;
    assert_eq!(world.data("a"), "1");

    // The signature of another commit.
    let raw = world.remote.raw(&one);
    world.remote.file("apps/a.yaml", config_map("a", "4")).signed("four", |_| {
        let (_, signature) = raw.split_once("gpgsig ").unwrap();
        signature.split_once("\n\n").unwrap().0.replace("\n ", "\n")
    });
    world.ask("demo").await;
    let wrong = format!("its signature by SSH key {} was made for something else, or was altered", alice.fingerprint());
    world.until("it is refused", |w| w.condition("demo", "Ready").ends_with(&wrong)).await;

    let five = world.remote.file("apps/a.yaml", config_map("a", "5")).signed("five", |raw| alice.sign(raw));
    world.ask("demo").await;
    world.ready_at("demo", &five).await;
    assert_eq!(world.data("a"), "5");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_secret_acts_at_once_in_both_directions() {
    let (mut world, _server) = world("HEAD").await;
    let (alice, bob) = (SshKey::new("ed25519"), Gpg::new("ed25519", "never"));
    let one = world.remote.file("apps/a.yaml", config_map("a", "1")).signed("one", |raw| bob.sign(raw));
    follow(&world, json!({}));
    world.start();
    let missing = "False SecretNotFound: Secret keys with the public keys for signature verification does not exist \
                   in this namespace";
    world.condition_is("demo", "Ready", missing).await;
    world.set_secret("keys", json!({}));
    let empty = "Secret keys holds no public key; put OpenPGP keys, SSH keys or an allowed_signers file into it, under any name";
    world.until("it is told", |w| w.condition("demo", "Ready").ends_with(empty)).await;
    world.set_secret("keys", json!({"alice": "ssh-ed25519 hello"}));
    world.until("it is told", |w| w.condition("demo", "Ready").contains("value alice of Secret keys: line 1: ")).await;
    world.set_secret("keys", json!({"alice": alice.public()}));
    let fingerprint = bob.fingerprints().remove(0);
    let unknown = format!(
        "it is signed with OpenPGP key {fingerprint}, which is not in Secret keys; add that key if you trust it"
    );
    world.until("the key is named", |w| w.condition("demo", "Ready").ends_with(&unknown)).await;
    world.set_secret("keys", json!({"bob.asc": bob.public()}));
    world.ready_at("demo", &one).await;
    // A key is removed from the Secret. No objects are applied or deleted any more.
    world.set_secret("keys", json!({"bob.asc": alice.public()}));
    world.until("it is told", |w| w.condition("demo", "Ready").ends_with(&unknown)).await;
    assert_eq!(world.data("a"), "1");
    world.kill().await;
    world.delete("v1", "secrets", "keys");
    world.start();
    world.condition_is("demo", "Ready", missing).await;
    world.edit("v1", "configmaps", "a", json!({"data": {"key": "by hand"}}));
    world.until("what was applied is enforced", |w| w.data("a") == "1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_is_built_from_signed_commits_only() {
    let (mut world, _server) = world("HEAD").await;
    let alice = SshKey::new("ed25519");
    world.set_secret("keys", json!({"alice.sshpub": alice.public()}));
    world.remote.file("hello/handler.js", "1").file("hello/package.json", "{}").commit("one");
    world.start();
    world.git_function("hello", "/hello");
    world.edit_function("hello", json!({"spec": {"source": "web"}}));
    let head = world.remote.head();
    let unsigned =
        format!("False SourceUpdateFailed: Sources update failed: commit not trusted: verify commit {head} of ");
    world.says("hello", "ConfigurationReady", &unsigned).await;
    assert!(world.children("hello", mainstay_testkit::functions::JOBS).is_empty());
    let two = world.remote.file("hello/handler.js", "2").signed("two", |raw| alice.sign(raw));
    world.look();
    world.until_function("it is built", &|w: &World| w.function_status("hello")["commit"] == *two).await;
    // The same commit is refused after its key was removed from the trusted keys.
    world.set_secret("keys", json!({"alice.sshpub": SshKey::new("ed25519").public()}));
    let unknown = format!("SSH key {}, which is not in Secret keys", alice.fingerprint());
    world.until_function("it is told", &|w: &World| w.said("hello", "ConfigurationReady").contains(&unknown)).await;
}

/// Returns the contents of an armoured block.
fn packets(armored: &str) -> Vec<u8> {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    let lines = armored.lines().skip_while(|line| !line.trim().is_empty());
    let lines = lines.take_while(|line| !line.starts_with("-----") && !line.starts_with('='));
    BASE64_STANDARD.decode(lines.collect::<String>()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_expires_while_the_agent_runs_vouches_for_nothing_from_then_on() {
    let (mut world, _server) = world("HEAD").await;
    let alice = SshKey::new("ed25519");
    world.set_secret("keys", json!({"signers": format!("alice {}", alice.public())}));
    let one = world.remote.file("apps/a.yaml", config_map("a", "1")).signed("one", |raw| alice.sign(raw));
    follow(&world, json!({"interval": "1s"}));
    world.start();
    world.ready_at("demo", &one).await;
    // This time is usually long enough for another successful check, but the test does not rely on the check.
    let ends = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(8);
    let signer = format!("alice valid-before=\"{}Z\" {}", ends.strftime("%Y%m%d%H%M%S"), alice.public());
    world.set_secret("keys", json!({"signers": signer}));
    world.condition_is("demo", "Ready", "False VerificationFailed").await;
    assert!(why(&world).contains("which expired at"), "{}", why(&world));
    assert_eq!(world.data("a"), "1", "what was applied stays");
}

/// A remote on this disk, and its verification.
struct Judge {
    origin: Origin,
    source: Source,
    _mirrors: tempfile::TempDir,
}

impl Judge {
    fn new() -> Self {
        let mirrors = tempfile::tempdir().unwrap();
        let mut settings = Settings::new(mirrors.path());
        settings.allow_local = true;
        settings.proxy = mainstay_git::DefaultProxy::None;
        let mut origin = Origin::new();
        origin.file("a.yaml", "a: 1\n").commit("first");
        Self { origin, source: Source::new(settings), _mirrors: mirrors }
    }

    async fn says(&self, mode: VerifyMode, reference: &str, keys: &[&str]) -> String {
        self.says_by(mode, reference, keys.iter().map(|key| key.as_bytes().to_vec()).collect()).await
    }

    async fn says_by(&self, mode: VerifyMode, reference: &str, keys: Vec<Vec<u8>>) -> String {
        let secret_ref = VerifySecretRef { name: "keys".to_owned() };
        let numbered = keys.into_iter().enumerate();
        let data: BTreeMap<_, _> = numbered.map(|(at, key)| (format!("key-{at}"), ByteString(key))).collect();
        let verification = match Verification::new(Some(&Verify { mode, secret_ref }), Some(&data)) {
            Ok(verification) => verification,
            Err(error) => return chain(&error),
        };
        let url = RemoteUrl::parse(&self.origin.path().display().to_string()).unwrap();
        let remote = Remote { verification, ..Remote::new(url, Credentials::Anonymous) };
        let reference = Reference::parse(reference).unwrap();
        let found = self.source.lookup(&remote, &reference, std::time::Duration::ZERO).await.unwrap();
        match self.source.fetch(&remote, &found).await {
            Ok(_) => "good".to_owned(),
            Err(error) => chain(&error).split_once("repo.git: ").unwrap().1.to_owned(),
        }
    }

    /// Returns the result for a commit with this signature.
    async fn of(&mut self, keys: &[&str], sign: impl FnOnce(&str) -> String) -> String {
        self.origin.signed("signed", sign);
        self.says(VerifyMode::Head, "main", keys).await
    }
}

#[tokio::test]
async fn ssh_keys_of_every_type_sign_for_git_and_for_nothing_else() {
    let mut judge = Judge::new();
    for kind in ["ed25519", "ecdsa", "rsa"] {
        let key = SshKey::new(kind);
        let name = format!("SSH key {}", key.fingerprint());
        let public = key.public();
        assert_eq!(judge.of(&[&public], |raw| key.sign(raw)).await, "good", "{kind}");
        let other = SshKey::new("ed25519").public();
        assert_eq!(judge.of(&[&other, &format!("# team\n{other}\n\n{public}\n")], |raw| key.sign(raw)).await, "good");
        let file = judge.of(&[&public], |raw| key.sign_for("file", raw)).await;
        assert_eq!(
            file,
            "its signature is not usable: it was made for a purpose other than Git (`ssh-keygen -Y sign -n git`)"
        );
        assert_eq!(
            judge.of(&[&public], |raw| key.sign(&format!("{raw} "))).await,
            format!("its signature by {name} was made for something else, or was altered")
        );
    }
}

#[tokio::test]
async fn allowed_signers_may_narrow_purpose_and_time() {
    let mut judge = Judge::new();
    let key = SshKey::new("ed25519");
    let name = format!("SSH key {} (alice@example.com)", key.fingerprint());
    let public = key.public();
    let cases = [
        ("namespaces=\"git\"", "good".to_owned()),
        ("valid-after=\"20200101\",valid-before=\"20990101\"", "good".to_owned()),
        (
            "namespaces=\"file\"",
            format!("it is signed with {name}, which may not sign: its namespaces in the Secret do not include git"),
        ),
        ("valid-before=\"20240101\"", format!("it is signed with {name}, which expired at 2024-01-01T00:00:00Z")),
        (
            "valid-after=\"20990101Z\"",
            format!("it is signed with {name}, which is valid from 2099-01-01T00:00:00Z only"),
        ),
    ];
    for (options, expected) in cases {
        let line = format!("alice@example.com {options} {public}");
        assert_eq!(judge.of(&[&line], |raw| key.sign(raw)).await, expected, "{options}");
    }
    // One accepting line of two with the same key is enough.
    let both = format!("a@b valid-before=20240101 {public}\nc@d {public}");
    assert_eq!(judge.of(&[&both], |raw| key.sign(raw)).await, "good");
}

#[tokio::test]
async fn openpgp_keys_and_subkeys_sign_until_they_expire_or_are_revoked() {
    let mut judge = Judge::new();
    for algorithm in ["ed25519", "nistp256", "rsa2048"] {
        let gpg = Gpg::new(algorithm, "never");
        assert_eq!(judge.of(&[&gpg.public()], |raw| gpg.sign(raw)).await, "good", "{algorithm}");
        let name = format!("OpenPGP key {}", gpg.fingerprints()[0]);
        let wrong = format!("its signature by {name} was made for something else, or was altered");
        assert_eq!(judge.of(&[&gpg.public()], |raw| gpg.sign(&format!("{raw} "))).await, wrong);
    }

    // gpg refuses to sign with MD5, and with most keys also with SHA-1.
    let gpg = Gpg::new("rsa2048", "never");
    let weak = judge.of(&[&gpg.public()], |raw| gpg.sign_with(&["--digest-algo", "SHA1"], raw)).await;
    let name = format!("OpenPGP key {}", gpg.fingerprints()[0]);
    assert_eq!(weak, format!("its signature by {name} uses SHA1, which is too weak; use SHA-256 or SHA-512"));
    let gpg = Gpg::new("dsa2048", "never");
    let name = format!("OpenPGP key {}", gpg.fingerprints()[0]);
    let weak = judge.of(&[&gpg.public()], |raw| gpg.sign(raw)).await;
    assert_eq!(
        weak,
        format!("it is signed with {name}, which may not sign: its algorithm is too weak, or is not for signing")
    );

    let gpg = Gpg::new("ed25519", "never");
    let before = gpg.public();
    let subkey = gpg.add_subkey("sign", "never");
    let signature = |gpg: &Gpg, raw: &str| gpg.sign_with(&["--local-user", &format!("{subkey}!")], raw);
    assert_eq!(judge.of(&[&gpg.public()], |raw| signature(&gpg, raw)).await, "good");
    let unknown =
        format!("it is signed with OpenPGP key {subkey}, which is not in Secret keys; add that key if you trust it");
    assert_eq!(judge.of(&[&before], |raw| signature(&gpg, raw)).await, unknown);
    let trusted = gpg.public();
    let certificate = gpg.revoke();
    let name = format!("OpenPGP key {}", gpg.fingerprints()[0]);
    let revoked = format!("it is signed with {name}, which was revoked");
    // The commit was signed before the Secret contained the revocation.
    assert_eq!(judge.says(VerifyMode::Head, "main", &[&gpg.public()]).await, revoked);
    assert_eq!(judge.says(VerifyMode::Head, "main", &[&trusted]).await, "good");
    // An older copy of the key changes nothing, and a separate revocation certificate is not ignored.
    assert_eq!(judge.says(VerifyMode::Head, "main", &[&trusted, &gpg.public()]).await, revoked);
    assert_eq!(judge.says(VerifyMode::Head, "main", &[&gpg.public(), &trusted]).await, revoked);
    let unused = judge.says(VerifyMode::Head, "main", &[&trusted, &certificate]).await;
    assert!(unused.contains("holds no key; import a revocation certificate"), "{unused}");

    // In a binary file, the certificate is appended after the subkey's signatures.
    let binary = [packets(&trusted), packets(&certificate)].concat();
    assert_eq!(judge.says_by(VerifyMode::Head, "main", vec![packets(&trusted)]).await, "good");
    assert_eq!(judge.says_by(VerifyMode::Head, "main", vec![binary]).await, revoked);
    // Unknown packets may precede the certificate: an experimental packet (60), and a packet of an unknown critical
    // type (22).
    for unread in [&[0xfc, 3, 1, 2, 3][..], &[0xd6, 3, 1, 2, 3]] {
        let binary = [&*packets(&trusted), unread, &*packets(&certificate)].concat();
        let said = judge.says_by(VerifyMode::Head, "main", vec![binary]).await;
        assert!(said == revoked || said.contains("cannot be read"), "{unread:02x?}: {said}");
    }
    let binary = [&*packets(&trusted), &[0xfc, 3, 1, 2, 3], &*packets(&certificate)].concat();
    assert_eq!(judge.says_by(VerifyMode::Head, "main", vec![binary]).await, revoked);

    // A key of 2020 that was valid for one year, and a signature of 2020.
    let gpg = Gpg::past("20200101T000000", "365d");
    let said = judge.of(&[&gpg.public()], |raw| gpg.sign_with(&["--faked-system-time", "20200601T000000"], raw)).await;
    let name = format!("OpenPGP key {}", gpg.fingerprints()[0]);
    assert_eq!(said, format!("it is signed with {name}, which expired at 2020-12-31T00:00:00Z"));
    // A signature of 2099.
    let gpg = Gpg::new("ed25519", "never");
    let said = judge.of(&[&gpg.public()], |raw| gpg.sign_with(&["--faked-system-time", "20990601T000000"], raw)).await;
    assert_eq!(said, "its signature is not usable: it was made in the future");
}

#[tokio::test]
async fn tags_are_verified_by_their_own_signature_and_name() {
    let mut judge = Judge::new();
    let key = SshKey::new("ed25519");
    let keys = [&*key.public()];
    judge.origin.signed("one", |raw| key.sign(raw));
    judge
        .origin
        .signed_tag("v1.0.0", |raw| key.sign(raw))
        .signed_tag("v1", |raw| key.sign(raw))
        .tag("light")
        .annotated_tag("bare");
    judge.origin.commit("unsigned");
    judge.origin.signed_tag("v2", |raw| key.sign(raw)).copy_tag("v1", "v3");
    let cases = [
        (VerifyMode::Tag, "v1", "good"),
        (VerifyMode::TagAndHead, "v1", "good"),
        (VerifyMode::Tag, "semver:1.x", "good"),
        (VerifyMode::Tag, "v2", "good"),
        (VerifyMode::TagAndHead, "v2", "it is not signed; sign it with a key that is in Secret keys"),
        (VerifyMode::Head, "v2", "it is not signed; sign it with a key that is in Secret keys"),
        (VerifyMode::Head, "v1", "good"),
        (VerifyMode::Tag, "bare", "it is not signed; sign it with a key that is in Secret keys"),
        (VerifyMode::Tag, "light", "the tag is a name only and has no signature; make it with `git tag --sign`"),
        (VerifyMode::Tag, "v3", "the tag object that it points to was made for the tag v1"),
        (
            VerifyMode::TagAndHead,
            "main",
            "`verify.mode` TagAndHEAD needs a signed tag, and main is not a tag; follow a tag, or use mode HEAD",
        ),
    ];
    for (mode, reference, expected) in cases {
        assert_eq!(judge.says(mode, reference, &keys).await, expected, "{mode:?} {reference}");
    }
}

#[tokio::test]
async fn hostile_signatures_are_refused_by_name() {
    let mut judge = Judge::new();
    let (key, gpg) = (SshKey::new("ed25519"), Gpg::new("ed25519", "never"));
    let (public, certificate) = (key.public(), gpg.public());
    let keys = [&*public, &*certificate];
    let unusable = |why: &str| format!("its signature is not usable: {why}");
    let one_block = unusable("it must be exactly one armored block, without other text");
    let not_ssh = unusable("it is not an SSH signature by a plain key");
    let not_openpgp = unusable("it is not an OpenPGP signature");

    let long = |raw: &str| key.sign(raw).replacen('\n', &format!("\n{}", "QUFB\n".repeat(250_000)), 1);
    assert_eq!(judge.of(&keys, long).await, unusable("it has more than 64 KiB"));
    for sign in [|key: &SshKey, _: &Gpg, raw: &str| key.sign(raw), |_: &SshKey, gpg: &Gpg, raw: &str| gpg.sign(raw)] {
        let made = |raw: &str| sign(&key, &gpg, raw);
        assert_eq!(judge.of(&keys, made).await, "good");
        assert_eq!(judge.of(&keys, |raw| made(raw) + "trailing").await, one_block);
        assert_eq!(judge.of(&keys, |raw| made(raw) + &made(raw)).await, one_block);
        assert_eq!(judge.of(&keys, |raw| made(raw).replacen('\n', &format!("\n{}", made(raw)), 1)).await, one_block);
        let carriage = judge.of(&keys, |raw| made(raw).replace('\n', "\r\n")).await;
        assert_eq!(carriage, unusable("its lines end in carriage returns"));
    }
    let empty = "-----BEGIN PGP SIGNATURE-----\n\n-----END PGP SIGNATURE-----\n";
    assert_eq!(judge.of(&keys, |_| empty.to_owned()).await, not_openpgp);
    assert_eq!(judge.of(&keys, |_| empty.replace("PGP", "SSH")).await, not_ssh);
    assert_eq!(judge.of(&keys, |_| "hello".to_owned()).await, unusable("it is neither OpenPGP's nor SSH's"));
    // A certificate in place of a signature, and many packets in one block.
    let certificate_as = certificate.replace("PUBLIC KEY BLOCK", "SIGNATURE");
    assert_eq!(judge.of(&keys, |_| certificate_as).await, not_openpgp);
    let many = |raw: &str| Gpg::armored(&gpg.binary_signature(raw).repeat(300));
    assert_eq!(judge.of(&keys, many).await, unusable("it has more than one packet"));
    let cut = |raw: &str| Gpg::armored(&gpg.binary_signature(raw)[..40]);
    assert_eq!(judge.of(&keys, cut).await, not_openpgp);

    // The commit has two signature headers: the second signature is by a trusted key.
    let unsigned = judge.origin.commit("twice");
    let raw = judge.origin.raw(&unsigned);
    let header = |name: &str| format!("{name} {}\n", key.sign(&raw).trim_end().replace('\n', "\n "));
    let (head, body) = raw.split_once("\n\n").unwrap();
    for (extra, expected) in [
        (header("gpgsig") + &header("gpgsig"), unusable("the commit has more than one signature")),
        (header("gpgsig") + &header("gpgsig-sha256"), "good".to_owned()),
        (header("gpgsig-sha256"), "it is not signed; sign it with a key that is in Secret keys".to_owned()),
        (
            header("gpgsig") + &header("gpgsigs"),
            unusable("the commit has a header of signatures that Git does not know"),
        ),
    ] {
        judge.origin.stored(&format!("{head}\n{extra}\n{body}"));
        assert_eq!(judge.says(VerifyMode::Head, "main", &keys).await, expected);
    }
    // In the commit message, a header is only text.
    judge.origin.stored(&format!("{head}\n\n{}{body}", header("gpgsig")));
    let unsigned = judge.says(VerifyMode::Head, "main", &keys).await;
    assert_eq!(unsigned, "it is not signed; sign it with a key that is in Secret keys");
}

#[tokio::test]
async fn values_that_hold_no_public_key_are_named() {
    let judge = Judge::new();
    let private = "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n";
    let said = judge.says(VerifyMode::Head, "main", &[private]).await;
    let expected = "read the public keys for signature verification: value key-0 of Secret keys: it holds a private \
                    key; only the public half is needed to verify";
    assert_eq!(said, expected);
    let cut = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDME\n-----END PGP PUBLIC KEY BLOCK-----\n";
    let said = judge.says(VerifyMode::Head, "main", &[cut]).await;
    assert!(said.ends_with("value key-0 of Secret keys: OpenPGP key 1 cannot be read"), "{said}");
}
