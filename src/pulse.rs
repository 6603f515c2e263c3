//! Whether the agent's work moves: each part of it that has work in hand is looked at while it works.
//!
//! Work moves whenever it is woken. Every operation of the agent has a deadline (a request to the API server 65 s, a
//! lookup 30 s, a fetch 300 s), which wakes whoever waits for it; so work that nothing has woken for much longer waits for
//! something that does not come, and a new process is what helps. That servers are away is no such thing.
//!
//! Invariant: a part that has nothing to do is never said to stand still, however long.
//! Invariant: of one part any work that moves will do: what waits in line behind it is not stuck.
//!
//! Deliberately absent: a request, a log line, or anything else that could stand still itself.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long work may stand still: three times the longest deadline of a single operation.
pub const STANDSTILL: Duration = Duration::from_secs(900);
/// How often a loop turns that has nothing to do.
const TURN: Duration = Duration::from_secs(10);

/// All parts of an agent. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<Mutex<Vec<Part>>>);

/// One part, which does one thing after the other or several at once. Clones are the same part.
#[derive(Clone, Debug)]
pub struct Part(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// As in "… stands still".
    name: &'static str,
    state: Mutex<State>,
}

/// What is known of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Works that are under way.
    works: usize,
    /// When one of them moved last.
    moved: Instant,
    /// How long it may rest before it counts as standing still: [`TURN`] for a loop.
    rest: Duration,
}

/// A work that is under way, until this is dropped.
struct UnderWay<'p>(&'p Part);

impl Pulse {
    /// A new part; `name` as in "`name` stands still".
    pub fn part(&self, name: &'static str) -> Part {
        let part = Part::new(name);
        let mut parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A part that nobody else holds has ended with its term.
        parts.retain(|part| Arc::strong_count(&part.0) > 1);
        parts.push(part.clone());
        part
    }

    /// Whether all parts move.
    ///
    /// # Errors
    /// Which do not, and for how long.
    pub fn check(&self, standstill: Duration) -> Result<(), String> {
        let now = Instant::now();
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let still = parts.iter().filter_map(|part| stuck(part.0.name, *part.0.state(), now, standstill));
        let still = still.collect::<Vec<_>>();
        if still.is_empty() { Ok(()) } else { Err(still.join("; ")) }
    }
}

impl Part {
    fn new(name: &'static str) -> Self {
        Self(Arc::new(Inner {
            name,
            state: Mutex::new(State { works: 0, moved: Instant::now(), rest: Duration::ZERO }),
        }))
    }

    /// Does a piece of work, which is looked at until it is done.
    pub async fn work<F: Future>(&self, work: F) -> F::Output {
        let _under_way = UnderWay::begin(self);
        let mut work = pin!(work);
        poll_fn(|context| {
            let polled = work.as_mut().poll(context);
            self.0.moved();
            polled
        })
        .await
    }

    /// Runs a loop that waits for things to come and has to turn all the while.
    pub async fn turn<F: Future>(&self, work: F) -> F::Output {
        self.0.state().rest = TURN;
        let turning = async {
            let mut turns = tokio::time::interval(TURN);
            loop {
                turns.tick().await;
            }
        };
        self.work(async {
            tokio::select! {
                done = work => done,
                never = turning => never,
            }
        })
        .await
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moved(&self) {
        self.state().moved = Instant::now();
    }
}

impl<'p> UnderWay<'p> {
    fn begin(part: &'p Part) -> Self {
        let mut state = part.0.state();
        *state = State { works: state.works + 1, moved: Instant::now(), ..*state };
        Self(part)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.state();
        *state = State { works: state.works.saturating_sub(1), moved: Instant::now(), ..*state };
    }
}

/// Says so when a part has work in hand and has not moved for too long.
fn stuck(name: &str, state: State, now: Instant, standstill: Duration) -> Option<String> {
    let still = now.saturating_duration_since(state.moved);
    let works = state.works;
    (works > 0 && still >= standstill + state.rest)
        .then(|| format!("{name} stands still: {works} under way, and nothing has moved for {} s", still.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_work_in_hand_and_does_not_move_stands_still() {
        let moved = Instant::now();
        let check = |works: usize, seconds: u64| {
            let now = moved + Duration::from_secs(seconds);
            stuck("the work", State { works, moved, rest: Duration::ZERO }, now, STANDSTILL).unwrap_or_default()
        };
        assert_eq!([check(0, 1_000_000), check(1, 0), check(7, 899)], ["", "", ""]);
        assert_eq!(check(1, 900), "the work stands still: 1 under way, and nothing has moved for 900 s");
        assert_eq!(check(7, 3600), "the work stands still: 7 under way, and nothing has moved for 3600 s");
        let ahead = State { works: 1, moved: moved + STANDSTILL, rest: Duration::ZERO };
        assert_eq!(stuck("the work", ahead, moved, STANDSTILL), None, "a clock that has not come so far yet");
        let turns = |rested: Duration| {
            stuck("the loop", State { works: 1, moved, rest: TURN }, moved + STANDSTILL + rested, STANDSTILL).is_some()
        };
        assert_eq!([turns(Duration::ZERO), turns(TURN)], [false, true], "a loop rests between two turns");
    }

    #[tokio::test]
    async fn a_part_moves_with_any_of_its_work_and_rests_without() {
        let (pulse, none) = (Pulse::default(), Duration::ZERO);
        let part = pulse.part("the work");
        assert_eq!(pulse.check(none), Ok(()), "nothing is to be done");
        let mut waits = pin!(part.work(std::future::pending::<()>()));
        assert!(futures::poll!(&mut waits).is_pending());
        let before = part.0.state().moved;
        assert!(pulse.check(none).is_err_and(|why| why.starts_with("the work stands still: 1 under way")));
        assert_eq!(part.work(async { 1 }).await, 1);
        let state = *part.0.state();
        assert!(state.moved > before && state.works == 1, "another one has moved");
    }

    #[tokio::test]
    async fn work_that_is_cut_off_is_no_longer_under_way_and_a_part_that_nobody_holds_is_forgotten() {
        let (pulse, none) = (Pulse::default(), Duration::ZERO);
        let part = pulse.part("the work");
        let cut_off = tokio::time::timeout(none, part.work(std::future::pending::<()>())).await;
        assert!(cut_off.is_err() && pulse.check(none).is_ok());
        drop(part);
        let _another = pulse.part("another");
        assert_eq!(pulse.0.lock().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_waits_turns_all_the_same() {
        let part = Part::new("the loop");
        let mut waits = pin!(part.turn(std::future::pending::<()>()));
        assert!(futures::poll!(&mut waits).is_pending());
        let before = part.0.state().moved;
        assert!(tokio::time::timeout(2 * TURN, waits).await.is_err());
        assert!(part.0.state().moved > before);
    }
}
