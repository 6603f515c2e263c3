//! Metrics with the names of Kyma Serverless, beside Mainstay's own, for existing dashboards and alerts.
//!
//! Invariant: the series of a deleted Function are dropped at the next scrape.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge, histogram::Histogram},
};

use mainstay_function::FunctionMetrics;

/// The conditions in the order of a Function's metrics: the names in Kyma 2, and the labels of Kyma's module.
const CONDITIONS: [(&str, &str); 3] =
    [("configured", "ConfigurationReady"), ("built", "BuildReady"), ("running", "Running")];

/// The values at a scrape.
pub(super) struct Values {
    /// One row per Function.
    pub(super) functions: Vec<FunctionMetrics>,
    /// Functions reconciled since the start.
    pub(super) processed: u64,
    /// Reconciles of Functions since the start.
    pub(super) reconciliations: u64,
    /// Durations of reconciles, if there were any.
    pub(super) reconcile_times: Option<Histogram>,
}

/// Encodes the metrics at each scrape.
pub(super) struct ServerlessMetrics(pub(super) Box<dyn Fn() -> Values + Send + Sync>);

impl fmt::Debug for ServerlessMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerlessMetrics")
    }
}

impl Collector for ServerlessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let values = (self.0)();
        for (name, help, number) in [
            ("serverless_function_processed", "Functions that were reconciled", values.processed),
            ("serverless_reconciliations", "Reconciles of Functions", values.reconciliations),
        ] {
            let counter = ConstCounter::new(number);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        if let Some(times) = &values.reconcile_times {
            let help = "Time of one reconcile of a Function";
            let kind = times.metric_type();
            times.encode(encoder.encode_descriptor("serverless_reconciliation_time_seconds", help, None, kind)?)?;
        }
        milliseconds(&mut encoder, &values.functions)?;
        let help = "Time from the creation of a Function until a condition was True, by condition";
        let kind = ConstGauge::new(0.0).metric_type();
        let mut family = encoder.encode_descriptor("serverless_state_reach_time_seconds", help, None, kind)?;
        for function in &values.functions {
            for ((_, condition), took) in CONDITIONS.into_iter().zip(function.took) {
                let Some(took) = took else { continue };
                let [name, namespace, source, runtime] = labels(function);
                let labels = [name, namespace, source, runtime, ("condition", condition)];
                ConstGauge::new(took.as_secs_f64()).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// Returns the labels of a Function's metrics.
fn labels(function: &FunctionMetrics) -> [(&'static str, &str); 4] {
    [
        ("name", &function.name),
        ("namespace", &function.namespace),
        ("type", function.source),
        ("runtime", &function.runtime),
    ]
}

/// Encodes a gauge with a row for each Function that has a value.
pub(super) fn encode_gauge(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    functions: &[FunctionMetrics],
    value: impl Fn(&FunctionMetrics) -> Option<f64>,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, ConstGauge::new(0.0).metric_type())?;
    for function in functions {
        let Some(value) = value(function) else { continue };
        ConstGauge::new(value).encode(family.encode_family(&labels(function))?)?;
    }
    Ok(())
}

/// Encodes the gauges of Kyma 2: one family per condition, in milliseconds.
fn milliseconds(encoder: &mut DescriptorEncoder<'_>, functions: &[FunctionMetrics]) -> Result<(), fmt::Error> {
    for (at, (word, _)) in CONDITIONS.into_iter().enumerate() {
        let name = format!("function_{word}_status_duration_millisecond");
        let help = format!("Time from the creation of a Function until it was {word}");
        let value = |function: &FunctionMetrics| Some(function.took[at]?.as_millis() as f64);
        encode_gauge(encoder, (&name, &help), functions, value)?;
    }
    Ok(())
}
