//! Audits one object: compares the result of a dry-run apply with the stored state.
//!
//! The dry run contains the stored resource version, so one request is enough if the watch showed each change. An equal
//! response confirms the object. After a conflict, the object is read, and the result is handled like a watch event.
//!
//! Invariant: an audit writes nothing. The drift loop reverts or reports its findings.
//! Invariant: a change that the watch shows during the audit is not a finding.
//!
//! Not here: the schedule of audits (`managed::audit`, `drift`).

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Writer;
use super::audited::Audited;
use super::edit::{few, shown_fields};
use super::load::{ServerLoad, is_overloaded};
use crate::managed::audit::Audit;
use crate::managed::desired::without_replicas;
use crate::managed::pending::Next;
use crate::managed::projection;
use crate::managed::remaining::Differing;
use crate::managed::verdict::{Reason, Verdict, resource_version};
use crate::notification::Message;
use mainstay_api::git_sync::UNKNOWN;
use mainstay_api::names::MANAGER;
use mainstay_cluster::{Apply, Error};
use mainstay_object::{Key, Owner};

/// Maximum number of attempts for an object that changes all the time.
const WRITTEN_MEANWHILE: usize = 3;
/// Time that a watch has to show a change before the change counts as missed.
const SHOWN_WITHIN: Duration = Duration::from_secs(1);

enum Answer {
    Ended(Audited),
    /// The object changed; the audit is repeated.
    Changed,
}

impl Writer {
    /// Audits an object.
    pub(crate) async fn audit(&self, key: &Key) -> Audited {
        let mut audited = Audited::Passed;
        for _ in 0..WRITTEN_MEANWHILE {
            let Some(audit) = self.store().begin_audit(key) else { break };
            let Some(acting) = self.acting_for(&audit.owner) else { break };
            let answer = match acting.ask_for(&audit).await {
                Ok(answer) => answer,
                Err(error) => Answer::Ended(unanswered(audit.owner, &error, Instant::now())),
            };
            if let Answer::Ended(ended) = answer {
                audited = ended;
                break;
            }
        }
        self.audits().add(&audited);
        audited
    }

    /// Compares the result of a dry run with the stored state.
    async fn ask_for(&self, audit: &Audit) -> Result<Answer, Error> {
        let Audit { desired, known, .. } = audit;
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let mut body = desired.body();
        if desired.ignored.is_some() {
            // The apply may have to contain the live values of ignored fields.
            let Some(live) = self.cluster().get(&desired.kind, namespace, name).await? else {
                return self.is_missed(audit, None).await;
            };
            body = desired.body_over(&live);
        }
        if desired.sets_replicas(&body) && self.store().is_autoscaled(&desired.key) {
            without_replicas(&mut body);
        }
        body["metadata"]["uid"] = json!(&*known.uid);
        body["metadata"]["resourceVersion"] = json!(&*known.resource_version);
        let sent = Instant::now();
        match self.answer_to(audit, &body).await {
            Ok(answer) if projection::digest(&desired.view(&answer), &known.empty_containers) == known.digest => {
                Ok(Answer::Ended(Audited::Confirmed))
            }
            Ok(answer) => self.would_change(audit, &body, &answer).await,
            Err(error) if error.is_conflict() || error.is_not_found() => {
                let live = self.cluster().get(&desired.kind, namespace, name).await?;
                self.is_missed(audit, live).await
            }
            Err(error) => Ok(Answer::Ended(unanswered(audit.owner.clone(), &error, sent))),
        }
    }

    /// Sends the dry run.
    async fn answer_to(&self, audit: &Audit, body: &Value) -> Result<Value, Error> {
        let (kind, key) = (&audit.desired.kind, &audit.desired.key);
        let how = Apply::forced(MANAGER).dry_run();
        let answer = self.cluster().apply(kind, key.namespace.as_deref(), &key.name, body, how).await;
        answer.map_err(|error| error.about(&audit.desired.object))
    }

    /// Handles an object that has a different version or is missing. This is a finding if the object drifted and no
    /// watch shows it.
    async fn is_missed(&self, audit: &Audit, live: Option<Value>) -> Result<Answer, Error> {
        let key = &audit.desired.key;
        let verdict = live.as_ref().map(|live| self.store().judge(key, live, self.now()));
        let is_drift = matches!(verdict, None | Some(Verdict::Revert | Verdict::LeaveAlone(Reason::Report)));
        if is_drift {
            // A watch event may still be on its way.
            tokio::time::sleep(SHOWN_WITHIN).await;
            if !self.store().is_as_audited(audit) {
                return Ok(Answer::Ended(Audited::Passed));
            }
        }
        let differing = match &live {
            Some(live) => self.store().differing(&audit.desired, live),
            None => Differing::absent(),
        };
        let next = match live.clone() {
            Some(live) => self.store().see(&audit.desired.kind, key, live, Instant::now(), self.now()),
            None => self.store().look_now(key, Instant::now()),
        };
        let is_found = is_drift && next == Next::Queue;
        if is_found {
            self.announce_missed(audit, live.as_ref(), differing);
        }
        self.carry_out(key, next);
        self.notify(&audit.owner);
        match verdict {
            Some(Verdict::InSync) => Ok(Answer::Changed),
            _ if is_found => Ok(Answer::Ended(Audited::Different)),
            _ => Ok(Answer::Ended(Audited::Passed)),
        }
    }

    /// Handles an apply that would change an unchanged object, such as after a change of a webhook. If two responses
    /// differ, as with a timestamp, no apply would settle the object, and the audit ends as refused.
    async fn would_change(&self, audit: &Audit, body: &Value, answer: &Value) -> Result<Answer, Error> {
        let desired = &audit.desired;
        let (namespace, name) = (desired.key.namespace.as_deref(), &*desired.key.name);
        let live = self.cluster().get(&desired.kind, namespace, name).await?;
        let Some(live) = live.filter(|live| resource_version(live) == &*audit.known.resource_version) else {
            return Ok(Answer::Changed);
        };
        let differences =
            projection::differences(&desired.view(&live), &desired.view(answer), &audit.known.empty_containers);
        if differences.is_empty() {
            // Only fields that Mainstay ignores differ, such as annotations with `mainstay.dev/`.
            return Ok(Answer::Ended(Audited::Confirmed));
        }
        let fields = differences.into_iter().map(|difference| difference.path).collect::<Vec<_>>();
        // Waits a second, because a timestamp may have a resolution of one second.
        tokio::time::sleep(SHOWN_WITHIN).await;
        let again = match self.answer_to(audit, body).await {
            Err(error) if error.is_conflict() || error.is_not_found() => return Ok(Answer::Changed),
            again => again?,
        };
        let view = |answer: &Value| projection::digest(&desired.view(answer), &audit.known.empty_containers);
        if view(&again) != view(answer) {
            let fields = few(shown_fields(desired, fields)).join(", ");
            let cause = format!("every dry run returns different values ({fields}), so an apply cannot converge");
            return Ok(Answer::Ended(Audited::Refused { owner: audit.owner.clone(), cause }));
        }
        let differing = Differing { fields, changes: Vec::new(), who: UNKNOWN.to_owned() };
        if !self.store().is_as_audited(audit) {
            return Ok(Answer::Ended(Audited::Passed));
        }
        self.announce_missed(audit, Some(&live), differing);
        let next = self.store().enqueue_audited(&desired.key, live, Instant::now());
        self.carry_out(&desired.key, next);
        Ok(Answer::Ended(Audited::Different))
    }

    fn announce_missed(&self, audit: &Audit, live: Option<&Value>, differing: Differing) {
        let Audit { owner, desired, .. } = audit;
        let mut fields = few(shown_fields(desired, differing.fields));
        if fields.is_empty() {
            fields.push("metadata.managedFields".to_owned());
        }
        let (subject, object) = (owner.clone(), desired.key.to_string());
        let message = Message::DriftMissed { subject, object, fields, who: differing.who };
        self.announce(owner, Some((desired, live.unwrap_or(&Value::Null))), &message);
    }

    /// Announces that dry runs of a kind are refused.
    pub(crate) fn announce_audit_refused(&self, key: &Key, owner: &Owner, cause: String) {
        let Some(desired) = self.desired(key) else { return };
        let message = Message::AuditRefused { subject: owner.clone(), object: key.to_string(), cause };
        self.announce(owner, Some((&desired, &Value::Null)), &message);
    }
}

/// The outcome of an audit whose request failed.
fn unanswered(owner: Owner, error: &Error, sent: Instant) -> Audited {
    // A broken webhook also causes a 500 response to each request.
    if is_overloaded(error, true) {
        return Audited::Unanswered(ServerLoad::Overloaded { sent, retry_after: error.retry_after() });
    }
    if error.code().is_none() {
        // A connection error does not show whether the object has drifted.
        return Audited::Passed;
    }
    Audited::Refused { owner, cause: error.cause_text() }
}
