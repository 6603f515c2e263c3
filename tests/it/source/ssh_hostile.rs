//! SSH servers that do not keep to the rules: each ends in an error by a deadline, and in nothing else.

use super::{ssh::SshBench, *};
use crate::support::ssh_server::Fault;

/// A bench whose deadlines are short, and a remote that is good as long as the server is.
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
    let (bench, remote) = bench().await;
    let main = Reference::parse("main").unwrap();
    bench.source.lookup(&remote, &main, NOW).await.unwrap();
    let whole = bench.server.take_bytes();
    let mut texts = std::collections::BTreeSet::new();
    for after in [0, 1, 10, 45, 500, 1200, 1800, 2200, 2400, 2600, 2800, 3000, 3200] {
        if after + 200 > whole {
            break;
        }
        bench.server.fail(Fault::CutAfter(after));
        let error = bench.source.lookup(&remote, &main, NOW).await.unwrap_err();
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
        assert!(text.contains("timed out after 1.5 s") || text.contains("stopped answering"), "after {after}: {text}");
    }
}

#[tokio::test]
async fn output_of_a_server_before_authentication_is_bounded() {
    // No deadline may come before the bound does.
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
    // Messages that mean nothing, for ever.
    let ignore = [&[0, 0, 0, 12, 4, 2, 0, 0, 0, 2, b'x', b'x'][..], &[0; 4]].concat();
    check(
        [b"SSH-2.0-x\r\n".to_vec(), ignore.repeat(1 << 16)].concat(),
        "the number of bytes that the server sends before authentication is larger than the limit of 131072",
    )
    .await;
}

/// The public half of the bench's key, and a branch to look up.
fn public(bench: &SshBench) -> (String, Reference) {
    (std::fs::read_to_string(bench.path("key.pub")).unwrap(), Reference::parse("main").unwrap())
}

#[tokio::test]
async fn output_of_a_server_after_its_last_answer_is_bounded() {
    let (bench, remote) = bench().await;
    let (public, main) = public(&bench);
    bench.server.authorize_nobody();
    bench.server.authorize_for(&public, &format!("git upload-pack {NAME}; exec yes"));
    bench.source.lookup(&remote, &main, NOW).await.unwrap();
    let ended = async {
        while bench.server.ended() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), ended).await.expect("it is left");
    let bytes = bench.server.take_bytes();
    assert!(bytes < 8 << 20, "{bytes} bytes");
}

#[tokio::test]
async fn a_command_that_breaks_off_in_the_middle_has_its_repository() {
    let (bench, remote) = bench().await;
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
