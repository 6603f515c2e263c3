//! The context of all Receivers of an agent. It finds the served Receivers by path.
//!
//! Invariant: a path is looked up by its digest, so that the duration does not reveal how many characters of a path
//! were correct.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use super::issuers::Issuers;
use super::resolve::Resolved;
use super::shared_list::SharedList;
use super::turns::Turns;
use mainstay_cluster::Cluster;
use mainstay_cluster::liveness::Component;
use mainstay_cluster::secrets::Secrets;
use mainstay_engine::notification::Message;
use mainstay_git::{Pushes, Repositories, Source};
use mainstay_object::Owner;

/// Minimum time between two messages about deliveries of one Receiver.
const EMIT_EVERY: Duration = Duration::from_secs(5);
/// The same for a Receiver whose path is not secret, to which everybody can send deliveries that are refused.
const EMIT_EVERY_OF_OPEN: Duration = Duration::from_secs(300);
/// Maximum number of lists of objects that are made or in memory at the same time.
const MOST_LISTS: usize = 4;
/// Maximum number of bodies that are read as a whole at the same time.
const MOST_WHOLE: usize = 1;

type Emit = dyn Fn(&Owner, &Message) + Send + Sync;
type Ring = dyn Fn(&str, &str) + Send + Sync;

/// The context of all Receivers of an agent.
pub struct Context {
    /// The client for statuses.
    pub(super) cluster: Cluster,
    /// The Secrets of Receivers.
    pub(super) secrets: Arc<Secrets>,
    /// Wakes consumers.
    pub(super) pushes: Arc<Pushes>,
    /// The issuers of tokens.
    pub(super) issuers: Issuers,
    /// Permits for lists of objects.
    pub(super) lists: Turns,
    /// Permits for bodies that are read as a whole, and for expressions about them.
    pub(super) whole_bodies: Turns,
    /// The sources that Receivers name.
    pub(super) repositories: Arc<Repositories>,
    /// The address of the listener; `None` without a listener.
    pub(super) served_at: Option<BaseUrl>,
    /// Progress of the reconciles.
    pub(super) liveness: Component,
    emit: Box<Emit>,
    /// Passes the namespace and the name of a source with a push on to other agents.
    pub(super) ring: Option<Box<Ring>>,
    served: Mutex<HashMap<[u8; 32], Arc<Served>>>,
    starting: Mutex<Starting>,
}

/// The start of a term: which Receivers are not resolved yet.
#[derive(Default)]
struct Starting {
    is_listed: bool,
    /// Receivers that their tasks have not set yet.
    waiting: HashSet<Owner>,
}

/// The address under which clients reach the listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BaseUrl {
    /// Unknown.
    Unknown,
    /// `https://host`, without a trailing slash.
    Known(String),
}

impl BaseUrl {
    /// The address, if it is known.
    pub fn known(&self) -> Option<&str> {
        match self {
            Self::Unknown => None,
            Self::Known(url) => Some(url),
        }
    }
}

impl FromStr for BaseUrl {
    type Err = String;

    /// Parses `https://host/path` or `http://host/path`.
    fn from_str(text: &str) -> Result<Self, String> {
        const FORM: &str = "the URL must have the form https://host or https://host/path, without a user, `?` or `#`";
        let url = reqwest::Url::parse(text).map_err(|_| FORM.to_owned())?;
        let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() || !is_plain || url.fragment().is_some() {
            return Err(FORM.to_owned());
        }
        Ok(Self::Known(url.as_str().trim_end_matches('/').to_owned()))
    }
}

/// A served Receiver.
pub(super) struct Served {
    pub(super) owner: Owner,
    pub(super) receiver: Resolved,
    /// Time of the last list of objects for a delivery, also with an earlier spec.
    pub(super) listed: Arc<Mutex<Option<Instant>>>,
    /// Held by the delivery that lists. An earlier spec has its own, because its deliveries may wait with a permit.
    pub(super) listing: tokio::sync::Mutex<()>,
    /// The list that waiting deliveries share.
    pub(super) shared: SharedList,
    /// Time of the last report of a delivery.
    reported: Mutex<Option<Instant>>,
}

impl Context {
    /// Creates an empty context. `source` wakes consumers and sends requests to issuers. `emit` must not block.
    pub fn new(
        cluster: Cluster,
        secrets: Arc<Secrets>,
        source: Source,
        repositories: Arc<Repositories>,
        served_at: Option<BaseUrl>,
        liveness: Component,
        emit: impl Fn(&Owner, &Message) + Send + Sync + 'static,
    ) -> Self {
        let (served, starting) = (Mutex::default(), Mutex::default());
        let (pushes, issuers) = (Arc::clone(source.pushes()), Issuers::new(source));
        let (emit, ring) = (Box::new(emit), None);
        let (lists, whole_bodies) = (Turns::new(MOST_LISTS), Turns::new(MOST_WHOLE));
        Self {
            cluster,
            secrets,
            pushes,
            issuers,
            lists,
            whole_bodies,
            repositories,
            served_at,
            liveness,
            emit,
            ring,
            served,
            starting,
        }
    }

    /// Passes pushes on to other agents: `ring` gets the namespace and the name of each source, and must not block.
    #[must_use]
    pub fn ringing(self, ring: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        Self { ring: Some(Box::new(ring)), ..self }
    }

    /// Returns the Secrets that Receivers name.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Returns the Receiver at a path.
    pub(super) fn find(&self, path: &str) -> Option<Arc<Served>> {
        self.served.lock().get(&digest(path)).cloned()
    }

    /// Serves a Receiver under its present path only; `None` stops serving it.
    pub(super) fn set(&self, owner: &Owner, receiver: Option<Resolved>) {
        let mut served = self.served.lock();
        let old = served.extract_if(|_, served| served.owner == *owner).next();
        let Some(receiver) = receiver else { return };
        let listed = old.as_ref().map(|(_, old)| Arc::clone(&old.listed)).unwrap_or_default();
        let reported = old.and_then(|(_, old)| *old.reported.lock());
        let path = digest(&receiver.path());
        let (owner, reported) = (owner.clone(), Mutex::new(reported));
        let (listing, shared) = (tokio::sync::Mutex::default(), SharedList::default());
        served.insert(path, Arc::new(Served { owner, receiver, listed, listing, shared, reported }));
    }

    /// Registers a Receiver whose task will set it.
    pub fn register(&self, owner: &Owner) {
        let mut starting = self.starting.lock();
        if !starting.is_listed {
            starting.waiting.insert(owner.clone());
        }
    }

    /// Marks all Receivers that exist at the start as registered.
    pub fn all_registered(&self) {
        self.starting.lock().is_listed = true;
    }

    /// Marks a Receiver as set or gone.
    pub(super) fn resolved(&self, owner: &Owner) {
        self.starting.lock().waiting.remove(owner);
    }

    /// Whether some paths may still be unknown.
    pub(super) fn is_starting(&self) -> bool {
        let starting = self.starting.lock();
        !starting.is_listed || !starting.waiting.is_empty()
    }

    /// Emits a message about a refused delivery, unless a message about a delivery was emitted recently.
    pub(super) fn report_refused(&self, served: &Served, why: String, now: Instant) {
        self.report(served, Message::DeliveryRefused { subject: served.owner.clone(), why }, now);
    }

    /// Emits a message about a delivery without an effect on some objects, unless a message about a delivery was emitted
    /// recently.
    pub(super) fn report_incomplete(&self, served: &Served, why: String, now: Instant) {
        self.report(served, Message::DeliveryIncomplete { subject: served.owner.clone(), why }, now);
    }

    fn report(&self, served: &Served, message: Message, now: Instant) {
        let is_open = served.receiver.token.expose().is_empty();
        let every = if is_open { EMIT_EVERY_OF_OPEN } else { EMIT_EVERY };
        let mut reported = served.reported.lock();
        if reported.is_some_and(|at| now.saturating_duration_since(at) < every) {
            return;
        }
        *reported = Some(now);
        (self.emit)(&served.owner, &message);
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("served_at", &self.served_at).finish_non_exhaustive()
    }
}

fn digest(path: &str) -> [u8; 32] {
    Sha256::digest(path.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_address_under_which_others_reach_the_agent() {
        let check = |text: &str, expected: Option<&str>| {
            let got = text.parse::<BaseUrl>().ok();
            assert_eq!(got, expected.map(|url| BaseUrl::Known(url.to_owned())), "{text}");
        };
        check("https://hooks.example.com", Some("https://hooks.example.com"));
        check("http://Hooks.example.com:8080/a/", Some("http://hooks.example.com:8080/a"));
        for bad in ["hooks.example.com", "ftp://a", "https://u:p@a", "https://a?b", "https://a#b", "https://"] {
            check(bad, None);
        }
    }
}
