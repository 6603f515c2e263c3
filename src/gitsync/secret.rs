//! The Secret with a repository's credentials, watched by name, so that a corrected password works at once.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::ByteString;
use serde_json::Value;

use super::attempt::Refused;
use super::context::Context;
use crate::api::conditions::Reason;
use crate::cluster::{Error, Kind, Scope, Selection, WatchEvent};
use crate::failure::{Class, chain};

/// The watch of one Secret, or of none.
#[derive(Default)]
pub(super) struct SecretWatch {
    name: Option<String>,
    events: Option<BoxStream<'static, WatchEvent>>,
    /// What a fresh account has shown so far.
    fresh: Option<SecretData>,
    data: Option<SecretData>,
    synced: bool,
    /// Why nothing has been heard of it since.
    trouble: Option<Error>,
    /// What was last used.
    used: Option<SecretData>,
}

/// Its `data`.
pub(super) type SecretData = BTreeMap<String, ByteString>;

impl SecretWatch {
    pub(super) fn follow(&mut self, context: &Context, namespace: &str, name: Option<String>) {
        if self.name == name {
            return;
        }
        *self = Self::default();
        if let Some(name) = &name {
            let kind = Arc::new(Kind::fixed("v1", "Secret", "secrets", Scope::Namespaced));
            self.events = Some(context.drift.cluster().watch(&kind, Selection::named(Some(namespace), name)));
        }
        self.name = name;
    }

    /// Waits until it is known whether the Secret exists, or that it may not be read.
    pub(super) async fn known(&mut self) {
        while self.events.is_some() && !self.synced && !self.trouble.as_ref().is_some_and(Error::is_forbidden) {
            self.hear().await;
        }
    }

    /// Why it is not known whether the Secret exists; `None` when it is, or when there was no answer yet.
    pub(super) fn trouble(&self) -> Option<&Error> {
        self.trouble.as_ref().filter(|_| !self.synced)
    }

    /// What it holds now, which counts as used.
    pub(super) fn take(&mut self) -> Option<SecretData> {
        self.used.clone_from(&self.data);
        self.data.clone()
    }

    /// Waits until the Secret says something else than what was used; for ever when there is none.
    pub(super) async fn changed(&mut self) {
        while self.events.is_some() {
            if self.synced && self.data != self.used {
                return;
            }
            self.hear().await;
        }
        std::future::pending::<()>().await;
    }

    async fn hear(&mut self) {
        let Some(events) = &mut self.events else { return };
        match events.next().await {
            Some(WatchEvent::Begin) => self.fresh = None,
            Some(WatchEvent::Initial(secret)) => self.fresh = Some(data_of(&secret)),
            Some(WatchEvent::Synced(_)) => {
                self.data = self.fresh.take();
                (self.synced, self.trouble) = (true, None);
            }
            Some(WatchEvent::Applied(secret)) => self.data = Some(data_of(&secret)),
            Some(WatchEvent::Deleted(_)) => self.data = None,
            Some(WatchEvent::Trouble(error)) => self.trouble = Some(error),
            None => self.events = None,
        }
    }
}

/// Why there are no credentials, for people.
pub(super) fn without_secret(name: &str, trouble: Option<&Error>) -> Refused {
    let (class, reason, message) = match trouble {
        None => (Class::NotReady, Reason::SpecInvalid, "does not exist in this namespace".to_owned()),
        Some(error) if error.is_forbidden() => {
            let needed = "the agent needs get, list and watch on Secrets in this namespace";
            (Class::Denied, Reason::SpecInvalid, format!("may not be read: {needed}"))
        }
        Some(error) => (Class::Unavailable, Reason::ClusterUnavailable, format!("cannot be read: {}", chain(error))),
    };
    let message = format!("Secret {name} with the credentials {message}");
    Refused { class, reason, message, retry_after: None }
}

fn data_of(secret: &Value) -> SecretData {
    secret.get("data").cloned().and_then(|data| serde_json::from_value(data).ok()).unwrap_or_default()
}
