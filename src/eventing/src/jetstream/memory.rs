//! The memory for messages that are taken from the server.
//!
//! A request reserves memory before it is sent, and the server sends no more than that. A message keeps its part until
//! its delivery ends. Messages of subscribers that do not respond can so use up the budget, but not the memory of the
//! process.
//!
//! Invariant: the messages of a process take no more than its budget, and one further message for each puller. A puller
//! without a message needs no part of the budget, so each one makes progress.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory in bytes for the messages of a process.
pub(super) const BUDGET: usize = 48 << 20;
/// Memory in bytes that a message needs besides its contents.
const EACH: usize = 1 << 10;

/// The budget of a process.
#[derive(Clone, Debug)]
pub(super) struct Memory(Arc<Semaphore>);

/// The memory of a subscriber. Clones share the message that needs no part of the budget.
#[derive(Clone, Debug)]
pub(super) struct Share {
    budget: Arc<Semaphore>,
    first: Arc<Semaphore>,
}

/// Maximum size of the messages of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    /// Several events of the usual size.
    Small,
    /// At least one event of any size that publishers accept.
    Large,
    /// One message of any size. A different program has published it.
    Any,
}

/// The memory of a request.
#[derive(Debug)]
pub(super) struct Grant {
    permit: OwnedSemaphorePermit,
    /// The limit of the request; none for the message that needs no part of the budget.
    limit: Option<usize>,
}

/// The memory of a message, until it is dropped.
pub(super) type Part = OwnedSemaphorePermit;

impl Memory {
    pub(super) fn new(budget: usize) -> Self {
        Self(Arc::new(Semaphore::new(budget)))
    }

    /// Returns the memory of a further subscriber.
    pub(super) fn share(&self) -> Share {
        Share { budget: Arc::clone(&self.0), first: Arc::new(Semaphore::new(1)) }
    }
}

impl Share {
    /// Waits for the memory of a request for `most` messages. Requests that wait get it in turn.
    pub(super) async fn grant(self, size: Size, most: usize) -> Grant {
        let limit = size.bytes();
        let wanted = limit.unwrap_or_default() + most.saturating_mul(EACH).min(BUDGET / 2);
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
        tokio::select! {
            biased;
            Ok(permit) = self.budget.acquire_many_owned(wanted), if limit.is_some() => Grant { permit, limit },
            Ok(permit) = self.first.acquire_owned() => Grant { permit, limit: None },
            // The semaphores are never closed.
            else => std::future::pending().await,
        }
    }
}

impl Size {
    /// Returns the maximum number of bytes.
    pub(super) fn bytes(self) -> Option<usize> {
        match self {
            Self::Small => Some(16 << 10),
            Self::Large => Some(128 << 10),
            Self::Any => None,
        }
    }

    /// Returns the size of the next request, after one whose limit was too small for a message. `has_arrived` is
    /// whether another message had arrived before.
    pub(super) fn larger(self, has_arrived: bool) -> Self {
        match (self, has_arrived) {
            (Self::Small, _) | (Self::Large, true) => Self::Large,
            (Self::Large | Self::Any, _) => Self::Any,
        }
    }
}

impl Grant {
    /// Returns the limit of the request in bytes. Without a limit, the memory is that of one message.
    pub(super) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Returns the memory of a message of this length.
    pub(super) fn part(&mut self, length: usize) -> Option<Part> {
        let wanted = if self.limit.is_some() { length.saturating_add(EACH) } else { 1 };
        self.permit.split(wanted.min(self.permit.num_permits()))
    }
}

#[cfg(test)]
mod tests {
    use futures::future::FutureExt as _;

    use super::*;

    const SUBSCRIBERS: usize = 1000;
    const LARGEST: usize = 80 << 10;

    #[test]
    fn subscribers_that_do_not_respond_stay_within_the_budget_and_each_has_a_message() {
        let memory = Memory::new(BUDGET);
        let shares: Vec<_> = (0..SUBSCRIBERS).map(|_| memory.share()).collect();
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for round in 0..20 {
            for share in &shares {
                let Some(mut grant) = share.clone().grant(Size::Large, 18).now_or_never() else {
                    assert!(round > 0, "each subscriber has a message");
                    continue;
                };
                bytes += if grant.limit().is_some() { LARGEST } else { 0 };
                parts.extend(grant.part(LARGEST));
            }
        }
        assert!((BUDGET / 2..=BUDGET).contains(&bytes), "{bytes}");
        // All memory is free again after the deliveries.
        drop(parts);
        assert_eq!(memory.0.available_permits(), BUDGET);
        assert!(shares.iter().all(|share| share.first.available_permits() == 1));
    }

    #[test]
    fn requests_of_a_subscriber_get_the_first_message_in_turn() {
        let memory = Memory::new(0);
        let share = memory.share();
        let held = share.clone().grant(Size::Small, 1).now_or_never().unwrap();
        let mut waiting: Vec<_> =
            [Size::Small, Size::Any, Size::Large].map(|size| share.clone().grant(size, 1).boxed()).into();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        drop(held);
        assert!(waiting[1..].iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(waiting.remove(0).now_or_never().unwrap().limit(), None);
        assert!(waiting.remove(0).now_or_never().is_some());
    }

    #[test]
    fn a_message_keeps_its_part_and_the_rest_is_free_after_the_request() {
        let memory = Memory::new(1 << 20);
        let mut grant = memory.share().grant(Size::Small, 2).now_or_never().unwrap();
        assert_eq!(grant.limit(), Some(16 << 10));
        let part = grant.part(1000).unwrap();
        drop(grant);
        assert_eq!(memory.0.available_permits(), (1 << 20) - 1000 - EACH);
        drop(part);
        assert_eq!(memory.0.available_permits(), 1 << 20);
    }

    #[test]
    fn a_request_grows_until_it_has_room_for_the_message() {
        assert_eq!([false, true].map(|has| Size::Small.larger(has)), [Size::Large; 2]);
        assert_eq!([false, true].map(|has| Size::Large.larger(has)), [Size::Any, Size::Large]);
    }
}
