//! Build times of Functions.

use std::time::Duration;

use super::{
    Error,
    load::Load,
    nudge,
    pipeline::Pipeline,
    progress,
    table::{Latencies, Row, Target, duration},
};
use crate::api::{Function, Runtime};

/// Number of source changes.
const CHANGES: usize = 5;
/// The Function with inline source.
pub(super) const INLINE: &str = "hello-node";

/// Measures all builds.
pub(super) async fn all(pipeline: &mut Pipeline) -> Result<Vec<Row>, Error> {
    progress("builds without dependencies");
    let mut rows = vec![pushes(pipeline, Runtime::NodeJs).await?];
    progress("builds with dependencies");
    rows.push(first(pipeline).await?);
    rows.push(source_only(pipeline).await?);
    Ok(rows)
}

async fn pushes(pipeline: &mut Pipeline, runtime: Runtime) -> Result<Row, Error> {
    let client = reqwest::Client::new();
    pipeline.inline(INLINE, runtime, "first").await?;
    pipeline.ready(INLINE).await?;
    let mark = pipeline.stand.mark().await?;
    let mut pushes = Vec::new();
    for change in 0..CHANGES {
        let before = pipeline.tags(&client, INLINE).await?;
        let start = pipeline.inline(INLINE, runtime, &format!("change {change}")).await?;
        pushes.push((start, pipeline.pushed(&client, INLINE, before + 1).await?));
        pipeline.ready(INLINE).await?;
    }
    let median = Latencies::new(pushes).percentile(0.5);
    let situation = format!("source changed, until the image is in the registry, no dependencies, {CHANGES} times");
    let targets = |_: &_| vec![Target::new("≤ 1 s", median <= Duration::from_secs(1))];
    pipeline.stand.row(mark, situation, format!("p50 {}", duration(median)), targets).await
}

async fn first(pipeline: &mut Pipeline) -> Result<Row, Error> {
    pipeline.builds.forget();
    let (mark, asked) = (pipeline.stand.mark().await?, pipeline.git.counts());
    let name = Load::name(0);
    pipeline.stand.apply::<Function>(&name, &Load::function(0)).await?;
    let length = pipeline.build(&name).await?;
    let asked = pipeline.git.counts().since(asked);
    let situation = format!("first build from Git with dependencies, the pod's life; {asked}");
    pipeline.stand.row(mark, situation, duration(length), |_| Vec::new()).await
}

async fn source_only(pipeline: &mut Pipeline) -> Result<Row, Error> {
    let name = Load::name(0);
    let mark = pipeline.stand.mark().await?;
    let mut lengths = Vec::new();
    let mut once = true;
    for change in 0..CHANGES {
        pipeline.load.change(0, &format!("change {change}"))?;
        pipeline.builds.forget();
        let asked = pipeline.git.counts();
        nudge::look_now(&pipeline.stand, &name).await?;
        lengths.push(pipeline.build(&name).await?);
        let asked = pipeline.git.counts().since(asked);
        once &= asked.lookups == 2 && asked.fetches == 2;
    }
    lengths.sort();
    let median = lengths[lengths.len() / 2];
    let situation = format!("source changed in Git, dependencies as before, the pod's life, {CHANGES} times");
    pipeline
        .stand
        .row(mark, situation, format!("p50 {}", duration(median)), |_| {
            vec![
                Target::new("≤ 0.5 s", median <= Duration::from_millis(500)),
                Target::new("1 lookup and 1 fetch by the agent, and by the Job", once),
            ]
        })
        .await
}
