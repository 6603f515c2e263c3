//! Watches GitRepositories, and keeps the needed parts of them while there is memory.
//!
//! Invariant: a GitRepository without memory is reported by an Event on it, and in the conditions of the objects that
//! reference it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use serde::Deserialize as _;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::kept::{self, Labels, Name, memory, since_of};
use super::notify::Notifier;
use super::rereads::{Need, Rereads};
use super::tasks::{identity_of, read};
use mainstay_api::GitRepository;
use mainstay_api::git_repository::GitRepositorySpec;
use mainstay_cluster::reflector::{Delta, Shown, name_of};
use mainstay_cluster::secrets::{Referrer, SecretReferences as _, Secrets};
use mainstay_cluster::{Kind, Regarding, Selection};
use mainstay_engine::apply::{Announcement, Writer};
use mainstay_engine::managed::Part;
use mainstay_engine::notification::Message;
use mainstay_git::Repositories;
use mainstay_object::Owner;
use mainstay_object::failure::chain;

/// Memory of a GitRepository's state besides the object, in bytes, and the number of copies of the object.
const EACH: usize = 1 << 10;
const COPIES: usize = 2;
/// Maximum memory of a spec and of a whole object, in bytes. Each GitSync and Function that references a GitRepository
/// keeps parts of it.
const LONGEST_SPEC: usize = 2 << 10;
const LONGEST: usize = 8 << 10;

const TOO_LARGE: &str = "it is larger than the agent keeps: the spec may take 2 KiB, and all of it 8 KiB without \
                         labels and \
                         foreign annotations";
const NO_MEMORY: &str = "the agent has no memory left for this namespace to keep the object; delete unused objects of \
                         the namespace, or raise limits.memory of the agent's Deployment";

/// Interval at which objects that lack memory are read again, and maximum number of objects per interval.
const AGAIN: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 16;
/// Delay before the next batch, instead of `AGAIN`, if more objects lack memory.
const SOON: Duration = Duration::from_secs(1);

/// Returns the kind of GitRepositories.
pub(super) fn git_repositories() -> Kind {
    Kind::of::<GitRepository>()
}

/// Watches GitRepositories until `stop`; `known` is set once they are listed.
pub(super) async fn follow(mut kept: Kept, known: watch::Sender<bool>, stop: CancellationToken) {
    let mut events = kept.writer.cluster().watch(&kept.kind, Selection::default());
    let mut shown = Shown::default();
    let mut look = Instant::now() + AGAIN;
    loop {
        let event = tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep_until(look) => {
                look = Instant::now() + if kept.reread().await { SOON } else { AGAIN };
                continue;
            }
            event = events.next() => event,
        };
        let Some(event) = event else { return };
        match shown.take(event, name_of) {
            Some(Delta::Listed(name, value) | Delta::Changed(name, value)) => kept.set(&name, value),
            Some(Delta::Unreadable(name, value, error)) => kept.set_unreadable(&name, &value, error.cause_text()),
            Some(Delta::Gone(name, _)) => kept.remove(&name),
            Some(Delta::Complete(list)) => {
                for name in kept.repositories.names().into_iter().filter(|name| list.lacks(name)) {
                    kept.remove(&name);
                }
                kept.repositories.set_known();
                kept.secrets.set_listed(Referrer::GitRepository);
                known.send_replace(true);
            }
            Some(Delta::Failed(error)) => {
                let why = chain(&error);
                tracing::warn!(why, "GitRepositories cannot be watched");
                if !*known.borrow() {
                    // The last known state remains in use.
                    kept.repositories.set_unknown(why);
                }
            }
            Some(Delta::Resumed) | None => {}
        }
    }
}

/// The kept GitRepositories.
pub(super) struct Kept {
    kind: Arc<Kind>,
    repositories: Arc<Repositories>,
    secrets: Arc<Secrets>,
    writer: Writer,
    notifier: Notifier,
    rereads: Rereads,
}

fn owner((namespace, name): &Name) -> Owner {
    Owner::git_repository(namespace, name)
}

fn counted(bytes: usize) -> usize {
    kept::counted(EACH, COPIES, bytes)
}

impl Kept {
    pub(super) fn new(
        repositories: Arc<Repositories>,
        secrets: Arc<Secrets>,
        writer: Writer,
        notifier: Notifier,
    ) -> Self {
        let (kind, rereads) = (Arc::new(git_repositories()), Rereads::default());
        Self { kind, repositories, secrets, writer, notifier, rereads }
    }

    fn set(&mut self, name: &Name, mut value: Value) {
        // References are recorded even for a GitRepository that is not kept. An unreadable GitRepository keeps its
        // former references.
        if let Ok(spec) = value.get("spec").map(GitRepositorySpec::deserialize).transpose() {
            let references = spec.map(|spec| spec.secret_references()).unwrap_or_default();
            self.secrets.set_references(&name.0, (Referrer::GitRepository, &name.1), references);
        }
        kept::trim(&mut value, Labels::Dropped);
        let (bytes, spec) = (memory(&value), value.get("spec").map_or(0, memory));
        if bytes > LONGEST || spec > LONGEST_SPEC {
            self.count(name, 0);
            self.rereads.remove(name);
            return self.refuse(name, &value, TOO_LARGE);
        }
        if !self.count(name, counted(bytes)) {
            self.count(name, 0);
            self.rereads.insert(name, Need { since: since_of(&value), bytes, expected: 0 }, true);
            return self.refuse(name, &value, NO_MEMORY);
        }
        self.rereads.remove(name);
        let identity = identity_of(&value);
        match read::<GitRepository>(value) {
            Ok(repository) => self.repositories.set(&name.0, &name.1, Some(repository)),
            Err(why) => self.set_unreadable(name, &identity, why),
        }
    }

    /// An unreadable GitRepository has no spec.
    fn set_unreadable(&mut self, name: &Name, value: &Value, cause: String) {
        self.count(name, 0);
        self.rereads.remove(name);
        self.repositories.set_unreadable(&name.0, &name.1, cause.clone());
        self.announce(name, value, &Message::Unreadable { subject: owner(name), object: None, cause });
    }

    fn count(&self, name: &Name, bytes: usize) -> bool {
        self.writer.keep_in_memory(&owner(name), Part::Resource, bytes)
    }

    fn refuse(&self, name: &Name, value: &Value, why: &'static str) {
        if self.repositories.set_unreadable(&name.0, &name.1, why.to_owned()) {
            self.announce(name, value, &Message::NotKept { subject: owner(name), why: why.to_owned() });
        }
    }

    fn announce(&self, name: &Name, value: &Value, message: &Message) {
        let owner = owner(name);
        let uid = value.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned);
        let object = Regarding { key: owner.key(), api_version: self.kind.api_version(), uid };
        self.notifier.notify(&Announcement { owner: &owner, object: Some(object), message });
    }

    fn remove(&mut self, name: &Name) {
        self.count(name, 0);
        self.rereads.remove(name);
        self.repositories.set(&name.0, &name.1, None);
        self.secrets.set_references(&name.0, (Referrer::GitRepository, &name.1), Vec::new());
    }

    /// Reads again the objects for which there may be memory now. Returns whether there may be more such objects.
    async fn reread(&mut self) -> bool {
        let writer = &self.writer;
        let may_keep =
            |name: &Name, need: Need| writer.may_keep_in_memory(&owner(name), Part::Resource, counted(need.bytes));
        let names = self.rereads.next(AT_ONCE, may_keep);
        for name in &names {
            match self.writer.cluster().get(&self.kind, Some(&name.0), &name.1).await {
                Ok(Some(live)) => self.set(name, live),
                // The object was deleted, and the watch delivers the deletion.
                Ok(None) => {}
                Err(error) => tracing::debug!(why = chain(&error), "not read again"),
            }
        }
        names.len() == AT_ONCE
    }
}
