//! Permits for threads that index packs and read objects: a limit for all remotes together, shared fairly between
//! tenants.
//!
//! Invariant: a permit is held until the work on its thread has ended, even if its caller is gone.
//! Deliberately not here: who gets the next permit (`fair_queue`).

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::error::Fault;
use super::fair_queue::{FairQueue, Tenant};

/// All permits. Cheap to clone.
#[derive(Clone)]
pub(super) struct Permits(Arc<Mutex<FairQueue<oneshot::Sender<Permit>>>>);

/// The permits as one tenant uses them.
#[derive(Clone, Debug)]
pub(super) struct TenantPermits {
    permits: Permits,
    tenant: Tenant,
}

/// A held permit; dropping it passes it on.
#[derive(Debug)]
pub(super) struct Permit {
    permits: Permits,
    /// `None` if it was returned already.
    tenant: Option<Tenant>,
}

impl Permits {
    pub(super) fn new(permits: usize) -> Self {
        Self(Arc::new(Mutex::new(FairQueue::new(permits))))
    }

    /// The permits for `tenant`.
    pub(super) fn share(&self, tenant: &Tenant) -> TenantPermits {
        TenantPermits { permits: self.clone(), tenant: Arc::clone(tenant) }
    }

    /// The permits for the tenant that holds the fewest of several, `tenant` among equals. So work that all of them
    /// wait for is not delayed by the other work of one of them.
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
            // Bound to a variable: returning a permit that nobody takes needs the lock again.
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

    /// The same on a blocking thread; without a runtime there is nobody to share with.
    pub(super) fn acquire_here(&self) -> Result<Option<Permit>, Fault> {
        tokio::runtime::Handle::try_current().ok().map(|runtime| runtime.block_on(self.acquire())).transpose()
    }

    /// Runs `work` on a blocking thread once the tenant has a permit.
    pub(super) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
        let permit = self.acquire().await?;
        let work = tokio::task::spawn_blocking(move || {
            let result = work();
            drop(permit);
            result
        });
        work.await.map_err(|_| Fault::Stopped)
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
