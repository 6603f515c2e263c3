//! Metrics of the removal of unused images.

use std::fmt;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::retention::Gauges;

/// Encodes the metrics.
pub(super) fn encode(encoder: &mut DescriptorEncoder<'_>, gauges: Gauges) -> Result<(), fmt::Error> {
    for (name, help, number) in [
        ("images_removed", "Unused images that were removed from the registry", gauges.manifests),
        ("images_removed_bytes", "Bytes of the registry that removed images occupied, as far as known", gauges.bytes),
        ("image_sweeps", "Restarts of the registry that removed images", gauges.sweeps),
        ("image_sweep_failures", "Attempts to remove images that failed, in whole or in part", gauges.failures),
    ] {
        let counter = ConstCounter::new(number);
        counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
    }
    if let Some(last) = gauges.last {
        let (gauge, help) = (ConstGauge::new(last), "Time of the last search for unused images");
        let name = "image_retention_last_timestamp_seconds";
        gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
    }
    Ok(())
}
