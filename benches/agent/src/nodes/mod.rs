//! Measures how a Function is deployed on the nodes of a real cluster, as a timeline.
//!
//! Mainstay must be installed in the given cluster. Each Function is measured alone and deleted afterwards. Its name is
//! unique, so the registry has no image of an earlier run.
//!
//! Not here: the first pull of a base image by a node. The caller pre-pulls these images.

mod functions;
mod steps;
mod timeline;

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    batch::v1::Job,
    core::v1::{Event, Pod},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};

use self::{
    functions::{Case, NAMESPACE},
    timeline::Timeline,
};
use super::{Error, api::Function, observer::Observer, progress, stand};

/// Interval of polling for the remains of a Function.
const PAUSE: Duration = Duration::from_millis(200);

/// The table, and whether every target was met.
pub(super) struct Measured {
    /// A Markdown table with a column per Function.
    pub table: String,
    /// Whether each Function ran within its target time.
    pub held: bool,
}

/// Measures each Function once. `repository` is the GitRepository of the Git case.
pub(super) async fn measure(kubeconfig: &Path, repository: Option<&str>) -> Result<Measured, Error> {
    let client = stand::connect(kubeconfig).await?;
    let run = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut lines = Vec::new();
    for case in functions::all(repository) {
        progress(case.title);
        let name = format!("bench-{}-{run}", case.name);
        let line = one(&client, &case, &name).await?;
        remove(&client, &name).await?;
        lines.push((case, line));
    }
    Ok(Measured { table: timeline::markdown(&lines), held: lines.iter().all(|(case, line)| line.held(case.promised)) })
}

/// Observers of all kinds that a Function creates.
struct Watches {
    functions: Observer,
    others: [Observer; 4],
}

impl Watches {
    async fn start(client: &Client) -> Result<Self, Error> {
        let client = || client.clone();
        Ok(Self {
            functions: Observer::start(Api::namespaced(client(), NAMESPACE), steps::function).await?,
            others: [
                Observer::start(Api::<Job>::namespaced(client(), NAMESPACE), steps::job).await?,
                Observer::start(Api::<Pod>::namespaced(client(), NAMESPACE), steps::pod).await?,
                Observer::start(Api::<Deployment>::namespaced(client(), NAMESPACE), steps::deployment).await?,
                Observer::start(Api::<Event>::namespaced(client(), NAMESPACE), steps::event).await?,
            ],
        })
    }
}

/// Creates a Function and waits until it runs.
async fn one(client: &Client, case: &Case, name: &str) -> Result<Timeline, Error> {
    let mut watches = Watches::start(client).await?;
    let api = Api::<Function>::namespaced(client.clone(), NAMESPACE);
    let start = Instant::now();
    let object = case.object(name);
    api.patch(name, &PatchParams::apply(stand::MANAGER), &Patch::Apply(&object)).await.map_err(Error::Ask)?;
    let wanted = HashMap::from([(name.to_owned(), steps::RUNNING.to_owned())]);
    let running = watches.functions.all(wanted, stand::DEADLINE).await?;
    let mut line = Timeline::new(start);
    for observer in &mut watches.others {
        for (seen, at) in observer.rest().await {
            line.note(name, &seen, at);
        }
    }
    if let Some(at) = running.get(name) {
        line.at(steps::RUNNING, *at);
    }
    Ok(line)
}

/// Deletes a Function and waits until its pods are gone.
async fn remove(client: &Client, name: &str) -> Result<(), Error> {
    let api = Api::<Function>::namespaced(client.clone(), NAMESPACE);
    api.delete(name, &DeleteParams::default()).await.map_err(Error::Ask)?;
    let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE);
    let of_it = ListParams::default().labels(&format!("{}={name}", super::api::FUNCTION_NAME));
    let end = Instant::now() + stand::DEADLINE;
    loop {
        let left = pods.list_metadata(&of_it).await.map_err(Error::Ask)?.items.len();
        if left == 0 {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(Error::NotReached { missing: left, seconds: stand::DEADLINE.as_secs() });
        }
        tokio::time::sleep(PAUSE).await;
    }
}
