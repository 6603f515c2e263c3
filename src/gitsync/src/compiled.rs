//! The last compiled commit: its desired state, and the results that the next commit may reuse.
//!
//! Invariant: all kept kustomizations and charts were decoded in one form.
//!
//! Not here: the compilation (`observe`, `rendering`).

use std::sync::Arc;

use super::charts::RenderedCharts;
use super::contents::Contents;
use super::kustomizations::BuiltKustomizations;
use super::plan::DesiredState;
use super::resolve::SyncRequest;
use mainstay_manifest::{Form, memory};
use mainstay_object::Object;

/// The last compiled commit; empty before the first one. While the objects of an earlier commit are kept, the caches are that
/// commit's, and `desired` stays.
#[derive(Default)]
pub(super) struct Compiled {
    desired: Option<DesiredState>,
    /// The reason why all manifests of the commit are ignored, if they are.
    left_out: Option<String>,
    pub(super) kustomizations: BuiltKustomizations,
    pub(super) charts: RenderedCharts,
    decoded_as: DecodedAs,
    /// Encrypted objects as read, so that cached objects are not read and verified again.
    encrypted: Vec<Arc<Object>>,
    /// Objects with expressions as the repository has them, so that cached objects are not decoded again.
    with_expressions: Vec<Arc<Object>>,
}

/// The form of the kept kustomizations and charts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct DecodedAs {
    form: Form,
    /// Whether encrypted data was kept for decryption.
    is_encrypted: bool,
}

impl Compiled {
    /// Returns the desired state of the last compiled commit.
    pub(super) fn desired(&self) -> Option<&DesiredState> {
        self.desired.as_ref()
    }

    /// Returns the desired state if it is of exactly this request.
    pub(super) fn of_request(&self, request: &SyncRequest) -> Option<&DesiredState> {
        self.desired.as_ref().filter(|known| {
            let is_same_remote = known.submodules.0 == request.submodules && known.lfs == request.lfs;
            known.generation == request.generation
                && known.tree.is_some()
                && known.commit == request.commit
                && is_same_remote
                && known.capabilities == request.capabilities
                && known.values == request.values
                && known.keys == request.keys
        })
    }

    /// Returns the desired state if the commit of this request has the same contents.
    pub(super) fn of_contents(
        &mut self,
        request: &SyncRequest,
        tree: Option<Contents>,
        submodules: &(bool, Option<String>),
    ) -> Option<&mut DesiredState> {
        self.desired.as_mut().filter(|known| {
            let is_same_remote = known.submodules == *submodules && known.lfs == request.lfs;
            known.generation == request.generation && known.tree == tree && is_same_remote && known.keys == request.keys
        })
    }

    /// Keeps the desired state of a commit.
    pub(super) fn keep(&mut self, desired: DesiredState) -> &DesiredState {
        self.desired.insert(desired)
    }

    /// Forgets the desired state, so that the next attempt compiles the commit again.
    pub(super) fn forget_desired(&mut self) {
        self.desired = None;
    }

    /// Returns the reason why all manifests of the commit are ignored, if they are.
    pub(super) fn left_out(&self) -> Option<&str> {
        self.left_out.as_deref()
    }

    pub(super) fn set_left_out(&mut self, why: Option<&String>) {
        self.left_out = why.cloned();
    }

    /// Begins to decode in a form. Results in a different form are dropped, and so are results that contain encrypted
    /// data although decryption is off now.
    pub(super) fn decode_as(&mut self, form: Form, is_encrypted: bool) {
        let now = DecodedAs { form, is_encrypted };
        if std::mem::replace(&mut self.decoded_as, now) != now {
            (self.kustomizations, self.charts) = Default::default();
        }
    }

    /// Keeps the encrypted objects as read.
    pub(super) fn set_encrypted(&mut self, objects: Vec<Arc<Object>>) {
        self.encrypted = objects;
    }

    /// Keeps the objects with expressions as the repository has them.
    pub(super) fn set_with_expressions(&mut self, objects: Vec<Arc<Object>>) {
        self.with_expressions = objects;
    }

    /// Returns the memory of the objects that are kept as read, in bytes.
    pub(super) fn bytes_as_read(&self) -> usize {
        memory(&self.with_expressions) + memory(&self.encrypted)
    }
}

#[cfg(test)]
mod tests {
    use super::super::kustomizations::{Built, Verified};
    use super::*;
    use mainstay_object::Digest;

    #[test]
    fn results_are_kept_while_the_form_stays_the_same() {
        let mut compiled = Compiled::default();
        let mut are_kept = |form: Form, is_encrypted: bool| {
            compiled.kustomizations.overlaid = Some(built());
            compiled.decode_as(form, is_encrypted);
            compiled.kustomizations.overlaid.is_some()
        };
        assert!(are_kept(Form::Final, false), "it is the form at the start");
        assert!(!are_kept(Form::WithExpressions, false));
        assert!(are_kept(Form::WithExpressions, false));
        assert!(!are_kept(Form::WithExpressions, true));
    }

    fn built() -> Built {
        Built { key: Digest::of(b""), objects: Vec::new(), verified: Verified::default() }
    }
}
