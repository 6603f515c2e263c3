//! The agent's cost of many Functions: building all, idling, building one, restarting.
//!
//! Pods are simulated: build pods report a digest of their arguments, and serving pods are ready immediately. The agent
//! and the Git server are real.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};

use super::{
    Error,
    counters::Requests,
    git_server::HttpServer,
    load::{self, Load, MEMORY},
    nudge,
    observer::{Observer, Seen, until_last},
    progress, readiness,
    stand::{DEADLINE, MANAGER, NAMESPACE, Stand},
    table::{Row, Target, duration},
    versions::Versions,
    writes,
};
use crate::{
    Product,
    api::{Function, GitRepository},
};

/// Maximum number of concurrent creations.
const IN_FLIGHT: usize = 16;
/// Image of the build pods; it does not exist.
const BUILDER: &str = "mainstay-bench/builder";
/// A registry that receives no requests.
const REGISTRY: &str = "registry.example:5000";
/// Termination message of the build's last container.
const REPORT: &str = r#"{"digest":"{digest}","seconds":0.1}"#;
/// Target time until all Functions are created and ready.
const PROMISED: Duration = Duration::from_secs(60);

struct Fleet {
    stand: Stand,
    load: Load,
    git: HttpServer,
    observer: Observer,
}

/// Measures all situations in their own cluster.
pub(super) async fn all(product: &Product, functions: usize, idle_seconds: u64) -> Result<Vec<Row>, Error> {
    let mut fleet = Fleet::start(product, functions).await?;
    progress("writes that nobody is asked about");
    let unasked = writes::measure(&fleet.stand).await?;
    fleet.stand.admit(product).await?;
    fleet.stand.start_agent().await?;
    progress("writes that the agent is asked about");
    let mut rows = vec![writes::asked(&fleet.stand, &unasked).await?];
    progress("Functions created");
    rows.push(fleet.created().await?);
    progress("idle");
    rows.push(fleet.idle(idle_seconds).await?);
    progress("commit to one Function");
    rows.push(fleet.commit(functions / 2).await?);
    progress("restart");
    rows.push(fleet.restart(functions - 1).await?);
    Ok(rows)
}

impl Fleet {
    async fn start(product: &Product, functions: usize) -> Result<Self, Error> {
        let mut stand = Stand::start(product, None, MEMORY).await?;
        stand.set("MAINSTAY_BUILDER_IMAGE", BUILDER);
        stand.set("MAINSTAY_BASE_IMAGES", r#"{"*":"scratch"}"#);
        let load = Load::new(&stand.directory().join("repository"), functions)?;
        let git = HttpServer::start(stand.directory()).await?;
        stand.simulate(BUILDER, REPORT).await?;
        stand.apply::<GitRepository>(load::REPOSITORY, &load::repository(&git.url("repository"))).await?;
        stand.apply_named::<Secret>(&(product.registry_secret)(REGISTRY, "")).await?;
        let observer = Observer::start(Api::namespaced(stand.client.clone(), NAMESPACE), readiness::ready).await?;
        Ok(Self { stand, load, git, observer })
    }

    /// Returns the expected tree of each Function.
    fn wanted(&self, numbers: impl IntoIterator<Item = usize>) -> Result<HashMap<String, String>, Error> {
        numbers.into_iter().map(|number| Ok((Load::name(number), self.load.tree(number)?))).collect()
    }

    async fn created(&mut self) -> Result<Row, Error> {
        let count = self.load.len();
        let wanted = self.wanted(0..count)?;
        let (mark, asked) = (self.stand.mark().await?, self.git.counts());
        let start = Instant::now();
        let api = Api::<Function>::namespaced(self.stand.client.clone(), NAMESPACE);
        let how = PatchParams::apply(MANAGER);
        let created = stream::iter(0..count).map(|number| {
            let (api, how, function) = (&api, &how, Load::function(number));
            async move { api.patch(&Load::name(number), how, &Patch::Apply(&function)).await.map_err(Error::Ask) }
        });
        created.buffer_unordered(IN_FLIGHT).try_for_each(|_| std::future::ready(Ok(()))).await?;
        let reached = self.observer.all(wanted, DEADLINE).await?;
        let wall = until_last(start, &reached);
        let asked = self.git.counts().since(asked);
        let builds = Versions::read(&self.stand.client).await?.count("Job");
        self.stand
            .row(mark, format!("{count} Functions created, until all are ready; {asked}"), duration(wall), |_| {
                vec![
                    Target::new("≤ 60 s", wall <= PROMISED),
                    Target::new("1 fetch", asked.fetches == 1),
                    Target::new("one build each", builds == count),
                ]
            })
            .await
    }

    async fn idle(&self, seconds: u64) -> Result<Row, Error> {
        // An idle agent writes no Events either.
        self.stand.until_silent().await?;
        let (mark, asked) = (self.stand.mark().await?, self.git.counts());
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let asked = self.git.counts().since(asked);
        let targets = |requests: &Requests| vec![Target::new("0 requests", requests.total() == 0)];
        self.stand.row(mark, format!("idle, {seconds} s; {asked}"), format!("{seconds} s"), targets).await
    }

    async fn commit(&mut self, number: usize) -> Result<Row, Error> {
        let name = Load::name(number);
        self.load.change(number, "changed")?;
        let before = Versions::read(&self.stand.client).await?;
        self.observer.forget();
        let (mark, asked) = (self.stand.mark().await?, self.git.counts());
        let start = Instant::now();
        nudge::look_now(&self.stand, &name).await?;
        let wanted = self.wanted([number])?;
        let reached = self.observer.all(wanted, DEADLINE).await?;
        let wall = until_last(start, &reached);
        let asked = self.git.counts().since(asked);
        let row = self.stand.row(mark, "", duration(wall), |_| Vec::new()).await?;
        let after = Versions::read(&self.stand.client).await?;
        let builds = after.made("Job", &before);
        let others = after.written_besides(&name, &before);
        let situation = format!("commit that changes one of {} Functions, until it serves; {asked}", self.load.len());
        let mut targets = vec![
            Target::new("1 lookup", asked.lookups == 1),
            Target::new("1 fetch by the agent", asked.fetches == 1),
            Target::new("1 build", builds == 1),
            Target::new("no write to the others", others == 0),
        ];
        targets.extend(row.targets);
        Ok(Row { situation, targets, ..row })
    }

    /// Kills the agent, deletes a Service and starts the agent. It is operational when the Service is restored.
    async fn restart(&mut self, number: usize) -> Result<Row, Error> {
        let name = Load::name(number);
        self.stand.kill_agent().await?;
        let services = Api::<Service>::namespaced(self.stand.client.clone(), NAMESPACE);
        services.delete(&name, &DeleteParams::default()).await.map_err(Error::Ask)?;
        let before = Versions::read(&self.stand.client).await?;
        let mark = self.stand.mark().await?;
        let mut seen = Observer::start(services, there).await?;
        let start = Instant::now();
        self.stand.start_agent().await?;
        let reached = seen.all(HashMap::from([(name.clone(), String::new())]), DEADLINE).await?;
        let wall = until_last(start, &reached);
        let targets = |requests: &Requests| vec![Target::new("1 apply", requests.of("apply", "") == 1)];
        let row = self.stand.row(mark, "", duration(wall), targets).await?;
        let after = Versions::read(&self.stand.client).await?;
        let situation = "restart after `kill -9`, until a Service that was deleted meanwhile is back".to_owned();
        let mut targets = vec![
            Target::new("no build", after.made("Job", &before) == 0),
            Target::new("no write to the others", after.written_besides(&name, &before) == 0),
        ];
        targets.extend(row.targets);
        Ok(Row { situation, targets, ..row })
    }
}

fn there(service: Service) -> Option<Seen> {
    Some(Seen { name: service.metadata.name?, state: String::new() })
}
