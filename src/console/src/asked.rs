//! A requested action on an object, and its patch.

use jiff::Timestamp;
use serde_json::Value;

use crate::action::Action;
use crate::command::is_revision;
use crate::filter::Query;
use crate::row::FleetKind;
use crate::sync_options::SyncOptions;
use mainstay_api::{Span, requests};
use mainstay_object::Key;

/// A requested action on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) action: Action,
    pub(crate) key: Key,
    /// The length of the suspension or pause, as the user wrote it.
    pub(crate) length: String,
    /// The commit whose deletions are approved.
    pub(crate) commit: String,
    /// The options of a sync, and of another run of a Job or Pod.
    pub(crate) options: SyncOptions,
}

impl Asked {
    /// Returns an action without options.
    pub(crate) fn plain(action: Action, key: Key) -> Self {
        Self { action, key, length: String::new(), commit: String::new(), options: SyncOptions::default() }
    }

    /// Reads the action in a URL or in a form.
    ///
    /// # Errors
    /// Fails with the problem.
    pub(crate) fn of(query: &Query) -> Result<Self, &'static str> {
        let action = Action::ALL.into_iter().find(|action| action.word() == query.get("action"));
        let action = action.ok_or("This action is unknown.")?;
        let (kind, name) = (query.get("kind"), query.get("name"));
        let key = Key::new(query.get("group"), kind, Some(query.get("namespace")), name);
        if kind.is_empty() || name.is_empty() {
            return Err("The address names no object.");
        }
        if !action.is_of(&key) {
            return Err("This action is for another kind of objects.");
        }
        let options = match action {
            Action::Sync | Action::RunAgain => SyncOptions::of(query)?,
            _ => SyncOptions::default(),
        };
        if action == Action::RunAgain && options.ended_kind().is_none() {
            return Err("The address names neither a Job nor a Pod with its namespace.");
        }
        let (length, commit) = (query.get("for").to_owned(), query.get("commit").to_owned());
        Ok(Self { action, key, length, commit, options })
    }

    /// Returns the parameters that represent the action.
    pub(crate) fn pairs(&self) -> [(&'static str, &str); 6] {
        [
            ("action", self.action.word()),
            ("group", &self.key.group),
            ("kind", &self.key.kind),
            ("namespace", self.key.namespace.as_deref().unwrap_or_default()),
            ("name", &self.key.name),
            ("object", &self.options.object),
        ]
    }

    /// Returns the end of the suspension or pause; `None` without an end.
    fn end(&self, now: Timestamp) -> Result<Option<String>, String> {
        if self.length.is_empty() {
            return Ok(None);
        }
        if !self.action.has_length(&self.key) {
            return Err("This action has no length. Leave it empty.".to_owned());
        }
        let span: Span = self.length.parse().map_err(|error: mainstay_api::NotADuration| error.to_string())?;
        if span.0.as_secs() == 0 {
            return Err("The length must be at least 1s.".to_owned());
        }
        Ok(Some(requests::end_of(now, span.0)))
    }

    /// Returns the patch of the action.
    ///
    /// # Errors
    /// Fails with the problem of the input.
    pub(crate) fn patch(&self, now: Timestamp) -> Result<Value, String> {
        let until = self.end(now)?;
        let is_git_sync = FleetKind::GitSync.is_of(&self.key);
        Ok(match self.action {
            Action::Sync => self.options.patch(&now.to_string()),
            Action::RunAgain => {
                let object = self.options.ended_kind().ok_or("The form names neither a Job nor a Pod.")?;
                requests::run_again(&now.to_string(), object.namespace.as_deref().unwrap_or_default(), &object.name)
            }
            Action::LookUp => requests::look_up(&now.to_string()),
            Action::Rebuild => requests::rebuild(&now.to_string()),
            Action::Suspend if is_git_sync => requests::suspend(until.as_deref()),
            Action::Resume if is_git_sync => requests::resume(),
            Action::Suspend => requests::set_suspended(true),
            Action::Resume => requests::set_suspended(false),
            Action::Pause => requests::pause(until.as_deref()),
            Action::EndPause => requests::end_pause(),
            Action::Delete => return Err("A deletion changes no field.".to_owned()),
            Action::AllowPrune => {
                if !is_revision(&self.commit) {
                    return Err("The form names no commit. Open the page of the GitSync again.".to_owned());
                }
                requests::allow_prune(&self.commit)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use mainstay_api::names;

    fn asked(query: &str) -> Result<Asked, &'static str> {
        Asked::of(&Query::parse(query.as_bytes()))
    }

    #[test]
    fn an_action_needs_an_object_of_its_kind() {
        let sync = "group=mainstay.dev&kind=GitSync&namespace=apps&name=shop";
        for action in ["sync", "suspend", "resume", "allow-prune"] {
            assert!(asked(&format!("action={action}&{sync}")).is_ok());
            assert!(asked(&format!("action={action}&group=apps&kind=Deployment&namespace=a&name=b")).is_err());
        }
        assert!(asked(&format!("action=pause&{sync}")).is_err());
        assert!(asked(&format!("action=look-up&{sync}")).is_err());
        assert!(asked("action=delete&kind=Pod&name=a").is_err());
        assert!(asked(&format!("action=delete&{sync}")).is_err());
        let deletion = asked("action=delete&group=gateway.kyma-project.io&kind=APIRule&namespace=a&name=b").unwrap();
        assert!(deletion.patch(Timestamp::UNIX_EPOCH).is_err());
        assert!(asked("action=pause&kind=Pod").is_err());
    }

    #[test]
    fn a_sync_overrides_a_window_for_a_full_commit_only() {
        let sync = "action=sync&group=mainstay.dev&kind=GitSync&namespace=a&name=b";
        let commit = "a".repeat(40);
        let mut overriding = asked(&format!("{sync}&override-window={commit}")).unwrap();
        overriding.options.user = Some("alice".to_owned());
        let annotations = overriding.patch(Timestamp::UNIX_EPOCH).unwrap()["metadata"]["annotations"].clone();
        assert_eq!(annotations[names::OVERRIDE_WINDOW], commit);
        assert_eq!(annotations[names::OVERRIDE_WINDOW_BY], format!("{commit} alice"));
        assert_eq!(annotations[names::REQUESTED_AT], "1970-01-01T00:00:00Z");
        let plainly = asked(sync).unwrap().patch(Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(plainly, requests::sync("1970-01-01T00:00:00Z"));
        for wrong in ["main", "a%20b", &"a".repeat(41), "sha256:abc"] {
            assert!(asked(&format!("{sync}&override-window={wrong}")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_job_or_a_pod_of_a_git_sync_runs_again() {
        let of = |object: &str| {
            asked(&format!("action=run-again&group=mainstay.dev&kind=GitSync&namespace=a&name=b&object={object}"))
        };
        let patch = of("Job.batch%20shop/migrate").unwrap().patch(Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(patch["metadata"]["annotations"][names::RERUN], "shop/migrate 1970-01-01T00:00:00Z");
        assert!(of("Pod%20shop/once").is_ok());
        for wrong in
            ["", "migrate", "Deployment.apps%20shop/web", "Job.batch%20migrate", "Pod%20shop/a%09b", "Pod%20a/b/c"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(asked("action=run-again&group=batch&kind=Job&namespace=a&name=b&object=Pod%20a/b").is_err());
    }

    #[test]
    fn an_object_of_another_kind_is_suspended_by_its_field() {
        let patch = |query: &str| asked(&format!("{query}&namespace=a&name=b")).unwrap().patch(Timestamp::UNIX_EPOCH);
        let receiver = "group=mainstay.dev&kind=Receiver";
        let spec = |is_suspended: bool| Ok(json!({"spec": {"suspend": is_suspended}}));
        assert_eq!(patch(&format!("action=suspend&{receiver}")), spec(true));
        assert_eq!(patch(&format!("action=resume&{receiver}")), spec(false));
        assert!(patch(&format!("action=suspend&for=1h&{receiver}")).is_err());
        let chart = patch("action=look-up&group=mainstay.dev&kind=HelmChart").unwrap();
        assert_eq!(chart["metadata"]["annotations"][names::REQUESTED_AT], "1970-01-01T00:00:00Z");
        let function = patch("action=rebuild&group=serverless.kyma-project.io&kind=Function").unwrap();
        assert_eq!(function["metadata"]["annotations"][names::REBUILD], "1970-01-01T00:00:00Z");
    }

    #[test]
    fn a_length_becomes_an_end() {
        let patch = |query: &str| {
            asked(&format!("{query}&group=mainstay.dev&kind=GitSync&namespace=a&name=b"))
                .unwrap()
                .patch(Timestamp::UNIX_EPOCH)
        };
        assert_eq!(patch("action=suspend&for=1h"), Ok(requests::suspend(Some("1970-01-01T01:00:00Z"))));
        assert_eq!(patch("action=suspend"), Ok(requests::suspend(None)));
        for length in ["0s", "soon", "-1h"] {
            assert!(patch(&format!("action=suspend&for={length}")).is_err(), "{length}");
        }
        assert!(patch("action=allow-prune&commit=main").is_err());
        assert!(patch(&format!("action=allow-prune&commit={}", "a".repeat(40))).is_ok());
    }
}
