//! Catches panics, which are defects of Mainstay. The caller gets an error and continues.
//!
//! Not here: the message of a panic, which may contain secrets. The process's log contains it, with the line of code.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures::FutureExt;

/// A task panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a panic, which is a defect of Mainstay: the agent's log says where; please report it")]
pub struct Panicked;

/// Runs a task, and catches its panic. As for a task that can be dropped, shared state must be consistent at each await
/// point, and also before each call that may panic.
pub fn caught<F: Future>(task: F) -> impl Future<Output = Result<F::Output, Panicked>> {
    AssertUnwindSafe(task).catch_unwind().map(|ended| ended.map_err(|_| Panicked))
}

/// Runs synchronous work, and catches its panic.
pub fn caught_now<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_has_no_result_and_does_not_say_why() {
        assert_eq!(caught_now(|| 1), Ok(1));
        let panicked = caught_now(|| panic!("a secret"));
        assert_eq!(panicked, Err(Panicked));
        assert!(!Panicked.to_string().contains("secret"));
        assert_eq!(caught(async { 2 }).now_or_never(), Some(Ok(2)));
        assert_eq!(caught(async { panic!("a secret") }).now_or_never(), Some(Err::<(), _>(Panicked)));
    }
}
