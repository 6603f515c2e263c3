//! Candidates for shards, and candidates without shards that wait for the end of the members.

use std::collections::BTreeSet;

use super::*;

const MEMBERS: usize = MOST as usize;

/// A running candidate for one of two shards.
struct Candidate {
    note: watch::Sender<Option<String>>,
    seen: Seen,
    leadership: Leadership,
    running: tokio::task::JoinHandle<()>,
    server: Server,
}

impl Drop for Candidate {
    fn drop(&mut self) {
        self.running.abort();
    }
}

fn start_member() -> Candidate {
    let (cluster, server) = fake::cluster();
    let ((note, published), seen) = (watch::channel(None), Seen::default());
    let timing = Timing::default();
    let (elector, leadership) = Elector::of_shards(cluster, "a", 2, "me", timing, published, seen.clone());
    let running = tokio::spawn(elector.run(CancellationToken::new()));
    Candidate { note, seen, leadership, running, server }
}

#[tokio::test(start_paused = true)]
async fn a_member_takes_the_first_free_shard_and_shows_its_view() {
    let mut one = start_member();
    // It looks for a shard that it holds already, and then for a free one.
    for _ in 0..2 {
        expect(&mut one.server, "GET").await.json(200, &lease("other", "1", 1)).await;
        expect(&mut one.server, "GET").await.json(404, &absent()).await;
    }
    let mut own = lease("me", "x", 1);
    own["metadata"]["name"] = json!("mainstay-shard-1");
    let created = expect(&mut one.server, "POST").await.json(201, &own).await;
    assert_eq!(created["metadata"]["name"], "mainstay-shard-1");
    assert_eq!(created["metadata"]["labels"]["mainstay.dev/shard-lease"], "member");
    let term = one.leadership.term().await.expect("a term");
    assert_eq!(term.member(), Member::new(1));
    one.note.send_replace(Some("view".to_owned()));
    let renewed = expect(&mut one.server, "PUT").await.json(200, &own).await;
    assert_eq!(renewed["metadata"]["annotations"]["mainstay.dev/shard-view"], "view");
}

#[tokio::test(start_paused = true)]
async fn a_member_records_the_leases_that_it_reads() {
    let mut one = start_member();
    let mut other = lease("other", "1", 1);
    other["metadata"]["labels"] = json!({ "mainstay.dev/shard-lease": "member" });
    expect(&mut one.server, "GET").await.json(200, &other).await;
    expect(&mut one.server, "GET").await.cut();
    assert_eq!(one.seen.members(), [Member::new(0).unwrap()]);
}

/// Returns the Lease of a live member that shows that the Lease of shard 0 has expired at this version.
fn showing_expired(version: &str) -> Value {
    let mut shown = lease("other", "1", 7);
    let note = json!({ "generation": 1, "members": [], "expired": { "shard-0": version } }).to_string();
    shown["metadata"]["name"] = json!("mainstay-shard-1");
    shown["metadata"]["labels"] = json!({ "mainstay.dev/shard-lease": "member" });
    shown["metadata"]["annotations"] = json!({ "mainstay.dev/shard-view": note });
    shown
}

#[tokio::test(start_paused = true)]
async fn a_candidate_takes_a_lease_that_a_member_shows_as_expired_without_a_wait() {
    let (mut one, begun) = (start_member(), Instant::now());
    let dead = lease("dead", "1", 41);
    // It looks for a shard that it holds already, and does not take the Lease before it looks for a free one.
    expect(&mut one.server, "GET").await.json(200, &dead).await;
    expect(&mut one.server, "GET").await.json(200, &showing_expired("41")).await;
    expect(&mut one.server, "GET").await.json(200, &dead).await;
    let mut own = lease("me", "x", 42);
    own["metadata"]["name"] = json!("mainstay-shard-0");
    let taken = expect(&mut one.server, "PUT").await.json(200, &own).await;
    assert_eq!((&taken["metadata"]["resourceVersion"], &taken["spec"]["holderIdentity"]), (&json!("41"), &json!("me")));
    assert_eq!(one.leadership.term().await.expect("a term").member(), Member::new(0));
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_member_that_shows_another_version_each_time_does_not_make_a_candidate_read_without_a_pause() {
    let (mut one, begun) = (start_member(), Instant::now());
    for version in 0..40 {
        expect(&mut one.server, "GET").await.json(200, &lease("live", "2", 1000)).await;
        expect(&mut one.server, "GET").await.json(200, &showing_expired(&version.to_string())).await;
    }
    assert!(begun.elapsed() >= 3 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_candidate_waits_for_a_lease_that_was_renewed_after_a_member_has_shown_it_as_expired() {
    let (mut one, begun) = (start_member(), Instant::now());
    for _ in 0..3 {
        expect(&mut one.server, "GET").await.json(200, &lease("dead", "2", 42)).await;
        expect(&mut one.server, "GET").await.json(200, &showing_expired("41")).await;
    }
    let read = expect(&mut one.server, "GET").await;
    assert!(read.line().contains("mainstay-shard-0") && begun.elapsed() >= 2 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_write_failed_takes_no_other_shard_before_it_has_read_the_first_one_again() {
    let mut one = start_member();
    for _ in 0..3 {
        expect(&mut one.server, "GET").await.json(404, &absent()).await;
    }
    // The Lease is created, and only the response is lost.
    let failed = json!({ "code": 504, "reason": "Timeout" });
    expect(&mut one.server, "POST").await.json(504, &failed).await;
    for answer in [504, 200] {
        let read = expect(&mut one.server, "GET").await;
        assert!(read.line().contains("mainstay-shard-0"), "{}", read.line());
        let own = lease("me", "x", 1);
        read.json(answer, if answer == 200 { &own } else { &failed }).await;
    }
    let renewed = expect(&mut one.server, "PUT").await;
    renewed.json(200, &lease("me", "y", 2)).await;
    assert_eq!(one.leadership.term().await.expect("a term").member(), Member::new(0));
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_write_is_answered_late_takes_no_other_shard() {
    let mut one = start_member();
    for _ in 0..3 {
        expect(&mut one.server, "GET").await.json(404, &absent()).await;
    }
    let late = expect(&mut one.server, "POST").await;
    tokio::time::sleep(20 * SECOND).await;
    late.json(201, &lease("me", "x", 1)).await;
    let read = expect(&mut one.server, "GET").await;
    assert!(read.line().contains("mainstay-shard-0"), "{}", read.line());
    assert!(!one.leadership.is_leading());
    read.json(200, &lease("me", "x", 1)).await;
    expect(&mut one.server, "PUT").await.json(200, &lease("me", "y", 2)).await;
    assert_eq!(one.leadership.term().await.expect("a term").member(), Member::new(0));
}

/// A Lease of a leader among members that was released.
fn led() -> Value {
    let mut led = lease("", "", 1);
    led["metadata"]["labels"] = json!({ "mainstay.dev/shard-lease": "leader" });
    led["metadata"]["annotations"] = json!({ "mainstay.dev/shard-view": "other" });
    led
}

/// The same Lease with this holder.
fn led_by(holder: &str) -> Value {
    let mut led = led();
    led["spec"]["holderIdentity"] = json!(holder);
    led["metadata"]["resourceVersion"] = json!("2");
    led
}

/// Responds to a read of the Lease of a shard with this holder; without one, with 404.
async fn show(asked: Asked, holder: Option<&str>) {
    match holder {
        Some(holder) => asked.json(200, &lease(holder, "1", 1)).await,
        None => asked.json(404, &absent()).await,
    };
}

/// Responds to so many reads, each of the Lease of another shard, with these holders.
async fn read(server: &mut Server, reads: usize, holders: &[(&str, &str)]) {
    let mut paths = BTreeSet::new();
    for _ in 0..reads {
        let asked = expect(server, "GET").await;
        let path = asked.request.uri().path().to_owned();
        let holder = holders.iter().find(|(name, _)| path.ends_with(&format!("/{name}")));
        show(asked, holder.map(|(_, holder)| *holder)).await;
        assert!(path.contains("/mainstay-shard-") && paths.insert(path.clone()), "{path} is read once");
    }
}

/// Responds to a read of the Lease of the leader.
async fn read_leader(server: &mut Server, led: &Value) {
    let asked = expect(server, "GET").await;
    assert!(asked.request.uri().path().ends_with("/mainstay"), "{}", asked.line());
    asked.json(200, led).await;
}

/// Responds to the release of the Lease of the leader, which keeps its label.
async fn expect_release(server: &mut Server) {
    let released = expect(server, "PUT").await.json(200, &led()).await;
    assert_eq!(released["spec"]["holderIdentity"], "");
    assert_eq!(released["metadata"]["labels"], json!({ "mainstay.dev/shard-lease": "leader" }));
}

#[tokio::test(start_paused = true)]
async fn a_candidate_without_shards_waits_for_the_end_of_the_members() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let (second, third) = ("mainstay-shard-1", "mainstay-shard-2");
    // The Leases of the other shards were deleted. After the first reads, only the members that act are read. One of them
    // ends, and another one begins.
    let rounds: [(usize, &[(&str, &str)]); 4] = [
        (MEMBERS, &[(second, "other")]),
        (1, &[(second, "other")]),
        (MEMBERS, &[(second, ""), (third, "new")]),
        (1, &[(third, "new")]),
    ];
    let mut begun = Instant::now();
    for (at, (reads, holders)) in rounds.into_iter().enumerate() {
        assert!(!leadership.is_leading());
        read_leader(&mut server, &led()).await;
        read(&mut server, reads, holders).await;
        if at == 2 {
            begun = Instant::now();
        }
    }
    // The Lease of the new member is deleted, and counts until it would have expired. All are read before the Lease is taken,
    // and again before the term.
    let (mut written, mut reads) = (Vec::new(), 0);
    while written.len() < 2 {
        let asked = server.next().await;
        let path = asked.request.uri().path().to_owned();
        if asked.request.method() == "PUT" {
            assert!(!leadership.is_leading());
            assert!(reads >= MEMBERS, "{reads}");
            reads = 0;
            written.push(asked.json(200, &led_by("me")).await);
        } else if path.ends_with("/mainstay") {
            asked.json(200, &led()).await;
        } else {
            reads += 1;
            show(asked, path.ends_with(second).then_some("")).await;
        }
    }
    assert!(leadership.term().await.is_some());
    let waited = begun.elapsed();
    assert!((15 * SECOND..=16 * SECOND).contains(&waited), "{waited:?}");
    assert_eq!(written[0]["metadata"]["labels"], json!({ "mainstay.dev/shard-lease": "leader" }));
    assert_eq!(written[1]["metadata"]["labels"], json!({}));
    for written in written {
        assert_eq!(written["spec"]["holderIdentity"], "me");
        assert_eq!(written["metadata"]["annotations"].as_object().map(serde_json::Map::len), Some(1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_without_shards_releases_the_lease_if_a_member_has_begun_after_its_lease_was_read() {
    let (leadership, _shutdown, _running, mut server) = start();
    read_leader(&mut server, &led()).await;
    read(&mut server, MEMBERS, &[]).await;
    expect(&mut server, "PUT").await.json(200, &led_by("me")).await;
    read(&mut server, MEMBERS, &[("mainstay-shard-3", "new")]).await;
    expect_release(&mut server).await;
    for _ in 0..3 {
        read_leader(&mut server, &led()).await;
        read(&mut server, 1, &[("mainstay-shard-3", "new")]).await;
        assert!(!leadership.is_leading());
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_candidate_without_shards_waits_for_the_members_too() {
    let (leadership, _shutdown, _running, mut server) = start();
    read_leader(&mut server, &led_by("me")).await;
    read(&mut server, MEMBERS, &[("mainstay-shard-3", "new")]).await;
    expect_release(&mut server).await;
    for _ in 0..2 {
        read_leader(&mut server, &led()).await;
        read(&mut server, 1, &[("mainstay-shard-3", "new")]).await;
        assert!(!leadership.is_leading());
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_without_shards_releases_the_lease_if_it_does_not_know_whether_a_member_acts() {
    let failed = json!({ "code": 504, "reason": "Timeout" });
    // Another process of this candidate may have taken the Lease.
    for taken_before in [false, true] {
        let (mut leadership, _shutdown, _running, mut server) = start();
        if taken_before {
            read_leader(&mut server, &led_by("me")).await;
        } else {
            read_leader(&mut server, &led()).await;
            read(&mut server, MEMBERS, &[]).await;
            expect(&mut server, "PUT").await.json(200, &led_by("me")).await;
        }
        read(&mut server, 2, &[]).await;
        expect(&mut server, "GET").await.json(504, &failed).await;
        expect_release(&mut server).await;
        assert!(!leadership.is_leading());
        // All members are read again, before and after the Lease is taken.
        read_leader(&mut server, &led()).await;
        read(&mut server, MEMBERS, &[]).await;
        expect(&mut server, "PUT").await.json(200, &led_by("me")).await;
        read(&mut server, MEMBERS, &[]).await;
        expect(&mut server, "PUT").await.json(200, &led_by("me")).await;
        assert!(leadership.term().await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn members_that_end_without_a_release_expire_together() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let (begun, mut reads, mut writes) = (Instant::now(), 0, 0);
    while writes < 2 {
        let asked = server.next().await;
        let path = asked.request.uri().path().to_owned();
        if asked.request.method() == "PUT" {
            writes += 1;
            asked.json(200, &led_by("me")).await;
        } else if path.ends_with("/mainstay") {
            asked.json(200, &led()).await;
        } else {
            reads += 1;
            asked.json(200, &lease("other", "1", 1)).await;
        }
    }
    assert!(leadership.term().await.is_some());
    // All of them were read first when the wait began.
    let waited = begun.elapsed();
    assert!((15 * SECOND..20 * SECOND).contains(&waited), "{waited:?} and {reads} reads");
}
