//! The kinds of children of Functions.

use std::sync::Arc;

use mainstay_cluster::{Kind, Scope};

/// A kind of children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChildKind {
    /// ConfigMaps with inline sources.
    ConfigMap,
    /// Build Jobs.
    Job,
    /// Pods of builds, and serving pods.
    Pod,
    /// Deployments.
    Deployment,
    /// Services.
    Service,
    /// Autoscalers.
    Autoscaler,
    /// Knative Services.
    KnativeService,
}

impl ChildKind {
    /// The kinds that every cluster has: all except Knative Services.
    pub const ALL: [Self; 6] =
        [Self::ConfigMap, Self::Job, Self::Pod, Self::Deployment, Self::Service, Self::Autoscaler];

    /// Returns the API kind.
    pub fn kind(self) -> Arc<Kind> {
        let (version, kind, plural) = match self {
            Self::ConfigMap => ("v1", "ConfigMap", "configmaps"),
            Self::Job => ("batch/v1", "Job", "jobs"),
            Self::Pod => ("v1", "Pod", "pods"),
            Self::Deployment => ("apps/v1", "Deployment", "deployments"),
            Self::Service => ("v1", "Service", "services"),
            Self::Autoscaler => ("autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers"),
            Self::KnativeService => ("serving.knative.dev/v1", "Service", "services"),
        };
        Arc::new(Kind::fixed(version, kind, plural, Scope::Namespaced))
    }
}
