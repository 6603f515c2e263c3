//! A large kustomization, rendered beside the agent: the number of renders, and their overhead over the tool.
//!
//! The cost of a render is the difference between the same commit to a kustomization and to plain manifests, each until
//! it is applied.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::process::Command;

use super::{
    Error,
    observer::until_last,
    progress,
    stand::DEADLINE,
    table::{Row, Target, duration},
    world::{RENDERER_MEMORY, SETTLED, World},
};
use crate::commit;

/// Number of objects in the kustomization.
const OBJECTS: usize = 300;
/// Number of measurements per commit.
const TIMES: u32 = 9;
/// Target for the maximum ratio of a render to the tool alone.
const PROMISED: f64 = 1.3;
/// Names of the repository, its directories and the GitSyncs.
const REPOSITORY: &str = "rendered";
const PLAIN: &str = "plain";
const KUSTOMIZED: &str = "kustomized";
/// Metric of the agent that counts renders.
const RENDERS: &str = "mainstay_renders_total";

/// Measures all situations.
pub(super) async fn all(world: &mut World) -> Result<Vec<Row>, Error> {
    let (directory, url) = world.repository(REPOSITORY);
    fs::create_dir_all(&directory).map_err(Error::Load)?;
    commit::init(&directory).map_err(Error::Commit)?;
    for name in [PLAIN, KUSTOMIZED] {
        write(&directory.join(name), name, 0)?;
    }
    let kustomization = "resources: [objects.yaml]\nlabels: [{pairs: {tier: bench}}]\n";
    fs::write(directory.join(KUSTOMIZED).join("kustomization.yaml"), kustomization).map_err(Error::Load)?;
    commit::everything(&directory, "objects").map_err(Error::Commit)?;
    world.follow_repository(REPOSITORY, &url).await?;
    world.follow(PLAIN, REPOSITORY, &format!("/{PLAIN}")).await?;
    world.reach(name_of(PLAIN, OBJECTS - 1), "0".to_owned()).await?;
    progress("a kustomization");
    let mut rows = vec![first(world).await?];
    progress("a commit that no kustomization reads");
    rows.push(unrelated(world, &directory).await?);
    progress("commits to a kustomization");
    rows.push(changed(world, &directory).await?);
    Ok(rows)
}

async fn first(world: &mut World) -> Result<Row, Error> {
    let before = world.stand.metric(RENDERS).await?;
    let mark = world.stand.mark().await?;
    let mut syncs = world.observe_syncs().await?;
    let start = Instant::now();
    world.follow(KUSTOMIZED, REPOSITORY, &format!("/{KUSTOMIZED}")).await?;
    let wanted = [(KUSTOMIZED.to_owned(), SETTLED.to_owned())].into();
    let wall = until_last(start, &syncs.all(wanted, DEADLINE).await?);
    let renders = world.stand.metric(RENDERS).await? - before;
    let situation = format!("a kustomization of {OBJECTS} objects, until it is Ready");
    world.stand.row(mark, situation, duration(wall), |_| vec![Target::new("1 render", renders == 1)]).await
}

async fn unrelated(world: &World, directory: &Path) -> Result<Row, Error> {
    let before = world.stand.metric(RENDERS).await?;
    fs::write(directory.join("README.md"), "What no kustomization reads.\n").map_err(Error::Load)?;
    commit::everything(directory, "unrelated").map_err(Error::Commit)?;
    let mark = world.stand.mark().await?;
    let (start, token) = world.request(KUSTOMIZED).await?;
    world.handled(KUSTOMIZED, &token).await?;
    let wall = start.elapsed();
    let renders = world.stand.metric(RENDERS).await? - before;
    world
        .stand
        .row(mark, "commit that it does not read, until the status names it", duration(wall), |requests| {
            vec![Target::new("0 renders", renders == 0), Target::new("0 applies", requests.of("apply", "") == 0)]
        })
        .await
}

async fn changed(world: &mut World, directory: &Path) -> Result<Row, Error> {
    let before = world.stand.metric(RENDERS).await?;
    let mark = world.stand.mark().await?;
    let (mut plain, mut kustomized, mut tool) = (Vec::new(), Vec::new(), Vec::new());
    for revision in 1..=TIMES {
        for (name, times) in [(PLAIN, &mut plain), (KUSTOMIZED, &mut kustomized)] {
            write(&directory.join(name), name, revision)?;
            commit::everything(directory, "change one").map_err(Error::Commit)?;
            world.observer.forget();
            let (start, token) = world.request(name).await?;
            let end = world.reach(name_of(name, 0), revision.to_string()).await?;
            times.push(end.saturating_duration_since(start));
            world.handled(name, &token).await?;
        }
        tool.push(alone(&directory.join(KUSTOMIZED)).await?);
    }
    let [plain, kustomized, tool] = [plain, kustomized, tool].map(median);
    let renders = world.stand.metric(RENDERS).await? - before;
    let ratio = kustomized.saturating_sub(plain).as_secs_f64() / tool.as_secs_f64();
    let cgroup =
        if world.renderer_limit.is_some() { format!(", in a cgroup of {RENDERER_MEMORY} MiB") } else { String::new() };
    let renderer = world.renderer.peak_mib()?;
    let situation = format!(
        "commit that changes one of its objects, {TIMES} times, until it is applied; of plain manifests {}; the tool alone \
         takes {}, a render {ratio:.2} times that; the renderer, without the tool, has at most {renderer:.0} MiB{cgroup}",
        duration(plain),
        duration(tool),
    );
    let targets = vec![
        Target::new("1 render each", renders == u64::from(TIMES)),
        Target::new(format!("≤ {PROMISED} × the tool"), ratio <= PROMISED),
    ];
    world.stand.row(mark, situation, format!("p50 {}", duration(kustomized)), |_| targets).await
}

/// Measures the execution of the rendering tool alone.
async fn alone(directory: &Path) -> Result<Duration, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let find = |name: &str| std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    let (program, word) = find("kustomize").map_or((PathBuf::from("kubectl"), "kustomize"), |path| (path, "build"));
    let mut command = Command::new(program);
    command.arg(word).arg(directory).stdin(Stdio::null()).stdout(Stdio::piped());
    let start = Instant::now();
    let output = command.output().await.map_err(Error::Start)?;
    if !output.status.success() {
        return Err(Error::NotStarted);
    }
    Ok(start.elapsed())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn name_of(group: &str, number: usize) -> String {
    format!("{group}-{number:03}")
}

/// Writes all objects. The first object has this revision.
fn write(directory: &Path, group: &str, revision: u32) -> Result<(), Error> {
    let mut text = String::new();
    for number in 0..OBJECTS {
        let revision = if number == 0 { revision } else { 0 };
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\ndata:\n  revision: \"{revision}\"\n",
            name_of(group, number)
        );
    }
    fs::create_dir_all(directory).map_err(Error::Load)?;
    fs::write(directory.join("objects.yaml"), text).map_err(Error::Load)
}
