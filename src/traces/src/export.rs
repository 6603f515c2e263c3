//! Sends spans to a collector: OTLP over HTTP with protobuf, in batches, on a thread of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry::{Key, KeyValue};
use opentelemetry_otlp::{WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};

use super::tracer::TRACER;

/// Maximum duration of a request.
const WITHIN: Duration = Duration::from_secs(10);
/// How long the end of the process waits for the last spans.
const LAST: Duration = Duration::from_secs(2);

/// Why tracing did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The client for the collector cannot be built.
    #[error("the client for the collector cannot be built")]
    Client(#[source] reqwest::Error),
    /// The endpoint is no URL, or it has a login. It is not quoted, because it may contain a password.
    #[error(
        "the endpoint must be a URL such as http://collector.monitoring:4318, without a login; put a token into OTEL_EXPORTER_OTLP_HEADERS"
    )]
    Endpoint,
    /// A standard variable is invalid.
    #[error("the exporter of traces cannot be built: {0}")]
    Exporter(String),
    /// Tracing was started before in this process.
    #[error("traces are sent already")]
    Started,
}

/// Sending; dropping it sends the last spans, and waits for at most two seconds.
#[derive(Debug)]
pub struct Exporting(SdkTracerProvider);

impl Drop for Exporting {
    fn drop(&mut self) {
        // A collector that is away was logged.
        let _ = self.0.shutdown_with_timeout(LAST);
    }
}

impl Exporting {
    /// Sends the spans that ended so far.
    pub fn flush(&self) {
        let _ = self.0.force_flush();
    }
}

/// The address of a collector.
#[derive(Clone, Copy, Debug)]
pub enum Endpoint<'a> {
    /// The URL of all signals, to which `/v1/traces` is added.
    Collector(&'a str),
    /// The URL of traces.
    Traces(&'a str),
}

/// Starts to send spans to a collector. Headers, resource attributes, the sampler and the size of batches come from the
/// standard variables `OTEL_*`.
///
/// # Errors
/// Fails if the endpoint is no URL of HTTP, a variable is invalid, or sending has started already.
pub fn start(endpoint: Endpoint<'_>) -> Result<Exporting, StartError> {
    let url = endpoint.traces().ok_or(StartError::Endpoint)?;
    // The blocking client may not be built on a thread of the runtime.
    let client = std::thread::spawn(|| {
        reqwest::blocking::Client::builder().timeout(WITHIN).redirect(reqwest::redirect::Policy::none()).build()
    });
    let client = client.join().map_err(|_| StartError::Exporter("its client panicked".to_owned()))?;
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_http_client(client.map_err(StartError::Client)?)
        .with_endpoint(url)
        .with_timeout(WITHIN)
        .build()
        .map_err(|error| StartError::Exporter(error.to_string()))?;
    let exporter = LoggedOnce { exporter, is_away: AtomicBool::new(false) };
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource()).build();
    TRACER.set(provider.tracer("mainstay")).map_err(|_| StartError::Started)?;
    Ok(Exporting(provider))
}

impl Endpoint<'_> {
    /// Returns the URL of traces; `None` if the endpoint is invalid.
    fn traces(self) -> Option<String> {
        let (Self::Collector(endpoint) | Self::Traces(endpoint)) = self;
        let mut url = reqwest::Url::parse(endpoint).ok()?;
        let has_login = !url.username().is_empty() || url.password().is_some();
        if !matches!(url.scheme(), "http" | "https") || has_login {
            return None;
        }
        if let Self::Collector(_) = self {
            url.set_path(&format!("{}/v1/traces", url.path().trim_end_matches('/')));
        }
        Some(url.into())
    }
}

/// Returns the resource of the standard variables. The service is called `mainstay`, unless they name it.
fn resource() -> Resource {
    let found = Resource::builder().build();
    let name = found.get(&Key::from_static_str("service.name"));
    if name.is_some_and(|name| !name.as_str().starts_with("unknown_service")) {
        return found;
    }
    Resource::builder().with_attribute(KeyValue::new("service.name", "mainstay")).build()
}

/// An exporter that logs the first of several failures, and the success after them.
#[derive(Debug)]
struct LoggedOnce {
    exporter: opentelemetry_otlp::SpanExporter,
    is_away: AtomicBool,
}

impl SpanExporter for LoggedOnce {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let sent = self.exporter.export(batch).await;
        let was_away = self.is_away.swap(sent.is_err(), Ordering::Relaxed);
        match &sent {
            // The exporter's errors contain no text of the collector.
            Err(error) if !was_away => {
                tracing::warn!(%error, "traces not sent: the collector does not accept them; spans are dropped until it does");
            }
            Ok(()) if was_away => tracing::info!("traces are sent again"),
            _ => {}
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_url_of_http_without_a_login() {
        for (endpoint, url) in [
            ("http://collector:4318", "http://collector:4318/v1/traces"),
            ("https://collector.example.com/otlp/", "https://collector.example.com/otlp/v1/traces"),
            ("http://collector:4318/?tenant=a", "http://collector:4318/v1/traces?tenant=a"),
        ] {
            assert_eq!(Endpoint::Collector(endpoint).traces().as_deref(), Some(url));
            assert_eq!(Endpoint::Traces(url).traces().as_deref(), Some(url));
        }
        for endpoint in ["", "collector", "collector:4318", "ftp://collector", "http://", "http://u:hunter2@collector"]
        {
            let error = start(Endpoint::Collector(endpoint)).unwrap_err();
            assert!(matches!(error, StartError::Endpoint) && !error.to_string().contains("hunter2"), "{endpoint}");
        }
    }
}
