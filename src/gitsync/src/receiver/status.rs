//! The status of a Receiver.

use jiff::Timestamp;

use super::resolve::{Problem, Resolved};
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::receiver::ReceiverStatus;

/// Returns the status after a reconcile. `base` is the URL under which clients reach the agent.
pub(super) fn after(
    old: &ReceiverStatus,
    resolved: Result<&Resolved, &Problem>,
    base: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
) -> ReceiverStatus {
    let mut conditions = old.conditions.clone();
    let path = resolved.ok().map(Resolved::path);
    let (ready, reason, message, is_stalled) = match resolved {
        Ok(receiver) if receiver.is_suspended => {
            ("False", Reason::Suspended, "suspended: deliveries are refused".to_owned(), false)
        }
        Ok(receiver) => {
            let what = match receiver.repositories.as_deref() {
                None => "all GitRepositories of this namespace".to_owned(),
                Some([]) => "no GitRepository: spec.repositories is empty".to_owned(),
                Some([one]) => format!("GitRepository {one}"),
                Some(all) => format!("{} GitRepositories", all.len()),
            };
            ("True", Reason::Receiving, format!("receives for {what}"), false)
        }
        Err(problem) => ("False", problem.reason, problem.message.clone(), problem.is_stalled),
    };
    conditions::set(&mut conditions, Type::Ready, ready, reason, &message, generation, now);
    conditions.retain(|condition| is_stalled || condition.type_ != Type::Stalled.as_str());
    if is_stalled {
        conditions::set(&mut conditions, Type::Stalled, "True", reason, &message, generation, now);
    }
    let url = path.as_ref().and_then(|path| Some(format!("{}{path}", base?)));
    ReceiverStatus { observed_generation: generation, webhook_path: path, url, conditions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_api::ReceiverType;
    use mainstay_object::Secret;

    fn shown(status: &ReceiverStatus) -> String {
        let conditions =
            status.conditions.iter().map(|c| format!("{} {} {}: {}", c.type_, c.status, c.reason, c.message));
        let place = if status.url.is_some() { "url" } else { "no url" };
        format!("{place}; {}", conditions.collect::<Vec<_>>().join("; "))
    }

    #[test]
    fn says_what_is_received_or_why_nothing_is() {
        let mut receiver = Resolved {
            namespace: "shop".into(),
            name: "web".into(),
            kind: ReceiverType::Github,
            token: Secret::new(b"token".to_vec()),
            events: Vec::new(),
            repositories: None,
            is_suspended: false,
        };
        let at = |second| Timestamp::from_second(second).unwrap();
        let problem = Problem { reason: Reason::SpecInvalid, message: "spec.type".into(), is_stalled: true };
        let old = after(&ReceiverStatus::default(), Err(&problem), Some("https://hooks"), Some(1), at(1));
        assert_eq!(shown(&old), "no url; Ready False SpecInvalid: spec.type; Stalled True SpecInvalid: spec.type");
        let new = after(&old, Ok(&receiver), Some("https://hooks"), Some(2), at(2));
        assert_eq!(shown(&new), "url; Ready True Receiving: receives for all GitRepositories of this namespace");
        assert_eq!(new.url.as_deref(), Some(format!("https://hooks{}", receiver.path()).as_str()));
        receiver.repositories = Some(vec!["web".into()]);
        receiver.is_suspended = true;
        let suspended = after(&new, Ok(&receiver), None, Some(3), at(3));
        assert_eq!(shown(&suspended), "no url; Ready False Suspended: suspended: deliveries are refused");
        assert_eq!(
            after(&suspended, Ok(&receiver), None, Some(3), at(4)),
            suspended,
            "nothing is written when nothing changed"
        );
    }
}
