//! SSH servers that violate the protocol. Each attempt ends with an error within its deadline, without other effects.

use std::{fs, os::unix::fs::PermissionsExt as _};

use mainstay_git::ResolvedRef;

use super::{hostile::band, ssh::SshBench, *};
use mainstay_testkit::ssh_server::Fault;

/// Maximum size of the messages that follow the response, and of differences between connections, in bytes.
const TRAILING: usize = 600;

/// Returns a bench with short deadlines, and a valid remote.
async fn bench() -> (SshBench, Remote) {
    bench_with(Duration::from_millis(1500), Duration::from_secs(10)).await
}

async fn bench_with(silence: Duration, lookup: Duration) -> (SshBench, Remote) {
    let bench = SshBench::with(|settings| {
        settings.deadlines.silence = silence;
        settings.deadlines.lookup = lookup;
    });
    let bench = bench.await;
    let key = bench.key("key", "ed25519", &[]);
    let remote = bench.remote(&[("key", &key)]);
    (bench, remote)
}

#[tokio::test]
async fn a_connection_that_is_cut_anywhere_ends_in_an_error_and_the_next_one_is_good() {
    // Long deadlines, because a cut connection needs none.
    let (bench, remote) = bench_with(Duration::from_secs(20), Duration::from_secs(60)).await;
    let main = Reference::parse("main").unwrap();
    bench.source.lookup(&remote, &main, NOW).await.unwrap();
    let whole = bench.server.take_bytes();
    let mut texts = std::collections::BTreeSet::new();
    for after in [0, 1, 10, 45, 500, 1200, 1800, 2200, 2400, 2600, 2800, 3000, 3200] {
        bench.server.fail(Fault::CutAfter(after));
        // The last messages follow the response. Their sizes, and those of the padding, differ each time.
        let error = match bench.source.lookup(&remote, &main, NOW).await {
            Err(error) => error,
            Ok(_) if after + TRAILING > whole => break,
            Ok(found) => panic!("after {after} of {whole}: {found:?}"),
        };
        assert_eq!(error.class(), Class::Unavailable, "after {after}: {}", chain(&error));
        texts.insert(error.fault().to_string());
    }
    assert!(texts.iter().any(|text| text.contains("during the key exchange")), "{texts:?}");
    assert!(texts.iter().any(|text| text.contains("while authenticating")), "{texts:?}");
    bench.server.fail(None);
    assert!(sync(&bench.source, &remote, "main").await.is_ok());
}

#[tokio::test]
async fn a_server_that_falls_silent_anywhere_is_left_by_its_deadline() {
    let (bench, remote) = bench().await;
    let main = Reference::parse("main").unwrap();
    for after in [0, 45, 1200, 2400, 2800] {
        bench.server.fail(Fault::StallAfter(after));
        let error = bench.source.lookup(&remote, &main, NOW).await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable, "after {after}: {}", chain(&error));
        let text = error.fault().to_string();
        assert!(text.contains("timed out after 1.5 s") || text.contains("stopped responding"), "after {after}: {text}");
    }
}

#[tokio::test]
async fn output_of_a_server_before_authentication_is_bounded() {
    // Long deadlines, so that the size limit is reached first.
    let (bench, remote) = bench_with(Duration::from_secs(20), Duration::from_secs(60)).await;
    let check = async |words: Vec<u8>, expected: &str| {
        bench.server.fail(Fault::Say(words));
        let error = bench.source.lookup(&remote, &Reference::parse("main").unwrap(), NOW).await.unwrap_err();
        let (class, text) = (error.class(), error.fault().to_string());
        assert!(text.contains(expected), "{text}");
        assert_ne!(class, Class::Bug);
    };
    check(vec![b'x'; 1 << 20], "it does not speak SSH 2").await;
    check(b"hello\r\n".repeat(1 << 17), "it does not speak SSH 2").await;
    let packet = [&b"SSH-2.0-x\r\n"[..], &0xffff_ff00_u32.to_be_bytes(), &vec![0; 1 << 20]].concat();
    check(packet, "SSH").await;
    // Endless messages without meaning.
    let ignore = [&[0, 0, 0, 12, 4, 2, 0, 0, 0, 2, b'x', b'x'][..], &[0; 4]].concat();
    check(
        [b"SSH-2.0-x\r\n".to_vec(), ignore.repeat(1 << 16)].concat(),
        "the number of bytes that the server sends before authentication is larger than the limit of 131072",
    )
    .await;
}

/// Returns the public key of the bench, and a branch.
fn public(bench: &SshBench) -> (String, Reference) {
    (std::fs::read_to_string(bench.path("key.pub")).unwrap(), Reference::parse("main").unwrap())
}

#[tokio::test]
async fn output_of_a_server_after_its_last_answer_is_bounded() {
    // The responses are valid, so the deadlines must not be reached.
    let (bench, remote) = bench_with(Duration::from_secs(20), Duration::from_secs(60)).await;
    let (public, main) = public(&bench);
    bench.server.authorize_nobody();
    bench.server.authorize_for(&public, &format!("git upload-pack {NAME}; exec yes"));
    bench.source.lookup(&remote, &main, NOW).await.unwrap();
    let ended = async {
        while bench.server.ended() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(mainstay_testkit::PATIENCE, ended).await.expect("it is left");
    let bytes = bench.server.take_bytes();
    assert!(bytes < 8 << 20, "{bytes} bytes");
}

#[tokio::test]
async fn a_command_that_breaks_off_in_the_middle_has_its_repository() {
    let (bench, remote) = bench_with(Duration::from_secs(20), Duration::from_secs(60)).await;
    let (public, main) = public(&bench);
    let words = "echo 'fatal: object 12 does not exist' >&2; exit 128";
    let outcome = async |command: String| {
        bench.server.authorize_nobody();
        bench.server.authorize_for(&public, &command);
        let error = bench.source.lookup(&remote, &main, NOW).await.unwrap_err();
        (error.class(), error.fault().to_string())
    };
    let refused = "the server refused: fatal: object 12 does not exist".to_owned();
    let advertised = format!("git upload-pack --http-backend-info-refs {NAME}; {words}");
    assert_eq!(outcome(advertised).await, (Class::Unavailable, refused));
    let (class, text) = outcome(words.to_owned()).await;
    assert_eq!(class, Class::Invalid);
    assert!(text.starts_with("the server has no repository there (fatal: object 12"), "{text}");
}

/// Returns the branch of the real server. Later fetches get the real advertisement, and after the request's first byte
/// the output of `script`.
async fn answer_fetches(bench: &SshBench, remote: &Remote, script: &str) -> ResolvedRef {
    let (public, main) = public(bench);
    bench.server.authorize_nobody();
    bench.server.authorize(&public);
    let found = bench.source.lookup(remote, &main, NOW).await.unwrap();
    let mut command = mainstay_testkit::isolated("git");
    command.args(["upload-pack", "--http-backend-info-refs", "--stateless-rpc"]).arg(bench.origin.path());
    let advertisement = command.env("GIT_PROTOCOL", "version=2").output().unwrap().stdout;
    let (said, path) = (bench.path("advertisement"), bench.path("answer"));
    fs::write(&said, advertisement).unwrap();
    let said = said.display();
    let script = format!("#!/bin/sh\ncat '{said}'\ndd bs=1 count=1 of=/dev/null status=none\n{script}\n");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    bench.server.authorize_nobody();
    bench.server.authorize_for(&public, &format!("exec '{}'", path.display()));
    found
}

#[tokio::test]
async fn text_beside_a_pack_is_bounded_over_ssh_too() {
    let bench = SshBench::with(|settings| settings.limits.pack_bytes = 16 << 20).await;
    let key = bench.key("key", "ed25519", &[]);
    let remote = bench.remote(&[("key", &key)]);
    let file = |name: &str, content: &[u8]| {
        fs::write(bench.path(name), content).unwrap();
        bench.path(name).display().to_string()
    };
    let progress = file("progress", &band(2, &[b'.'; 4000]).repeat(100));
    let pack = file("pack", &band(1, b"PACK"));
    let protocol = |what: &str| format!("the server violates the Git protocol: it sends more than 1 MiB of {what}");
    let cases = [
        (format!("printf '000dpackfile\\n'; while cat '{progress}'; do :; done"), "text beside the pack"),
        ("yes >&2".to_owned(), "error text over SSH"),
        // The same with parts of a pack in between.
        (format!("printf '000dpackfile\\n'; while cat '{pack}'; do cat '{progress}' >&2; done"), "error text over SSH"),
    ];
    for (script, what) in cases {
        let found = answer_fetches(&bench, &remote, &script).await;
        let ended = bench.server.ended();
        bench.server.take_bytes();
        let error = bench.source.fetch(&remote, &found).await.unwrap_err();
        assert_eq!((error.class(), error.fault().to_string()), (Class::Unavailable, protocol(what)), "{script}");
        let left = async {
            while bench.server.ended() == ended {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(mainstay_testkit::PATIENCE, left).await.expect("the connection is closed");
        let bytes = bench.server.take_bytes();
        assert!(bytes < 12 << 20, "{script}: {bytes} bytes");
    }
    bench.server.authorize_nobody();
    bench.server.authorize(&public(&bench).0);
    assert_eq!(bench.outcome(&remote).await, "good");
}

/// Returns a bench with a pack of about 200 kB, and the commit of its branch.
async fn large(silence: Duration) -> (SshBench, Remote, ResolvedRef) {
    let (mut bench, remote) = bench_with(silence, Duration::from_secs(60)).await;
    let mut random = fastrand::Rng::with_seed(7);
    let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(200_000).collect();
    bench.origin.file("noise.bin", noise).commit("noise");
    let found = bench.source.lookup(&remote, &Reference::parse("main").unwrap(), NOW).await.unwrap();
    (bench, remote, found)
}

#[tokio::test]
async fn a_connection_that_is_cut_during_a_pack_ends_in_an_error() {
    let (bench, remote, found) = large(Duration::from_secs(20)).await;
    for after in [6_000, 20_000, 100_000, 190_000] {
        bench.server.fail(Fault::CutAfter(after));
        let error = bench.source.fetch(&remote, &found).await.unwrap_err();
        let expected = "the server ended the connection in the middle of a response";
        assert_eq!((error.class(), &*error.fault().to_string()), (Class::Unavailable, expected), "after {after}");
    }
    bench.server.fail(None);
    let snapshot = bench.source.fetch(&remote, &found).await.unwrap();
    assert_eq!(snapshot.entries(&BaseDir::root()).unwrap().len(), 3);
}

#[tokio::test]
async fn a_server_that_falls_silent_during_a_pack_is_left_by_its_deadline() {
    let (bench, remote, found) = large(Duration::from_secs(4)).await;
    for after in [6_000, 190_000] {
        bench.server.fail(Fault::StallAfter(after));
        let error = bench.source.fetch(&remote, &found).await.unwrap_err();
        let (class, text) = (error.class(), error.fault().to_string());
        // Keepalive requests of the client are not answered either.
        let is_named = text.contains("timed out after 4 s") || text.contains("in the middle of a response");
        assert!(class == Class::Unavailable && is_named, "after {after}: {text}");
    }
    bench.server.fail(None);
    assert!(bench.source.fetch(&remote, &found).await.is_ok());
}

#[tokio::test]
async fn a_truncated_pack_is_refused_over_ssh() {
    let (mut bench, remote, _) = large(Duration::from_secs(20)).await;
    let pack = bench.origin.pack();
    let mut cases = Vec::new();
    for length in [3, 12, 30, 1000, pack.len() - 20, pack.len() - 1] {
        let bands: Vec<u8> = pack[..length].chunks(60_000).flat_map(|part| band(1, part)).collect();
        let answer = [b"000dpackfile\n", &*bands, b"0000"].concat();
        // The response ends in the middle of a packet, although the server ends without an error.
        let cut = answer[..answer.len() - 6].to_vec();
        cases.extend([(answer, "damaged pack"), (cut, "the response ends in the middle of a packet")]);
    }
    for nothing in [&b"000dpackfile\n0000"[..], b"000dpackfile\n"] {
        cases.push((nothing.to_vec(), "without the commit"));
    }
    for (number, (answer, expected)) in cases.into_iter().enumerate() {
        // A new commit is needed: after three failures, the same commit is not fetched again for an hour.
        bench.origin.commit(&format!("commit {number}"));
        fs::write(bench.path("cut"), &answer).unwrap();
        let found = answer_fetches(&bench, &remote, &format!("exec cat '{}'", bench.path("cut").display())).await;
        let error = bench.source.fetch(&remote, &found).await.unwrap_err();
        let (class, text) = (error.class(), error.fault().to_string());
        assert!(class == Class::Unavailable && text.contains(expected), "{} bytes: {class:?} {text}", answer.len());
    }
    bench.server.authorize_nobody();
    bench.server.authorize(&public(&bench).0);
    assert!(sync(&bench.source, &remote, "main").await.is_ok());
}

#[tokio::test]
async fn a_server_that_takes_no_key_is_distinguished_from_one_that_refuses_this_key() {
    let (bench, remote) = bench_with(Duration::from_secs(20), Duration::from_secs(60)).await;
    bench.server.want_a_password();
    let error = bench.source.lookup(&remote, &Reference::parse("main").unwrap(), NOW).await.unwrap_err();
    let expected = "the server asks for a password, and Mainstay logs in with a key: let the server accept keys \
                    (PubkeyAuthentication), or give the repository's https:// address, to which a password may be sent";
    assert_eq!((error.class(), &*error.fault().to_string()), (Class::Denied, expected));
}
