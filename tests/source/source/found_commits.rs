//! The consumers that a lookup with a new commit notifies.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use mainstay_git::{Followed, LookupDue, PushReceiver};

use super::*;

const LOGINS: [&str; 3] = ["finder", "second", "refused"];

/// Adds a GitSync of this name that follows `main`.
fn follow(source: &Source, name: &str, remote: &Remote) -> PushReceiver {
    let consumer = Consumer::new(ConsumerKind::GitSync, "shop", name);
    let receiver = source.pushes().subscribe(&consumer);
    let (url, reference) = (remote.url.clone(), Reference::parse("main").unwrap());
    source.pushes().set(&consumer, Some(Followed { repository: "repo".into(), url, reference }));
    source.set_remote(&consumer, Some(remote));
    receiver
}

/// Whether the receiver is notified of a commit other than `known`.
fn is_woken(receiver: &PushReceiver, known: &Snapshot) -> bool {
    receiver.take().is_some_and(|due: LookupDue| !due.is_known(Some(known.commit)))
}

#[tokio::test]
async fn a_lookup_that_finds_a_commit_wakes_others_unless_their_own_login_fails() {
    let mut bench = Bench::new(small()).await;
    let remotes = LOGINS.map(|name| basic(&bench.server.url(NAME), name, "right"));
    let [_, second, refused] = [0, 1, 2].map(|number| follow(&bench.source, LOGINS[number], &remotes[number]));
    for remote in &remotes {
        sync(&bench.source, remote, "main").await.unwrap();
    }
    let known = sync(&bench.source, &remotes[1], "main").await.unwrap();
    assert!(!is_woken(&second, &known) && !is_woken(&refused, &known), "each of them has just looked it up");

    let login = |name: &str| format!("Basic {}", BASE64_STANDARD.encode(format!("{name}:right")));
    bench.server.require_any(&[&login(LOGINS[0]), &login(LOGINS[1])]);
    assert!(sync(&bench.source, &remotes[2], "main").await.is_err());
    bench.origin.file("a.yaml", "a: 2\n").commit("second");
    let (before, traffic) = (Instant::now(), bench.source.traffic());
    sync(&bench.source, &remotes[0], "main").await.unwrap();
    assert!(is_woken(&second, &known));
    assert!(!is_woken(&refused, &known), "it keeps its backoff");
    // The second login cannot use its earlier response, so it looks up exactly once.
    bench.source.expire(&remotes[1], before);
    for _ in 0..3 {
        let age = Duration::from_secs(3600);
        let found = bench.source.lookup(&remotes[1], &Reference::parse("main").unwrap(), age).await.unwrap();
        assert_ne!(found.commit, known.commit);
    }
    assert_eq!(bench.source.traffic().lookups - traffic.lookups, 2, "one for each login");
}
