//! What all Functions of an agent share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::build_queue::Lengths;
use super::family::What;
use super::observe::{self, Cache};
use super::quotas::Quotas;
use crate::api::Function;
use crate::drift::{Announcement, Drift, Owner};
use crate::notification::Message;
use crate::pulse::Part;
use crate::secrets::Secrets;
use crate::source::{Repositories, Source};

/// Functions that are written to the cluster at the same time.
const AT_ONCE: usize = 16;

type Announce = dyn Fn(&Announcement<'_>) + Send + Sync;

/// The newest state of one Function; `None` once it is gone.
pub type Input = watch::Receiver<Option<Arc<Function>>>;

/// What all Functions of an agent share.
pub struct Context {
    /// The backward loop, and the one writer of children.
    pub drift: Drift,
    /// Git.
    pub source: Source,
    /// The GitRepositories.
    pub repositories: Arc<Repositories>,
    /// What the operator decides.
    pub settings: Settings,
    /// Registry and Git credentials.
    pub secrets: Arc<Secrets>,
    /// Rings when every remote is to be looked at now.
    pub look_now: watch::Sender<u64>,
    pub(super) cache: Arc<Cache>,
    pub(super) quotas: Arc<Quotas>,
    /// Room for passes that write.
    pub(super) room: Semaphore,
    announce: Box<Announce>,
    /// Moves with every turn of a Function.
    pub(super) pulse: Part,
    facts: Mutex<HashMap<Owner, Facts>>,
}

/// What metrics say of a Function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// `inline` or `git`.
    pub source: &'static str,
    /// Its runtime.
    pub runtime: String,
    /// For each condition how long it took from the Function's creation until it was True for the first time, if that
    /// was before the Function was changed for the first time.
    pub took: [Option<Duration>; 3],
}

/// How a Function is called in messages.
pub fn owner(namespace: &str, name: &str) -> Owner {
    format!("function {namespace}/{name}").into()
}

impl Context {
    /// A context with nothing in it yet. `announce` is called for everything worth telling and must not block.
    pub fn new(
        drift: Drift,
        source: Source,
        repositories: Arc<Repositories>,
        secrets: Arc<Secrets>,
        settings: Settings,
        pulse: Part,
        announce: impl Fn(&Announcement<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            drift,
            source,
            repositories,
            secrets,
            look_now: watch::Sender::new(0),
            cache: Arc::new(Cache::new(settings.max_simultaneous_jobs)),
            quotas: Arc::default(),
            room: Semaphore::new(AT_ONCE),
            announce: Box::new(announce),
            pulse,
            facts: Mutex::default(),
            settings,
        }
    }

    /// The tasks that watch what Functions need, until `stop`.
    pub fn watches(&self, stop: &CancellationToken) -> Vec<BoxFuture<'static, ()>> {
        let cluster = self.drift.cluster();
        let children = What::ALL.into_iter().map(|what| {
            observe::follow(Arc::clone(&self.cache), cluster.clone(), self.drift.clone(), what, stop.clone()).boxed()
        });
        let quotas = Arc::clone(&self.quotas).follow(cluster.clone(), stop.clone());
        children.chain([quotas.boxed()]).collect()
    }

    /// How many builds there are, and how many Functions wait for their turn.
    pub fn queue_lengths(&self) -> Lengths {
        self.cache.queue_lengths()
    }

    /// What metrics say of every Function.
    pub fn facts(&self) -> Vec<Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(super) fn set_facts(&self, owner: &Owner, facts: Option<Facts>) {
        let mut all = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        match facts {
            Some(facts) => all.insert(Arc::clone(owner), facts),
            None => all.remove(owner),
        };
    }

    pub(super) fn tell(&self, owner: &Owner, reason: &str, message: &Message) {
        (self.announce)(&Announcement { owner, object: None, reason, message });
    }

    #[expect(clippy::unused_self, reason = "the clock is the context's, wherever it comes from")]
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}
