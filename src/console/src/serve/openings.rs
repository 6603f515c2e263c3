//! Limits the tokens that the API server is asked about before their sessions begin. Anyone may send such a token.
//!
//! Invariant: a bounded number of such questions waits for the API server, each for a bounded time.

use std::time::Duration;

use http::StatusCode;
use tokio::sync::Semaphore;

/// Maximum number of questions at the same time.
const AT_ONCE: usize = 64;
/// Maximum time for a question.
const WITHIN: Duration = Duration::from_secs(10);

/// Why the API server has not judged a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unjudged {
    /// Too many other tokens wait for the API server.
    Busy,
    /// The API server has not responded in time.
    Late,
}

impl Unjudged {
    /// Returns the status of the response.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late => StatusCode::BAD_GATEWAY,
        }
    }

    /// Returns the message.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Busy => "Too many users open a session at the same time. Send the request again later.\n",
            Self::Late => "The API server has not judged the token within 10 s. Try again later.",
        }
    }
}

/// The sessions that begin.
pub(super) struct Openings {
    free: Semaphore,
}

impl Default for Openings {
    fn default() -> Self {
        Self { free: Semaphore::new(AT_ONCE) }
    }
}

impl Openings {
    /// Asks the API server about a token.
    ///
    /// # Errors
    /// Too many others ask, or the API server does not respond in time.
    pub(super) async fn ask<T>(&self, asking: impl Future<Output = T>) -> Result<T, Unjudged> {
        let _permit = self.free.try_acquire().map_err(|_| Unjudged::Busy)?;
        tokio::time::timeout(WITHIN, asking).await.map_err(|_| Unjudged::Late)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures::FutureExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_question_without_a_response_ends() {
        let openings = Openings::default();
        assert_eq!(openings.ask(pending::<()>()).await, Err(Unjudged::Late));
        assert_eq!(openings.ask(ready(1)).await, Ok(1));
        assert_eq!(openings.free.available_permits(), AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn further_questions_are_refused_while_others_wait() {
        let openings = Openings::default();
        let mut waiting: Vec<_> = (0..AT_ONCE).map(|_| Box::pin(openings.ask(pending::<()>()))).collect();
        for asking in &mut waiting {
            assert!(asking.as_mut().now_or_never().is_none());
        }
        assert_eq!(openings.ask(ready(())).await, Err(Unjudged::Busy));
        drop(waiting.pop());
        assert_eq!(openings.ask(ready(())).await, Ok(()));
    }
}
