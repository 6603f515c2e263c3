//! Leader election, against a fake API server.

use super::super::fake::{self, Asked, Server};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn lease(holder: &str, renewed: &str, version: u64) -> Value {
    json!({
        "metadata": { "name": "mainstay", "namespace": "a", "resourceVersion": version.to_string() },
        "spec": { "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed, "leaseTransitions": 3 },
    })
}

/// A running elector, its leadership, and its server.
fn start() -> (Leadership, CancellationToken, tokio::task::JoinHandle<()>, Server) {
    let (cluster, server) = fake::cluster();
    let (elector, leadership) = Elector::new(cluster, "a", "mainstay", "me", Timing::default());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(elector.run(shutdown.clone()));
    (leadership, shutdown, running, server)
}

async fn expect(server: &mut Server, method: &str) -> Asked {
    let asked = server.next().await;
    assert_eq!(asked.request.method(), method);
    asked
}

/// Lets the elector take a released Lease. Its version is 2 after that.
async fn lead(leadership: &mut Leadership, server: &mut Server) -> Term {
    expect(server, "GET").await.json(200, &lease("", "", 1)).await;
    let written = expect(server, "PUT").await.json(200, &lease("me", "x", 2)).await;
    assert_eq!(written["metadata"]["resourceVersion"], "1");
    assert_eq!((&written["spec"]["holderIdentity"], &written["spec"]["leaseTransitions"]), (&json!("me"), &json!(4)));
    leadership.term().await.expect("a term")
}

#[test]
fn respects_a_lease_for_its_duration_by_our_own_clock() {
    let now = Instant::now();
    let check = |holder: &str, age: Duration, expected: LeaseAction| {
        // A renewTime in the past has no effect.
        let seen = ObservedLease { spec: lease(holder, "1999-01-01T00:00:00.000000Z", 1)["spec"].clone(), at: now };
        assert_eq!(decide(&seen, "me", 15 * SECOND, now + age), expected, "{holder} after {age:?}");
    };
    check("other", Duration::ZERO, LeaseAction::Wait);
    check("other", 14 * SECOND, LeaseAction::Wait);
    check("other", 15 * SECOND, LeaseAction::Take);
    check("", Duration::ZERO, LeaseAction::Take);
    check("me", Duration::ZERO, LeaseAction::Take);
}

#[test]
fn a_candidate_tries_again_just_after_the_next_expiry() {
    let start = Instant::now();
    let observed = |at: Instant| ObservedLease { spec: lease("other", "1", 1)["spec"].clone(), at };
    let mut seen = Observed::default();
    seen.own.insert(0, observed(start));
    seen.own.insert(1, observed(start + 5 * SECOND));
    let pause = |seen: &Observed, seconds: u32, chance: f64| {
        super::pause(seen, Timing::default(), start + SECOND * seconds, chance).as_millis()
    };
    assert_eq!((pause(&seen, 0, 0.0), pause(&seen, 0, 1.0)), (2000, 2400), "it polls");
    assert_eq!((pause(&seen, 14, 0.0), pause(&seen, 14, 1.0)), (1000, 1200), "the first one expires");
    assert_eq!((pause(&seen, 15, 0.0), pause(&seen, 19, 0.0)), (2000, 1000), "the second one expires");
    assert_eq!(pause(&seen, 20, 0.0), 2000, "both have expired");
    seen.members.insert(0, observed(start + 6 * SECOND));
    assert_eq!(pause(&seen, 20, 0.0), 1000, "a member expires");
    seen.failed = 3;
    assert_eq!(pause(&seen, 20, 0.0), 6000, "a failed attempt is not repeated earlier");
}

#[test]
fn an_unusable_duration_counts_as_our_own() {
    let now = Instant::now();
    let mut spec = lease("other", "x", 1)["spec"].clone();
    spec["leaseDurationSeconds"] = json!(-4);
    let seen = ObservedLease { spec, at: now };
    assert_eq!(decide(&seen, "me", 15 * SECOND, now + 14 * SECOND), LeaseAction::Wait);
}

#[test]
fn every_renewal_restarts_the_time() {
    let start = Instant::now();
    let seen = observe(None, &lease("other", "1", 1), start);
    let same = observe(Some(seen.clone()), &lease("other", "1", 9), start + SECOND);
    assert_eq!(same.at, start);
    let renewed = observe(Some(seen), &lease("other", "2", 10), start + SECOND);
    assert_eq!(renewed.at, start + SECOND);
}

#[test]
fn a_renewal_keeps_when_it_was_acquired() {
    let first = held(&json!({ "metadata": {} }), "me", Timing::default(), Timestamp::from_second(1).unwrap());
    assert_eq!(first["spec"]["leaseTransitions"], 0);
    assert_eq!(first["spec"]["acquireTime"], "1970-01-01T00:00:01.000000Z");
    let again = held(&first, "me", Timing::default(), Timestamp::from_millisecond(2500).unwrap());
    assert_eq!(again["spec"]["acquireTime"], "1970-01-01T00:00:01.000000Z");
    assert_eq!(again["spec"]["renewTime"], "1970-01-01T00:00:02.500000Z");
    assert_eq!(again["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn creates_a_lease_that_is_not_there() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    expect(&mut server, "GET").await.json(404, &json!({ "code": 404, "reason": "NotFound" })).await;
    let created = expect(&mut server, "POST").await.json(201, &lease("me", "x", 1)).await;
    assert_eq!(created["metadata"]["name"], "mainstay");
    assert!(leadership.term().await.is_some());
    assert!(leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_member_takes_the_first_free_shard_and_shows_its_view() {
    let (cluster, mut server) = fake::cluster();
    let (note, published) = watch::channel(None);
    let (elector, mut leadership) = Elector::of_shards(cluster, "a", 2, "me", Timing::default(), published);
    let running = tokio::spawn(elector.run(CancellationToken::new()));
    let absent = json!({ "code": 404, "reason": "NotFound" });
    // It looks for a shard that it holds already, and then for a free one.
    for _ in 0..2 {
        expect(&mut server, "GET").await.json(200, &lease("other", "1", 1)).await;
        expect(&mut server, "GET").await.json(404, &absent).await;
    }
    let mut own = lease("me", "x", 1);
    own["metadata"]["name"] = json!("mainstay-shard-1");
    let created = expect(&mut server, "POST").await.json(201, &own).await;
    assert_eq!(created["metadata"]["name"], "mainstay-shard-1");
    assert_eq!(created["metadata"]["labels"]["mainstay.dev/shard-lease"], "member");
    let term = leadership.term().await.expect("a term");
    assert_eq!(term.member(), Member::new(1));
    note.send_replace(Some("view".to_owned()));
    let renewed = expect(&mut server, "PUT").await.json(200, &own).await;
    assert_eq!(renewed["metadata"]["annotations"]["mainstay.dev/shard-view"], "view");
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_write_failed_takes_no_other_shard_before_it_has_read_the_first_one_again() {
    let (cluster, mut server) = fake::cluster();
    let (_note, published) = watch::channel(None);
    let (elector, mut leadership) = Elector::of_shards(cluster, "a", 2, "me", Timing::default(), published);
    let running = tokio::spawn(elector.run(CancellationToken::new()));
    let absent = json!({ "code": 404, "reason": "NotFound" });
    for _ in 0..2 {
        expect(&mut server, "GET").await.json(404, &absent).await;
    }
    expect(&mut server, "GET").await.json(404, &absent).await;
    // The Lease is created, and only the response is lost.
    let failed = json!({ "code": 504, "reason": "Timeout" });
    expect(&mut server, "POST").await.json(504, &failed).await;
    for answer in [504, 200] {
        let read = expect(&mut server, "GET").await;
        assert!(read.line().contains("mainstay-shard-0"), "{}", read.line());
        let own = lease("me", "x", 1);
        read.json(answer, if answer == 200 { &own } else { &failed }).await;
    }
    let renewed = expect(&mut server, "PUT").await;
    renewed.json(200, &lease("me", "y", 2)).await;
    assert_eq!(leadership.term().await.expect("a term").member(), Member::new(0));
    running.abort();
}

/// Returns the path of the next request, which is a read, and responds with a Lease of this holder; without one, with 404.
async fn read(server: &mut Server, holder: impl Fn(&str) -> Option<&'static str>) -> String {
    let asked = expect(server, "GET").await;
    let path = asked.request.uri().path().to_owned();
    match holder(&path) {
        Some(holder) => asked.json(200, &lease(holder, "1", 1)).await,
        None => asked.json(404, &json!({ "code": 404, "reason": "NotFound" })).await,
    };
    path
}

#[tokio::test(start_paused = true)]
async fn a_candidate_without_shards_waits_for_the_end_of_the_members() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let mut led = lease("", "", 1);
    led["metadata"]["labels"] = json!({ "mainstay.dev/shard-lease": "leader" });
    led["metadata"]["annotations"] = json!({ "mainstay.dev/shard-view": "other" });
    let most = usize::from(MOST);
    // The Leases of the other shards were deleted. After the first reads, only the members that act are read, and all
    // again before the Lease is taken. In between, a member begins to act.
    for (second, third, reads) in
        [("other", None, most), ("other", None, 1), ("", Some("new"), most), ("", Some("new"), 1), ("", None, most)]
    {
        assert!(!leadership.is_leading());
        let asked = expect(&mut server, "GET").await;
        assert!(asked.request.uri().path().ends_with("/mainstay"), "{}", asked.line());
        asked.json(200, &led).await;
        let holder = |path: &str| match path.rsplit_once('/')?.1 {
            "mainstay-shard-1" => Some(second),
            "mainstay-shard-2" => third,
            _ => None,
        };
        let mut paths = BTreeSet::new();
        for _ in 0..reads {
            paths.insert(read(&mut server, holder).await);
        }
        assert_eq!(paths.len(), reads, "each Lease is read once: {paths:?}");
    }
    let taken = expect(&mut server, "PUT").await.json(200, &lease("me", "x", 2)).await;
    assert_eq!(taken["metadata"]["labels"], json!({}));
    assert_eq!(taken["metadata"]["annotations"].as_object().map(serde_json::Map::len), Some(1));
    assert!(leadership.term().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn members_that_end_without_a_release_expire_together() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let mut led = lease("", "", 1);
    led["metadata"]["labels"] = json!({ "mainstay.dev/shard-lease": "leader" });
    let (begun, mut reads) = (Instant::now(), 0);
    loop {
        let asked = server.next().await;
        let path = asked.request.uri().path().to_owned();
        if asked.request.method() == "PUT" {
            asked.json(200, &lease("me", "x", 2)).await;
            break;
        }
        if path.ends_with("/mainstay") {
            asked.json(200, &led).await;
            continue;
        }
        reads += 1;
        asked.json(200, &lease("other", "1", 1)).await;
    }
    assert!(leadership.term().await.is_some());
    // All of them were read first when the wait began.
    let waited = begun.elapsed();
    assert!((15 * SECOND..20 * SECOND).contains(&waited), "{waited:?} and {reads} reads");
}

#[tokio::test(start_paused = true)]
async fn waits_while_another_renews_and_takes_over_when_it_stops() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    for renewal in 0..20 {
        expect(&mut server, "GET").await.json(200, &lease("other", &renewal.to_string(), renewal)).await;
        assert!(!leadership.is_leading());
    }
    let stopped = Instant::now();
    loop {
        let asked = server.next().await;
        if asked.request.method() == "PUT" {
            let waited = stopped.elapsed();
            assert!((12 * SECOND..=16 * SECOND).contains(&waited), "{waited:?}");
            asked.json(200, &lease("me", "x", 30)).await;
            break;
        }
        asked.json(200, &lease("other", "19", 19)).await;
    }
    assert!(leadership.term().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_slower_of_two_concurrent_candidates_waits() {
    let (leadership, _shutdown, _running, mut server) = start();
    expect(&mut server, "GET").await.json(200, &lease("", "", 1)).await;
    expect(&mut server, "PUT").await.json(409, &json!({ "code": 409, "reason": "Conflict" })).await;
    expect(&mut server, "GET").await.json(200, &lease("other", "1", 2)).await;
    assert!(!leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn steps_down_before_the_lease_expires_when_the_server_is_away() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let term = lead(&mut leadership, &mut server).await;
    let renewed = Instant::now();
    let away = async {
        loop {
            server.next().await.cut();
        }
    };
    tokio::select! {
        () = term.ended().cancelled() => {}
        () = away => {}
    }
    let lasted = renewed.elapsed();
    assert!((9 * SECOND..=10 * SECOND).contains(&lasted), "{lasted:?}");
    assert!(!leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn steps_down_in_time_when_the_server_never_answers() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let term = lead(&mut leadership, &mut server).await;
    let renewed = Instant::now();
    let mut unanswered = Vec::new();
    let hangs = async {
        loop {
            unanswered.push(server.next().await);
        }
    };
    tokio::select! {
        () = term.ended().cancelled() => {}
        () = hangs => {}
    }
    assert!(renewed.elapsed() <= 10 * SECOND, "{:?}", renewed.elapsed());
    assert!(unanswered.len() >= 2, "a request that hangs leaves time for another one");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_counts_from_when_it_was_sent() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let term = lead(&mut leadership, &mut server).await;
    let slow = expect(&mut server, "PUT").await;
    let sent = Instant::now();
    tokio::time::sleep(3 * SECOND).await;
    slow.json(200, &lease("me", "2", 3)).await;
    let away = async {
        loop {
            server.next().await.cut();
        }
    };
    tokio::select! {
        () = term.ended().cancelled() => {}
        () = away => {}
    }
    assert!(sent.elapsed() <= 10 * SECOND, "{:?}", sent.elapsed());
}

#[tokio::test(start_paused = true)]
async fn steps_down_at_once_when_another_took_the_lease() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let term = lead(&mut leadership, &mut server).await;
    expect(&mut server, "PUT").await.json(409, &json!({ "code": 409, "reason": "Conflict" })).await;
    expect(&mut server, "GET").await.json(200, &lease("other", "1", 9)).await;
    term.ended().cancelled().await;
    assert!(!leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn survives_that_an_answer_got_lost() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let term = lead(&mut leadership, &mut server).await;
    expect(&mut server, "PUT").await.cut();
    expect(&mut server, "PUT").await.json(409, &json!({ "code": 409, "reason": "Conflict" })).await;
    expect(&mut server, "GET").await.json(200, &lease("me", "2", 3)).await;
    let renewed = expect(&mut server, "PUT").await.json(200, &lease("me", "3", 4)).await;
    assert_eq!(renewed["metadata"]["resourceVersion"], "3");
    expect(&mut server, "PUT").await.json(200, &lease("me", "4", 5)).await;
    assert!(!term.ended().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn ends_the_term_and_then_gives_the_lease_back() {
    let (mut leadership, shutdown, running, mut server) = start();
    let term = lead(&mut leadership, &mut server).await;
    shutdown.cancel();
    let asked = expect(&mut server, "PUT").await;
    assert!(term.ended().is_cancelled() && !leadership.is_leading());
    let released = asked.json(200, &lease("", "x", 3)).await;
    assert_eq!(
        (&released["spec"]["holderIdentity"], &released["metadata"]["resourceVersion"]),
        (&json!(""), &json!("2"))
    );
    running.await.expect("the elector ends");
    assert!(leadership.term().await.is_none());
}
