//! What is known of Knative Serving in the cluster.
//!
//! Deliberately absent: finding it out; that is `knative`.

use std::sync::Arc;

use tokio::sync::watch;

use mainstay_cluster::{Denial, Error};
use mainstay_object::failure::{Class, chain};

/// What is known of Knative Serving in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Presence {
    /// Nothing yet.
    #[default]
    Unknown,
    /// It is not installed.
    Absent,
    /// It cannot be known, or its Services cannot be read, and why.
    Unreadable(Arc<str>),
    /// It is installed, and its Services are known.
    Present,
}

/// What is known of Knative, and whether a Function needs to know.
#[derive(Debug, Default)]
pub(super) struct Knative {
    is_used: watch::Sender<bool>,
    presence: watch::Sender<Presence>,
}

impl Knative {
    /// A Function is to run on Knative, or does.
    pub(super) fn set_used(&self) {
        self.is_used.send_if_modified(|is_used| !std::mem::replace(is_used, true));
    }

    /// Whether a Function needs to know.
    pub(super) fn is_used(&self) -> watch::Receiver<bool> {
        self.is_used.subscribe()
    }

    /// What is known; changes are notified.
    pub(super) fn presence(&self) -> watch::Receiver<Presence> {
        self.presence.subscribe()
    }

    /// This is known from now on.
    pub(super) fn set(&self, presence: Presence) {
        self.presence.send_if_modified(|known| std::mem::replace(known, presence.clone()) != presence);
    }

    /// Its Services are known.
    pub(super) fn synced(&self) {
        self.set(Presence::Present);
    }

    /// A watch failed. Everything but a missing right passes by itself.
    pub(super) fn failed(&self, error: &Error) {
        if error.class() == Class::Denied {
            let is_unpermitted = error.refusal().is_some_and(|refusal| refusal.denial == Some(Denial::Permission));
            let hint = if is_unpermitted { "; manifests/knative has the rights that it takes" } else { "" };
            self.set(Presence::Unreadable(format!("{}{hint}", chain(error)).into()));
        }
    }
}
