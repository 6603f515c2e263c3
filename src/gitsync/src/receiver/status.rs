//! The status of a Receiver.

use jiff::Timestamp;

use super::delivery::pushes;
use super::resolve::{Problem, Resolved};
use super::sources::Sources;
use mainstay_api::conditions::{self, Reason, Type};
use mainstay_api::receiver::ReceiverStatus;

/// Maximum number of missing sources in the message.
const SHOWN: usize = 5;

/// Returns the status after a reconcile. `missing` are the named sources that do not exist; `None` while the sources are
/// unknown. `base` is the URL under which clients reach the agent.
pub(super) fn after(
    old: &ReceiverStatus,
    resolved: Result<&Resolved, &Problem>,
    missing: Option<&[String]>,
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
            let (reason, message) = received(receiver, missing, old, generation);
            ("True", reason, message, false)
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

/// Returns reason and message of a Receiver that is served. As in Flux, it is Ready without its sources, too: they may be
/// created later.
fn received(
    receiver: &Resolved,
    missing: Option<&[String]>,
    old: &ReceiverStatus,
    generation: Option<i64>,
) -> (Reason, String) {
    let mut what = receiver.sources.shown();
    if receiver.filter.is_some() {
        what.push_str(", for which spec.resourceFilter is true");
    }
    // A push of a Git host names a repository, which only a GitRepository has.
    if pushes(receiver.kind).is_some() && !receiver.sources.have_repositories() {
        what.push_str("; a push wakes no GitSync, because spec.resources names no GitRepository: add it");
    }
    if !receiver.without_effect.is_empty() {
        let kinds = receiver.without_effect.join(", ");
        what.push_str(&format!("; entries of spec.resources with the kind {kinds} have no effect: name their source"));
    }
    // A new agent does not know the sources yet. The status of the last agent stays until then.
    let before = conditions::status(&old.conditions, Type::Ready)
        .filter(|before| before.reason == Reason::SourceNotFound.as_str() && before.observed_generation == generation);
    match (missing, before) {
        (Some([]), _) | (None, None) => (Reason::Receiving, format!("receives for {what}")),
        (None, Some(before)) => (Reason::SourceNotFound, before.message.clone()),
        (Some(missing), _) => {
            let mut names = missing.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(" or ");
            if missing.len() > SHOWN {
                names.push_str(&format!(" or one of {} more names", missing.len() - SHOWN));
            }
            let effect = match receiver.sources.number().map(|all| all.saturating_sub(missing.len())) {
                None => format!("receives for {what}"),
                Some(0) => "no delivery has an effect".to_owned(),
                Some(there) => format!("receives for {there} of {what}"),
            };
            let absent = if matches!(receiver.sources, Sources::OfKinds(_)) {
                format!("this namespace has no {names} (spec.resources)")
            } else {
                format!(
                    "no GitRepository, OCIRepository or HelmChart of this namespace is named {names} (spec.repositories)"
                )
            };
            let message = format!("{effect}; {absent}: create it, or correct the name");
            (Reason::SourceNotFound, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::SourceKind;
    use super::*;
    use mainstay_api::ReceiverType;
    use mainstay_object::Secret;

    fn shown(status: &ReceiverStatus) -> String {
        let conditions =
            status.conditions.iter().map(|c| format!("{} {} {}: {}", c.type_, c.status, c.reason, c.message));
        let place = if status.url.is_some() { "url" } else { "no url" };
        format!("{place}; {}", conditions.collect::<Vec<_>>().join("; "))
    }

    fn receiver() -> Resolved {
        Resolved {
            namespace: "shop".into(),
            name: "web".into(),
            kind: ReceiverType::Github,
            token: Secret::new(b"token".to_vec()),
            tokens: None,
            events: Vec::new(),
            sources: Sources::All,
            filter: None,
            without_effect: Vec::new(),
            is_suspended: false,
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn missing_sources_are_named_and_a_new_agent_does_not_forget_them() {
        let mut receiver = receiver();
        let named = |count: usize| (1..=count).map(|number| format!("r{number}")).collect::<Vec<_>>();
        let mut check = |all: usize, missing: Option<&[String]>, old: &ReceiverStatus, expected: &str| {
            receiver.sources = Sources::Named(named(all));
            let status = after(old, Ok(&receiver), missing, None, Some(1), at(1));
            assert_eq!(shown(&status), format!("no url; Ready True {expected}"));
            status
        };
        let new = ReceiverStatus::default();
        check(1, None, &new, "Receiving: receives for r1");
        let of = "no GitRepository, OCIRepository or HelmChart of this namespace is named";
        let todo = "(spec.repositories): create it, or correct the name";
        let text = format!("SourceNotFound: no delivery has an effect; {of} r1 {todo}");
        let absent = check(1, Some(&named(1)), &new, &text);
        check(1, None, &absent, &text);
        let text = format!("SourceNotFound: receives for 1 of 3 objects; {of} r1 or r2 {todo}");
        check(3, Some(&named(2)), &absent, &text);
        let text = format!(
            "SourceNotFound: no delivery has an effect; {of} r1 or r2 or r3 or r4 or r5 or one of 2 more names {todo}"
        );
        check(7, Some(&named(7)), &new, &text);
        check(1, Some(&[]), &absent, "Receiving: receives for r1");
    }

    #[test]
    fn missing_objects_of_a_kind_and_kinds_without_an_effect_are_named() {
        let mut receiver = receiver();
        let of =
            |names: &[&str]| Sources::exactly(names.iter().map(|&name| (SourceKind::GitRepository, name.to_owned())));
        let mut check = |sources: Sources, ignored: &[&'static str], missing: &[&str], expected: &str| {
            receiver.sources = sources;
            receiver.without_effect = ignored.to_vec();
            let missing: Vec<_> = missing.iter().map(|name| format!("GitRepository {name}")).collect();
            let status = after(&ReceiverStatus::default(), Ok(&receiver), Some(&missing), None, Some(1), at(1));
            assert_eq!(shown(&status), format!("no url; Ready True {expected}"));
        };
        let absent = "this namespace has no GitRepository a (spec.resources): create it, or correct the name";
        check(of(&["a"]), &[], &["a"], &format!("SourceNotFound: no delivery has an effect; {absent}"));
        let one = "SourceNotFound: receives for 1 of the GitRepositories that spec.resources selects";
        check(of(&["a", "b"]), &[], &["a"], &format!("{one}; {absent}"));
        check(
            of(&["a"]),
            &["HelmRelease", "Kustomization"],
            &[],
            "Receiving: receives for GitRepository a; entries of spec.resources with the kind HelmRelease, Kustomization have \
             no effect: name their source",
        );
    }

    #[test]
    fn says_that_a_git_host_wakes_no_git_sync_without_a_git_repository() {
        let mut receiver = receiver();
        let mut check = |kind: ReceiverType, of: SourceKind, expected: &str| {
            receiver.kind = kind;
            receiver.sources = Sources::exactly([(of, "web".to_owned())]);
            let status = after(&ReceiverStatus::default(), Ok(&receiver), Some(&[]), None, Some(1), at(1));
            assert_eq!(shown(&status), format!("no url; Ready True Receiving: receives for {expected}"));
        };
        let hint = "; a push wakes no GitSync, because spec.resources names no GitRepository: add it";
        check(ReceiverType::Github, SourceKind::ImageRepository, &format!("ImageRepository web{hint}"));
        check(ReceiverType::Gitlab, SourceKind::OciRepository, &format!("OCIRepository web{hint}"));
        check(ReceiverType::Github, SourceKind::GitRepository, "GitRepository web");
        check(ReceiverType::Harbor, SourceKind::ImageRepository, "ImageRepository web");
    }

    #[test]
    fn says_what_is_received_or_why_nothing_is() {
        let mut receiver = receiver();
        let problem = Problem { reason: Reason::SpecInvalid, message: "spec.type".into(), is_stalled: true };
        let old = after(&ReceiverStatus::default(), Err(&problem), None, Some("https://hooks"), Some(1), at(1));
        assert_eq!(shown(&old), "no url; Ready False SpecInvalid: spec.type; Stalled True SpecInvalid: spec.type");
        let new = after(&old, Ok(&receiver), None, Some("https://hooks"), Some(2), at(2));
        assert_eq!(
            shown(&new),
            "url; Ready True Receiving: receives for all sources and ImageRepositories of this namespace"
        );
        assert_eq!(new.url.as_deref(), Some(format!("https://hooks{}", receiver.path()).as_str()));
        receiver.sources = Sources::Named(vec!["web".into()]);
        receiver.is_suspended = true;
        let suspended = after(&new, Ok(&receiver), None, None, Some(3), at(3));
        assert_eq!(shown(&suspended), "no url; Ready False Suspended: suspended: deliveries are refused");
        assert_eq!(
            after(&suspended, Ok(&receiver), None, None, Some(3), at(4)),
            suspended,
            "nothing is written when nothing changed"
        );
    }
}
