//! The pauses and the reported drift in the status of an owner, from before the agent started.
//!
//! The agent sees them again when it starts, and the decisions about them are recorded already.

use super::pause_end::PauseEnd;
use mainstay_api::git_sync::{DriftReason, Drifted, Pause, UNKNOWN};

/// Maximum number of pauses and of reports. A user may have written the status.
const MOST: usize = 20;

/// The pauses and the reported drift of an owner's objects.
#[derive(Debug)]
pub(crate) struct Recalled {
    paused: Vec<Pause>,
    reported: Vec<Report>,
    /// Whether more objects were paused or had drifted than the status lists.
    has_unlisted: bool,
}

/// A reported drift, without its values.
#[derive(Debug)]
struct Report {
    object: String,
    fields: Vec<String>,
    who: String,
}

impl Recalled {
    /// Returns the pauses and the reported drift of a status.
    pub(super) fn new(mut paused: Vec<Pause>, drifted: &[Drifted], has_unlisted: bool) -> Self {
        paused.truncate(MOST);
        let reported = drifted.iter().filter(|drifted| drifted.reason == DriftReason::Report).take(MOST);
        let report = |drifted: &Drifted| Report {
            object: drifted.object.clone(),
            fields: drifted.fields.clone(),
            who: drifted.who.clone(),
        };
        Self { paused, reported: reported.map(report).collect(), has_unlisted }
    }

    /// Whether an object may have been paused with this end. A pause without a known end equals any.
    pub(super) fn has_pause(&self, object: &str, until: PauseEnd) -> bool {
        match self.paused.iter().find(|known| known.object == object) {
            Some(known) => until.time().is_none_or(|time| known.until.as_deref() == Some(&*time.to_string())),
            None => self.has_unlisted,
        }
    }

    /// Whether this drift may have been reported. Reports for a ServiceAccount may lack the field manager.
    pub(super) fn has_report(&self, shown: &Drifted) -> bool {
        match self.reported.iter().find(|known| known.object == shown.object) {
            Some(known) => known.fields == shown.fields && (known.who == UNKNOWN || known.who == shown.who),
            None => self.has_unlisted,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;

    fn drifted(object: &str, reason: DriftReason, who: &str) -> Drifted {
        Drifted {
            object: object.to_owned(),
            fields: vec!["data.a".to_owned()],
            changes: Vec::new(),
            who: who.to_owned(),
            since: Time(Timestamp::UNIX_EPOCH),
            reason,
            next_attempt: None,
        }
    }

    #[test]
    fn a_pause_is_known_with_its_end() {
        let end: Timestamp = "2030-01-01T00:00:00.5Z".parse().unwrap();
        let pause = Pause { object: "a".to_owned(), until: Some(end.to_string()), problem: None };
        let recalled = |has_unlisted| Recalled::new(vec![pause.clone()], &[], has_unlisted);
        let known = |until| recalled(false).has_pause("a", until);
        assert!(known(PauseEnd::At(end)) && !known(PauseEnd::At(Timestamp::UNIX_EPOCH)));
        assert!(known(PauseEnd::Open), "a pause without an end equals any");
        assert_eq!([false, true].map(|more| recalled(more).has_pause("b", PauseEnd::Open)), [false, true]);
    }

    #[test]
    fn a_report_is_known_with_its_fields_and_its_field_manager() {
        let all = [
            drifted("a", DriftReason::Report, "kubectl"),
            drifted("b", DriftReason::Paused, "kubectl"),
            drifted("c", DriftReason::Report, UNKNOWN),
        ];
        let recalled = Recalled::new(Vec::new(), &all, false);
        let known = |object: &str, who: &str| recalled.has_report(&drifted(object, DriftReason::Report, who));
        assert!(known("a", "kubectl") && known("c", "kubectl"));
        assert!(!known("a", "helm") && !known("b", "kubectl"));
        let fields = vec!["data.b".to_owned()];
        assert!(!recalled.has_report(&Drifted { fields, ..drifted("a", DriftReason::Report, "kubectl") }));
    }
}
