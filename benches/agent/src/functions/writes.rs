//! Latency that admission adds to writes of a Function. The writes are dry runs, which call the webhooks.

use std::time::{Duration, Instant};

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

use super::{
    Error,
    load::Load,
    stand::{DEADLINE, MANAGER, NAMESPACE, Stand},
    table::{Latencies, Row, Target, duration},
};
use crate::api::Function;

/// Number of sequential writes.
const WRITES: usize = 1000;
/// Target for the maximum latency of the webhooks at p99.
const PROMISED: Duration = Duration::from_millis(5);

/// Measures the latency of writes.
pub(super) async fn measure(stand: &Stand) -> Result<Latencies, Error> {
    let api = Api::<Function>::namespaced(stand.client.clone(), NAMESPACE);
    let how = PatchParams::apply(MANAGER).dry_run();
    let function = Patch::Apply(Load::function(0));
    let mut writes = Vec::new();
    for _ in 0..WRITES {
        let start = Instant::now();
        api.patch(&Load::name(0), &how, &function).await.map_err(Error::Ask)?;
        writes.push((start, Instant::now()));
    }
    Ok(Latencies::new(writes))
}

/// Measures writes while the agent serves the webhooks, compared with `before`.
pub(super) async fn asked(stand: &Stand, before: &Latencies) -> Result<Row, Error> {
    until_denied(stand).await?;
    let mark = stand.mark().await?;
    let asked = measure(stand).await?;
    let at = |latencies: &Latencies| [0.5, 0.99].map(|share| latencies.percentile(share));
    let ([p50, p99], [p50_before, p99_before]) = (at(&asked), at(before));
    let situation = format!(
        "a Function written {WRITES} times with the webhooks on; off: p50 {}, p99 {}",
        duration(p50_before),
        duration(p99_before)
    );
    let wall = format!("p50 {}, p99 {}", duration(p50), duration(p99));
    let held = p99.saturating_sub(p99_before) <= PROMISED;
    stand.row(mark, situation, wall, |_| vec![Target::new("≤ 5 ms more at p99", held)]).await
}

/// Waits until the webhooks refuse an invalid Function. Until then, the Function is admitted.
async fn until_denied(stand: &Stand) -> Result<(), Error> {
    let api = Api::<Function>::namespaced(stand.client.clone(), NAMESPACE);
    let how = PatchParams::apply(MANAGER).dry_run();
    let mut invalid = Load::function(0);
    invalid["spec"] = json!({"source": " "});
    let end = Instant::now() + DEADLINE;
    while api.patch(&Load::name(0), &how, &Patch::Apply(&invalid)).await.is_ok() {
        if Instant::now() >= end {
            return Err(Error::NotAsked { seconds: DEADLINE.as_secs() });
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}
