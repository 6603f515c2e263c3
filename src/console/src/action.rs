//! Actions of users: the patch of each action, and the sentence with which the user confirms it.

use jiff::Timestamp;
use serde_json::Value;

use crate::filter::Query;
use mainstay_api::{Span, requests};
use mainstay_object::Key;

/// An action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Sync,
    Suspend,
    Resume,
    AllowPrune,
    Pause,
    EndPause,
}

impl Action {
    /// All actions.
    pub(crate) const ALL: [Self; 6] =
        [Self::Sync, Self::Suspend, Self::Resume, Self::AllowPrune, Self::Pause, Self::EndPause];

    /// Returns the word for the action in a URL.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::AllowPrune => "allow-prune",
            Self::Pause => "pause",
            Self::EndPause => "end-pause",
        }
    }

    /// Returns the label of the button.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Sync => "Sync",
            Self::Suspend => "Suspend",
            Self::Resume | Self::EndPause => "Resume",
            Self::AllowPrune => "Approve the held deletions",
            Self::Pause => "Pause",
        }
    }

    /// Returns the effect of the action.
    pub(crate) const fn effect(self) -> &'static str {
        match self {
            Self::Sync => "The agent looks up the repository immediately and applies what differs.",
            Self::Suspend => "The agent applies, prunes and reverts nothing of this GitSync until it is resumed.",
            Self::Resume => "The GitSync follows its repository again. Hand edits made meanwhile are reverted.",
            Self::AllowPrune => {
                "The objects below left the repository, and a guard keeps them. They are deleted now, with all objects in a namespace or of a kind that is among them."
            }
            Self::Pause => "The object is neither applied nor reverted nor pruned until it is resumed.",
            Self::EndPause => "The object follows its repository again. Hand edits made meanwhile are reverted.",
        }
    }

    /// Returns the sentence about the written action.
    pub(crate) const fn result(self) -> &'static str {
        match self {
            Self::Sync => {
                "Requested. The agent looks up the repository and applies what differs; the page of the GitSync shows the result."
            }
            Self::Suspend => {
                "Suspended. The agent applies, prunes and reverts nothing of this GitSync until it is resumed."
            }
            Self::Resume => "Resumed. The GitSync follows its repository again.",
            Self::AllowPrune => {
                "Approved. The agent deletes the objects, and the page of the GitSync shows the result."
            }
            Self::Pause => "Paused. The object is neither applied nor reverted nor pruned until it is resumed.",
            Self::EndPause => "Resumed. The object follows its repository again.",
        }
    }

    /// Returns whether the action may be limited in time.
    pub(crate) const fn has_length(self) -> bool {
        matches!(self, Self::Suspend | Self::Pause)
    }

    /// Returns whether the action is for a GitSync.
    const fn is_of_git_sync(self) -> bool {
        !matches!(self, Self::Pause | Self::EndPause)
    }
}

/// A requested action on an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) action: Action,
    pub(crate) key: Key,
    /// The length of the suspension or pause, as the user wrote it.
    pub(crate) length: String,
    /// The commit whose deletions are approved.
    pub(crate) commit: String,
}

impl Asked {
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
        if action.is_of_git_sync() != key.is("mainstay.dev", "GitSync") {
            return Err("This action is for another kind of objects.");
        }
        Ok(Self { action, key, length: query.get("for").to_owned(), commit: query.get("commit").to_owned() })
    }

    /// Returns the parameters that represent the action.
    pub(crate) fn pairs(&self) -> [(&'static str, &str); 5] {
        [
            ("action", self.action.word()),
            ("group", &self.key.group),
            ("kind", &self.key.kind),
            ("namespace", self.key.namespace.as_deref().unwrap_or_default()),
            ("name", &self.key.name),
        ]
    }

    /// Returns the patch of the action.
    ///
    /// # Errors
    /// Fails with the problem of the input.
    pub(crate) fn patch(&self, now: Timestamp) -> Result<Value, String> {
        let until = match self.length.as_str() {
            "" => None,
            text => {
                let span: Span = text.parse().map_err(|error: mainstay_api::NotADuration| error.to_string())?;
                if span.0.as_secs() == 0 {
                    return Err("The length must be at least 1s.".to_owned());
                }
                Some(requests::end_of(now, span.0))
            }
        };
        Ok(match self.action {
            Action::Sync => requests::sync(&now.to_string()),
            Action::Suspend => requests::suspend(until.as_deref()),
            Action::Resume => requests::resume(),
            Action::Pause => requests::pause(until.as_deref()),
            Action::EndPause => requests::end_pause(),
            Action::AllowPrune => {
                let is_commit = self.commit.len() >= 40 && self.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
                if !is_commit {
                    return Err("The form names no commit. Open the page of the GitSync again.".to_owned());
                }
                requests::allow_prune(&self.commit)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(asked("action=delete&kind=Pod&name=a").is_err());
        assert!(asked("action=pause&kind=Pod").is_err());
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
