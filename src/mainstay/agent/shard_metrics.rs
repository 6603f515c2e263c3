//! Metrics of agents that share the GitSyncs.

use std::fmt;
use std::sync::atomic::Ordering;

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};

use super::share::Counts;

/// The values at a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShardGauges {
    /// Agents that share the GitSyncs; 0 without shards.
    pub members: u64,
    /// GitSyncs of this agent.
    pub own: u64,
    /// GitSyncs that this agent has begun to look after.
    pub gained: u64,
    /// GitSyncs that this agent has left to other agents.
    pub lost: u64,
}

impl ShardGauges {
    pub(super) fn of(counts: &Counts) -> Self {
        let [members, own, gained, lost] =
            [&counts.members, &counts.own, &counts.gained, &counts.lost].map(|count| count.load(Ordering::Relaxed));
        Self { members, own, gained, lost }
    }

    /// Encodes the metrics.
    pub(super) fn encode(self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, number) in [
            ("shard_members", "Agents that share the GitSyncs; 0 without shards", self.members),
            ("shard_syncs", "GitSyncs of this agent; 0 without shards", self.own),
        ] {
            let gauge = ConstGauge::new(number);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, number) in [
            ("shard_gained", "GitSyncs that this agent has begun to look after, with shards", self.gained),
            ("shard_lost", "GitSyncs that this agent has left to other agents", self.lost),
        ] {
            let counter = ConstCounter::new(number);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
