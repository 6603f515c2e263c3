//! Reads forms of clients without a session.
//!
//! Invariant: a bounded number of such forms is read at the same time, each of a bounded size, for a bounded time. If all
//! are taken, a new client replaces the one that has waited longest. Clients that send slowly therefore keep no user out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::filter::Query;
use mainstay_cluster::body::{self, BodyFault};

/// Maximum size of a form, in bytes. A token is smaller.
const FORM: usize = 16 << 10;
/// Maximum number of forms that are read at the same time.
const AT_ONCE: usize = 64;
/// The maximum memory of all such forms, in KiB.
#[cfg(test)]
pub(super) const ALL: usize = (FORM >> 10) * AT_ONCE;
/// Maximum time for a form.
const WITHIN: Duration = Duration::from_secs(10);

/// The forms of clients without a session.
pub(super) struct AnonymousBodies {
    free: Arc<Semaphore>,
    arriving: Mutex<BTreeMap<u64, CancellationToken>>,
    /// The number for the next form.
    entered: AtomicU64,
}

impl Default for AnonymousBodies {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(AT_ONCE)), arriving: Mutex::default(), entered: AtomicU64::new(0) }
    }
}

impl AnonymousBodies {
    /// Reads a form.
    ///
    /// # Errors
    /// The form is too large, does not arrive in time, or makes way for others.
    pub(super) async fn form(&self, body: &mut Body) -> Result<Query, BodyFault> {
        let end = CancellationToken::new();
        let read = async {
            let permit = self.permit().await?;
            let entry = self.enter(end.clone());
            let read = end.run_until_cancelled(body::read(body, FORM, |_| true)).await;
            drop(entry);
            let form = read.map(|read| read.map(|bytes| Query::parse(&bytes)));
            drop(permit);
            form
        };
        match tokio::time::timeout(WITHIN, read).await {
            Ok(Some(form)) => form,
            Ok(None) => Err(BodyFault::NoRoom),
            Err(_) => Err(BodyFault::Broken),
        }
    }

    /// Waits for a permit after cancelling the form that has been arriving longest.
    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(permit);
        }
        let oldest = self.arriving.lock().pop_first();
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    fn enter(&self, end: CancellationToken) -> Entry<'_> {
        let number = self.entered.fetch_add(1, Ordering::Relaxed);
        self.arriving.lock().insert(number, end);
        Entry { all: self, number }
    }
}

/// The entry of a form while it arrives.
struct Entry<'b> {
    all: &'b AnonymousBodies,
    number: u64,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.all.arriving.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _, stream};

    use super::*;

    /// Returns a body whose first byte arrives, and no other.
    fn slow() -> Body {
        let first = stream::iter([Ok::<_, Infallible>(Bytes::from_static(b"x"))]);
        Body::from_stream(first.chain(stream::pending()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_form_that_does_not_arrive_is_not_waited_for() {
        let forms = AnonymousBodies::default();
        assert_eq!(forms.form(&mut slow()).await.err(), Some(BodyFault::Broken));
        assert_eq!(forms.free.available_permits(), AT_ONCE);
        assert!(forms.arriving.lock().is_empty());
    }

    #[tokio::test]
    async fn a_form_larger_than_a_token_is_refused() {
        let forms = AnonymousBodies::default();
        let form = |size: usize| format!("token={}", "x".repeat(size - "token=".len()));
        let read = forms.form(&mut Body::from(form(FORM))).await;
        assert_eq!(read.map(|form| form.get("token").len()), Ok(FORM - 6));
        assert_eq!(forms.form(&mut Body::from(form(FORM + 1))).await.err(), Some(BodyFault::TooLarge));
    }

    #[tokio::test]
    async fn a_new_form_replaces_the_one_that_has_waited_longest() {
        let forms = AnonymousBodies::default();
        let mut bodies: Vec<Body> = (0..AT_ONCE).map(|_| slow()).collect();
        let mut arriving: Vec<_> = bodies.iter_mut().map(|body| Box::pin(forms.form(body))).collect();
        for form in &mut arriving {
            assert!(form.as_mut().now_or_never().is_none());
        }
        assert_eq!((forms.free.available_permits(), forms.arriving.lock().len()), (0, AT_ONCE));
        let mut token = Body::from("token=a");
        let (replaced, read) = tokio::join!(&mut arriving[0], forms.form(&mut token));
        assert_eq!(
            (replaced.err(), read.map(|form| form.get("token").to_owned())),
            (Some(BodyFault::NoRoom), Ok("a".to_owned()))
        );
        assert_eq!(forms.arriving.lock().len(), AT_ONCE - 1);
    }
}
