//! Handles requests to run completed Jobs and Pods again: `mainstay.dev/rerun: [namespace/]name token` on the GitSync.
//!
//! Invariant: a value is handled once; the status records the last one.

use std::time::{Duration, Instant};

use super::reconcile::Task;
use mainstay_api::GitSync;
use mainstay_api::names::RERUN;
use mainstay_engine::apply::Rerun;
use mainstay_engine::notification::Message;
use mainstay_object::failure::chain;

/// Wait until a retry.
const AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of shown characters of an annotation.
const SHOWN: usize = 80;

/// Parses the optional namespace and the name in a request.
fn parse(value: &str) -> Option<(Option<&str>, &str)> {
    let mut words = value.split_whitespace();
    let (Some(object), Some(_token), None) = (words.next(), words.next(), words.next()) else { return None };
    let (namespace, name) = object.split_once('/').map_or((None, object), |(namespace, name)| (Some(namespace), name));
    let is_named = |text: &str| !text.is_empty() && !text.contains('/');
    (is_named(name) && namespace.is_none_or(is_named)).then_some((namespace, name))
}

impl Task {
    /// Handles a new request, if a commit is enforced.
    pub(super) async fn run_again(&mut self, sync: &GitSync) {
        let Some(value) = sync.metadata.annotations.as_ref().and_then(|annotations| annotations.get(RERUN)) else {
            return;
        };
        if self.seen.last_rerun(sync) == Some(value.as_str()) || !self.is_keeping() {
            return;
        }
        let shown = value.chars().take(SHOWN).collect::<String>();
        let problem = match parse(value) {
            None => Some("must be `[namespace/]name token`, with a different token each time".to_owned()),
            Some((namespace, name)) => {
                let target = self.seen.resolved().map(|resolved| resolved.directory.target_namespace.clone());
                let namespace = namespace.map(str::to_owned).or(target).unwrap_or_default();
                let Ok(problem) = self.run_all_again(&namespace, name).await else {
                    self.timers.look_by(Instant::now() + AGAIN);
                    return;
                };
                problem
            }
        };
        if let Some(problem) = problem {
            let problem = format!("{RERUN}: {shown:?}: {problem}");
            let message = Message::AnnotationInvalid { subject: self.owner.clone(), problem };
            self.context.emit(&self.owner, &message);
        }
        self.seen.set_rerun(value.clone());
    }

    /// Whether a commit is enforced. Only then are its Jobs and Pods known.
    fn is_keeping(&self) -> bool {
        !self.reported.is_suspended() && self.state.commit.is_enforced()
    }

    /// Reruns the Jobs and Pods of this name. Returns the error of the request, or `Err` if the request must be
    /// retried.
    async fn run_all_again(&mut self, namespace: &str, name: &str) -> Result<Option<String>, ()> {
        let (writer, owner) = (self.context.writer.clone(), self.owner.clone());
        let keys = writer.that_end(&owner, namespace, name);
        if keys.is_empty() {
            return Ok(Some(format!("this GitSync manages no Job and no Pod {namespace}/{name}")));
        }
        let mut problems = Vec::new();
        for key in keys {
            match writer.run_again(&owner, &key).await {
                Ok(Rerun::Done) => {}
                Ok(Rerun::Deleting) => return Err(()),
                Ok(Rerun::Paused) => problems.push(format!("{key} is paused")),
                Ok(Rerun::Running) => problems.push(format!("{key} has not finished yet")),
                Ok(Rerun::NotOurs) => problems.push(format!("{key} does not carry the label of this GitSync any more")),
                Err(error) if error.is_invalid() || error.is_forbidden() => {
                    problems.push(format!("{key}: {}", error.cause_text()));
                }
                Err(error) => {
                    tracing::warn!(sync = owner.resource().as_str(), why = chain(&error), "not run again");
                    return Err(());
                }
            }
        }
        Ok((!problems.is_empty()).then(|| problems.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_an_object_and_a_token() {
        assert_eq!(parse("migrate 1"), Some((None, "migrate")));
        assert_eq!(parse("shop/migrate  2026-01-01"), Some((Some("shop"), "migrate")));
        for wrong in ["", "migrate", "migrate 1 2", "/migrate 1", "shop/ 1", "a/b/c 1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
