//! Repositories of a Git daemon.

use super::*;
use crate::support::git_daemon::GitDaemon;
use crate::support::proxy::Proxy;

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
