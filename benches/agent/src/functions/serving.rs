//! How fast a function answers: at some requests per second, and at its most.

use std::time::Duration;

use super::{
    Error, builds,
    calls::Caller,
    pipeline::Pipeline,
    progress, servers,
    table::{Row, Target, duration},
};
use crate::api::Runtime;

/// Requests per second at which latency is promised.
const PACE: u32 = 50;
/// How long they come.
const PACED: Duration = Duration::from_secs(10);
/// Before anything is measured, so that what is compiled while it runs is compiled.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long one server is saturated at a time.
const TURN: Duration = Duration::from_secs(2);
/// Turns of each server, alternating, so that noise of the machine hits both.
const TURNS: usize = 5;

/// Latency of both languages, and throughput of Node.js beside a plain server.
pub(super) async fn all(pipeline: &mut Pipeline) -> Result<Vec<Row>, Error> {
    progress("requests at a fixed rate");
    let node = latency(pipeline, builds::INLINE, Runtime::NodeJs, Duration::from_millis(3)).await?;
    let python = latency(pipeline, "hello-python", Runtime::Python, Duration::from_millis(5)).await?;
    progress("requests at saturation");
    Ok(vec![node, python, throughput(pipeline, builds::INLINE).await?])
}

async fn latency(pipeline: &mut Pipeline, name: &str, runtime: Runtime, promised: Duration) -> Result<Row, Error> {
    pipeline.inline(name, runtime, "hello").await?;
    pipeline.ready(name).await?;
    let caller = Caller::new(&pipeline.service(name).await?)?;
    caller.saturated(WARM_UP).await?;
    let mark = pipeline.stand.mark().await?;
    let latencies = caller.paced(PACE, PACED).await?;
    let (p50, p95) = (latencies.percentile(0.5), latencies.percentile(0.95));
    let wall = format!("p50 {}, p95 {}", duration(p50), duration(p95));
    let target = Target::new(format!("p95 ≤ {} ms", promised.as_millis()), p95 <= promised);
    let situation = format!("hello-world in {} by its Service, {PACE} requests/s", runtime.language());
    pipeline.stand.row(mark, situation, wall, |_| vec![target]).await
}

/// The pod itself beside a plain server, so that both are one hop away; and its Service, for comparison.
async fn throughput(pipeline: &Pipeline, name: &str) -> Result<Row, Error> {
    let plain = servers::plain(pipeline.stand.directory()).await?;
    let addresses = [pipeline.pod(name).await?, plain.address.clone(), pipeline.service(name).await?];
    let callers = addresses.iter().map(|address| Caller::new(address)).collect::<Result<Vec<_>, _>>()?;
    for caller in &callers {
        caller.saturated(WARM_UP).await?;
    }
    let mark = pipeline.stand.mark().await?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        for (caller, rates) in callers.iter().zip(&mut rates) {
            rates.push(caller.saturated(TURN).await?);
        }
    }
    let [pod, plain, service] = rates.map(median);
    let share = pod / plain;
    let wall = format!("{pod:.0}/s; plain server {plain:.0}/s; by its Service {service:.0}/s");
    let target = Target::new("≥ 0.7 of a plain `node:http` server", share >= 0.7);
    let situation = format!("hello-world in Node.js, as many requests as it answers: {share:.2} of a plain server");
    pipeline.stand.row(mark, situation, wall, |_| vec![target]).await
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_one_bad_turn() {
        assert!((median(vec![10.0, 0.1, 9.0]) - 9.0).abs() < f64::EPSILON);
    }
}
