//! Spans of other processes that caused work here: `traceparent` of a delivery to a Receiver.
//!
//! Invariant: at most [`MOST`] parents are kept, each for [`KEPT`], and none while tracing is off.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use parking_lot::Mutex;

use super::tracer::is_on;

/// Maximum number of kept parents. The oldest is dropped.
const MOST: usize = 1024;
/// How long a parent waits for the work that it causes.
const KEPT: Duration = Duration::from_secs(600);

static PARENTS: Mutex<Vec<(String, Parent, Instant)>> = Mutex::new(Vec::new());

/// The identity of a span, as a parent of others.
#[derive(Clone, Debug, PartialEq)]
pub struct Parent(pub(super) SpanContext);

impl Parent {
    /// Reads the value of the header `traceparent`; `None` if it is invalid.
    pub fn of_header(value: &str) -> Option<Self> {
        let headers = HashMap::from([("traceparent".to_owned(), value.to_owned())]);
        let context = TraceContextPropagator::new().extract_with_context(&opentelemetry::Context::new(), &headers);
        let span = context.span().span_context().clone();
        span.is_valid().then_some(Self(span))
    }

    /// Returns the id of the trace: 32 hexadecimal digits.
    pub fn trace_id(&self) -> String {
        self.0.trace_id().to_string()
    }
}

/// Records what caused the next work of a consumer, or that its cause is unknown.
pub fn set_parent(consumer: &str, parent: Option<&Parent>) {
    if is_on() {
        set(&mut PARENTS.lock(), consumer, parent, Instant::now());
    }
}

/// Returns what caused the newest work of a consumer.
pub fn parent_of(consumer: &str) -> Option<Parent> {
    if !is_on() {
        return None;
    }
    let mut parents = PARENTS.lock();
    let at = parents.iter().position(|(of, _, at)| of == consumer && at.elapsed() < KEPT)?;
    Some(parents.remove(at).1)
}

fn set(parents: &mut Vec<(String, Parent, Instant)>, consumer: &str, parent: Option<&Parent>, now: Instant) {
    parents.retain(|(of, _, at)| of != consumer && now.duration_since(*at) < KEPT);
    if let Some(parent) = parent {
        if parents.len() >= MOST {
            parents.remove(0);
        }
        parents.push((consumer.to_owned(), parent.clone(), now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_bounded_and_the_newest_counts() {
        let parent = Parent::of_header("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        let (mut parents, now) = (Vec::new(), Instant::now());
        for number in 0..MOST + 10 {
            set(&mut parents, &format!("consumer {number}"), Some(&parent), now);
        }
        assert_eq!((parents.len(), parents[0].0.as_str()), (MOST, "consumer 10"));
        set(&mut parents, "consumer 20", None, now);
        assert!(!parents.iter().any(|(of, ..)| of == "consumer 20"));
        set(&mut parents, "later", Some(&parent), now + KEPT);
        assert_eq!(parents.len(), 1);
    }

    #[test]
    fn an_invalid_header_is_no_parent() {
        let zeros = format!("00-{}-{}-01", "0".repeat(32), "0".repeat(16));
        for value in ["", "00", "00-zz-11-01", zeros.as_str(), &"0".repeat(9000)] {
            assert_eq!(Parent::of_header(value), None, "{value:.40}");
        }
    }
}
