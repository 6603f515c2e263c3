//! Where the line is between what others may add to a Function's children and what goes.
//!
//! What changes how the code runs or how it is called is the Function's alone, whoever writes it: people, their tools,
//! other clients. Everything else stays:
//!
//! | of | goes | stays |
//! |---|---|---|
//! | every child | | labels, annotations, finalizers, status; what was written through a subresource; what nobody owns: defaults, and what admission added |
//! | Deployment | everything in `spec` that is not ours: `paused`, the strategy, containers and init containers, their commands, variables, mounts, probes, where and as whom pods run | `spec.replicas` where an autoscaler counts; `revisionHistoryLimit`; labels and annotations of the pods, such as `kubectl.kubernetes.io/restartedAt` |
//! | Service | everything in `spec` that is not ours: ports, `externalIPs`, `sessionAffinity`, `publishNotReadyAddresses` | addresses and their families, which the cluster gives |
//! | autoscaler | | further metrics, and how fast it scales |
//! | ConfigMap | | other keys, which no build reads |
//! | build Job | | nothing can be added: what is not ours cannot be changed once it is created |
//!
//! What is injected into pods by admission is not in the Deployment, and is not looked at. Fields that are ours, such as
//! the image, go back whoever changes them, by the rules of [`drift`](crate::drift).

use crate::drift::Reserved;
use crate::function::family::What;

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

/// The fields of a kind of children that nobody but the Function may set.
pub fn reserved(of: What) -> Reserved {
    match of {
        What::Deployment => DEPLOYMENT,
        What::Service => SERVICE,
        What::ConfigMap | What::Job | What::Pod | What::Autoscaler => Reserved::NOTHING,
    }
}
