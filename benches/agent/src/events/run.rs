//! One measurement: a store with a number of subscribers.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::{
    Api,
    api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::json;
use tokio::task::JoinSet;

use super::{
    Broker, Durability, Error, Latencies, NAMESPACE, Process,
    publisher::{Publisher, TYPE},
    stand::{MANAGER, Stand, free_port},
    subscribers::Subscribers,
};

/// Number of deliveries at a fixed rate.
const PACED: u32 = 500;
/// Number of events before the measurement, until all subscribers are known.
const WARM_UP: u32 = 100;
/// Timeout of a wait.
const PATIENCE: Duration = Duration::from_mins(5);

/// The store of the events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// On NATS, without Mainstay.
    Bare,
    Nats,
    /// On NATS, without Mainstay, with each event on disk before it is accepted, as in the journal.
    BareOnDisk,
    Journal,
}

impl Store {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Bare => "NATS without Mainstay",
            Self::Nats => "NATS, one publisher and one dispatcher",
            Self::BareOnDisk => "NATS without Mainstay, each event on disk",
            Self::Journal => "journal",
        }
    }

    /// Whether this is a comparison for the others.
    pub(super) const fn is_bare(self) -> bool {
        matches!(self, Self::Bare | Self::BareOnDisk)
    }

    /// Returns when events are on disk.
    pub(super) const fn durability(self) -> Durability {
        match self {
            Self::Bare | Self::Nats => Durability::Later,
            Self::BareOnDisk | Self::Journal => Durability::Immediate,
        }
    }
}

pub(super) struct Run<'a> {
    pub(super) stand: &'a Stand,
    pub(super) broker: &'a Broker,
    pub(super) store: Store,
    pub(super) subscribers: usize,
    pub(super) count: u32,
}

/// The results.
pub(super) struct Measured {
    /// Accepted events per second.
    pub(super) accepted: f64,
    /// Events per second until all subscribers had them.
    pub(super) rate: f64,
    /// Time until a subscriber has an event, at a fixed rate.
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    /// Peak memory of the largest process, and CPU time of all.
    pub(super) peak_mib: f64,
    pub(super) processor_seconds: f64,
}

impl Run<'_> {
    pub(super) async fn measure(&self) -> Result<Measured, Error> {
        let mut tasks = JoinSet::new();
        let subscribers = Subscribers::start(&mut tasks).await?;
        let before = self.broker.cost()?.1;
        let (publisher, mut processes) = self.start(&subscribers, &mut tasks).await?;
        let all = self.subscribers;
        let mut warm = 0;
        // An event reaches those subscribers only that the publisher knows.
        while warm == 0 || subscribers.until(warm - 1..warm, all, Duration::from_millis(300)).await.is_none() {
            if warm == WARM_UP {
                return Err(Error::NotStarted);
            }
            publisher.publish(warm).await?;
            warm += 1;
        }
        let (begin, paced) = (Instant::now(), WARM_UP + self.count);
        publisher.saturate(WARM_UP..paced).await?;
        let accepted = begin.elapsed();
        let arrived = |numbers| async { subscribers.until(numbers, all, PATIENCE).await.ok_or(Error::NotDelivered) };
        arrived(WARM_UP..paced).await?;
        let delivered = begin.elapsed();
        let each = u32::try_from(all).unwrap_or(1);
        let last = paced + PACED / each;
        let published: BTreeMap<_, _> = publisher.pace(paced..last, each).await?.into_iter().collect();
        let arrivals = arrived(paced..last).await?;
        let latencies = Latencies::new(arrivals.into_iter().map(|(number, at)| (published[&number], at)));
        let (mut peak_mib, mut processor_seconds) = (0.0_f64, 0.0);
        for process in &processes {
            peak_mib = peak_mib.max(process.peak_mib()?);
            processor_seconds += process.processor_seconds()?;
        }
        if processes.is_empty() {
            let (peak, seconds) = self.broker.cost()?;
            (peak_mib, processor_seconds) = (peak, seconds - before);
        }
        for process in &mut processes {
            process.kill().await?;
        }
        self.unsubscribe().await?;
        Ok(Measured {
            accepted: f64::from(self.count) / accepted.as_secs_f64(),
            rate: f64::from(self.count) / delivered.as_secs_f64(),
            p50: latencies.percentile(0.5),
            p99: latencies.percentile(0.99),
            peak_mib,
            processor_seconds,
        })
    }

    /// Starts the processes, and creates the subscribers.
    async fn start(
        &self,
        subscribers: &Subscribers,
        tasks: &mut JoinSet<()>,
    ) -> Result<(Publisher, Vec<Process>), Error> {
        let roles: &[&[&str]] = match self.store {
            Store::Bare | Store::BareOnDisk => {
                let url = format!("http://{}", subscribers.address);
                let (context, subject) = self.broker.consumed(self.subscribers, &url, tasks).await?;
                return Ok((Publisher::Broker { context: Box::new(context), subject }, Vec::new()));
            }
            Store::Nats => &[&["--role=publisher"], &["--role=dispatcher"]],
            Store::Journal => &[&[]],
        };
        self.subscribe().await?;
        let (mut processes, mut urls) = (Vec::new(), Vec::new());
        for role in roles {
            let address = format!("127.0.0.1:{}", free_port()?);
            let mut arguments: Vec<String> = ["eventing", "run", "--publisher-auth=none"].map(str::to_owned).to_vec();
            arguments.extend(role.iter().map(ToString::to_string));
            arguments.push(format!("--listen={address}"));
            arguments.push("--allow-subscriptions=*=kyma-system".to_owned());
            arguments.push(format!("--kubeconfig={}", self.stand.kubeconfig().display()));
            arguments.push(format!("--data={}", self.stand.directory().join(self.name()).display()));
            // The share must hold all events.
            arguments.extend(["--nats-share=1Gi", "--budget=1Gi"].map(str::to_owned));
            if self.store == Store::Nats {
                arguments.push(format!("--nats-url={}", self.broker.url));
            }
            for number in 0..self.subscribers {
                let name = format!("{}-{number}", self.name());
                arguments.push(format!("--service={NAMESPACE}/{name}:80={}", subscribers.address));
            }
            // As in `manifests/eventing`.
            let environment = [("MALLOC_ARENA_MAX".into(), "1".into())];
            let mut process = Process::start(&arguments, &environment, self.stand.directory())?;
            process.answers(&format!("http://{address}/readyz")).await?;
            processes.push(process);
            urls.push(format!("http://{address}/publish"));
        }
        Ok((Publisher::http(&urls.swap_remove(0))?, processes))
    }

    /// Returns the prefix of the names of this measurement.
    fn name(&self) -> String {
        format!("{:?}-{}", self.store, self.subscribers).to_lowercase()
    }

    fn subscriptions(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("eventing.kyma-project.io", "v1alpha1", "Subscription");
        Api::namespaced_with(self.stand.client.clone(), NAMESPACE, &ApiResource::from_gvk(&kind))
    }

    async fn subscribe(&self) -> Result<(), Error> {
        let exact = |property: &str, value: &str| json!({"property": property, "type": "exact", "value": value});
        let filter = json!({"filters": [{"eventSource": exact("source", ""), "eventType": exact("type", TYPE)}]});
        for number in 0..self.subscribers {
            let name = format!("{}-{number}", self.name());
            let sink = format!("http://{name}.{NAMESPACE}.svc.cluster.local");
            let object = json!({
                "apiVersion": "eventing.kyma-project.io/v1alpha1", "kind": "Subscription",
                "metadata": {"name": name}, "spec": {"sink": sink, "filter": filter},
            });
            let how = PatchParams::apply(MANAGER).force();
            self.subscriptions().patch(&name, &how, &Patch::Apply(&object)).await.map_err(Error::Ask)?;
        }
        Ok(())
    }

    async fn unsubscribe(&self) -> Result<(), Error> {
        for number in (0..self.subscribers).filter(|_| !self.store.is_bare()) {
            let name = format!("{}-{number}", self.name());
            self.subscriptions().delete(&name, &DeleteParams::default()).await.map_err(Error::Ask)?;
        }
        Ok(())
    }
}
