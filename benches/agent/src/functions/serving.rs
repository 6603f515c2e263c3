//! Response times of a Function: at a fixed rate and at saturation.

use std::time::Duration;

use super::{
    Error, Product, builds,
    calls::Caller,
    pipeline::Pipeline,
    progress,
    servers::{self, Server},
    table::{Row, Target, duration},
};
use crate::api::Runtime;

/// Requests per second at which latency has a target.
const PACE: u32 = 50;
/// Name of the Python Function.
const PYTHON: &str = "hello-python";
/// Duration of the fixed rate.
const PACED: Duration = Duration::from_secs(10);
/// Warm-up time, so that just-in-time compilation is complete.
const WARM_UP: Duration = Duration::from_secs(2);
/// Duration of each saturation.
const TURN: Duration = Duration::from_secs(2);
/// Saturations of each server, alternating, so that noise affects both.
const TURNS: usize = 5;

/// Measures latency in both languages, and throughput compared with common servers.
pub(super) async fn all(pipeline: &mut Pipeline, product: &Product) -> Result<Vec<Row>, Error> {
    progress("requests at a fixed rate");
    let node = latency(pipeline, builds::INLINE, Runtime::NodeJs, Duration::from_millis(3)).await?;
    let python = latency(pipeline, PYTHON, Runtime::Python, Duration::from_millis(5)).await?;
    progress("requests at saturation");
    let libraries = product.libraries;
    let packages = tokio::task::spawn_blocking(libraries).await.unwrap_or_else(|error| Err(error.to_string()));
    let [node_packages, python_packages] = packages.map_err(Error::Packages)?;
    let directory = pipeline.stand.directory();
    let plain = servers::plain(directory).await?;
    let express = servers::express(directory, &node_packages).await?;
    let with_node = node_throughput(pipeline, &plain, &express).await?;
    drop((plain, express));
    let bottle = servers::bottle(directory, &python_packages).await?;
    Ok(vec![node, python, with_node, python_throughput(pipeline, &bottle).await?])
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

/// Compares the pod directly with other servers, one hop each. The pod's Service is measured, too.
async fn node_throughput(pipeline: &Pipeline, plain: &Server, express: &Server) -> Result<Row, Error> {
    let (pod, service) = (pipeline.pod(builds::INLINE).await?, pipeline.service(builds::INLINE).await?);
    let mark = pipeline.stand.mark().await?;
    let [pod, plain, express, service] = rates([&pod, &plain.address, &express.address, &service]).await?;
    let (of_plain, of_express) = (pod / plain, pod / express);
    let wall = format!("{pod:.0}/s; plain {plain:.0}/s; Express {express:.0}/s; by its Service {service:.0}/s");
    let targets = vec![
        Target::new("≥ 0.7 of a plain `node:http` server", of_plain >= 0.7),
        Target::new("≥ Express", of_express >= 1.0),
    ];
    let situation = format!(
        "hello-world in Node.js, as many requests as it answers: {of_plain:.2} of a plain server, {of_express:.1} × Express"
    );
    pipeline.stand.row(mark, situation, wall, |_| targets).await
}

async fn python_throughput(pipeline: &Pipeline, bottle: &Server) -> Result<Row, Error> {
    let (pod, service) = (pipeline.pod(PYTHON).await?, pipeline.service(PYTHON).await?);
    let mark = pipeline.stand.mark().await?;
    let [pod, bottle, service] = rates([&pod, &bottle.address, &service]).await?;
    let share = pod / bottle;
    let wall = format!("{pod:.0}/s; Bottle on waitress {bottle:.0}/s; by its Service {service:.0}/s");
    let situation = format!("hello-world in Python, as many requests as it answers: {share:.1} × Bottle on waitress");
    let target = Target::new("≥ Bottle on a kept server", share >= 1.0);
    pipeline.stand.row(mark, situation, wall, |_| vec![target]).await
}

/// Returns the responses per second of each address.
async fn rates<const N: usize>(addresses: [&str; N]) -> Result<[f64; N], Error> {
    let mut callers = Vec::new();
    for address in addresses {
        let caller = Caller::new(address)?;
        caller.saturated(WARM_UP).await?;
        callers.push(caller);
    }
    let mut rates = std::array::from_fn(|_| Vec::new());
    for _ in 0..TURNS {
        for (caller, rates) in callers.iter().zip(&mut rates) {
            rates.push(caller.saturated(TURN).await?);
        }
    }
    Ok(rates.map(median))
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
