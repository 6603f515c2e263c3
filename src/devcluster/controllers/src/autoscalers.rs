//! HorizontalPodAutoscalers: scales targets within their bounds by the resource usage of their pods.
//!
//! A reconcile measures the pods (`metrics`), computes the replicas (`calculator`) and applies bounds, policies and
//! stabilisation (`limits`). It then writes the status and Events (`outcome`).
//!
//! Invariant: autoscalers that select the same pods do not scale by metrics.
//! Invariant: pods are measured once per interval. A target outside its bounds is scaled immediately.
//!
//! Not here: usage of simulated pods. Without a node there are no metrics.

mod calculator;
mod limits;
mod metrics;
mod outcome;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use self::limits::History;
use self::metrics::Pods;
use self::outcome::{Outcome, SOURCE};

use super::controller::{Controller, Queue};
use devcluster_apiserver::client::CONTROLLER;
use devcluster_apiserver::client::{Client, Subject};
use devcluster_apiserver::history::{Change, Event};
use devcluster_apiserver::object::{count, text};
use devcluster_apiserver::selector::Selector;
use devcluster_apiserver::store::{Key, Stored};
use devcluster_apiserver::verbs::scale;

const AUTOSCALERS: &str = "horizontalpodautoscalers.autoscaling";
/// Delay before a retry if the target's kind is not served.
const AGAIN: Duration = Duration::from_secs(5);

/// Namespace and name of a target. The kind is resolved at reconcile.
type Target = (String, String);

/// The controller of HorizontalPodAutoscalers.
#[derive(Default)]
pub(super) struct Autoscalers {
    /// The target of each autoscaler, and its inverse.
    targets: HashMap<Key, Target>,
    scaling: HashMap<Target, BTreeSet<Key>>,
    /// The past of each autoscaler.
    past: HashMap<Key, Past>,
}

/// The state that an autoscaler keeps between reconciles.
struct Past {
    uid: String,
    history: History,
    /// The selector of the target's pods.
    selector: Option<Selector>,
    /// When the pods were last measured, and for which generation of the autoscaler.
    measured: Option<(Instant, i64)>,
}

impl Autoscalers {
    /// Updates both indexes; `None` for a deleted autoscaler.
    fn learn(&mut self, key: &Key, autoscaler: Option<&Value>) {
        if let Some(target) = self.targets.remove(key)
            && let Some(keys) = self.scaling.get_mut(&target)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.scaling.remove(&target);
            }
        }
        if let Some(autoscaler) = autoscaler {
            let target = (key.namespace().to_owned(), text(autoscaler, "/spec/scaleTargetRef/name").to_owned());
            self.scaling.entry(target.clone()).or_default().insert(key.clone());
            self.targets.insert(key.clone(), target);
        }
    }
}

impl Controller for Autoscalers {
    fn enqueue(&mut self, event: &Event, queue: &mut Queue<'_>) {
        if &*event.storage == AUTOSCALERS {
            self.learn(&event.key, event.new.as_ref().map(|stored| stored.value()).as_deref());
            if event.change() == Change::Deleted {
                self.past.remove(&event.key);
                // The other autoscalers may have been blocked by a shared selector.
                for key in self.past.keys().filter(|key| key.namespace() == event.key.namespace()) {
                    queue.add(Subject { storage: AUTOSCALERS.into(), key: key.clone() });
                }
            } else {
                queue.add(Subject::of(event));
            }
        } else if !self.scaling.is_empty() && &*event.storage != "events" {
            let target = (event.key.namespace().to_owned(), event.key.name().to_owned());
            for key in self.scaling.get(&target).into_iter().flatten() {
                queue.add(Subject { storage: AUTOSCALERS.into(), key: key.clone() });
            }
        }
    }

    fn reconcile(&mut self, client: &Client, subject: &Subject, queue: &mut Queue<'_>) {
        let Some(autoscaler) = client.get(subject) else { return };
        let target = match target(client, subject.key.namespace(), &autoscaler["spec"]["scaleTargetRef"]) {
            Ok(target) => target,
            Err(why) => {
                queue.add_after(subject.clone(), AGAIN);
                let mut outcome = Outcome::of(&autoscaler, &client.stamp());
                outcome.lost(&why);
                outcome.emit(client, subject, &autoscaler);
                return;
            }
        };
        let mut outcome = Outcome::of(&autoscaler, &client.stamp());
        outcome.found();
        let current = count(&target.scale, "/spec/replicas");
        let scaled = match wanted(&autoscaler["spec"], current) {
            Wanted::Nothing => {
                outcome.disabled();
                None
            }
            Wanted::Scaled(replicas, why) => {
                outcome.unmetered();
                Some((replicas, why.to_owned()))
            }
            Wanted::Measured => {
                let Some(scaled) = self.measure(client, subject, (&autoscaler, &target.scale), &mut outcome, queue)
                else {
                    return;
                };
                scaled
            }
        };
        if let Some((replicas, why)) = scaled {
            let mut scale = target.scale.clone();
            scale["spec"]["replicas"] = replicas.into();
            if !client.update_on(CONTROLLER, &target.subject, "scale", scale) {
                // Conflict: the other write enqueues this autoscaler again.
                return;
            }
            let message = format!("New size: {replicas}; reason: {why}");
            client.report(&autoscaler, SOURCE, "Normal", "SuccessfulRescale", &message);
            outcome.rescaled(current, replicas);
            self.past(subject, &autoscaler).history.scaled(current, replicas, client.now());
        }
        outcome.emit(client, subject, &autoscaler);
    }
}

/// A new number of replicas and its reason; `None` for no scaling.
type Scaled = Option<(i64, String)>;

impl Autoscalers {
    fn past(&mut self, subject: &Subject, autoscaler: &Value) -> &mut Past {
        let uid = text(autoscaler, "/metadata/uid");
        let past = self.past.entry(subject.key.clone());
        let new = || Past { uid: uid.to_owned(), history: History::default(), selector: None, measured: None };
        let past = past.or_insert_with(new);
        if past.uid != uid {
            *past = new();
        }
        past
    }

    /// The other autoscalers that select at least one of these pods.
    fn rivals(&self, autoscaler: &Key, pods: &[(Key, Arc<Stored>)]) -> Vec<Key> {
        let in_namespace = self.past.iter().filter(|(key, _)| key.namespace() == autoscaler.namespace());
        let selects = |past: &Past| {
            past.selector.as_ref().is_some_and(|selector| pods.iter().any(|(key, pod)| selector.matches(key, pod)))
        };
        let others = in_namespace.filter(|(key, past)| *key != autoscaler && selects(past));
        others.map(|(key, _)| key.clone()).collect()
    }

    /// Measures the pods of a target and returns the replicas to scale to. `None` before the interval is over.
    fn measure(
        &mut self,
        client: &Client,
        subject: &Subject,
        (autoscaler, scale): (&Value, &Value),
        outcome: &mut Outcome,
        queue: &mut Queue<'_>,
    ) -> Option<Scaled> {
        let (spec, current) = (&autoscaler["spec"], count(scale, "/spec/replicas"));
        let text_of_selector = text(scale, "/status/selector");
        if text_of_selector.is_empty() {
            outcome.unselected(current);
            return Some(None);
        }
        let interval = client.server().options().autoscaler_interval;
        let generation = count(autoscaler, "/metadata/generation");
        let past = self.past(subject, autoscaler);
        if client.server().measures_pods() {
            let known = past.measured.filter(|(_, of)| *of == generation);
            let left = known.map_or(Duration::ZERO, |(at, _)| interval.saturating_sub(at.elapsed()));
            queue.add_after(subject.clone(), if left.is_zero() { interval } else { left });
            if !left.is_zero() {
                return None;
            }
            past.measured = Some((Instant::now(), generation));
        }
        let now = client.now();
        past.history.begin(current, now);
        let Some(selector) = metrics::parse(client, text_of_selector) else {
            outcome.unselected(current);
            return Some(None);
        };
        let is_new = past.selector.as_ref() != Some(&selector);
        past.selector = Some(selector.clone());
        let pods = metrics::selected(client, subject.key.namespace(), &selector);
        let rivals = self.rivals(&subject.key, &pods);
        if !rivals.is_empty() {
            for key in rivals.iter().filter(|_| is_new) {
                queue.add(Subject { storage: AUTOSCALERS.into(), key: key.clone() });
            }
            outcome.ambiguous(current, text_of_selector, rivals.iter().chain([&subject.key]));
            return Some(None);
        }
        let past = self.past(subject, autoscaler);
        let pods = Pods::measured(client, &pods, interval);
        let measured = metrics::measure(subject.key.namespace(), spec, current, &pods);
        let (recommended, metric) = match measured.found {
            Ok(found) => found,
            Err(missing) => {
                outcome.unmeasured(current, &missing, measured.statuses, measured.counts);
                return Some(None);
            }
        };
        let limited = past.history.limit(spec, current, recommended, now);
        outcome.measured(current, &metric, measured.statuses, &limited);
        let why =
            if recommended > current { format!("{metric} above target") } else { "All metrics below target".into() };
        Some((limited.replicas != current).then_some((limited.replicas, why)))
    }
}

/// The target of an autoscaler, with its Scale.
struct Found {
    subject: Subject,
    scale: Value,
}

/// Finds the target of an autoscaler, or the reason why it cannot be found.
fn target(client: &Client, namespace: &str, reference: &Value) -> Result<Found, String> {
    let (version, name) = (text(reference, "/apiVersion"), text(reference, "/name"));
    let (wanted, group) = (text(reference, "/kind"), version.split_once('/').map_or("", |(group, _)| group));
    let served = client.kinds().into_iter().find(|kind| kind.kind == wanted && kind.group == group);
    let kind = served.ok_or_else(|| format!("no matches for kind {wanted:?} in group {group:?}"))?;
    if kind.subresource("scale").is_none() {
        return Err("the server could not find the requested resource".to_owned());
    }
    let subject = Subject::new(&kind.storage, namespace, name);
    let object = client.get(&subject).ok_or_else(|| format!("{} {name:?} not found", kind.group_resource()))?;
    let scale = scale::of_counted(&kind, &object).map_err(|status| status.message)?;
    Ok(Found { subject, scale })
}

/// Decides between bounds and metrics.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    /// Autoscaling is disabled: the target was scaled to zero manually.
    Nothing,
    /// The target is outside its bounds: the replicas and the reason.
    Scaled(i64, &'static str),
    /// The metrics decide.
    Measured,
}

fn wanted(spec: &Value, current: i64) -> Wanted {
    let (least, most) = (spec["minReplicas"].as_i64().unwrap_or(1), count(spec, "/maxReplicas"));
    match current {
        0 => Wanted::Nothing,
        _ if current > most => Wanted::Scaled(most, "Current number of replicas above Spec.MaxReplicas"),
        _ if current < least => Wanted::Scaled(least, "Current number of replicas below Spec.MinReplicas"),
        _ => Wanted::Measured,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_targets_within_their_bounds() {
        let spec = json!({"minReplicas": 2, "maxReplicas": 4});
        assert_eq!(wanted(&spec, 0), Wanted::Nothing);
        assert!(matches!(wanted(&spec, 1), Wanted::Scaled(2, _)));
        assert_eq!(wanted(&spec, 2), Wanted::Measured);
        assert_eq!(wanted(&spec, 4), Wanted::Measured);
        assert!(matches!(wanted(&spec, 9), Wanted::Scaled(4, _)));
        assert_eq!(wanted(&json!({"maxReplicas": 4}), 1), Wanted::Measured);
    }
}
