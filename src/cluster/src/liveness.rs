//! Liveness of the process: detects stuck components.
//!
//! A task makes progress whenever it is polled. Every operation of the agent has a deadline (a request to the API
//! server 65 s, a lookup 30 s, a fetch 300 s), and the deadline wakes its task. So a task that was not polled for much
//! longer waits for an event that never comes, and only a restart helps. Unavailable servers do not cause that.
//!
//! Invariant: an idle component is never reported as stuck.
//! Invariant: a component is not stuck while any of its tasks makes progress, because the others may wait for that
//! task.
//!
//! Not here: requests, log lines, and anything else that could get stuck.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A component is stuck after this time without progress: three times the longest deadline of an operation.
pub const STUCK_AFTER: Duration = Duration::from_secs(900);
/// Interval at which an idle loop makes progress.
const TICK: Duration = Duration::from_secs(10);

/// All components of an agent. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Liveness(Arc<Mutex<Vec<Component>>>);

/// A component that runs one or several tasks. Clones are the same component.
#[derive(Clone, Debug)]
pub struct Component(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The name in "… is stuck".
    name: &'static str,
    state: Mutex<State>,
}

/// The progress of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    /// Running tasks.
    tasks: usize,
    /// Time of the last progress.
    progress: Instant,
    /// Normal time without progress: [`TICK`] for a loop.
    idle: Duration,
}

/// A running task, until this value is dropped.
struct Running<'c>(&'c Component);

impl Liveness {
    /// Returns a new component; `name` is the name in "`name` is stuck".
    pub fn component(&self, name: &'static str) -> Component {
        let component = Component::new(name);
        let mut components = self.0.lock();
        // A component without other holders belongs to a term that has ended.
        components.retain(|component| Arc::strong_count(&component.0) > 1);
        components.push(component.clone());
        component
    }

    /// Checks that no component is stuck.
    ///
    /// # Errors
    /// The stuck components, each with the time since its last progress.
    pub fn check(&self, stuck_after: Duration) -> Result<(), String> {
        let now = Instant::now();
        let components = self.0.lock();
        let stuck = components.iter().filter_map(|one| stuck(one.0.name, *one.0.state.lock(), now, stuck_after));
        let stuck = stuck.collect::<Vec<_>>();
        if stuck.is_empty() { Ok(()) } else { Err(stuck.join("; ")) }
    }
}

impl Component {
    fn new(name: &'static str) -> Self {
        Self(Arc::new(Inner {
            name,
            state: Mutex::new(State { tasks: 0, progress: Instant::now(), idle: Duration::ZERO }),
        }))
    }

    /// Runs a task and tracks its progress. The task is boxed, so a loop that waits between two tasks holds no memory
    /// for them.
    pub fn track<F: Future>(&self, task: F) -> impl Future<Output = F::Output> {
        let mut task = Box::pin(task);
        async move {
            let _running = Running::begin(self);
            poll_fn(|context| {
                let polled = task.as_mut().poll(context);
                self.0.progressed();
                polled
            })
            .await
        }
    }

    /// Runs a loop that may be idle. A timer polls the loop regularly.
    pub async fn track_loop<F: Future>(&self, task: F) -> F::Output {
        self.0.state.lock().idle = TICK;
        let ticking = async {
            let mut ticks = tokio::time::interval(TICK);
            loop {
                ticks.tick().await;
            }
        };
        self.track(async {
            tokio::select! {
                done = task => done,
                never = ticking => never,
            }
        })
        .await
    }
}

impl Inner {
    fn progressed(&self) {
        self.state.lock().progress = Instant::now();
    }
}

impl<'c> Running<'c> {
    fn begin(component: &'c Component) -> Self {
        let mut state = component.0.state.lock();
        *state = State { tasks: state.tasks + 1, progress: Instant::now(), ..*state };
        Self(component)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.state.lock();
        *state = State { tasks: state.tasks.saturating_sub(1), progress: Instant::now(), ..*state };
    }
}

/// The report of a stuck component.
fn stuck(name: &str, state: State, now: Instant, stuck_after: Duration) -> Option<String> {
    let (elapsed, tasks) = (now.saturating_duration_since(state.progress), state.tasks);
    (tasks > 0 && elapsed >= stuck_after + state.idle)
        .then(|| format!("{name} is stuck: {tasks} running without progress for {} s", elapsed.as_secs()))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn only_a_component_with_tasks_that_makes_no_progress_is_stuck() {
        let progress = Instant::now();
        let check = |tasks: usize, seconds: u64| {
            let now = progress + Duration::from_secs(seconds);
            stuck("reconciling", State { tasks, progress, idle: Duration::ZERO }, now, STUCK_AFTER).unwrap_or_default()
        };
        assert_eq!([check(0, 1_000_000), check(1, 0), check(7, 899)], ["", "", ""]);
        assert_eq!(check(1, 900), "reconciling is stuck: 1 running without progress for 900 s");
        assert_eq!(check(7, 3600), "reconciling is stuck: 7 running without progress for 3600 s");
        let ahead = State { tasks: 1, progress: progress + STUCK_AFTER, idle: Duration::ZERO };
        assert_eq!(stuck("reconciling", ahead, progress, STUCK_AFTER), None, "the clock is behind");
        let ticks = |idle: Duration| {
            stuck("the loop", State { tasks: 1, progress, idle: TICK }, progress + STUCK_AFTER + idle, STUCK_AFTER)
                .is_some()
        };
        assert_eq!([ticks(Duration::ZERO), ticks(TICK)], [false, true], "a loop is idle between two ticks");
    }

    #[tokio::test]
    async fn a_component_makes_progress_with_any_of_its_tasks_and_is_idle_without() {
        let (liveness, none) = (Liveness::default(), Duration::ZERO);
        let component = liveness.component("reconciling");
        assert_eq!(liveness.check(none), Ok(()), "it is idle");
        let mut waits = pin!(component.track(std::future::pending::<()>()));
        assert!(futures::poll!(&mut waits).is_pending());
        let before = component.0.state.lock().progress;
        assert!(liveness.check(none).is_err_and(|why| why.starts_with("reconciling is stuck: 1 running")));
        assert_eq!(component.track(async { 1 }).await, 1);
        let state = *component.0.state.lock();
        assert!(state.progress > before && state.tasks == 1, "another task made progress");
    }

    #[tokio::test]
    async fn a_cancelled_task_is_not_running_and_a_dropped_component_is_forgotten() {
        let (liveness, none) = (Liveness::default(), Duration::ZERO);
        let component = liveness.component("reconciling");
        let cut_off = tokio::time::timeout(none, component.track(std::future::pending::<()>())).await;
        assert!(cut_off.is_err() && liveness.check(none).is_ok());
        drop(component);
        let _another = liveness.component("another");
        assert_eq!(liveness.0.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_loop_makes_progress() {
        let component = Component::new("the loop");
        let mut waits = pin!(component.track_loop(std::future::pending::<()>()));
        assert!(futures::poll!(&mut waits).is_pending());
        let before = component.0.state.lock().progress;
        assert!(tokio::time::timeout(2 * TICK, waits).await.is_err());
        assert!(component.0.state.lock().progress > before);
    }
}
