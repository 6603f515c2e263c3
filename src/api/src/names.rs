//! Every finalizer, field manager, reporter and object name, and the [labels and annotations](super::metadata). Such
//! strings are defined only here.

pub use super::metadata::*;

/// Field manager of objects that are applied from a repository.
pub const MANAGER: &str = "mainstay";
/// Field manager of writes to Mainstay's own records (status, finalizers, inventories).
pub const AGENT_MANAGER: &str = "mainstay-agent";
/// Field manager of objects that `mainstay dev` creates. Any other manager may take over its fields.
pub const DEV_MANAGER: &str = "mainstay-dev";
/// Second, unforced manager that owns `spec.replicas` during the handover to an autoscaler.
pub const HANDOVER_MANAGER: &str = "mainstay-handover";
/// Name that API servers use for the manager of fields written before the first apply.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Prefix of the annotations of Mainstay. The drift loop never reverts them on a live object.
pub const ANNOTATION_PREFIX: &str = "mainstay.dev/";
/// Prefix of annotations that are fields of messages about their object, as in Flux.
pub const FLUX_EVENT_PREFIX: &str = "event.toolkit.fluxcd.io/";
/// Value of [`RECONCILE`] that pauses an object, and of [`REPLACE`] that forbids replacing it.
pub const DISABLED: &str = "disabled";
/// Annotations that protect a live object when it is removed from the repository: Mainstay's own, and the equivalents
/// of Flux, Argo CD, Helm and cli-utils (kpt, Config Sync). Argo CD's annotation can have several options, separated by
/// commas; its option `confirm` would wait for a user.
pub const KEEPS: [&str; 9] = [
    "mainstay.dev/prune: disabled",
    "kustomize.toolkit.fluxcd.io/prune: disabled",
    "argocd.argoproj.io/sync-options: Prune=false",
    "argocd.argoproj.io/sync-options: Prune=confirm",
    "argocd.argoproj.io/sync-options: Delete=false",
    "argocd.argoproj.io/sync-options: Delete=confirm",
    "helm.sh/resource-policy: keep",
    "client.lifecycle.config.k8s.io/deletion: detach",
    "cli-utils.sigs.k8s.io/on-remove: keep",
];
/// Value of [`REPLACE`] that allows replacing an object.
pub const ENABLED: &str = "enabled";
/// Value of [`ON_DELETE`].
pub const DELETE_OBJECTS: &str = "prune";
/// Value of [`INSTALLED`].
pub const INSTALLED_AS: &str = "mainstay";
/// Name of the CRD of GitSync.
pub const GIT_SYNC_DEFINITION: &str = "gitsyncs.mainstay.dev";
/// Finalizer of a GitSync whose objects are deleted with it ([`ON_DELETE`]). Other GitSyncs have none.
pub const FINALIZER: &str = "mainstay.dev/git-sync";

/// Name of the file with excluded paths, in gitignore syntax.
pub const IGNORE_FILE: &str = ".mainstayignore";

/// Value of [`GENERATE`] on a Secret in the agent's namespace that requests the login of the in-cluster registry.
pub const REGISTRY_LOGIN: &str = "registry-login";
/// Value of [`REGISTRY_LOGINS`].
pub const PER_NAMESPACE: &str = "per-namespace";
/// Name of the in-cluster registry's Deployment, Service, volume and Secret, as in Kyma's chart.
pub const INTERNAL_REGISTRY: &str = "serverless-docker-registry";
/// Value of [`GENERATE`] on the Secret [`NATS`], which requests the login and the certificate of the installed NATS.
pub const NATS_LOGIN: &str = "nats-login";
/// Name of the StatefulSet, the Service and the Secret of the NATS that `mainstay install` installs, in
/// [`EVENTING_NAMESPACE`].
pub const NATS: &str = "mainstay-nats";
/// Value of [`GENERATE`].
pub const SSH_KEY: &str = "ssh-key";
/// ConfigMap in the agent's namespace with the GitRepository and the GitSyncs that the agent creates once, under
/// [`BOOTSTRAP_KEY`].
pub const BOOTSTRAP: &str = "mainstay-bootstrap";
/// Key of [`BOOTSTRAP`].
pub const BOOTSTRAP_KEY: &str = "objects.yaml";
/// Field manager of objects that `mainstay function apply` applies.
pub const FUNCTION_MANAGER: &str = "mainstay-function";
/// Field manager of objects that are created from [`BOOTSTRAP`].
pub const INSTALL_MANAGER: &str = "mainstay-install";
/// ConfigMap in the agent's namespace with the keys of SSH hosts.
pub const KNOWN_HOSTS: &str = "mainstay-known-hosts";
/// ConfigMap in the agent's namespace with the operator's settings for Functions.
pub const SETTINGS: &str = "mainstay-settings";
/// Key of [`KNOWN_HOSTS`].
pub const KNOWN_HOSTS_KEY: &str = "known_hosts";

/// Name of the CRD of Function.
pub const FUNCTION_DEFINITION: &str = "functions.serverless.kyma-project.io";

/// Name of all objects for the admission webhooks: their configurations, their Service, and the Secret with their
/// certificates.
pub const ADMISSION: &str = "mainstay-admission";
/// Field manager of the Secret with the certificates, and of `caBundle` in the webhook configurations.
pub const ADMISSION_MANAGER: &str = "mainstay-admission";

/// Name of the agent's Lease, and the reporting controller of its Events.
pub const LEASE: &str = "mainstay";
/// Value of [`SHARD_LEASE`] on the Lease of a shard.
pub const SHARD_LEASE_MEMBER: &str = "member";
/// Value of [`SHARD_LEASE`] on the Lease of the leader.
pub const SHARD_LEASE_LEADER: &str = "leader";
/// `reportingController` of Events.
pub const REPORTER: &str = "mainstay.dev/agent";
/// `reportingController` of the Events of eventing.
pub const EVENTING_REPORTER: &str = "mainstay.dev/eventing";
/// Value of [`LEADER`].
pub const LEADS: &str = "true";
/// Field of an inventory ConfigMap's `binaryData` with the inventory.
pub const INVENTORY_KEY: &str = "inventory";
/// Field of an inventory ConfigMap's `binaryData` with the source locations of objects in the repository.
pub const PLACES_KEY: &str = "places";

/// Value of [`MANAGED_BY`] on the children of Functions.
pub const FUNCTION_CONTROLLER: &str = "function-controller";
/// Value of [`RESOURCE`].
pub const DEPLOYMENT: &str = "deployment";

/// Registry Secret that a user creates in a namespace.
pub const EXTERNAL_REGISTRY_SECRET: &str = "serverless-registry-config";
/// Default registry Secret.
pub const DEFAULT_REGISTRY_SECRET: &str = "serverless-registry-config-default";
/// Secret with the configuration of the package registries: `.npmrc`, `pip.conf`.
pub const PACKAGE_REGISTRY_SECRET: &str = "serverless-package-registry-config";
/// Value of [`CONFIG`] on Secrets.
pub const CREDENTIALS: &str = "credentials";
/// Value of [`CONFIG`] on ServiceAccounts.
pub const SERVICE_ACCOUNT: &str = "service-account";
/// Value of [`MANAGED_BY`] on a copy that a user of its namespace has taken over.
pub const USER: &str = "user";
/// Kyma's finalizer on Secrets that are copied. Mainstay does not use it.
pub const REGISTRY_FINALIZER: &str = "serverless.kyma-project.io/finalizer-registry-config";
/// Prefix of those labels on a Secret or a ServiceAccount that are copied with it.
pub const SERVERLESS_PREFIX: &str = "serverless.kyma-project.io/";
/// Field manager of copies.
pub const PROPAGATION_MANAGER: &str = "mainstay-propagation";
/// Key of a Function's ConfigMap that holds the source.
pub const SOURCE_KEY: &str = "source";
/// Key of a Function's ConfigMap that holds the dependencies.
pub const DEPENDENCIES_KEY: &str = "dependencies";

/// Value of [`LAYER`]: bytecode of the base image's standard library.
pub const BYTECODE_LAYER: &str = "bytecode";
/// Value of [`LAYER`]: the runtime server.
pub const SERVER_LAYER: &str = "server";
/// Value of [`LAYER`]: the dependencies.
pub const DEPENDENCIES_LAYER: &str = "dependencies";
/// Value of [`LAYER`]: the source.
pub const SOURCE_LAYER: &str = "source";
/// Value of [`IMAGE_LABEL`].
pub const FUNCTION_IMAGE: &str = "function";
/// ConfigMap in the agent's namespace with the images that the next sweep of the in-cluster registry must keep.
pub const IMAGE_RETENTION: &str = "mainstay-image-retention";

/// Name of the CRD of ServiceBindingUsage.
pub const USAGE_DEFINITION: &str = "servicebindingusages.servicecatalog.kyma-project.io";
/// Name of the CRD of ServiceBinding.
pub const BINDING_DEFINITION: &str = "servicebindings.servicecatalog.k8s.io";
/// Name of the CRD of PodPreset, which other controllers of ServiceBindingUsages need.
pub const POD_PRESET_DEFINITION: &str = "podpresets.settings.svcat.k8s.io";
/// Prefix of labels, followed by the UID of a ServiceBindingUsage, that another controller of usages sets on the
/// objects which use a binding.
pub const USE_LABEL_PREFIX: &str = "use-";
/// Field manager of the owner references of ServiceBindingUsages.
pub const BINDINGS_MANAGER: &str = "mainstay-bindings";
/// Field manager of objects created for APIRules.
pub const EXPOSURE_MANAGER: &str = "mainstay-exposure";

/// Namespace of the Services to which events are published.
pub const EVENTING_NAMESPACE: &str = "kyma-system";
/// Field manager of [`BROKER_LABEL`].
pub const EVENTING_MANAGER: &str = "mainstay-eventing";
