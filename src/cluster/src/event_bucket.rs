//! A token bucket. Why not `governor`: an Event needs a token of two buckets, and 0.10 can only take one, not ask first
//! whether both have one; nor can it tell a full bucket, which is forgotten.

use tokio::time::Instant;

/// A token bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket {
    size: f64,
    per_second: f64,
    tokens: f64,
    since: Option<Instant>,
}

impl Bucket {
    pub(super) const fn new(size: f64, per_second: f64) -> Self {
        Self { size, per_second, tokens: size, since: None }
    }

    pub(super) fn refill(&mut self, now: Instant) -> &mut Self {
        if let Some(since) = self.since {
            let grown = now.duration_since(since).as_secs_f64() * self.per_second;
            self.tokens = (self.tokens + grown).min(self.size);
        }
        self.since = Some(now);
        self
    }

    pub(super) fn has_token(&self) -> bool {
        self.tokens >= 1.0
    }

    pub(super) fn take(&mut self) {
        self.tokens -= 1.0;
    }

    pub(super) fn is_full(&self) -> bool {
        self.tokens >= self.size
    }
}
