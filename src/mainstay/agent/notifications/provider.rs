//! The task of one Provider: reads its Secrets, sends its queue, and writes its status.
//!
//! Invariant: neither a status nor a log shows a value of a Secret, or the Provider's URL, except for the host.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use tokio::sync::watch;
use tokio::time::Instant;

use super::context::{Context, MOST};
use super::deliver::deliver;
use super::logins::Logins;
use super::status;
use crate::agent::kept::Name;
use crate::agent::leading::Reporting;
use crate::agent::notify::Line;
use crate::agent::own_kinds::{NamedSecrets, Object, State};
use crate::agent::status_write::{Refusals, StatusWrite};
use mainstay_api::ProviderSpec;
use mainstay_api::conditions::Reason;
use mainstay_cluster::Kind;
use mainstay_cluster::secrets::{Known, Purpose, SecretData};
use mainstay_git::{AccessFault, Fault, Outbound};
use mainstay_notification::{Next, Outcome, ProviderType, Target, proxy_of};

const FAR: Duration = Duration::from_secs(86_400);
/// Time until a Provider that names a ServiceAccount is checked again, because ServiceAccounts are not watched.
const CHECKED_AGAIN: Duration = Duration::from_secs(60);

/// The task of one Provider.
pub(super) struct Provider {
    context: Arc<Context>,
    kind: Kind,
    name: Name,
    conditions: Vec<Condition>,
    /// Whether the object is within the maximum number of objects of its namespace.
    fits: bool,
    secrets: NamedSecrets,
    /// The refused writes of the status.
    refusals: Refusals,
    reporting: Reporting,
}

/// A Provider that can send.
struct Ready {
    target: Target,
    outbound: Outbound,
    logins: Logins,
    line: Arc<Line>,
}

impl Provider {
    pub(super) fn new(context: Arc<Context>, name: Name, conditions: Vec<Condition>, fits: bool) -> Self {
        let (secrets, refusals) = (NamedSecrets::default(), Refusals::default());
        let (kind, reporting) = (Kind::of::<mainstay_api::Provider>(), Reporting::new(&context.leads));
        Self { context, kind, name, conditions, fits, secrets, refusals, reporting }
    }

    /// Runs until the task's feed is closed.
    pub(super) async fn run(mut self, mut input: watch::Receiver<Object<ProviderSpec>>) {
        // A closed feed may have a last change. The queue of this name may then be that of a new object already.
        while input.has_changed().is_ok() {
            let object = input.borrow_and_update().clone();
            let line = open(&self.context, &self.name, &object.spec, self.fits);
            let resolved = self.resolve(&object, line).await;
            let state = match &resolved {
                Ok(ready) => State::ready(Reason::Sending, format!("sends to {}", ready.target.host())),
                Err(state) => state.clone(),
            };
            self.report(&state, object.generation).await;
            let changed = if let Ok(ready) = resolved {
                Box::pin(self.send_all(&ready, &object, &mut input)).await
            } else {
                let delay = if object.spec.service_account_name.is_some() { CHECKED_AGAIN } else { FAR };
                self.wait(delay, &object, &state, &mut input, None).await.unwrap_or(true)
            };
            if !changed {
                return;
            }
        }
    }

    async fn resolve(&mut self, object: &Object<ProviderSpec>, line: Option<Arc<Line>>) -> Result<Ready, State> {
        let spec = &object.spec;
        if spec.suspend {
            return Err(State::not_ready(Reason::Suspended, "suspended: nothing is sent"));
        }
        if !self.fits {
            let message = format!("this namespace has {MOST} Providers, and the agent keeps no more; delete one");
            return Err(State::not_ready(Reason::MemoryExhausted, message));
        }
        let named = [&spec.secret_ref, &spec.cert_secret_ref, &spec.proxy_secret_ref];
        let named = named.map(|named| (named.as_ref().map(|named| &*named.name), Purpose::Provider));
        let [login, tls, proxy] = self.secrets.read(&self.context.secrets, &self.name, named).await?;
        let (data, tls, proxy) = (data(login.as_ref()), data(tls.as_ref()), data(proxy.as_ref()));
        let reason = if line.is_none() { Reason::TypeNotSupported } else { Reason::SpecInvalid };
        let target = Target::new(spec, &object.identity(&self.name), data);
        let target = target.map_err(|problems| State::invalid(reason, &problems))?;
        let logins = Logins::new(&self.context.source, &self.name.0);
        let plain = proxy_of(spec).map(|address| BTreeMap::from([("address".to_owned(), ByteString(address.into()))]));
        let outbound = logins.outbound(&target, tls, proxy.or(plain.as_ref()));
        let outbound = outbound.map_err(|fault| unusable(&fault, plain.is_some()))?;
        let line = line.ok_or_else(|| State::invalid(reason, &["spec.type: is not supported".to_owned()]))?;
        logins.check(&target).await.map_err(|why| State::not_ready(Reason::SpecInvalid, why))?;
        Ok(Ready { target, outbound, logins, line })
    }

    /// Sends until settings or Secrets change. Returns false if the Provider is gone.
    async fn send_all(
        &mut self,
        ready: &Ready,
        object: &Object<ProviderSpec>,
        input: &mut watch::Receiver<Object<ProviderSpec>>,
    ) -> bool {
        let mut state = State::ready(Reason::Sending, format!("sends to {}", ready.target.host()));
        loop {
            let delay = match ready.line.next() {
                Next::Send(notice) => {
                    let sent = tokio::select! {
                        outcome = deliver(&ready.target, &ready.outbound, &ready.logins, &notice) => Some(outcome),
                        changed = input.changed() => {
                            if changed.is_err() {
                                return false;
                            }
                            None
                        }
                        () = self.secrets.changed() => None,
                    };
                    // The queue sends the interrupted notice again.
                    let Some(outcome) = sent else { return true };
                    ready.line.settle(&outcome);
                    state = after(&outcome, ready.target.host());
                    self.report(&state, object.generation).await;
                    continue;
                }
                Next::Wait(delay) => delay,
                Next::Idle => FAR,
            };
            if let Some(changed) = self.wait(delay, object, &state, input, Some(&ready.line)).await {
                return changed;
            }
        }
    }

    /// Waits for a change. Writes the status if an earlier write failed, or if the agent begins to lead. Returns `None`
    /// after the delay or if a message was offered, and false if the Provider is gone.
    async fn wait(
        &mut self,
        delay: Duration,
        object: &Object<ProviderSpec>,
        state: &State,
        input: &mut watch::Receiver<Object<ProviderSpec>>,
        line: Option<&Arc<Line>>,
    ) -> Option<bool> {
        let offered = async {
            match line {
                Some(line) => line.offered.notified().await,
                None => std::future::pending().await,
            }
        };
        let until = Instant::now() + delay;
        let until = self.refusals.until().map_or(until, |again| again.min(until));
        let begins = tokio::select! {
            changed = input.changed() => return Some(changed.is_ok()),
            () = self.secrets.changed() => return Some(true),
            () = self.reporting.begins(), if self.refusals.until().is_none() => true,
            () = offered => false,
            () = tokio::time::sleep_until(until) => false,
        };
        if begins || self.refusals.until().is_some() {
            self.report(state, object.generation).await;
        }
        None
    }

    /// Writes the status if it changed and this agent leads.
    async fn report(&mut self, state: &State, generation: Option<i64>) {
        if !self.reporting.is_on() {
            return;
        }
        let at = (&self.context.cluster, &self.kind);
        if self.reporting.must_read() {
            let Some(live) = self.refusals.read(at, &self.name).await else { return };
            self.conditions = status::conditions(&live);
            self.reporting.set_current();
        }
        let new = state.conditions(&self.conditions, generation, Timestamp::now());
        if new == self.conditions {
            self.refusals.end();
            return;
        }
        let patch = status::patch(&new, generation);
        if self.refusals.write(at, &self.name, &patch).await != StatusWrite::Refused {
            self.conditions = new;
        }
    }
}

/// Opens or closes the queue of a Provider. The queue accepts messages even before the Secrets are known.
pub(super) fn open(context: &Context, name: &Name, spec: &ProviderSpec, fits: bool) -> Option<Arc<Line>> {
    let kind = ProviderType::parse(&spec.kind).filter(|_| fits && !spec.suspend);
    let outbox = context.notifier.outbox();
    let Some(kind) = kind else {
        outbox.close(name);
        return None;
    };
    let line = outbox.open(name, kind);
    line.set(spec.messages_per_minute);
    Some(line)
}

/// Returns the state if no connection can be made with these certificates or this proxy. `is_plain` is true if the proxy
/// is that of the spec.
fn unusable(fault: &Fault, is_plain: bool) -> State {
    match fault {
        Fault::Access(AccessFault::UnusableField { field: "address", why }) if is_plain => {
            State::invalid(Reason::SpecInvalid, &[format!("spec.proxy: {why}")])
        }
        fault => State::not_ready(Reason::SpecInvalid, fault.to_string()),
    }
}

fn data(known: Option<&Known>) -> Option<&SecretData> {
    known.and_then(Known::data)
}

/// Returns the state after an attempt to send a notice.
fn after(outcome: &Outcome, host: &str) -> State {
    match outcome {
        Outcome::Delivered => State::ready(Reason::Sending, format!("sends to {host}")),
        Outcome::Refused(why) => State::not_ready(Reason::NotDelivered, format!("{host}: {why}; it is not sent again")),
        Outcome::Retry { why, .. } => {
            State::not_ready(Reason::NotDelivered, format!("{host}: {why}; messages are sent again for an hour"))
        }
    }
}
