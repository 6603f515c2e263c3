//! Carries out a step of a copy.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::copy::{Base, Whose, as_applied, whose};
use super::state::{Place, Step};
use crate::apply::{Deleted, Version, Writer};
use crate::managed::verdict::resource_version;
use mainstay_api::names::PROPAGATION_MANAGER;
use mainstay_cluster::{Apply, Error, Kind, Part, Persistence, Removal};

/// A place of a copy, with everything that a write needs.
pub(super) struct Write {
    pub(super) writer: Writer,
    pub(super) kind: Arc<Kind>,
    pub(super) home: String,
    pub(super) place: Place,
    /// The base; `None` if it is gone.
    pub(super) base: Option<Arc<Base>>,
}

/// Whether the object is already gone after its deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    Already,
    /// The object is terminating.
    Soon,
}

impl Write {
    /// Carries out a step. Returns the change of the copy, or `None` if there was none.
    pub(super) async fn perform(&self, step: Step) -> Result<Option<&'static str>, Error> {
        match (step, &self.base) {
            (Step::Create, Some(base)) => self.create(base).await.map(|()| Some("created")),
            (Step::Apply { version, created }, Some(base)) => self.apply(base, version, created).await,
            (Step::Replace(version), Some(base)) => {
                let deleted = self.delete(version).await?;
                if deleted == Some(Gone::Already) {
                    self.create(base).await?;
                }
                Ok(deleted.map(|_| "replaced"))
            }
            (Step::Delete(version), _) => Ok(self.delete(version).await?.map(|_| "deleted")),
            (Step::TakeOffFinalizer(finalizers), _) => {
                let version = finalizers.resource_version;
                let patch = json!({"metadata": {"finalizers": finalizers.others, "resourceVersion": version}});
                let (namespace, name) = self.at();
                match self.writer.cluster().patch_merge(&self.kind, namespace, name, Part::Main, &patch).await {
                    Err(error) if !error.is_not_found() => Err(error),
                    _ => Ok(None),
                }
            }
            (Step::Nothing | Step::Later(_), _) | (Step::Create | Step::Apply { .. } | Step::Replace(_), None) => {
                Ok(None)
            }
        }
    }

    fn at(&self) -> (Option<&str>, &str) {
        (Some(&self.place.0), &self.place.1)
    }

    async fn create(&self, base: &Base) -> Result<(), Error> {
        let (namespace, name) = self.at();
        let body = base.copy(&self.place.0);
        // An apply would merge into an object that another client created in the meantime.
        self.writer.cluster().create_as(PROPAGATION_MANAGER, &self.kind, namespace, name, &body).await?;
        Ok(())
    }

    async fn apply(
        &self,
        base: &Base,
        version: Version,
        created: Option<usize>,
    ) -> Result<Option<&'static str>, Error> {
        let (cluster, (namespace, name)) = (self.writer.cluster(), self.at());
        let mut at = version.resource_version;
        if let Some(created) = created {
            let operations = as_applied(created, &at);
            let live =
                cluster.patch_json(&self.kind, namespace, name, Part::Main, &operations, Persistence::Kept).await?;
            resource_version(&live).clone_into(&mut at);
        }
        let mut body: Value = base.copy(&self.place.0);
        (body["metadata"]["uid"], body["metadata"]["resourceVersion"]) = (version.uid.into(), at.into());
        cluster.apply(&self.kind, namespace, name, &body, Apply::forced(PROPAGATION_MANAGER)).await?;
        Ok(Some("changed"))
    }

    /// Deletes a copy, unless it now belongs to another client.
    async fn delete(&self, version: Version) -> Result<Option<Gone>, Error> {
        let judge = |meta: &ObjectMeta| match whose(&self.home, meta, Timestamp::now()) {
            Whose::Ours if meta.deletion_timestamp.is_none() => Ok(()),
            _ => Err(()),
        };
        let (namespace, name) = self.at();
        let key = self.kind.key(namespace, name);
        Ok(match self.writer.delete_unowned(&self.kind, &key, Some(version), judge).await? {
            Deleted::Kept(()) => None,
            Deleted::Done { removal: Removal::Terminating(_), .. } => Some(Gone::Soon),
            Deleted::Absent | Deleted::Done { .. } => Some(Gone::Already),
        })
    }
}
