//! A token bucket. An Event needs a token of each of two buckets. The crate `governor` 0.10 is not used: it cannot test
//! for a token without taking it, and does not show which buckets are full and can be dropped.

use tokio::time::Instant;

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
