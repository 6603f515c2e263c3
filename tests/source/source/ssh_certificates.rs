//! Host certificates: a CA in `known_hosts` replaces the keys that it has signed.

use super::ssh::SshBench;
use super::*;
use mainstay_testkit::ssh_server::generate;

/// Returns a server, an accepted key, and the CA of its host certificates.
async fn bench() -> (SshBench, String, std::path::PathBuf, String) {
    let bench = SshBench::new().await;
    let key = bench.key("key", "ed25519", &[]);
    let ca = bench.path("ca");
    generate(&ca, "ed25519", &[]);
    let public = std::fs::read_to_string(ca.with_extension("pub")).unwrap().trim().to_owned();
    (bench, key, ca, public)
}

#[tokio::test]
async fn a_certificate_is_accepted_for_its_name_as_long_as_it_is_valid() {
    let (bench, key, ca, public) = bench().await;
    let trusted = format!("@cert-authority {} {public}\n", bench.server.name());
    let attempt = async |known: &str| {
        let data = [("key", key.as_str()), ("known_hosts", known)];
        bench.outcome(&SshBench::try_remote(&bench.server.url(NAME), &data).unwrap()).await
    };
    let presented = bench.server.fingerprint("ed25519");
    assert!(attempt(&trusted).await.contains("is not known"), "it presents no certificate yet");
    bench.server.certify(&ca, &["-h", "-n", "127.0.0.1,git.corp"]);
    assert_eq!(attempt(&trusted).await, "good");
    assert_eq!(attempt(&trusted.replace(&bench.server.name(), "[127.0.0.*]:*")).await, "good");
    // Another CA, a CA for another host, and a revoked CA.
    let other = format!("@cert-authority {} {}\n", bench.server.name(), bench.server.host_key("ecdsa"));
    assert!(attempt(&other).await.contains("is not known: it presented"));
    assert!(attempt(&trusted.replace("127.0.0.1", "127.0.0.2")).await.contains("is not known"));
    assert!(attempt(&format!("{trusted}@revoked * {public}\n")).await.contains("marks as @revoked"));
    assert!(attempt(&format!("{trusted}@revoked * {}\n", bench.server.host_key("ed25519"))).await.contains("@revoked"));
    // The key itself works as well.
    assert_eq!(attempt(&bench.server.known_hosts(&["ed25519"])).await, "good");

    let refused = async |options: &[&str], why: &str| {
        bench.server.certify(&ca, options);
        let host = bench.server.name();
        let expected = format!("Denied: the certificate of {host} is not accepted: {why} (its key is {presented})");
        assert_eq!(attempt(&trusted).await, expected);
    };
    refused(&["-h", "-n", "git.corp"], "it is valid for other names only").await;
    refused(&["-h"], "it is valid for other names only").await;
    refused(&["-h", "-n", "127.0.0.1", "-V", "20200101:20210101"], "it has expired").await;
    let later = ["-h", "-n", "127.0.0.1", "-V", "20990101:21000101"];
    refused(&later, "it is not valid yet; compare the clocks of both sides").await;
}
