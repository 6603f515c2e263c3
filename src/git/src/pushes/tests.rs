//! Tests of the consumers that are woken, and of the times.

use super::*;
use crate::consumers::ConsumerKind;
use crate::found_commit::KnownCommits;
use crate::ref_list::{At, RefNames, Refs};
use crate::{Credentials, Secret};

const URL: &str = "https://example.org/a";

fn consumer(name: &str) -> Consumer {
    Consumer::new(ConsumerKind::GitSync, "shop", name)
}

fn followed(url: &str, reference: &str) -> Followed {
    let (url, reference) = (RemoteUrl::parse(url).unwrap(), Reference::parse(reference).unwrap());
    Followed { repository: "repo".into(), url, reference }
}

fn remote(url: &str, password: &str) -> Remote {
    let password = Secret::new(password.to_owned());
    Remote::new(RemoteUrl::parse(url).unwrap(), Credentials::Basic { username: "u".into(), password })
}

#[test]
fn a_storm_of_deliveries_wakes_once_per_time_between_and_the_last_one_counts() {
    let pushes = Pushes::default();
    let (one, two) = (consumer("one"), consumer("two"));
    let received = [&one, &two].map(|consumer| pushes.subscribe(consumer));
    pushes.set(&one, Some(followed("https://example.org/a", "main")));
    pushes.set(&two, Some(followed("https://example.org/b", "main")));
    let start = begin();
    let mut due = Vec::new();
    for millis in 0..10_000 {
        let now = start + Duration::from_millis(millis);
        assert_eq!(pushes.wake(|consumer, _| *consumer == one, now), std::slice::from_ref(&one));
        let taken = received[0].take().unwrap();
        assert!(taken.at >= now && taken.at <= now + BETWEEN, "the delivery counts, and soon");
        assert_eq!(taken, LookupDue::pushed(taken.at));
        due.push(taken.at);
    }
    due.dedup();
    assert_eq!(due.len(), 11, "at once, and then every second");
    assert_eq!(received[1].take(), None, "nobody meant the other one");
    let now = start + Duration::from_millis(10_500);
    pushes.wake(|_, _| true, now);
    assert_eq!(received[1].take(), Some(LookupDue::pushed(now)), "each address for itself");
    pushes.remove(&one);
    pushes.remove(&two);
    pushes.wake(|_, _| true, now + 2 * BETWEEN);
    assert!(pushes.0.lock().rows.is_empty() && pushes.0.lock().last.is_empty(), "nothing is kept of who is gone");
}

/// Remotes of one repository, with the commits that each remote has found.
struct Bench {
    pushes: Pushes,
    known: HashMap<Identity, KnownCommits>,
    start: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { pushes: Pushes::default(), known: HashMap::new(), start: begin() }
    }

    fn follow(&self, consumer: &Consumer, remote: &Remote, reference: &str) -> PushReceiver {
        let receiver = self.pushes.subscribe(consumer);
        self.pushes.set(consumer, Some(followed(&remote.url.to_string(), reference)));
        self.pushes.set_remote(consumer, Some(remote));
        receiver
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    /// Simulates a lookup of `main` that finds a commit and takes 10 ms.
    fn find(&mut self, remote: &Remote, digit: u8, millis: u64) {
        self.find_unless(remote, digit, millis, &[]);
    }

    /// Same as `find`, while the lookups of some remotes fail.
    fn find_unless(&mut self, remote: &Remote, digit: u8, millis: u64, failed: &[&Remote]) {
        let covers = [Reference::parse("main").unwrap()].into();
        let mut refs = Refs::default();
        let wanted = RefNames::new(["refs/heads/main".to_owned()]);
        refs.add("refs/heads/main".into(), At { id: commit(digit).0, peeled: None, symbolic: None }, &wanted);
        let found = self.known.entry(remote.identity()).or_default().update(&covers, &refs);
        let may_look = |identity: &Identity| !failed.iter().any(|failed| failed.identity() == *identity);
        self.pushes.found(remote, &found, self.at(millis), self.at(millis + 10), may_look);
    }
}

fn commit(digit: u8) -> Commit {
    format!("{digit:02x}").repeat(20).parse().unwrap()
}

#[test]
fn a_thousand_consumers_of_a_branch_hear_of_a_commit_within_a_second_one_after_the_other() {
    let mut bench = Bench::new();
    let shop = remote(URL, "one");
    let all: Vec<_> = (0..1000).map(|number| bench.follow(&consumer(&number.to_string()), &shop, "main")).collect();
    let dev = bench.follow(&consumer("dev"), &shop, "dev");
    let fixed = bench.follow(&consumer("fixed"), &shop, &commit(1).to_string());
    let elsewhere = bench.follow(&consumer("elsewhere"), &remote("https://example.org/b", "one"), "main");
    bench.find(&shop, 1, 0);
    assert!(all.iter().all(|receiver| receiver.take().is_none()), "whoever begins looks it up anyway");
    bench.find(&shop, 2, 100);
    let mut due: Vec<_> = all.iter().map(|receiver| receiver.take().unwrap()).collect();
    due.sort_by_key(|due| due.at);
    assert_eq!((due[0].at, due[999].at), (bench.at(110), bench.at(110 + 999)));
    assert!(due.is_sorted_by(|one, next| one.at < next.at), "never two at once");
    assert!(due.iter().all(|due| due.after == bench.at(100) && due.is_known(Some(commit(2)))), "the answer is there");
    for other in [&dev, &fixed, &elsewhere] {
        assert_eq!(other.take(), None);
    }
    bench.find(&shop, 2, 200);
    assert!(all.iter().all(|receiver| receiver.take().is_none()), "nothing new");
}

#[test]
fn another_login_hears_of_a_commit_and_looks_it_up_by_itself_once() {
    let mut bench = Bench::new();
    let (one, two) = (remote(URL, "one"), remote("git@example.org:a.git", "two"));
    let (first, second) =
        (bench.follow(&consumer("first"), &one, "main"), bench.follow(&consumer("second"), &two, "refs/heads/main"));
    bench.find(&one, 1, 0);
    bench.find(&two, 1, 0);
    bench.find(&one, 2, 100);
    let due = second.take().unwrap();
    assert_eq!(due.after, bench.at(100), "none of its own answers is new enough");
    assert!((bench.at(110)..=bench.at(110) + PACE).contains(&due.at));
    assert!(first.take().unwrap().is_known(Some(commit(2))), "who has found it has nothing to do");
    bench.find(&two, 2, 200);
    assert!(second.take().is_none_or(|due| due.is_known(Some(commit(2)))));
    assert_eq!(first.take(), None, "it knows it from its own lookup");
    // One server lags behind the other.
    bench.find(&two, 1, 10_000);
    assert!(first.take().is_some_and(|due| !due.is_known(Some(commit(2)))));
    bench.find(&one, 2, 10_100);
    assert!(second.take().is_none_or(|due| due.is_known(Some(commit(1)))), "they disagree, and neither asks for ever");
}

#[test]
fn a_login_that_fails_keeps_its_backoff() {
    let mut bench = Bench::new();
    let (one, two) = (remote(URL, "one"), remote(URL, "two"));
    let second = bench.follow(&consumer("second"), &two, "main");
    let third = bench.follow(&consumer("third"), &two, "main");
    let _first = bench.follow(&consumer("first"), &one, "main");
    bench.find(&one, 1, 0);
    bench.find(&two, 1, 0);
    bench.find_unless(&one, 2, 100, &[&two]);
    assert_eq!((second.take(), third.take()), (None, None));
    // One remote has retried successfully, so the others with this login may retry, too.
    bench.find(&two, 2, 60_000);
    assert!(second.take().is_some() && third.take().is_some());
}

#[test]
fn a_push_through_a_private_proxy_wakes_no_other_consumer() {
    let mut bench = Bench::new();
    let own = remote(URL, "one");
    let mut proxied = own.clone();
    let address = k8s_openapi::ByteString(b"http://proxy.example.org:3128".to_vec());
    let proxy = crate::proxy::Proxy::read(&[("address".to_owned(), address)].into()).unwrap();
    proxied.connection.proxy = Some(Arc::new(proxy));
    let first = bench.follow(&consumer("first"), &own, "main");
    let second = bench.follow(&consumer("second"), &proxied, "main");
    bench.find(&own, 1, 0);
    bench.find(&proxied, 2, 0);
    bench.find(&proxied, 3, 100);
    assert!(first.take().is_none() && second.take().is_some());
}

#[test]
fn commits_in_a_row_wake_others_once_a_second_and_the_last_one_counts() {
    let mut bench = Bench::new();
    let (one, two) = (remote(URL, "one"), remote(URL, "two"));
    let second = bench.follow(&consumer("second"), &two, "main");
    let _first = bench.follow(&consumer("first"), &one, "main");
    let mut times = Vec::new();
    for number in 0..200 {
        bench.find(&one, number, u64::from(number) * 50);
        if let Some(due) = second.take() {
            assert!(due.is_known(Some(commit(number))), "the last one");
            times.push(due.at);
        }
    }
    times.dedup_by(|next, last| next.duration_since(*last) < Duration::from_millis(500));
    assert!(times.len() <= 12, "{} in 10 s", times.len());
}

#[test]
fn a_repository_without_followers_is_woken_by_commits_and_no_push() {
    let mut bench = Bench::new();
    let (one, two) = (remote(URL, "one"), remote(URL, "two"));
    let repository = Consumer::new(ConsumerKind::GitRepository, "shop", "repo");
    let status = bench.follow(&repository, &two, "HEAD");
    let own = bench.follow(&Consumer::new(ConsumerKind::GitRepository, "shop", "own"), &one, "HEAD");
    let first = bench.follow(&consumer("first"), &one, "main");
    assert_eq!(bench.pushes.wake(|_, _| true, bench.start), [consumer("first")]);
    assert_eq!(bench.pushes.count(|_, _| true), 1);
    assert!(first.take().is_some() && status.take().is_none());
    bench.find(&one, 1, 0);
    bench.find(&one, 2, 100);
    assert!(status.take().is_some());
    assert_eq!(own.take(), None, "it sees every lookup of this login");
    for gone in [&repository, &Consumer::new(ConsumerKind::GitRepository, "shop", "own"), &consumer("first")] {
        bench.pushes.remove(gone);
    }
    assert!(bench.pushes.0.lock().repositories.is_empty(), "nothing is kept of who is gone");
}
