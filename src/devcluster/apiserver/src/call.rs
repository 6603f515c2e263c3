//! Typed API calls within this process, mainly for the controllers.
//!
//! A call passes through the same steps as an HTTP request, from admission to the event log. A [`Subscription`] follows
//! the event log of all kinds.
//!
//! Not here: Tables, pages and watches with selectors, which only HTTP clients use.

use crate::{
    access::User,
    admission::{
        Stop,
        drive::{admitted, admitted_here},
    },
    history::Event,
    server::{Server, stamp},
    status::Status,
    store::{Signal, Stored},
    verbs::{
        FieldValidation, Settings, Target, binding, create,
        delete::{self, DeleteOptions, Deleted},
        patch::{self, Form},
        scale, token, update, value_as,
    },
};
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// The author of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Field manager.
    pub manager: String,
    /// The user of the call, by default the administrator. Calls are not authorised.
    pub user: User,
}

impl Caller {
    /// Creates a caller with this field manager and the administrator as its user.
    pub fn new(manager: &str) -> Self {
        Self { manager: manager.to_owned(), user: User::default() }
    }
}

/// The operation.
#[derive(Clone, Debug)]
pub enum Action {
    /// Reads an object or a subresource.
    Get,
    /// Creates an object. The name in the call is ignored, except for the subresources `token` and `binding`.
    Create(Value),
    /// Replaces an object or a subresource.
    Update(Value),
    /// Patches an object or a subresource.
    Patch(Form, Value),
    /// Deletes an object.
    Delete(DeleteOptions),
}

/// An action and its target.
#[derive(Clone, Debug)]
pub struct Call {
    /// API version, such as `v1` or `apps/v1`.
    pub api_version: String,
    /// Plural name.
    pub resource: String,
    /// Namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// `status`, `scale`, `finalize`; empty for the object.
    pub subresource: String,
    /// The operation.
    pub action: Action,
}

impl Call {
    /// Creates a call for an action on an object.
    pub fn new(api_version: &str, resource: &str, namespace: &str, name: &str, action: Action) -> Self {
        Self {
            api_version: api_version.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            subresource: String::new(),
            action,
        }
    }

    /// Returns the call with a subresource as its target.
    #[must_use]
    pub fn on(mut self, subresource: &str) -> Self {
        subresource.clone_into(&mut self.subresource);
        self
    }
}

impl Server {
    /// Executes a call like a request. Returns the new object, or for a deletion its last state.
    ///
    /// Blocks the thread until the matching admission webhooks have answered. On a single-threaded runtime that also
    /// serves a webhook, use [`Server::request`].
    pub fn call(&self, who: &Caller, call: Call) -> Result<Value, Status> {
        self.shared(who, call).map(Arc::unwrap_or_clone)
    }

    /// Executes a call like [`Server::call`], but awaits webhooks instead of blocking.
    pub async fn request(&self, who: &Caller, call: Call) -> Result<Value, Status> {
        let (target, settings) = self.prepared(who, &call)?;
        let done = admitted(self, &settings, |settings| self.attempt(&target, settings, &call.action)).await;
        done.0.map(Arc::unwrap_or_clone)
    }

    /// Executes a call like [`Server::call`], with a result that may be shared with the store.
    pub(crate) fn shared(&self, who: &Caller, call: Call) -> Result<Arc<Value>, Status> {
        let (target, settings) = self.prepared(who, &call)?;
        admitted_here(self, &settings, |settings| self.attempt(&target, settings, &call.action))
    }

    fn prepared(&self, who: &Caller, call: &Call) -> Result<(Target, Settings), Status> {
        let kind = self.table().find_resource(&call.api_version, &call.resource).cloned();
        let kind = kind.ok_or_else(|| {
            Status::new(404, "NotFound", format!("{} {} is not served", call.api_version, call.resource))
        })?;
        let target = Target {
            kind,
            namespace: call.namespace.clone(),
            name: call.name.clone(),
            subresource: call.subresource.clone(),
        };
        let options = match &call.action {
            Action::Delete(options) => options.to_options(),
            _ => serde_json::Map::new(),
        };
        let settings = Settings {
            manager: who.manager.clone(),
            validation: FieldValidation::Ignore,
            now: stamp(self.now()),
            user: who.user.clone(),
            options,
            ..Settings::default()
        };
        Ok((target, settings))
    }

    fn attempt(&self, target: &Target, settings: &Settings, action: &Action) -> Result<Arc<Value>, Stop> {
        let scale = target.subresource == "scale";
        let done = match action {
            Action::Create(body) if target.subresource == "token" => {
                return Ok(Arc::new(token::request(self, target, settings, body)?));
            }
            Action::Create(body) if target.subresource == "binding" => {
                binding::bind(self, target, settings, body.clone())?;
                return Ok(Arc::new(binding::success()));
            }
            Action::Get if scale => return Ok(Arc::new(scale::get(self, target)?)),
            Action::Get => {
                let stored = self.store().get(&target.kind.storage, &target.key());
                let stored = stored.ok_or_else(|| target.not_found())?;
                return Ok(value_as(&target.kind, &stored));
            }
            Action::Update(body) if scale => scale::write(self, target, settings, None, body)?,
            Action::Patch(form, body) if scale => scale::write(self, target, settings, Some(*form), body)?,
            Action::Create(body) => {
                let target = Target { name: String::new(), ..target.clone() };
                create::create(self, &target, settings, body.clone())?
            }
            Action::Update(body) => update::update(self, target, settings, body.clone())?,
            Action::Patch(form, body) => patch::patch(self, target, settings, *form, body)?,
            Action::Delete(options) => {
                let (deleted, _) = delete::delete(self, target, settings, options)?;
                return Ok(match deleted {
                    Deleted::Gone(value) => value,
                    Deleted::Marked(shown) => shown.value(&target.kind),
                });
            }
        };
        Ok(done.object.value(&target.kind))
    }

    /// Returns an object, shared with the store.
    pub fn object(&self, api_version: &str, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let kind = self.table().find_resource(api_version, resource).cloned()?;
        let key = crate::store::Key::new(namespace, name);
        Some(value_as(&kind, &*self.store().get(&kind.storage, &key)?))
    }

    /// Returns the objects of a kind in one namespace or in all, shared with the store. They are ordered by namespace
    /// and name.
    pub fn objects(&self, api_version: &str, resource: &str, namespace: Option<&str>) -> Vec<Arc<Value>> {
        let Some(kind) = self.table().find_resource(api_version, resource).cloned() else { return Vec::new() };
        let snapshot = self.store().snapshot(&kind.storage);
        snapshot.from(namespace, None).map(|(_, stored): (_, &Arc<Stored>)| value_as(&kind, stored)).collect()
    }

    /// Subscribes to the event log from now on.
    pub fn subscribe(&self) -> Subscription {
        let signal = self.store().signal_all();
        Subscription { server: self.clone(), signal, cursor: self.store().version() }
    }
}

/// Events of all kinds, in the order of their resource versions.
#[derive(Debug)]
pub struct Subscription {
    server: Server,
    signal: Receiver<Signal>,
    cursor: u64,
}

/// The events since the last read.
#[derive(Debug)]
pub struct Batch {
    /// Events, oldest first. `take` may return none.
    pub events: Vec<Arc<Event>>,
    /// Whether the log dropped events before they were read. The subscriber has to list again.
    pub missed: bool,
}

impl Subscription {
    /// Returns the unread events without waiting.
    pub fn take(&mut self) -> Batch {
        self.signal.borrow_and_update();
        let Ok((events, _)) = self.server.store().events_after(None, self.cursor, 1024) else {
            self.cursor = self.server.store().version();
            return Batch { events: Vec::new(), missed: true };
        };
        if let Some(last) = events.last() {
            self.cursor = last.rv;
        }
        Batch { events, missed: false }
    }

    /// Waits until [`take`](Self::take) may return events.
    pub async fn changed(&mut self) {
        if self.signal.changed().await.is_err() {
            // The store is gone: no event will follow.
            std::future::pending::<()>().await;
        }
    }

    /// Waits for the next events.
    pub async fn next(&mut self) -> Batch {
        loop {
            let batch = self.take();
            if batch.missed || !batch.events.is_empty() || self.signal.changed().await.is_err() {
                return batch;
            }
        }
    }
}
