//! The consumers that a push wakes: each with the remote and the reference that it follows.
//!
//! Invariant: consumers of one address are woken at most once per [`BETWEEN`], however many deliveries there are; the last
//! delivery is not lost, its consumers are woken when that time is over.
//! Deliberately not here: the deliveries, and which of the consumers one means.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Consumer, Reference, RemoteUrl};

/// Minimum time between two lookups of an address because of pushes.
pub const BETWEEN: Duration = Duration::from_secs(1);

/// When the remote is to be looked up because of a push, whatever was known before.
pub type PushReceiver = watch::Receiver<Option<Instant>>;

/// What a consumer follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Name of the GitRepository, in the consumer's namespace.
    pub repository: String,
    /// Address of the remote.
    pub url: RemoteUrl,
    /// The reference.
    pub reference: Reference,
}

/// All consumers.
#[derive(Debug, Default)]
pub struct Pushes(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    rows: HashMap<Consumer, Row>,
    /// When consumers of an address were, or will be, woken last.
    last: HashMap<RemoteUrl, Instant>,
}

#[derive(Debug, Default)]
struct Row {
    followed: Option<Followed>,
    due: watch::Sender<Option<Instant>>,
}

impl Pushes {
    /// Tells a consumer when to look its remote up.
    pub fn subscribe(&self, consumer: &Consumer) -> PushReceiver {
        self.0.lock().rows.entry(consumer.clone()).or_default().due.subscribe()
    }

    /// Sets what a consumer follows; `None` if that is not known.
    pub fn set(&self, consumer: &Consumer, followed: Option<Followed>) {
        if let Some(row) = self.0.lock().rows.get_mut(consumer) {
            row.followed = followed;
        }
    }

    /// The consumer is gone.
    pub fn remove(&self, consumer: &Consumer) {
        self.0.lock().rows.remove(consumer);
    }

    /// Wakes the consumers that `is_meant` chooses, and returns them.
    pub fn wake(&self, is_meant: impl Fn(&Consumer, &Followed) -> bool, now: Instant) -> Vec<Consumer> {
        let mut inner = self.0.lock();
        let Inner { rows, last } = &mut *inner;
        last.retain(|_, at| *at + BETWEEN > now);
        let mut woken = Vec::new();
        let mut due: HashMap<&RemoteUrl, Instant> = HashMap::new();
        for (consumer, row) in rows.iter() {
            let Some(followed) = row.followed.as_ref().filter(|followed| is_meant(consumer, followed)) else {
                continue;
            };
            let at = *due.entry(&followed.url).or_insert_with(|| next(last.get(&followed.url).copied(), now));
            row.due.send_replace(Some(at));
            woken.push(consumer.clone());
        }
        for (url, at) in due {
            last.insert(url.clone(), at);
        }
        woken
    }
    /// How many consumers `is_meant` chooses; none of them is woken.
    pub fn count(&self, is_meant: impl Fn(&Consumer, &Followed) -> bool) -> usize {
        let inner = self.0.lock();
        let known = inner.rows.iter().filter_map(|(consumer, row)| Some((consumer, row.followed.as_ref()?)));
        known.filter(|(consumer, followed)| is_meant(consumer, followed)).count()
    }
}

/// When an address is looked up for a delivery at `now`; `last` is when that was, or will be, the case last.
fn next(last: Option<Instant>, now: Instant) -> Instant {
    match last {
        Some(last) if last > now => last,
        Some(last) => now.max(last + BETWEEN),
        None => now,
    }
}

#[cfg(test)]
mod tests {
    use super::super::ConsumerKind;
    use super::*;

    fn consumer(name: &str) -> Consumer {
        Consumer::new(ConsumerKind::GitSync, "shop", name)
    }

    fn followed(url: &str) -> Followed {
        let (url, reference) = (RemoteUrl::parse(url).unwrap(), Reference::parse("main").unwrap());
        Followed { repository: "repo".into(), url, reference }
    }

    #[test]
    fn a_storm_of_deliveries_wakes_once_per_time_between_and_the_last_one_counts() {
        let pushes = Pushes::default();
        let (one, two) = (consumer("one"), consumer("two"));
        let received = [&one, &two].map(|consumer| pushes.subscribe(consumer));
        pushes.set(&one, Some(followed("https://example.org/a")));
        pushes.set(&two, Some(followed("https://example.org/b")));
        let start = Instant::now();
        let mut due = Vec::new();
        for millis in 0..10_000 {
            let now = start + Duration::from_millis(millis);
            assert_eq!(pushes.wake(|consumer, _| *consumer == one, now), std::slice::from_ref(&one));
            let at = received[0].borrow().unwrap();
            assert!(at >= now && at <= now + BETWEEN, "the delivery counts, and soon");
            due.push(at);
        }
        due.dedup();
        assert_eq!(due.len(), 11, "at once, and then every second");
        assert_eq!(*received[1].borrow(), None, "nobody meant the other one");
        let now = start + Duration::from_millis(10_500);
        pushes.wake(|_, _| true, now);
        assert_eq!(*received[1].borrow(), Some(now), "each address for itself");
        pushes.remove(&one);
        pushes.remove(&two);
        pushes.wake(|_, _| true, now + 2 * BETWEEN);
        assert!(pushes.0.lock().rows.is_empty() && pushes.0.lock().last.is_empty(), "nothing is kept of who is gone");
    }
}
