//! Whether Knative Serving is installed in the cluster.
//!
//! Not here: the detection of Knative; see `knative`.

use std::sync::Arc;

use tokio::sync::watch;

use mainstay_cluster::{Denial, Error};
use mainstay_object::failure::{Class, chain};

/// The known state of Knative Serving.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// The state is not known yet.
    #[default]
    Unknown,
    /// Knative is not installed.
    Absent,
    /// The state of Knative or its Services cannot be read, for this reason.
    Unreadable(Arc<str>),
    /// Knative is installed, and its Services are listed.
    Present,
}

/// The state of Knative, and whether a Function needs it.
#[derive(Debug, Default)]
pub(super) struct Knative {
    is_used: watch::Sender<bool>,
    presence: watch::Sender<Presence>,
}

impl Knative {
    /// Records that a Function uses or will use Knative.
    pub(super) fn set_used(&self) {
        self.is_used.send_if_modified(|is_used| !std::mem::replace(is_used, true));
    }

    /// Subscribes to whether a Function uses Knative.
    pub(super) fn is_used(&self) -> watch::Receiver<bool> {
        self.is_used.subscribe()
    }

    /// Subscribes to the state of Knative.
    pub(super) fn presence(&self) -> watch::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// Sets the state.
    pub(super) fn set(&self, presence: Presence) {
        self.presence.send_if_modified(|known| std::mem::replace(known, presence.clone()) != presence);
    }

    /// Records that Knative's Services are listed.
    pub(super) fn synced(&self) {
        self.set(Presence::Present);
    }

    /// Records that a watch failed. Only a missing permission is recorded; other failures are temporary.
    pub(super) fn failed(&self, error: &Error) {
        if error.class() == Class::Denied {
            let is_unpermitted = error.refusal().is_some_and(|refusal| refusal.denial == Some(Denial::Permission));
            let hint = if is_unpermitted { "; install manifests/knative to grant the permissions" } else { "" };
            self.set(Presence::Unreadable(format!("{}{hint}", chain(error)).into()));
        }
    }
}
