//! The tracer of this process.

use std::sync::OnceLock;

use opentelemetry_sdk::trace::SdkTracer;

/// The tracer; unset while tracing is off.
pub(super) static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Whether spans are sent to a collector.
pub fn is_on() -> bool {
    TRACER.get().is_some()
}
