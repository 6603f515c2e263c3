//! Permits for threads that index packs and read objects: one limit for all remotes, shared fairly between tenants.
//!
//! The work is CPU-bound and can take minutes. Its threads have a higher nice value than the others, so that Lease
//! renewals, watches and reverts always get a processor.
//!
//! Invariant: a permit is held until the work on its thread has ended, even if its caller is gone.
//! Invariant: only threads that are created for this work get a higher nice value, because it cannot be lowered again.
//! Not here: which waiter gets the next permit (`fair_queue`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::error::Fault;
use super::fair_queue::{FairQueue, Tenant};

/// Nice value of these threads. Their scheduling weight is about a ninth of the default.
const NICE: i32 = 10;

/// All permits. Cheap to clone.
#[derive(Clone)]
pub(super) struct Permits(Arc<Mutex<FairQueue<oneshot::Sender<Permit>>>>);

/// The permits for one tenant.
#[derive(Clone, Debug)]
pub(super) struct TenantPermits {
    permits: Permits,
    tenant: Tenant,
}

/// Returns the CPU time of the current thread. Limits on work use it, so that work does not exceed them just because
/// the machine is busy.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A held permit. Dropping it gives it to the next waiter.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Permits,
    /// `None` after the permit was returned.
    tenant: Option<Tenant>,
}

impl Permits {
    pub(super) fn new(permits: usize) -> Self {
        Self(Arc::new(Mutex::new(FairQueue::new(permits))))
    }

    /// Returns the permits for `tenant`.
    pub(super) fn share(&self, tenant: &Tenant) -> TenantPermits {
        TenantPermits { permits: self.clone(), tenant: Arc::clone(tenant) }
    }

    /// Returns the permits of whichever tenant holds the fewest; `tenant` wins a tie. So work that several tenants
    /// share is not delayed by the other work of one of them.
    pub(super) fn share_of_all<'p>(&self, tenant: &Tenant, others: impl Iterator<Item = &'p str>) -> TenantPermits {
        let queue = self.0.lock();
        let mut best = (queue.held(tenant), Arc::clone(tenant));
        for other in others {
            let held = queue.held(other);
            if held < best.0 {
                best = (held, other.into());
            }
        }
        drop(queue);
        self.share(&best.1)
    }

    /// Hands out free permits.
    fn give(&self) {
        loop {
            // The result is bound to a variable, because dropping an unclaimed permit locks the queue again.
            let next = self.0.lock().next();
            let Some((tenant, waiter)) = next else { return };
            let permit = Permit { permits: self.clone(), tenant: Some(tenant) };
            if let Err(mut refused) = waiter.send(permit)
                && let Some(tenant) = refused.tenant.take()
            {
                self.0.lock().give_back(&tenant);
            }
        }
    }
}

impl TenantPermits {
    /// Waits until the tenant has a permit.
    pub(super) async fn acquire(&self) -> Result<Permit, Fault> {
        let (waiter, permit) = oneshot::channel();
        self.permits.0.lock().wait(&self.tenant, waiter, oneshot::Sender::is_closed);
        self.permits.give();
        permit.await.map_err(|_| Fault::Stopped)
    }

    /// Waits on a blocking thread. Outside of a runtime, no permit is needed.
    pub(super) fn acquire_here(&self) -> Result<Option<Permit>, Fault> {
        tokio::runtime::Handle::try_current().ok().map(|runtime| runtime.block_on(self.acquire())).transpose()
    }

    /// Runs `work` on a dedicated thread with a higher nice value, once the tenant has a permit.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let permit = self.acquire().await?;
        let (done, result) = oneshot::channel();
        let runtime = tokio::runtime::Handle::current();
        let thread = std::thread::Builder::new().name("git objects".to_owned()).spawn(move || {
            // On Linux, this affects only the current thread. If it is refused, the work competes with all other
            // threads.
            let _ = rustix::process::nice(NICE);
            // The work may wait for further permits.
            let _runtime = runtime.enter();
            let result = work();
            drop(permit);
            // Sending fails if the receiver is gone.
            let _ = done.send(result);
        });
        thread.map_err(Fault::disk)?;
        result.await.map_err(|_| Fault::Stopped)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(tenant) = self.tenant.take() {
            self.permits.0.lock().give_back(&tenant);
            self.permits.give();
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permits")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_is_nicer_than_anything_else_that_the_process_does() {
        let permits = Permits::new(4).share(&"a".into());
        // An increment of zero returns the current value.
        let niceness = || rustix::process::nice(0).unwrap();
        let before = niceness();
        for _ in 0..2 {
            assert_eq!(permits.run(niceness).await.unwrap(), (before + NICE).min(19));
        }
        assert_eq!(niceness(), before);
        let other = permits.clone();
        assert!(permits.run(move || other.acquire_here().unwrap().is_some()).await.unwrap(), "it shares with others");
    }

    #[test]
    fn the_time_of_a_thread_passes_only_while_it_computes() {
        let begun = thread_time();
        std::thread::sleep(Duration::from_millis(300));
        assert!(thread_time().saturating_sub(begun) < Duration::from_millis(200), "it slept");
        let passes = || (0..1_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)) < u64::MAX;
        while thread_time().saturating_sub(begun) < Duration::from_millis(300) {
            assert!(passes());
        }
    }

    #[tokio::test]
    async fn work_that_panics_is_over_and_gives_its_permit_back() {
        let permits = Permits::new(1).share(&"a".into());
        for _ in 0..3 {
            let done = permits.run(|| panic!("a defect")).await;
            assert!(matches!(done, Err::<(), _>(Fault::Stopped)), "{done:?}");
        }
        assert_eq!(permits.run(|| 1).await.unwrap(), 1);
    }
}
