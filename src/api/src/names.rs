//! All labels, annotations, finalizers, field managers, reporters and object names. No such string is defined
//! elsewhere.

/// Field manager of objects that are applied from a repository.
pub const MANAGER: &str = "mainstay";
/// Field manager of writes to Mainstay's own records (status, finalizers, inventories).
pub const AGENT_MANAGER: &str = "mainstay-agent";
/// Field manager of objects that `mainstay dev` creates. Any other manager may take them over.
pub const DEV_MANAGER: &str = "mainstay-dev";
/// Second, unforced manager that owns `spec.replicas` during the handover to an autoscaler.
pub const HANDOVER_MANAGER: &str = "mainstay-handover";
/// Manager name that API servers use for fields written before the first apply.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Label on every managed object: `<namespace>.<name>` of its GitSync, hashed when too long for a label.
pub const SYNC_LABEL: &str = "mainstay.dev/sync";
/// Label on inventory ConfigMaps, with the value of [`SYNC_LABEL`] on the listed objects.
pub const INVENTORY_LABEL: &str = "mainstay.dev/inventory";

/// Label on the ValidatingAdmissionPolicy and the binding of a GitSync with `spec.prevent`, with the value of
/// [`SYNC_LABEL`] on the protected objects.
pub const PREVENTION_LABEL: &str = "mainstay.dev/prevention";

/// Annotation that `kubectl rollout restart` sets in the template of a workload.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";

/// Prefix of the annotations below. The drift loop never reverts them on a live object.
pub const ANNOTATION_PREFIX: &str = "mainstay.dev/";
/// `disabled` on a live object pauses both loops for it (break glass).
pub const RECONCILE: &str = "mainstay.dev/reconcile";
/// RFC 3339 time at which a pause ends.
pub const UNTIL: &str = "mainstay.dev/until";
/// Value of [`RECONCILE`] and [`REPLACE`] that disables it.
pub const DISABLED: &str = "disabled";
/// Annotations that keep a live object when it is removed from the repository: Mainstay's own, and the equivalents of
/// Flux, Argo CD, Helm and cli-utils (kpt, Config Sync). Argo CD's can hold several options, separated by commas; its
/// `confirm` would wait for a user.
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
/// On a GitSync: the full id of a commit for which the prune guards are lifted.
pub const ALLOW_PRUNE: &str = "mainstay.dev/allow-prune";
/// On a Job or Pod in the repository: a new value runs it again. On a GitSync: `[namespace/]name token` runs the
/// managed object of that name again, once per value.
pub const RERUN: &str = "mainstay.dev/rerun";
/// On an object in the repository: [`ENABLED`] allows replacing it when an immutable field changed; [`DISABLED`]
/// forbids that, whatever its GitSync specifies.
pub const REPLACE: &str = "mainstay.dev/replace";
/// Value of [`REPLACE`] that enables it.
pub const ENABLED: &str = "enabled";
/// On a GitSync: the full id of a commit that is applied even outside of a window.
pub const OVERRIDE_WINDOW: &str = "mainstay.dev/override-window";
/// On a GitSync, beside [`OVERRIDE_WINDOW`]: the commit, a blank, and the user who claims to have requested this.
pub const OVERRIDE_WINDOW_BY: &str = "mainstay.dev/override-window-by";
/// On a GitSync: the handling of its objects when it is deleted. [`DELETE_OBJECTS`] deletes them, any other value
/// keeps them.
pub const ON_DELETE: &str = "mainstay.dev/on-delete";
/// Value of [`ON_DELETE`].
pub const DELETE_OBJECTS: &str = "prune";
/// On a GitSync: a value other than `status.lastHandledRequest` requests an immediate sync.
pub const REQUESTED_AT: &str = "mainstay.dev/requestedAt";
/// Label on all objects that are installed with the agent: [`INSTALLED_AS`].
pub const INSTALLED: &str = "app.kubernetes.io/name";
/// Label with the name of the component that an installed object belongs to. Without the component, it is not
/// installed.
pub const COMPONENT: &str = "mainstay.dev/component";
/// Value of [`INSTALLED`].
pub const INSTALLED_AS: &str = "mainstay";
/// Name of the definition of GitSync.
pub const GIT_SYNC_DEFINITION: &str = "gitsyncs.mainstay.dev";
/// Finalizer of a GitSync whose objects are deleted with it ([`ON_DELETE`]). Other GitSyncs have none.
pub const FINALIZER: &str = "mainstay.dev/git-sync";

/// Flux v1's annotation. `"true"` excludes a document.
pub const FLUX_IGNORE: &str = "fluxcd.io/ignore";
/// Flux's label or annotation. `disabled` turns off substitution in an object.
pub const FLUX_SUBSTITUTE: &str = "kustomize.toolkit.fluxcd.io/substitute";
/// Flux's label or annotation. `disabled` turns off the decryption of an object.
pub const FLUX_DECRYPT: &str = "kustomize.toolkit.fluxcd.io/decrypt";
/// Name of the file with excluded paths, in gitignore syntax.
pub const IGNORE_FILE: &str = ".mainstayignore";

/// Label on a Secret in the agent's namespace. With [`SSH_KEY`], the agent stores a new SSH key in it if it has none.
pub const GENERATE: &str = "mainstay.dev/generate";
/// Value of [`GENERATE`] on a Secret in the agent's namespace that requests the login of the in-cluster registry.
pub const REGISTRY_LOGIN: &str = "registry-login";
/// Annotation on such a Secret: the address of the registry for builds, `HOST:PORT`. With the prefix `https://`, the
/// Secret also requests a certificate.
pub const PUSH_ADDRESS: &str = "mainstay.dev/push-address";
/// Annotation on such a Secret: the address of the registry for nodes, `HOST:PORT`.
pub const PULL_ADDRESS: &str = "mainstay.dev/pull-address";
/// Annotation on such a Secret. With [`PER_NAMESPACE`], each namespace gets its own login, which the registry's guard
/// accepts only for the repositories of that namespace.
pub const REGISTRY_LOGINS: &str = "mainstay.dev/registry-logins";
/// Value of [`REGISTRY_LOGINS`].
pub const PER_NAMESPACE: &str = "per-namespace";
/// Name of the in-cluster registry's Deployment, Service, volume and Secret, as in Kyma's chart.
pub const INTERNAL_REGISTRY: &str = "serverless-docker-registry";
/// Value of [`GENERATE`].
pub const SSH_KEY: &str = "ssh-key";
/// ConfigMap in the agent's namespace with the GitRepository and the GitSyncs that the agent creates once, under
/// [`BOOTSTRAP_KEY`].
pub const BOOTSTRAP: &str = "mainstay-bootstrap";
/// Key of [`BOOTSTRAP`].
pub const BOOTSTRAP_KEY: &str = "objects.yaml";
/// On [`BOOTSTRAP`]: digest of the last created objects.
pub const BOOTSTRAPPED: &str = "mainstay.dev/bootstrapped";
/// On [`BOOTSTRAP`], while some objects are refused: the digest, and the objects already created.
pub const BOOTSTRAPPING: &str = "mainstay.dev/bootstrapping";
/// Field manager of objects that `mainstay function apply` applies.
pub const FUNCTION_MANAGER: &str = "mainstay-function";
/// Field manager of objects that are created from [`BOOTSTRAP`].
pub const INSTALL_MANAGER: &str = "mainstay-install";
/// ConfigMap in the agent's namespace with the keys of SSH hosts.
pub const KNOWN_HOSTS: &str = "mainstay-known-hosts";
/// ConfigMap in the agent's namespace with the operator's settings for Functions.
pub const SETTINGS: &str = "mainstay-settings";
/// On [`SETTINGS`]: its last valid data.
pub const LAST_VALID_SETTINGS: &str = "mainstay.dev/last-valid-settings";
/// Key of [`KNOWN_HOSTS`].
pub const KNOWN_HOSTS_KEY: &str = "known_hosts";

/// On a Function in `v1alpha2`: the fields that exist only in `v1alpha1`. None has an effect.
pub const ONLY_V1ALPHA1: &str = "mainstay.dev/v1alpha1";

/// Name of the definition of Function.
pub const FUNCTION_DEFINITION: &str = "functions.serverless.kyma-project.io";

/// Name of all objects for the admission webhooks: their configurations, their Service, and the Secret with their
/// certificates.
pub const ADMISSION: &str = "mainstay-admission";
/// Field manager of that Secret, and of `caBundle` in the configurations.
pub const ADMISSION_MANAGER: &str = "mainstay-admission";

/// Name of the agent's Lease, and the reporting controller of its Events.
pub const LEASE: &str = "mainstay";
/// Annotation of the Lease: the version of the agent that holds it.
pub const VERSION: &str = "mainstay.dev/version";
/// `reportingController` of Events.
pub const REPORTER: &str = "mainstay.dev/agent";
/// Label on the leading agent's pod: [`LEADS`]. The Service of Receivers selects by it.
pub const LEADER: &str = "mainstay.dev/leader";
/// Value of [`LEADER`].
pub const LEADS: &str = "true";
/// Annotation on inventory ConfigMaps in remote clusters: the cluster of the GitSync, as the uid of its namespace
/// `kube-system`.
pub const HOME_CLUSTER: &str = "mainstay.dev/home-cluster";
/// Annotation on inventory ConfigMaps in remote clusters: the uid of the GitSync.
pub const GIT_SYNC_UID: &str = "mainstay.dev/git-sync-uid";
/// Field of an inventory ConfigMap's `binaryData` with the inventory.
pub const INVENTORY_KEY: &str = "inventory";
/// Field of an inventory ConfigMap's `binaryData` with the places of objects in the repository.
pub const PLACES_KEY: &str = "places";

/// Label on every child of a Function: its name.
pub const FUNCTION_NAME: &str = "serverless.kyma-project.io/function-name";
/// Label on every child of a Function: [`FUNCTION_CONTROLLER`].
pub const MANAGED_BY: &str = "serverless.kyma-project.io/managed-by";
/// Label on every child of a Function: its UID.
pub const FUNCTION_UID: &str = "serverless.kyma-project.io/uuid";
/// Label on serving pods, and in their selectors: [`DEPLOYMENT`]. Build pods do not have it.
pub const RESOURCE: &str = "serverless.kyma-project.io/resource";
/// Value of [`MANAGED_BY`] on the children of Functions.
pub const FUNCTION_CONTROLLER: &str = "function-controller";
/// Value of [`RESOURCE`].
pub const DEPLOYMENT: &str = "deployment";
/// On a Function: preset for the number of its pods.
pub const REPLICAS_PRESET: &str = "serverless.kyma-project.io/replicas-preset";
/// On a Function: preset for the CPU and memory of its pods.
pub const FUNCTION_RESOURCES_PRESET: &str = "serverless.kyma-project.io/function-resources-preset";
/// On a Function: preset for the CPU and memory of its build.
pub const BUILD_RESOURCES_PRESET: &str = "serverless.kyma-project.io/build-resources-preset";
/// Label of a Function that overrides the setting for serving: `deployment` or `knative`.
pub const SERVING: &str = "mainstay.dev/serving";
/// On a Function: a new value requests another build of the same source.
pub const REBUILD: &str = "mainstay.dev/rebuild";
/// On a build Job: tag of the image that it builds.
pub const BUILD_TAG: &str = "mainstay.dev/build-tag";
/// On a build Job: the number of the attempt for its tag, from 1.
pub const BUILD_ATTEMPT: &str = "mainstay.dev/build-attempt";
/// On a build Job: why it was created.
pub const BUILD_CAUSE: &str = "mainstay.dev/build-cause";
/// Annotation of a suspended build Job: how often it was suspended so far.
pub const BUILD_SUSPENSIONS: &str = "mainstay.dev/build-suspensions";
/// Annotation of a suspended build Job: when it is retried.
pub const BUILD_SUSPENDED_UNTIL: &str = "mainstay.dev/build-suspended-until";
/// Annotation of a suspended build Job: why its pod could not start.
pub const BUILD_SUSPENDED_FOR: &str = "mainstay.dev/build-suspended-for";

/// Registry Secret that a user creates in a namespace.
pub const EXTERNAL_REGISTRY_SECRET: &str = "serverless-registry-config";
/// Default registry Secret.
pub const DEFAULT_REGISTRY_SECRET: &str = "serverless-registry-config-default";
/// Secret with the configuration of the package registries: `.npmrc`, `pip.conf`.
pub const PACKAGE_REGISTRY_SECRET: &str = "serverless-package-registry-config";
/// Label on a Secret or a ServiceAccount of the agent's namespace. [`CREDENTIALS`] or [`SERVICE_ACCOUNT`] requests
/// copies in all other namespaces.
pub const CONFIG: &str = "serverless.kyma-project.io/config";
/// Value of [`CONFIG`] on Secrets.
pub const CREDENTIALS: &str = "credentials";
/// Value of [`CONFIG`] on ServiceAccounts.
pub const SERVICE_ACCOUNT: &str = "service-account";
/// Value of [`MANAGED_BY`] on a copy that its namespace has taken over.
pub const USER: &str = "user";
/// Kyma's finalizer of copied Secrets. Mainstay does not use it.
pub const REGISTRY_FINALIZER: &str = "serverless.kyma-project.io/finalizer-registry-config";
/// Prefix of labels on a Secret or a ServiceAccount that are copied, too.
pub const SERVERLESS_PREFIX: &str = "serverless.kyma-project.io/";
/// Label on copies: the agent's namespace, from which they are copied.
pub const PROPAGATED_FROM: &str = "mainstay.dev/propagated-from";
/// Annotation on copies: a digest of the copied content.
pub const PROPAGATED: &str = "mainstay.dev/propagated";
/// Annotation on copies, for users: the origin of the copy, and how a namespace can keep its own content.
pub const COPY_OF: &str = "mainstay.dev/copy-of";
/// Field manager of copies.
pub const PROPAGATION_MANAGER: &str = "mainstay-propagation";
/// Label on a namespace. [`DISABLED`] keeps copies out of it.
pub const PROPAGATE: &str = "mainstay.dev/propagate";
/// Key of a Function's ConfigMap that holds the source.
pub const SOURCE_KEY: &str = "source";
/// Key of a Function's ConfigMap that holds the dependencies.
pub const DEPENDENCIES_KEY: &str = "dependencies";

/// On image layers of Mainstay: [`BYTECODE_LAYER`], [`SERVER_LAYER`], [`DEPENDENCIES_LAYER`] or [`SOURCE_LAYER`].
pub const LAYER: &str = "dev.mainstay.layer";
/// Value of [`LAYER`]: bytecode of the base image's standard library.
pub const BYTECODE_LAYER: &str = "bytecode";
/// Value of [`LAYER`]: the runtime server.
pub const SERVER_LAYER: &str = "server";
/// Value of [`LAYER`]: the dependencies.
pub const DEPENDENCIES_LAYER: &str = "dependencies";
/// Value of [`LAYER`]: the source.
pub const SOURCE_LAYER: &str = "source";
/// Label of an image that Kaniko built for a Function: [`FUNCTION_IMAGE`]. Its layers have no annotations.
pub const IMAGE_LABEL: &str = "dev.mainstay.image";
/// Value of [`IMAGE_LABEL`].
pub const FUNCTION_IMAGE: &str = "function";
/// ConfigMap in the agent's namespace with the images that the next sweep of the in-cluster registry must keep.
pub const IMAGE_RETENTION: &str = "mainstay-image-retention";
/// Annotation on the pods of that registry: the sweep for which they were started.
pub const SWEEP: &str = "mainstay.dev/image-sweep";
/// On a [`DEPENDENCIES_LAYER`]: digest of the inputs of the dependencies, in hexadecimal digits.
pub const INSTALLED_FROM: &str = "dev.mainstay.dependencies";

/// Name of the definition of APIRule.
pub const API_RULE_DEFINITION: &str = "apirules.gateway.kyma-project.io";
/// Label on objects created for an APIRule: its `<name>.<namespace>`, hashed when too long for a label.
pub const API_RULE_LABEL: &str = "apirule.gateway.kyma-project.io/v1alpha1";
/// The same label for an APIRule in the format of `v1beta1`.
pub const NEWER_API_RULE_LABEL: &str = "apirule.gateway.kyma-project.io/v1beta1";
/// Name of the definition of ServiceBindingUsage.
pub const USAGE_DEFINITION: &str = "servicebindingusages.servicecatalog.kyma-project.io";
/// Name of the definition of ServiceBinding.
pub const BINDING_DEFINITION: &str = "servicebindings.servicecatalog.k8s.io";
/// Name of the definition of PodPreset. Other controllers of usages need it.
pub const POD_PRESET_DEFINITION: &str = "podpresets.settings.svcat.k8s.io";
/// Prefix of labels that another controller of usages sets on users of a binding, followed by the usage's UID.
pub const USE_LABEL_PREFIX: &str = "use-";
/// Field manager of the owner references of ServiceBindingUsages.
pub const BINDINGS_MANAGER: &str = "mainstay-bindings";
/// On the pods of a Function: digest of the environment variables from Secrets.
pub const SECRETS_DIGEST: &str = "mainstay.dev/secrets-digest";
/// Field manager of objects created for APIRules.
pub const EXPOSURE_MANAGER: &str = "mainstay-exposure";

/// Label of a Trigger: its Broker.
pub const BROKER_LABEL: &str = "eventing.knative.dev/broker";
/// Namespace of the Services to which events are published.
pub const EVENTING_NAMESPACE: &str = "kyma-system";
/// Field manager of that label.
pub const EVENTING_MANAGER: &str = "mainstay-eventing";
