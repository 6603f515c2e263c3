//! How fast a function answers: at some requests per second, and at its most.

use std::time::Duration;

use super::{
    Error,
    calls::Caller,
    progress, servers,
    stand::Stand,
    table::{Row, Target, duration},
};
use crate::runtimes::{self, Language};

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
pub(super) async fn all(stand: &Stand) -> Result<Vec<Row>, Error> {
    progress("requests at a fixed rate");
    let node = latency(stand, "nodejs22", Duration::from_millis(3)).await?;
    let python = latency(stand, "python312", Duration::from_millis(5)).await?;
    progress("requests at saturation");
    Ok(vec![node, python, throughput(stand).await?])
}

async fn latency(stand: &Stand, runtime: &str, promised: Duration) -> Result<Row, Error> {
    let runtime = runtimes::find(runtime).ok_or(Error::NoRuntime)?;
    let server = servers::runtime(stand.directory(), runtime).await?;
    let caller = Caller::new(&server.address)?;
    caller.saturated(WARM_UP).await?;
    let mark = stand.mark().await?;
    let latencies = caller.paced(PACE, PACED).await?;
    let (p50, p95) = (latencies.percentile(0.5), latencies.percentile(0.95));
    let language = name(runtime.language);
    let wall = format!("p50 {}, p95 {}", duration(p50), duration(p95));
    let target = Target::new(format!("p95 ≤ {} ms", promised.as_millis()), p95 <= promised);
    stand.row(mark, format!("hello-world in {language}, {PACE} requests/s"), wall, |_| vec![target]).await
}

async fn throughput(stand: &Stand) -> Result<Row, Error> {
    let runtime = runtimes::find("nodejs22").ok_or(Error::NoRuntime)?;
    let (function, plain) =
        (servers::runtime(stand.directory(), runtime).await?, servers::plain(stand.directory()).await?);
    let callers = [Caller::new(&function.address)?, Caller::new(&plain.address)?];
    for caller in &callers {
        caller.saturated(WARM_UP).await?;
    }
    let mark = stand.mark().await?;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        for (caller, rates) in callers.iter().zip(&mut rates) {
            rates.push(caller.saturated(TURN).await?);
        }
    }
    let [function, plain] = rates.map(median);
    let share = function / plain;
    let wall = format!("{function:.0}/s; plain {plain:.0}/s");
    let target = Target::new(format!("≥ 0.70 of a plain `node:http` server ({share:.2})"), share >= 0.7);
    stand.row(mark, "hello-world in Node.js, as many requests as it answers", wall, |_| vec![target]).await
}

fn name(language: Language) -> &'static str {
    match language {
        Language::NodeJs => "Node.js",
        Language::Python => "Python",
    }
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
