//! Leader election, against a fake API server.

mod members;

use std::time::Duration;

use super::super::fake::{self, Asked, Server};
use super::observed::{LeaseAction, ObservedLease, decide};
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

fn absent() -> Value {
    json!({ "code": 404, "reason": "NotFound" })
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
    seen.refused = 3;
    assert_eq!(pause(&seen, 20, 0.0), 6000, "a refused attempt is not repeated earlier");
    seen.refused = 1;
    let pauses = [0; 9].map(|_| {
        seen.end_round();
        pause(&seen, 20, 0.0)
    });
    assert_eq!(
        pauses,
        [2000, 4000, 6000, 8000, 10_000, 12_000, 14_000, 15_000, 15_000],
        "it is refused again and again"
    );
    seen.refused = 0;
    seen.end_round();
    assert_eq!(pause(&seen, 20, 0.0), 1000, "a round without a refusal");
}

#[test]
fn a_lease_that_cannot_be_read_does_not_delay_the_attempt_after_the_expiry_of_another() {
    let start = Instant::now();
    let observed = |at: Instant| ObservedLease { spec: lease("other", "1", 1)["spec"].clone(), at };
    let mut seen = Observed::default();
    seen.own.insert(0, observed(start));
    seen.own.insert(1, observed(start + SECOND));
    let pause = |seen: &Observed| super::pause(seen, Timing::default(), start + 14 * SECOND, 0.0).as_millis();
    seen.unread.insert(2);
    assert_eq!(pause(&seen), 1000, "the first one expires");
    seen.unread.extend([0, 3]);
    assert_eq!(pause(&seen), 2000, "the second one expires");
    seen.unread.insert(1);
    assert_eq!(pause(&seen), 8000, "the pause grows with the failures");
    seen.unread.clear();
    seen.doubt(3);
    assert_eq!(pause(&seen), 2000, "another one may be held");
    seen.doubt(3);
    assert_eq!(pause(&seen), 19_000, "another one may be held again, and expires for others");
    seen.unread.insert(3);
    assert_eq!(pause(&seen), 2000, "it could not be read");
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
    let observe = |seen: Option<&ObservedLease>, found: Option<Value>, at: Instant| {
        super::observed::observe(seen.cloned(), found.as_ref(), at)
    };
    let seen = observe(None, Some(lease("other", "1", 1)), start).unwrap();
    let same = observe(Some(&seen), Some(lease("other", "1", 9)), start + SECOND).unwrap();
    assert_eq!(same.at, start);
    let renewed = observe(Some(&seen), Some(lease("other", "2", 10)), start + SECOND).unwrap();
    assert_eq!(renewed.at, start + SECOND);
    assert_eq!(observe(Some(&seen), None, start + SECOND), Some(seen), "it was deleted");
    assert_eq!(observe(None, None, start), None);
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
async fn work_goes_on_if_the_work_beside_it_ends_or_panics() {
    let work = || async {
        tokio::time::sleep(SECOND).await;
        7
    };
    assert_eq!(beside(work(), async {}).await, 7);
    assert_eq!(beside(work(), async { panic!("the watch") }).await, 7);
    assert_eq!(beside(work(), std::future::pending()).await, 7);
}

#[tokio::test(start_paused = true)]
async fn creates_a_lease_that_is_not_there() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    expect(&mut server, "GET").await.json(404, &absent()).await;
    let created = expect(&mut server, "POST").await.json(201, &lease("me", "x", 1)).await;
    assert_eq!(created["metadata"]["name"], "mainstay");
    assert!(leadership.term().await.is_some());
    assert!(leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn respects_a_deleted_lease_until_it_would_have_expired() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    expect(&mut server, "GET").await.json(200, &lease("other", "1", 1)).await;
    let seen = Instant::now();
    loop {
        let asked = server.next().await;
        if asked.request.method() == "POST" {
            let waited = seen.elapsed();
            assert!((15 * SECOND..=16 * SECOND).contains(&waited), "{waited:?}");
            asked.json(201, &lease("me", "x", 1)).await;
            break;
        }
        asked.json(404, &absent()).await;
    }
    assert!(leadership.term().await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_answered_without_time_for_a_renewal_begins_no_term() {
    for seconds in [9_u32, 20] {
        let (mut leadership, _shutdown, _running, mut server) = start();
        expect(&mut server, "GET").await.json(200, &lease("", "", 1)).await;
        let late = expect(&mut server, "PUT").await;
        tokio::time::sleep(seconds * SECOND).await;
        late.json(200, &lease("me", "x", 2)).await;
        let read = tokio::select! {
            biased;
            _ = leadership.term() => panic!("a term began {seconds} s after its write"),
            read = expect(&mut server, "GET") => read,
        };
        assert!(!leadership.is_leading());
        read.json(200, &lease("me", "x", 2)).await;
        expect(&mut server, "PUT").await.json(200, &lease("me", "y", 3)).await;
        assert!(leadership.term().await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_candidate_whose_responses_are_late_leaves_the_lease_to_another_one() {
    let (cluster, mut of_slow) = fake::cluster();
    let (elector, slow) = Elector::new(cluster, "a", "mainstay", "slow", Timing::default());
    let _slow = tokio::spawn(elector.run(CancellationToken::new()));
    let (mut leadership, _shutdown, _running, mut of_other) = start();
    let (mut state, mut version) = (lease("slow", "1", 1), 1);
    let led = async {
        loop {
            let (asked, holder) = tokio::select! {
                _ = leadership.term() => break,
                asked = of_slow.next() => (asked, "slow"),
                asked = of_other.next() => (asked, "me"),
            };
            let is_write = asked.request.method() == "PUT";
            if is_write {
                version += 1;
                state = lease(holder, &version.to_string(), version);
            }
            // The write is carried out, and only its response is late.
            let delay = if is_write && holder == "slow" { 11 * SECOND } else { Duration::ZERO };
            let answer = state.clone();
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                asked.json(200, &answer).await;
            });
        }
    };
    tokio::time::timeout(60 * SECOND, led).await.expect("the other candidate leads");
    assert!(!slow.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_paused_reads_the_lease_before_it_leads_again() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let term = lead(&mut leadership, &mut server).await;
    tokio::time::advance(20 * SECOND).await;
    expect(&mut server, "GET").await.json(200, &lease("other", "1", 9)).await;
    assert!(term.ended().is_cancelled() && !leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_while_the_process_is_paused_ends_the_term() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    let term = lead(&mut leadership, &mut server).await;
    // Both the response and the timeout are there when the process continues.
    expect(&mut server, "PUT").await.json(200, &lease("me", "2", 3)).await;
    tokio::time::advance(20 * SECOND).await;
    expect(&mut server, "GET").await.json(200, &lease("other", "1", 9)).await;
    assert!(term.ended().is_cancelled() && !leadership.is_leading());
}

#[tokio::test(start_paused = true)]
async fn a_term_that_begins_late_is_renewed_before_its_deadline() {
    let (mut leadership, _shutdown, _running, mut server) = start();
    expect(&mut server, "GET").await.json(200, &lease("", "", 1)).await;
    let slow = expect(&mut server, "PUT").await;
    let sent = Instant::now();
    tokio::time::sleep(7 * SECOND).await;
    slow.json(200, &lease("me", "x", 2)).await;
    let term = leadership.term().await.expect("a term");
    let renewal = expect(&mut server, "PUT").await;
    assert!(sent.elapsed() < 9 * SECOND, "{:?}", sent.elapsed());
    renewal.json(200, &lease("me", "y", 3)).await;
    for version in [4, 5] {
        expect(&mut server, "PUT").await.json(200, &lease("me", &version.to_string(), version)).await;
    }
    assert!(!term.ended().is_cancelled() && sent.elapsed() > 10 * SECOND);
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
            assert!((15 * SECOND..=15 * SECOND + SECOND * 3 / 10).contains(&waited), "{waited:?}");
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
