//! A span: a named piece of work of a trace.

use std::borrow::Cow;
use std::time::SystemTime;

use opentelemetry::trace::{Span as _, SpanContext, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;

use super::parents::Parent;
use super::tracer::TRACER;

/// An open span. It ends when it is dropped.
#[derive(Debug)]
pub struct Span(opentelemetry_sdk::trace::Span);

impl Span {
    /// Opens the first span of a trace; `None` while tracing is off. With a parent, the span belongs to the trace of
    /// the parent.
    pub fn root(
        name: &'static str,
        began: SystemTime,
        parent: Option<&Parent>,
        attributes: impl FnOnce() -> Vec<KeyValue>,
    ) -> Option<Self> {
        let tracer = TRACER.get()?;
        let parent = parent.map_or_else(Context::new, |parent| context(parent.0.clone()));
        Some(Self::open(tracer, name, began, &parent, attributes()))
    }

    /// Opens a span below a parent; `None` while tracing is off.
    pub fn child(
        name: &'static str,
        began: SystemTime,
        parent: &Parent,
        attributes: impl FnOnce() -> Vec<KeyValue>,
    ) -> Option<Self> {
        Self::root(name, began, Some(parent), attributes)
    }

    fn open(
        tracer: &SdkTracer,
        name: &'static str,
        began: SystemTime,
        parent: &Context,
        attributes: Vec<KeyValue>,
    ) -> Self {
        let builder = tracer.span_builder(name).with_start_time(began).with_attributes(attributes);
        Self(tracer.build_with_context(builder, parent))
    }

    /// Returns the span as a parent of others.
    pub fn as_parent(&self) -> Parent {
        Parent(self.0.span_context().clone())
    }

    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<opentelemetry::Value>) {
        self.0.set_attribute(KeyValue::new(name, value));
    }

    /// Marks the span as failed, for a reason that contains no value of an object.
    pub fn fail(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.0.set_status(Status::error(reason));
    }

    /// Ends the span at a time other than now.
    pub fn end_at(mut self, end: SystemTime) {
        self.0.end_with_timestamp(end);
    }
}

fn context(parent: SpanContext) -> Context {
    Context::new().with_remote_span_context(parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tracer::is_on;

    #[test]
    fn no_attribute_is_computed_while_tracing_is_off() {
        let attributes = || -> Vec<KeyValue> { unreachable!("tracing is off") };
        let parent = Parent::of_header("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
        assert!(Span::root("commit", SystemTime::UNIX_EPOCH, None, attributes).is_none());
        assert!(Span::child("fetch", SystemTime::UNIX_EPOCH, &parent, attributes).is_none());
        assert!(!is_on());
    }
}
