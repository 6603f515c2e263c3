//! Which fields other clients may add to a Function's children, and which fields are removed.
//!
//! Only the Function may set fields that change how the code runs or how it is called. Such fields of other clients are
//! removed. All other fields stay:
//!
//! | child | removed | stays |
//! |---|---|---|
//! | every child | | labels, annotations, finalizers, status; fields written through a subresource; fields without an owner: defaults, and what admission added |
//! | Deployment | everything in `spec` that is not Mainstay's: `paused`, the strategy, containers and init containers, their commands, variables, mounts, probes, where and as whom pods run | `spec.replicas` with an autoscaler; `revisionHistoryLimit`; labels and annotations of the pods, such as `kubectl.kubernetes.io/restartedAt` |
//! | Service | everything in `spec` that is not Mainstay's: ports, `externalIPs`, `sessionAffinity`, `publishNotReadyAddresses` | addresses and their families, which the cluster assigns |
//! | Knative Service | | everything that is not Mainstay's, such as `spec.traffic`; the containers are Mainstay's as a whole |
//! | autoscaler | | further metrics, and the scaling behaviour |
//! | ConfigMap | | other keys, which builds do not read |
//! | build Job | | no fields can be added: a created Job is immutable |
//!
//! Objects that admission injects into pods are not part of the Deployment and are ignored. Fields that the agent owns,
//! such as the image, are reverted by [`drift`](mainstay_engine::drift).

use crate::child_kind::ChildKind;
use mainstay_engine::managed::Reserved;

const DEPLOYMENT: Reserved =
    Reserved { fields: &["spec"], except: &["spec.replicas", "spec.revisionHistoryLimit", "spec.template.metadata"] };

const SERVICE: Reserved = Reserved {
    fields: &["spec"],
    except: &[
        "spec.clusterIP",
        "spec.clusterIPs",
        "spec.healthCheckNodePort",
        "spec.ipFamilies",
        "spec.ipFamilyPolicy",
    ],
};

/// Returns the fields of a child kind that only the Function may set.
pub fn reserved(of: ChildKind) -> Reserved {
    match of {
        ChildKind::Deployment => DEPLOYMENT,
        ChildKind::Service => SERVICE,
        ChildKind::ConfigMap | ChildKind::Job | ChildKind::Pod | ChildKind::Autoscaler | ChildKind::KnativeService => {
            Reserved::NOTHING
        }
    }
}
