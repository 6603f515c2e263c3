//! Private keys that are expensive to decrypt. Each is refused before any work is done.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use pkcs8::{
    EncryptedPrivateKeyInfoOwned,
    der::{Decode as _, Encode as _, asn1::OctetString},
    pkcs5::{EncryptionScheme, pbes2::Kdf},
};

use super::{ssh::SshBench, *};
use mainstay_testkit::ssh_server::generate;

/// Timeout of opening a key. Expensive keys would take years.
const SOON: Duration = Duration::from_secs(20);
const PASSPHRASE: &str = "right";
const LEGACY: &str = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF";
const TOO_MUCH: &str = "its encryption takes too much work or memory to open";
const ROUNDS: &str = "its passphrase takes too many rounds (ssh-keygen -a); at most 512 are done";
const ALONE: &str =
    "there is text before its first line or after its last one; keep only the part from `-----BEGIN` to `-----END`";
const DAMAGED: &str = "it is damaged; copy the whole file, with its first and last line";

/// Connects with a key and its passphrase, and checks the outcome and the time.
async fn check(bench: &SshBench, key: &str, why: &str) {
    let remote = bench.remote(&[("key", key), ("password", PASSPHRASE)]);
    let outcome = tokio::time::timeout(SOON, bench.outcome(&remote)).await.expect("no work is done for it");
    assert_eq!(outcome, format!("Invalid: the private key under key of the Secret cannot be read: {why}"), "{key}");
    assert_eq!(bench.server.take_connections(), 0);
}

fn pem(label: &str, headers: &str, der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{headers}{}\n-----END {label}-----\n", lines.join("\n"))
}

fn der(pem: &str) -> Vec<u8> {
    BASE64_STANDARD.decode(pem.lines().filter(|line| !line.starts_with("-----")).collect::<String>()).unwrap()
}

/// Returns a key in OpenSSH's format with the maximum number of bcrypt rounds.
fn bcrypt(bench: &SshBench) -> String {
    let mut bytes = der(&bench.key("bcrypt", "ed25519", &["-N", PASSPHRASE]));
    // Magic, cipher, name of the derivation, lengths of its options and of the salt, the salt; then the rounds.
    let rounds = 15 + (4 + 10) + (4 + 6) + 4 + (4 + 16);
    assert!(u32::from_be_bytes(bytes[rounds..rounds + 4].try_into().unwrap()) < 100);
    bytes[rounds..rounds + 4].copy_from_slice(&u32::MAX.to_be_bytes());
    pem("OPENSSH PRIVATE KEY", "", &bytes)
}

/// Returns a key that `openssl` encrypts with scrypt or PBKDF2, with the derivation changed by `adjust`.
fn pkcs8_with(derivation: &[&str], adjust: impl FnOnce(&mut Kdf)) -> EncryptedPrivateKeyInfoOwned {
    let room = tempfile::tempdir().unwrap();
    let path = room.path().join("key");
    generate(&path, "ecdsa", &["-m", "PKCS8"]);
    let mut command = mainstay_testkit::isolated("openssl");
    command.args(["pkcs8", "-topk8", "-outform", "DER", "-passout"]).arg(format!("pass:{PASSPHRASE}"));
    let made = command.args(derivation).arg("-in").arg(&path).output();
    let made = made.expect("`openssl` is installed (apt-get install openssl)");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let mut key = EncryptedPrivateKeyInfoOwned::from_der(&made.stdout).unwrap();
    let EncryptionScheme::Pbes2(parameters) = &mut key.encryption_algorithm else { panic!("it is PBES2") };
    adjust(&mut parameters.kdf);
    key
}

fn scrypt(cost: u64) -> Vec<u8> {
    let key = pkcs8_with(&["-scrypt"], |kdf| match kdf {
        Kdf::Scrypt(parameters) => parameters.cost_parameter = cost,
        other => panic!("{other:?}"),
    });
    key.to_der().unwrap()
}

fn pbkdf2(rounds: u32) -> Vec<u8> {
    let key = pkcs8_with(&["-iter", "2048"], |kdf| match kdf {
        Kdf::Pbkdf2(parameters) => parameters.iteration_count = rounds,
        other => panic!("{other:?}"),
    });
    key.to_der().unwrap()
}

const ENCRYPTED: &str = "ENCRYPTED PRIVATE KEY";

#[tokio::test]
async fn a_key_that_takes_too_much_work_to_open_is_refused_at_once() {
    let bench = SshBench::new().await;
    check(&bench, &bcrypt(&bench), ROUNDS).await;
    check(&bench, &pem(ENCRYPTED, "", &scrypt(1 << 30)), TOO_MUCH).await;
    check(&bench, &pem(ENCRYPTED, "", &pbkdf2(u32::MAX)), TOO_MUCH).await;
}

#[tokio::test]
async fn an_invalid_key_derivation_is_refused_before_it_runs() {
    let bench = SshBench::new().await;
    for cost in [0, 1, 3] {
        check(&bench, &pem(ENCRYPTED, "", &scrypt(cost)), DAMAGED).await;
    }
    check(&bench, &pem(ENCRYPTED, "", &pbkdf2(0)), DAMAGED).await;
}

#[tokio::test]
async fn a_second_key_in_the_text_is_never_opened_in_place_of_the_first() {
    let bench = SshBench::new().await;
    let heavy = [bcrypt(&bench), pem(ENCRYPTED, "", &scrypt(1 << 30)), pem(ENCRYPTED, "", &pbkdf2(u32::MAX))];
    for heavy in heavy {
        // The expensive block is inside of the first block, whose headers claim the legacy encryption; then it is after
        // the first block.
        check(&bench, &format!("-----BEGIN RSA PRIVATE KEY-----\n{LEGACY}\n\n{heavy}"), DAMAGED).await;
        let small = pem("RSA PRIVATE KEY", &format!("{LEGACY}\n\n"), b"0123456789abcdef");
        check(&bench, &format!("{small}{heavy}"), ALONE).await;
    }
    let good = bench.key("good", "ed25519", &[]);
    check(&bench, &format!("{good}{good}"), ALONE).await;
}

#[tokio::test]
async fn text_around_a_key_is_refused() {
    let bench = SshBench::new().await;
    let good = bench.key("good", "ed25519", &[]);
    check(&bench, &format!("a line\n{good}"), ALONE).await;
    check(&bench, &format!("{good}a line\n"), ALONE).await;
    // Before the block is the head of a cheap key whose content is the expensive key.
    let costly = pbkdf2(u32::MAX);
    let whole = |padding: usize| {
        let mut outer = pkcs8_with(&["-iter", "2048"], |_| {});
        outer.encrypted_data = OctetString::new([vec![0; padding], costly.clone()].concat()).unwrap();
        outer.to_der().unwrap()
    };
    let outer = (0..3).map(whole).find(|outer| (outer.len() - costly.len()).is_multiple_of(3)).unwrap();
    let head = BASE64_STANDARD.encode(&outer[..outer.len() - costly.len()]);
    let text = format!("{head}\n{}", pem(ENCRYPTED, "", &costly));
    assert_eq!(der(&text), outer, "both together are one cheap key");
    check(&bench, &text, ALONE).await;
    // YAML and editors may add whitespace around the key.
    let remote = bench.remote(&[("key", &format!("\n \t\r\n{}\n\n", good.replace('\n', "  \r\n")))]);
    assert_eq!(bench.outcome(&remote).await, "good");
}

#[tokio::test]
async fn a_key_in_puttys_form_is_never_opened() {
    let bench = SshBench::new().await;
    let putty = "it is in PuTTY's form; export it as an OpenSSH key";
    let head = "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: aes256-cbc\nComment: x\nPublic-Lines: 1\nAAAA\n\
                Key-Derivation: Argon2id\nArgon2-Memory: 4194304\nArgon2-Passes: 4294967295\nArgon2-Parallelism: 1\n\
                Argon2-Salt: 00112233445566778899aabbccddeeff\nPrivate-Lines: 1\nAAAA\nPrivate-MAC: 00\n";
    check(&bench, head, putty).await;
    let legacy = pem("RSA PRIVATE KEY", &format!("{LEGACY}\n\n"), b"0123456789abcdef");
    check(&bench, &format!("{head}{legacy}"), putty).await;
}

#[tokio::test]
async fn headers_of_a_block_are_those_of_its_form_and_no_others() {
    let bench = SshBench::new().await;
    let convert = "it is encrypted in a form that is not read; `ssh-keygen -p -f FILE` writes it again";
    let bytes = b"0123456789abcdef";
    for headers in [
        LEGACY.replace("AES-128", "AES-256"),
        LEGACY.replace("EEFF", "EE"),
        LEGACY.replace("EEFF", "EEäF"),
        "Proc-Type: 4,ENCRYPTED".to_owned(),
    ] {
        check(&bench, &pem("RSA PRIVATE KEY", &format!("{headers}\n\n"), bytes), convert).await;
    }
    check(&bench, &pem("EC PRIVATE KEY", &format!("{LEGACY}\n\n"), bytes), convert).await;
    for label in ["OPENSSH PRIVATE KEY", ENCRYPTED, "PRIVATE KEY"] {
        check(&bench, &pem(label, &format!("{LEGACY}\n\n"), bytes), DAMAGED).await;
    }
    check(&bench, &pem("RSA PRIVATE KEY", "Comment: x\n\n", bytes), DAMAGED).await;
    let ppk = "PuTTY-User-Key-File-3: ssh-ed25519\n";
    check(&bench, &pem("RSA PRIVATE KEY", ppk, bytes), DAMAGED).await;
}
