//! Repositories of a Git daemon.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;
use mainstay_testkit::git_daemon::GitDaemon;
use mainstay_testkit::proxy::Proxy;

#[tokio::test]
async fn a_git_daemon_is_read_directly_and_through_a_proxy() {
    let mut bench = Bench::new(small()).await;
    let daemon = GitDaemon::start(bench.origin.root());
    let remote = anonymous(&daemon.url(NAME));
    let first = sync(&bench.source, &remote, "main").await.unwrap();
    assert_eq!(files(&first, "/").await.len(), 2);
    let commit = bench.origin.file("new.txt", "new").commit("two");
    let second = sync(&bench.source, &remote, "main").await.unwrap();
    assert_eq!((second.commit.to_string(), files(&second, "/").await.len()), (commit, 3));

    let absent = sync(&bench.source, &anonymous(&daemon.url("absent.git")), "main").await.unwrap_err();
    let expected = "the server refused: access denied or repository not exported: /absent.git";
    assert_eq!(absent.fault().to_string(), expected);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut settings = settings(bench.mirrors.path());
    settings.deadlines.silence = Duration::from_millis(300);
    let url = format!("git://{}/x", silent.local_addr().unwrap());
    let error = sync(&Source::new(settings), &anonymous(&url), "main").await.unwrap_err();
    assert_eq!(error.fault().to_string(), "timed out after 0.3 s while waiting for data; the server is slow or stuck");

    let proxy = Proxy::socks("walker", "pr0xy-word");
    let through = super::proxies::through(&proxy, remote, &super::proxies::LOGIN).unwrap();
    assert_eq!(sync(&bench.source, &through, "main").await.unwrap().commit, second.commit);
}

/// Forwards connections to the daemon, and ends each after this many bytes of its responses.
async fn cutting(daemon: &GitDaemon, after: Arc<AtomicUsize>) -> String {
    let to = daemon.url("").trim_start_matches("git://").trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("git://{}/{NAME}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (mut from_client, mut to_client) = client.into_split();
            let (from_daemon, mut to_daemon) = TcpStream::connect(&to).await.unwrap().into_split();
            let mut answers = from_daemon.take(after.load(Ordering::SeqCst) as u64);
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_daemon) => {}
                    _ = tokio::io::copy(&mut answers, &mut to_client) => {}
                }
                // Continues to read until the client closes: an early close would reset the connection and lose the
                // sent bytes.
                let _ = to_client.shutdown().await;
                let _ = tokio::io::copy(&mut from_client, &mut tokio::io::sink()).await;
            });
        }
    });
    url
}

#[tokio::test]
async fn a_truncated_answer_of_a_git_daemon_is_an_error_wherever_it_ends() {
    let mut bench = Bench::new(small()).await;
    let mut random = fastrand::Rng::with_seed(7);
    bench.origin.file("noise.bin", std::iter::repeat_with(|| random.u8(..)).take(100_000).collect::<Vec<_>>());
    bench.origin.commit("noise");
    let daemon = GitDaemon::start(bench.origin.root());
    let after = Arc::new(AtomicUsize::new(usize::MAX >> 1));
    let remote = anonymous(&cutting(&daemon, Arc::clone(&after)).await);
    let found = bench.source.lookup(&remote, &Reference::parse("main").unwrap(), NOW).await.unwrap();
    let mut texts = std::collections::BTreeSet::new();
    for bytes in [0, 3, 100, 160, 175, 190, 300, 1000, 50_000, 100_000] {
        after.store(bytes, Ordering::SeqCst);
        let error = bench.source.fetch(&remote, &found).await.unwrap_err();
        assert_eq!(error.class(), Class::Unavailable, "after {bytes}: {}", chain(&error));
        texts.insert(error.fault().to_string());
    }
    let expected = "the server violates the Git protocol: the response ends in the middle of a packet";
    assert!(texts.contains(expected), "{texts:?}");
    after.store(usize::MAX >> 1, Ordering::SeqCst);
    assert!(bench.source.fetch(&remote, &found).await.is_ok());
}
