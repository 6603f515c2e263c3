//! What Kyma Serverless measured, under its names, beside our own: dashboards and alerts that were made for it go on.
//!
//! Invariant: the series of a deleted Function are gone with the next scrape.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use crate::function::FunctionMetrics;

/// The conditions in the order of a Function's metrics, as the names of Kyma 2 and the labels of Kyma's module have them.
const CONDITIONS: [(&str, &str); 3] =
    [("configured", "ConfigurationReady"), ("built", "BuildReady"), ("running", "Running")];

/// Their values at the moment of a scrape.
pub(super) struct Values {
    /// One row per Function.
    pub(super) functions: Vec<FunctionMetrics>,
    /// Functions that were reconciled since the start.
    pub(super) processed: u64,
    /// Reconciles of Functions since the start.
    pub(super) reconciliations: u64,
}

/// Encodes them at each scrape.
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
            ("serverless_function_processed", "Functions that were processed", values.processed),
            ("serverless_reconciliations", "Reconciliations of Functions", values.reconciliations),
        ] {
            let counter = ConstCounter::new(number);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        milliseconds(&mut encoder, &values.functions)?;
        let help = "Time from the creation of a Function until a condition was True";
        let kind = ConstGauge::new(0.0).metric_type();
        let mut family = encoder.encode_descriptor("serverless_state_reach_time_seconds", help, None, kind)?;
        for function in &values.functions {
            for ((_, condition), took) in CONDITIONS.into_iter().zip(function.took) {
                let Some(took) = took else { continue };
                let labels = [
                    ("name", function.name.as_str()),
                    ("namespace", function.namespace.as_str()),
                    ("type", function.source),
                    ("runtime", function.runtime.as_str()),
                    ("condition", condition),
                ];
                ConstGauge::new(took.as_secs_f64()).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// The gauges of Kyma 2: one family for each condition, in milliseconds.
fn milliseconds(encoder: &mut DescriptorEncoder<'_>, functions: &[FunctionMetrics]) -> Result<(), fmt::Error> {
    let kind = ConstGauge::new(0.0).metric_type();
    for (at, (word, _)) in CONDITIONS.into_iter().enumerate() {
        let name = format!("function_{word}_status_duration_millisecond");
        let help = format!("Milliseconds from the creation of a Function until it was {word}");
        let mut family = encoder.encode_descriptor(&name, &help, None, kind)?;
        for function in functions {
            let Some(took) = function.took[at] else { continue };
            let labels = [
                ("name", function.name.as_str()),
                ("namespace", function.namespace.as_str()),
                ("type", function.source),
                ("runtime", function.runtime.as_str()),
            ];
            ConstGauge::new(took.as_millis() as f64).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
