//! Tests of the queue in virtual time.

use jiff::Timestamp;

use super::*;

pub(crate) fn notice(name: &str, priority: Priority) -> Notice {
    let severity = if priority == Priority::Failure { Severity::Error } else { Severity::Info };
    let reason = if priority == Priority::Failure { "Failed" } else { "Reverted" };
    Notice {
        kind: "GitSync".to_owned(),
        api_version: "mainstay.dev/v1alpha1".to_owned(),
        namespace: "shop".to_owned(),
        name: "demo".to_owned(),
        uid: Some("0b9a8c1d-0000-0000-0000-000000000000".to_owned()),
        object: (priority != Priority::State).then(|| format!("Deployment shop/{name}")),
        severity,
        priority,
        reason: reason.to_owned(),
        message: format!("Deployment shop/{name}: reverted spec.replicas (changed by kubectl, 2.0 ms)"),
        time: Timestamp::UNIX_EPOCH,
        commit: None,
        details: BTreeMap::from([("revision".to_owned(), "sha1:0123".to_owned())]),
        metadata: BTreeMap::new(),
        alert: None,
        key: format!("{name} {priority:?}"),
    }
}

const fn at_second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn retry() -> Outcome {
    Outcome::Retry { why: "away".to_owned(), after: None }
}

/// Sends all notices that are due at a time, and returns them.
fn drain(queue: &mut Queue, now: Duration, outcome: &Outcome) -> Vec<Notice> {
    let mut sent = Vec::new();
    while let Next::Send(notice) = queue.next(now) {
        queue.settle(outcome, now);
        sent.push(*notice);
    }
    sent
}

#[test]
fn a_storm_of_reverts_becomes_the_budget_of_messages_with_failures_first_and_flat_memory() {
    let mut queue = Queue::default();
    let (mut sent, mut most) = (Vec::new(), 0);
    for number in 0..5000_u64 {
        let now = Duration::from_millis(number * 12);
        queue.offer(notice(&number.to_string(), Priority::Routine), now);
        if number % 1000 == 999 {
            queue.offer(notice(&format!("failed-{number}"), Priority::Failure), now);
            let due = drain(&mut queue, now, &Outcome::Delivered);
            assert_eq!(due[0].priority, Priority::Failure, "the failure is sent at once and first");
            sent.extend(due);
        }
        sent.extend(drain(&mut queue, now, &Outcome::Delivered));
        most = most.max(queue.bytes);
    }
    assert_eq!(sent.iter().filter(|notice| notice.priority == Priority::Failure).count(), 5);
    assert_eq!(sent.len(), 15, "ten reverts and five failures");
    assert!(most < 16 << 10, "{most} bytes");
    let Next::Wait(due) = queue.next(at_second(60)) else { panic!("a sum waits") };
    let sum = drain(&mut queue, due, &Outcome::Delivered);
    assert_eq!(sum.len(), 1);
    assert_eq!(sum[0].message, "and 4990 more: 4990 Reverted");
    assert_eq!(queue.next(at_second(600)), Next::Idle);
}

#[test]
fn a_storm_of_failures_never_exceeds_the_budget_and_the_memory() {
    let mut queue = Queue::default();
    queue.set_budget(Some(5));
    let mut times = Vec::new();
    for second in 0..600 {
        for number in 0..50 {
            queue.offer(notice(&format!("{second}-{number}"), Priority::Failure), at_second(second));
        }
        times.extend(drain(&mut queue, at_second(second), &Outcome::Delivered).iter().map(|_| second));
        assert!(queue.bytes <= BYTES && queue.recent.len() <= KEYS);
    }
    for second in 0..600 {
        let within = times.iter().filter(|time| (second..second + 60).contains(*time)).count();
        assert!(within <= 5, "{within} in the minute from {second}");
    }
    assert!(times.len() >= 45, "{}", times.len());
    assert!(queue.waiting[0].len() <= MINUTES * 5 + 1, "{}", queue.waiting[0].len());
}

#[test]
fn a_receiver_that_is_away_for_an_hour_gets_the_notices_in_order_when_it_answers() {
    let mut queue = Queue::default();
    queue.offer(notice("a", Priority::Routine), at_second(0));
    queue.offer(notice("b", Priority::Failure), at_second(0));
    queue.offer(notice("a", Priority::Failure), at_second(0));
    let (mut now, mut attempts) = (at_second(0), 0);
    while now < at_second(3500) {
        match queue.next(now) {
            Next::Send(_) => {
                attempts += 1;
                queue.settle(&retry(), now);
            }
            Next::Wait(until) => now = until,
            Next::Idle => panic!("notices wait"),
        }
    }
    assert!((50..70).contains(&attempts), "{attempts} attempts");
    let sent = drain(&mut queue, now, &Outcome::Delivered);
    let keys: Vec<_> = sent.iter().map(|notice| notice.key.as_str()).collect();
    assert_eq!(keys, ["b Failure", "a Routine", "a Failure"], "the order of an object is kept");
}

#[test]
fn a_notice_that_was_tried_for_an_hour_is_counted_and_reported_when_the_receiver_answers() {
    let mut queue = Queue::default();
    queue.offer(notice("a", Priority::Failure), at_second(0));
    assert!(matches!(queue.next(at_second(0)), Next::Send(_)));
    queue.settle(&retry(), at_second(0));
    assert_eq!(queue.next(at_second(0)), Next::Wait(at_second(1)));
    queue.offer(notice("b", Priority::Failure), at_second(3590));
    assert_eq!(drain(&mut queue, at_second(3600), &Outcome::Delivered)[0].key, "b Failure");
    let sum = drain(&mut queue, at_second(3661), &Outcome::Delivered);
    assert_eq!(sum[0].message, "and 1 more: 1 Failed");
    assert_eq!(sum[0].severity, Severity::Error);
}

#[test]
fn a_repetition_within_five_minutes_is_dropped_unless_the_state_changed() {
    let mut queue = Queue::default();
    let sent = |queue: &mut Queue, one: Notice, second: u64| {
        queue.offer(one, at_second(second));
        drain(queue, at_second(second), &Outcome::Delivered).len()
    };
    assert_eq!(sent(&mut queue, notice("a", Priority::Routine), 0), 1);
    assert_eq!(sent(&mut queue, notice("a", Priority::Routine), 299), 0);
    assert_eq!(sent(&mut queue, notice("a", Priority::Routine), 300), 1);
    let state = |key: &str| Notice { key: key.to_owned(), ..notice("x", Priority::State) };
    assert_eq!(sent(&mut queue, state("failed"), 301), 1);
    assert_eq!(sent(&mut queue, state("failed"), 302), 0);
    assert_eq!(sent(&mut queue, state("applied"), 303), 1);
    assert_eq!(sent(&mut queue, state("failed"), 304), 1, "it fails again");
}

#[test]
fn guards_and_recoveries_are_sent_before_routine_notices() {
    let mut queue = Queue::default();
    for number in 0..50 {
        queue.offer(notice(&number.to_string(), Priority::Routine), at_second(0));
    }
    for (name, priority) in [("recovered", Priority::State), ("held", Priority::Failure)] {
        queue.offer(notice(name, priority), at_second(0));
    }
    let sent: Vec<_> = drain(&mut queue, at_second(0), &Outcome::Delivered).iter().map(|one| one.priority).collect();
    assert_eq!(sent[..3], [Priority::Failure, Priority::State, Priority::Routine]);
}

#[test]
fn a_refused_notice_is_not_sent_again() {
    let mut queue = Queue::default();
    queue.offer(notice("a", Priority::Failure), at_second(0));
    let sent = drain(&mut queue, at_second(0), &Outcome::Refused("it is invalid".to_owned()));
    assert_eq!((sent.len(), queue.next(at_second(0))), (1, Next::Idle));
}

#[test]
fn the_delay_that_a_receiver_asks_for_is_kept() {
    let mut queue = Queue::default();
    queue.offer(notice("a", Priority::Failure), at_second(0));
    assert!(matches!(queue.next(at_second(0)), Next::Send(_)));
    queue.settle(&Outcome::Retry { why: "busy".to_owned(), after: Some(at_second(90)) }, at_second(0));
    assert_eq!(queue.next(at_second(1)), Next::Wait(at_second(90)));
    queue.retry_now();
    assert!(matches!(queue.next(at_second(1)), Next::Send(_)), "the settings changed");
}

#[test]
fn a_delay_of_an_hour_ends_before_the_notice_is_given_up() {
    let mut queue = Queue::default();
    let hour = || Outcome::Retry { why: "limited".to_owned(), after: Some(at_second(3600)) };
    queue.offer(notice("a", Priority::Failure), at_second(0));
    assert!(matches!(queue.next(at_second(5)), Next::Send(_)));
    queue.settle(&hour(), at_second(5));
    assert_eq!(queue.next(at_second(6)), Next::Wait(at_second(3540)));
    let Next::Send(again) = queue.next(at_second(3540)) else { panic!("there is a second attempt") };
    assert_eq!(again.key, "a Failure");
    queue.settle(&hour(), at_second(3540));
    assert_eq!(queue.next(at_second(3540)), Next::Wait(at_second(3542)), "the usual delay is kept");
    assert_eq!(drain(&mut queue, at_second(3542), &Outcome::Delivered).len(), 1);
}

#[test]
fn counted_notices_are_summed_up_and_not_sent() {
    let mut queue = Queue::default();
    queue.count(notice("a", Priority::Routine), 400, at_second(0));
    queue.count(notice("b", Priority::Failure), 12, at_second(1));
    assert_eq!(queue.next(at_second(1)), Next::Wait(at_second(60)));
    let sum = drain(&mut queue, at_second(60), &Outcome::Delivered);
    assert_eq!((sum.len(), sum[0].message.as_str()), (1, "and 412 more: 12 Failed, 400 Reverted"));
    assert_eq!(sum[0].severity, Severity::Error);
}
