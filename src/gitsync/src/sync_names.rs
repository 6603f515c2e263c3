//! The names of a GitSync where others refer to it.

use std::sync::Arc;

use super::placement::label;
use mainstay_git::{Consumer, ConsumerKind};
use mainstay_object::Owner;

/// The names, which follow from the namespace and the name.
pub(super) struct SyncNames {
    /// The GitSync as a consumer of a remote.
    pub(super) consumer: Consumer,
    /// The value of the ownership label of its objects.
    pub(super) label: Arc<str>,
}

impl SyncNames {
    /// Returns the names of a GitSync.
    pub(super) fn of(owner: &Owner) -> Self {
        let (namespace, name) = (owner.resource().namespace(), owner.resource().name());
        Self { consumer: Consumer::new(ConsumerKind::GitSync, namespace, name), label: label(namespace, name) }
    }
}
