//! The conditions of a Knative object, and Ready, which summarises them.
//!
//! Invariant: False precedes Unknown, and Unknown precedes True. Among equal statuses Ready repeats the most recent
//! condition.
//! Invariant: an unchanged condition keeps its transition time.

use serde_json::{Map, Value, json};

/// Type of the summary condition.
pub(super) const READY: &str = "Ready";

/// Conditions under construction.
pub(super) struct Conditions {
    /// Types that Ready depends on.
    dependents: &'static [&'static str],
    all: Vec<Value>,
    now: Value,
}

impl Conditions {
    /// Reads the conditions of an object and adds missing ones.
    pub(super) fn of(object: &Value, dependents: &'static [&'static str], now: Value) -> Self {
        let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let mut conditions = Self { dependents, all, now };
        if conditions.get(READY).is_none() {
            conditions.set(READY, "Unknown", "", "");
        }
        let first = if conditions.is(READY, "True") { "True" } else { "Unknown" };
        for kind in dependents {
            if conditions.get(kind).is_none() {
                conditions.set(kind, first, "", "");
            }
        }
        conditions
    }

    /// Returns a condition by type.
    pub(super) fn get(&self, kind: &str) -> Option<&Value> {
        self.all.iter().find(|condition| condition["type"] == kind)
    }

    /// Whether a condition has this status.
    pub(super) fn is(&self, kind: &str, status: &str) -> bool {
        self.get(kind).is_some_and(|condition| condition["status"] == status)
    }

    fn set(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let mut new = Map::from_iter([
            ("type".to_owned(), kind.into()),
            ("status".to_owned(), status.into()),
            ("lastTransitionTime".to_owned(), self.now.clone()),
        ]);
        for (field, text) in [("reason", reason), ("message", message)] {
            if !text.is_empty() {
                new.insert(field.to_owned(), text.into());
            }
        }
        if kind != READY && !self.dependents.contains(&kind) {
            new.insert("severity".to_owned(), "Info".into());
        }
        let same = |old: &Value| ["status", "reason", "message"].iter().all(|field| old.get(*field) == new.get(*field));
        match self.all.iter_mut().find(|condition| condition["type"] == kind) {
            Some(old) if same(old) => {}
            Some(old) => *old = new.into(),
            None => self.all.push(new.into()),
        }
    }

    fn is_dependent(&self, kind: &str) -> bool {
        self.dependents.contains(&kind)
    }

    /// Sets a condition to True and updates Ready.
    pub(super) fn is_true(&mut self, kind: &str) {
        self.is_true_because(kind, "", "");
    }

    /// Sets a condition to True with a reason and updates Ready.
    pub(super) fn is_true_because(&mut self, kind: &str, reason: &str, message: &str) {
        self.set(kind, "True", reason, message);
        match self.worst() {
            Some((status, reason, message)) => self.set(READY, &status, &reason, &message),
            None => self.set(READY, "True", "", ""),
        }
    }

    /// Sets a condition to Unknown and updates Ready.
    pub(super) fn is_unknown(&mut self, kind: &str, reason: &str, message: &str) {
        self.set(kind, "Unknown", reason, message);
        if !self.is_dependent(kind) && kind != READY {
            return;
        }
        match self.worst().filter(|(status, ..)| status == "False") {
            Some(_) if self.is(READY, "False") => {}
            Some((status, reason, message)) => self.set(READY, &status, &reason, &message),
            None => self.set(READY, "Unknown", reason, message),
        }
    }

    /// Sets a condition to False and updates Ready.
    pub(super) fn is_false(&mut self, kind: &str, reason: &str, message: &str) {
        self.set(kind, "False", reason, message);
        if self.is_dependent(kind) {
            self.set(READY, "False", reason, message);
        }
    }

    /// Copies the condition of another object.
    pub(super) fn mirror(&mut self, kind: &str, other: Option<&Value>) {
        let Some(other) = other else { return self.is_unknown(kind, "", "") };
        let [status, reason, message] =
            ["status", "reason", "message"].map(|field| other[field].as_str().unwrap_or(""));
        match status {
            "True" => self.is_true(kind),
            "False" => self.is_false(kind, reason, message),
            _ => self.is_unknown(kind, reason, message),
        }
    }

    /// Status, reason and message of the condition that keeps Ready from being True.
    fn worst(&self) -> Option<(String, String, String)> {
        let of = |status: &str| {
            let mut found = self.all.iter().filter(|c| self.dependents.iter().any(|kind| c["type"] == *kind));
            let first = found.next().filter(|c| c["status"] == status);
            let newest = found.filter(|c| c["status"] == status).fold(first, |known, next| match known {
                Some(known) if time(known) >= time(next) => Some(known),
                _ => Some(next),
            });
            newest.map(|c| {
                let text = |field: &str| c[field].as_str().unwrap_or_default().to_owned();
                (status.to_owned(), text("reason"), text("message"))
            })
        };
        of("False").or_else(|| of("Unknown"))
    }

    /// Returns the conditions sorted by type.
    pub(super) fn list(mut self) -> Value {
        self.all.sort_by(|a, b| a["type"].as_str().cmp(&b["type"].as_str()));
        json!(self.all)
    }
}

fn time(condition: &Value) -> &str {
    condition["lastTransitionTime"].as_str().unwrap_or_default()
}

/// Returns the condition Ready of an object.
pub(super) fn ready(object: &Value) -> Option<&Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == READY)
}

/// Whether the status reflects the current generation.
pub(super) fn is_current(object: &Value) -> bool {
    object["status"]["observedGeneration"] == object["metadata"]["generation"]
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[&str] = &["ConfigurationsReady", "RoutesReady"];

    fn conditions() -> Conditions {
        Conditions::of(&json!({}), TWO, "now".into())
    }

    /// Formats Ready as `status reason message`.
    fn said(conditions: &Conditions) -> String {
        let ready = conditions.get(READY).unwrap();
        ["status", "reason", "message"].map(|field| ready[field].as_str().unwrap_or("-").to_owned()).join(" ")
    }

    #[test]
    fn false_precedes_unknown_and_unknown_precedes_true() {
        let mut all = conditions();
        assert_eq!(said(&all), "Unknown - -");
        all.is_unknown("ConfigurationsReady", "A", "a");
        all.is_unknown("RoutesReady", "B", "b");
        assert_eq!(said(&all), "Unknown B b");
        all.is_false("ConfigurationsReady", "C", "c");
        all.is_unknown("RoutesReady", "D", "d");
        assert_eq!(said(&all), "False C c");
        all.is_true("ConfigurationsReady");
        assert_eq!(said(&all), "Unknown D d");
        all.is_true("RoutesReady");
        assert_eq!(said(&all), "True - -");
    }

    #[test]
    fn conditions_beside_ready_have_severity_info() {
        let mut all = conditions();
        all.is_true("ConfigurationsReady");
        all.is_true("RoutesReady");
        all.is_false("Active", "NoTraffic", "idle");
        assert_eq!(said(&all), "True - -");
        assert_eq!(all.get("Active").unwrap()["severity"], "Info");
        assert_eq!(all.list()[0]["type"], "Active");
    }

    #[test]
    fn a_repeated_condition_keeps_its_time() {
        let mut all = conditions();
        all.is_unknown("RoutesReady", "A", "a");
        let object = json!({"status": {"conditions": all.list()}});
        let mut again = Conditions::of(&object, TWO, "later".into());
        again.is_unknown("RoutesReady", "A", "a");
        assert_eq!(again.get("RoutesReady").unwrap()["lastTransitionTime"], "now");
        again.is_unknown("RoutesReady", "B", "a");
        assert_eq!(again.get("RoutesReady").unwrap()["lastTransitionTime"], "later");
    }
}
