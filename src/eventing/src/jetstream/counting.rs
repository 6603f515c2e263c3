//! The state of the stream with the numbers of failed deliveries, as a process knows it: whether it exists, and
//! whether it fails.
//!
//! Deliveries wait for the numbers. So after a failure, no request of its kind is sent for a while.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Time after a failed request for which no request of its kind is sent.
const PAUSE: Duration = Duration::from_secs(10);
/// Time after a failed creation of the stream for which it is not created, unless the error passes.
const UNCREATED: Duration = Duration::from_secs(60);

/// The state of the stream, for all subscribers of a process.
#[derive(Debug, Default)]
pub(super) struct Counting {
    state: Mutex<State>,
    /// The requests that read a number.
    pub(super) reads: Requests,
    /// The requests that store a number.
    pub(super) writes: Requests,
    /// Held while the stream is created.
    pub(super) creating: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Whether the stream exists as needed.
    exists: bool,
    /// The end of the time after a failed creation, and its error.
    uncreated: Option<(Instant, String)>,
    /// Whether the stream is used although its settings could not be corrected.
    is_uncorrected: bool,
}

/// The requests of one kind.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<Sent>);

#[derive(Debug, Default)]
struct Sent {
    /// The end of the time after a failed request.
    paused: Option<Instant>,
    /// Whether the last request has failed.
    is_failing: bool,
}

impl Requests {
    /// Returns whether a request may be sent.
    pub(super) fn are_permitted(&self, now: Instant) -> bool {
        self.0.lock().paused.is_none_or(|end| end <= now)
    }

    /// Records a request. Returns whether requests begin to fail with it.
    pub(super) fn ended(&self, has_succeeded: bool, now: Instant) -> bool {
        let mut sent = self.0.lock();
        sent.paused = (!has_succeeded).then(|| now + PAUSE);
        let failed = std::mem::replace(&mut sent.is_failing, !has_succeeded);
        !has_succeeded && !failed
    }
}

/// Why the stream could not be created.
#[derive(Debug)]
pub(super) struct Uncreated {
    pub(super) why: String,
    /// Whether the error ends with an election or with the return of a server.
    pub(super) passes: bool,
}

impl Counting {
    pub(super) fn exists(&self) -> bool {
        self.state.lock().exists
    }

    /// Records that the stream may not exist any more.
    pub(super) fn forget(&self) {
        self.state.lock().exists = false;
    }

    /// Returns the error of the last creation if it has failed recently.
    pub(super) fn failure(&self, now: Instant) -> Option<String> {
        let state = self.state.lock();
        state.uncreated.as_ref().filter(|(end, _)| now < *end).map(|(_, why)| why.clone())
    }

    /// Records a creation of the stream.
    pub(super) fn created(&self, result: Result<(), Uncreated>, now: Instant) {
        let mut state = self.state.lock();
        state.exists = result.is_ok();
        state.uncreated = result.err().map(|Uncreated { why, passes }| {
            let pause = if passes { PAUSE } else { UNCREATED };
            (now + pause, why)
        });
    }

    /// Records that the settings of the stream could not be corrected. Returns whether this is the first time.
    pub(super) fn uncorrected(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_uncorrected, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_read_for_ten_seconds_after_a_failed_read() {
        let (counting, now) = (Counting::default(), Instant::now());
        assert!(counting.reads.are_permitted(now));
        counting.reads.ended(false, now);
        assert!(!counting.reads.are_permitted(now + Duration::from_secs(9)));
        assert!(counting.reads.are_permitted(now + Duration::from_secs(10)));
        counting.reads.ended(true, now + Duration::from_secs(10));
        assert!(counting.reads.are_permitted(now + Duration::from_secs(10)));
    }

    #[test]
    fn no_number_is_stored_for_ten_seconds_after_a_failed_write() {
        let (counting, now) = (Counting::default(), Instant::now());
        assert!(counting.writes.are_permitted(now));
        counting.writes.ended(false, now);
        assert!(!counting.writes.are_permitted(now + Duration::from_secs(9)));
        assert!(counting.writes.are_permitted(now + Duration::from_secs(10)));
        assert!(counting.reads.are_permitted(now), "numbers are still read");
        counting.writes.ended(true, now);
        assert!(counting.writes.are_permitted(now));
    }

    #[test]
    fn a_stream_is_created_again_soon_after_an_error_that_passes() {
        let (counting, now) = (Counting::default(), Instant::now());
        counting.created(Err(Uncreated { why: "no leader".to_owned(), passes: true }), now);
        assert_eq!(counting.failure(now + Duration::from_secs(9)).as_deref(), Some("no leader"));
        assert_eq!(counting.failure(now + Duration::from_secs(10)), None);
    }

    #[test]
    fn a_stream_is_not_created_for_a_minute_after_a_failed_creation() {
        let (counting, now) = (Counting::default(), Instant::now());
        assert_eq!((counting.exists(), counting.failure(now)), (false, None));
        counting.created(Err(Uncreated { why: "no room".to_owned(), passes: false }), now);
        assert_eq!(counting.failure(now + Duration::from_secs(59)).as_deref(), Some("no room"));
        assert_eq!(counting.failure(now + Duration::from_secs(60)), None);
        counting.created(Ok(()), now + Duration::from_secs(60));
        assert_eq!((counting.exists(), counting.failure(now)), (true, None));
    }

    #[test]
    fn only_the_first_of_several_failures_is_reported() {
        let (counting, now) = (Counting::default(), Instant::now());
        assert_eq!(
            [true, false, false, true, false].map(|one| counting.writes.ended(one, now)),
            [false, true, false, false, true]
        );
        assert_eq!([false, false, true, false].map(|one| counting.reads.ended(one, now)), [true, false, false, true]);
        assert_eq!([(); 2].map(|()| counting.uncorrected()), [true, false]);
    }
}
