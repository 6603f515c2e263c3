//! The options of a requested sync: the commit that a window holds back, and the object for which the user asks.

use serde_json::Value;

use crate::address::key_of;
use crate::command::is_revision;
use crate::filter::Query;
use crate::text::SHORT;
use mainstay_api::requests;
use mainstay_object::{Key, can_end};

/// The name of the field with the commit that is applied although a window holds it back.
pub(crate) const OVERRIDE: &str = "override-window";

/// The options of a requested sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SyncOptions {
    /// The commit that is applied although a window holds it back; empty without one.
    pub(crate) overridden: String,
    /// The user who overrides the window, as the API server knows the user.
    pub(crate) user: Option<String>,
    /// The managed object for which the user asks, as a status names it; empty without one.
    pub(crate) object: String,
}

impl SyncOptions {
    /// Returns the options of a request for an object.
    pub(crate) fn about(object: &Key) -> Self {
        Self { object: object.to_string(), ..Self::default() }
    }

    /// Reads the options in a URL or in a form.
    ///
    /// # Errors
    /// Fails with the problem.
    pub(crate) fn of(query: &Query) -> Result<Self, &'static str> {
        let (overridden, object) = (query.get(OVERRIDE), query.get("object"));
        if !overridden.is_empty() && !is_revision(overridden) {
            return Err("The form names no full commit of the window. Open the page of the GitSync again.");
        }
        let is_name = |object: &str| object.len() <= 2 * SHORT && key_of(object).is_some();
        if !object.is_empty() && !is_name(object) {
            return Err("The address names an object that cannot be parsed.");
        }
        Ok(Self { overridden: overridden.to_owned(), user: None, object: object.to_owned() })
    }

    /// Returns the object if it is a Job or a Pod, which can run again.
    pub(crate) fn ended_kind(&self) -> Option<Key> {
        let is_word = |text: &str| !text.is_empty() && !text.chars().any(|c| c.is_whitespace() || c.is_control());
        let is_named = |key: &Key| is_word(&key.name) && key.namespace.as_deref().is_some_and(is_word);
        key_of(&self.object).filter(can_end).filter(is_named)
    }

    /// Returns the patch of the sync.
    pub(crate) fn patch(&self, token: &str) -> Value {
        if self.overridden.is_empty() {
            return requests::sync(token);
        }
        requests::sync_overriding(token, &self.overridden, self.user.as_deref())
    }
}
