//! Kept SSH connections: the number of logins for lookups and fetches, and the end of connections.

use mainstay_git::SharedHostKeys;

use super::{ssh::SshBench, *};

const ALL: &[&str] = &["ed25519", "ecdsa", "rsa"];

/// Returns a bench, an accepted key, and this many remotes of the same repository.
async fn bench(repositories: usize) -> (SshBench, String, Vec<Remote>) {
    bench_with(repositories, |_| {}).await
}

async fn bench_with(repositories: usize, adjust: impl FnOnce(&mut Settings)) -> (SshBench, String, Vec<Remote>) {
    let bench = SshBench::with(adjust).await;
    let key = bench.key("key", "ed25519", &[]);
    let remotes = (0..repositories).map(|number| {
        let mut remote = bench.remote(&[("key", &key)]);
        // Another address of the same repository.
        remote.url = RemoteUrl::parse(&bench.server.url(&format!("{}{NAME}", "./".repeat(number)))).unwrap();
        let consumer = Consumer::new(ConsumerKind::GitSync, "default", &number.to_string());
        bench.source.set_remote(&consumer, Some(&remote));
        remote
    });
    let remotes = remotes.collect();
    (bench, key, remotes)
}

async fn look_up(bench: &SshBench, remote: &Remote) {
    bench.source.lookup(remote, &Reference::parse("main").unwrap(), NOW).await.unwrap();
}

async fn look_up_all(bench: &SshBench, remotes: &[Remote]) {
    futures::future::join_all(remotes.iter().map(|remote| look_up(bench, remote))).await;
}

async fn until_ended(bench: &SshBench, connections: usize) {
    let ended = async {
        while bench.server.ended() < connections {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(mainstay_testkit::PATIENCE, ended).await.expect("the connections end");
}

#[tokio::test]
async fn lookups_and_fetches_of_all_repositories_of_a_host_share_a_connection() {
    let (mut bench, _, remotes) = bench(4).await;
    for _ in 0..3 {
        look_up_all(&bench, &remotes).await;
    }
    bench.origin.file("a.yaml", "a: 2\n").commit("second");
    for remote in &remotes {
        assert_eq!(files(&sync(&bench.source, remote, "main").await.unwrap(), "/").await["a.yaml"], "a: 2\n");
    }
    assert_eq!((bench.server.take_connections(), bench.source.traffic().logins), (1, 1));
}

#[tokio::test]
async fn many_lookups_at_once_use_few_connections_whatever_the_server_allows_on_each() {
    for (allowed, most) in [(10, 5), (2, 20)] {
        let (bench, _, remotes) = bench(24).await;
        bench.server.allow_channels(allowed);
        look_up_all(&bench, &remotes).await;
        let connections = bench.server.take_connections();
        assert!(connections <= most, "{connections} connections where {allowed} channels are allowed");
        for remote in &remotes {
            look_up(&bench, remote).await;
        }
        let more = bench.server.take_connections();
        assert!(more <= 1, "{more} more connections for lookups one by one");
    }
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_replaced_silently() {
    let (bench, _, remotes) = bench(1).await;
    look_up(&bench, &remotes[0]).await;
    for round in 1..5 {
        bench.server.restart();
        look_up(&bench, &remotes[0]).await;
        assert_eq!(bench.source.traffic().logins, round + 1);
    }
}

#[tokio::test]
async fn a_failure_on_a_new_connection_is_reported_without_retry() {
    let (bench, _, remotes) = bench(1).await;
    look_up(&bench, &remotes[0]).await;
    bench.server.take_connections();
    bench.server.fail(mainstay_testkit::ssh_server::Fault::CutAfter(500));
    let main = Reference::parse("main").unwrap();
    let error = bench.source.lookup(&remotes[0], &main, NOW).await.unwrap_err();
    assert_eq!((error.class(), bench.server.take_connections()), (Class::Unavailable, 1));
}

#[tokio::test]
async fn other_credentials_or_host_keys_have_their_own_connection() {
    let (bench, key, remotes) = bench(1).await;
    look_up(&bench, &remotes[0]).await;
    let other = bench.key("other", "ed25519", &[]);
    let refused = bench.key("refused", "ed25519", &[]);
    let url = bench.server.url(NAME);
    let known = bench.server.known_hosts(ALL);
    let of = |key: &str, known: &str| SshBench::try_remote(&url, &[("key", key), ("known_hosts", known)]).unwrap();
    look_up(&bench, &of(&other, &known)).await;
    look_up(&bench, &of(&key, &bench.server.known_hosts(&["rsa"]))).await;
    assert_eq!(bench.server.take_connections(), 3);
    let stranger = format!("{} {}\n", bench.server.name(), refused_host_key(&bench));
    let outcome = bench.outcome(&of(&key, &stranger)).await;
    assert!(outcome.contains("has changed"), "a connection that others accepted is not used: {outcome}");
    assert!(!refused.is_empty());
}

/// Returns a key that is not the host's.
fn refused_host_key(bench: &SshBench) -> String {
    let public = std::fs::read_to_string(bench.path("refused.pub")).unwrap();
    public.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn a_connection_goes_with_the_last_repository_that_may_use_it() {
    let (bench, _, remotes) = bench(2).await;
    look_up_all(&bench, &remotes).await;
    let consumers = ["0", "1"].map(|name| Consumer::new(ConsumerKind::GitSync, "default", name));
    bench.source.set_remote(&consumers[0], None);
    look_up(&bench, &remotes[1]).await;
    assert_eq!((bench.server.take_connections(), bench.server.ended()), (1, 0));
    bench.source.set_remote(&consumers[1], None);
    until_ended(&bench, 1).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let (bench, _, remotes) = bench_with(1, |settings| settings.deadlines.idle = Duration::from_millis(200)).await;
    look_up(&bench, &remotes[0]).await;
    until_ended(&bench, 1).await;
    look_up(&bench, &remotes[0]).await;
    assert_eq!(bench.server.take_connections(), 2);
}

#[tokio::test]
async fn other_host_keys_for_all_repositories_end_the_connections_that_the_old_ones_accepted() {
    let (bench, key, _) = bench(0).await;
    let remote = SshBench::try_remote(&bench.server.url(NAME), &[("key", &key)]).unwrap();
    let consumer = Consumer::new(ConsumerKind::GitSync, "default", "web");
    bench.source.set_remote(&consumer, Some(&remote));
    bench.source.set_host_keys(SharedHostKeys::Lines(bench.server.known_hosts(ALL).into()));
    look_up(&bench, &remote).await;
    bench.source.set_host_keys(SharedHostKeys::Lines(bench.server.known_hosts(ALL).into()));
    assert_eq!(bench.server.ended(), 0, "the same keys end nothing");
    bench.source.set_host_keys(SharedHostKeys::Lines(bench.server.known_hosts(&["rsa"]).into()));
    until_ended(&bench, 1).await;
    look_up(&bench, &remote).await;
}

#[tokio::test]
async fn a_lookup_among_20000_references_receives_little_over_ssh_too() {
    let bench = SshBench::new().await;
    let key = bench.key("key", "ed25519", &[]);
    let remote = bench.remote(&[("key", &key)]);
    bench.origin.packed_tags(20_000);
    // The first lookup includes the handshake.
    for reference in ["main", "tag-12345", "refs/tags/tag-00007"] {
        let reference = Reference::parse(reference).unwrap();
        bench.server.take_bytes();
        bench.source.lookup(&remote, &reference, NOW).await.unwrap();
        let bytes = bench.server.take_bytes();
        assert!(bytes < 10_000, "{reference}: {bytes} bytes");
    }
}
