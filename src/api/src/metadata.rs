//! Labels and annotations: for each one its key, the objects that have it, who sets it, its values and its meaning.
//!
//! Invariant: a key without these texts does not compile, and no other file of the product writes one out (`tests/tidy`).

/// Whether a key is that of a label or of an annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metadata {
    /// A label of an object.
    Label,
    /// An annotation of an object.
    Annotation,
    /// A label or an annotation of an object.
    Either,
    /// An annotation of a layer, or a label of an image, in a registry.
    Image,
}

/// The documentation of a label or an annotation.
#[derive(Clone, Copy, Debug)]
pub struct MetadataKey {
    /// Whether the key is that of a label or of an annotation.
    pub what: Metadata,
    /// The key.
    pub key: &'static str,
    /// Objects that have it.
    pub on: &'static str,
    /// The user or component that sets it.
    pub by: &'static str,
    /// Its values, in Markdown.
    pub values: &'static str,
    /// Its meaning, in Markdown.
    pub meaning: &'static str,
}

/// Defines the constants, whose documentation is the meaning, and the table of all keys.
macro_rules! metadata {
    ($(pub const $name:ident: $what:ident = $key:literal; on $on:literal, by $by:literal, values $values:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: &str = $key;)*

        /// All labels and annotations that Mainstay reads or sets.
        pub const METADATA: &[MetadataKey] = &[
            $(MetadataKey {
                what: Metadata::$what, key: $key, on: $on, by: $by, values: $values, meaning: $meaning,
            },)*
        ];
    };
}

metadata! {
    pub const SYNC_LABEL: Label = "mainstay.dev/sync";
        on "managed objects", by "Mainstay", values "`NAMESPACE.NAME`, hashed if it is too long for a label",
        "The GitSync that manages the object.";
    pub const INVENTORY_LABEL: Label = "mainstay.dev/inventory";
        on "inventory ConfigMaps", by "Mainstay", values "that of `mainstay.dev/sync` on the listed objects",
        "The GitSync whose objects the ConfigMap lists.";
    pub const PREVENTION_LABEL: Label = "mainstay.dev/prevention";
        on "ValidatingAdmissionPolicies and their bindings", by "Mainstay",
        values "that of `mainstay.dev/sync` on the protected objects",
        "The GitSync whose objects the policy protects from hand edits.";
    pub const RECONCILE: Annotation = "mainstay.dev/reconcile";
        on "live managed objects", by "users, `mainstay pause`", values "`disabled`",
        "Pauses the object: it is neither applied, nor reverted, nor pruned.";
    pub const UNTIL: Annotation = "mainstay.dev/until";
        on "paused objects", by "users, `mainstay pause --for`", values "a time such as `2026-01-31T18:00:00Z`",
        "End of the pause.";
    pub const PRUNE: Annotation = "mainstay.dev/prune";
        on "live managed objects", by "users", values "`disabled`",
        "Keeps the object when it leaves the repository.";
    pub const ALLOW_PRUNE: Annotation = "mainstay.dev/allow-prune";
        on "GitSyncs", by "users", values "a full commit id",
        "Allows the deletions of this commit that the prune guards hold.";
    pub const RERUN: Annotation = "mainstay.dev/rerun";
        on "Jobs and Pods in the repository; GitSyncs", by "users, the web page",
        values "any new value; on a GitSync `[NAMESPACE/]NAME TOKEN`",
        "Runs a finished Job or Pod again, once for each value.";
    pub const REPLACE: Annotation = "mainstay.dev/replace";
        on "objects in the repository", by "users", values "`enabled`, `disabled`",
        "Allows or forbids the replacement of the object when an immutable field changes.";
    pub const OVERRIDE_WINDOW: Annotation = "mainstay.dev/override-window";
        on "GitSyncs", by "users, `mainstay sync --override-window`, the web page", values "a full commit id",
        "Applies this commit although a window holds it.";
    pub const OVERRIDE_WINDOW_BY: Annotation = "mainstay.dev/override-window-by";
        on "GitSyncs", by "`mainstay sync --override-window`, the web page",
        values "a full commit id, a blank and a user name",
        "The user who claims to have overridden the window.";
    pub const ON_DELETE: Annotation = "mainstay.dev/on-delete";
        on "GitSyncs", by "users", values "`prune`; any other value keeps the objects",
        "Deletes the objects of the GitSync together with it.";
    pub const REQUESTED_AT: Annotation = "mainstay.dev/requestedAt";
        on "GitSyncs, and sources", by "users, `mainstay sync`, the web page", values "any new value",
        "On a GitSync, requests a sync now; `status.lastHandledRequest` shows the handled value. On a GitRepository, \
         OCIRepository, HelmChart or ImageRepository, requests a lookup now.";
    pub const FLUX_REQUESTED_AT: Annotation = "reconcile.fluxcd.io/requestedAt";
        on "GitSyncs, and sources", by "users", values "a time, or a number of seconds since 1970",
        "Requests a sync or a lookup now, as in Flux. If a GitSync has both annotations, the later time counts.";
    pub const INSTALLED: Label = "app.kubernetes.io/name";
        on "objects of the installation", by "`mainstay install`, the chart", values "`mainstay`",
        "The object belongs to the installation of Mainstay.";
    pub const COMPONENT: Label = "mainstay.dev/component";
        on "objects of the installation", by "`mainstay install`, the chart", values "the name of a component",
        "The component that needs the object; the object is left out together with it.";
    pub const METRICS: Label = "mainstay.dev/metrics";
        on "namespaces", by "users", values "`true`",
        "Admits requests for metrics from the namespace, by the NetworkPolicy of the agent.";
    pub const FLUX_IGNORE: Annotation = "fluxcd.io/ignore";
        on "objects in the repository", by "users", values "`true`",
        "Leaves the object out, as Flux does.";
    pub const FLUX_SUBSTITUTE: Either = "kustomize.toolkit.fluxcd.io/substitute";
        on "objects in the repository", by "users", values "`disabled`",
        "Leaves the variables of the object as they are, as Flux does.";
    pub const FLUX_DECRYPT: Either = "kustomize.toolkit.fluxcd.io/decrypt";
        on "objects in the repository", by "users", values "`disabled`",
        "Leaves encrypted values of the object as they are, as Flux does.";
    pub const RESTARTED_AT: Annotation = "kubectl.kubernetes.io/restartedAt";
        on "Pod templates", by "`kubectl rollout restart`", values "a time",
        "Restarts the Pods; Mainstay does not revert it.";
    pub const GENERATE: Label = "mainstay.dev/generate";
        on "Secrets of the agent's namespace, and the Secret `mainstay-nats`", by "users, `mainstay install`",
        values "`ssh-key`, `registry-login`, `nats-login`",
        "Stores a new SSH key, or a login of the internal registry or of the installed NATS, in the Secret if it has none.";
    pub const PUSH_ADDRESS: Annotation = "mainstay.dev/push-address";
        on "Secrets with `mainstay.dev/generate: registry-login`", by "`mainstay install`, the chart",
        values "`HOST:PORT`; with `https://` before it, the Secret gets a certificate too",
        "Address of the internal registry for builds.";
    pub const PULL_ADDRESS: Annotation = "mainstay.dev/pull-address";
        on "Secrets with `mainstay.dev/generate: registry-login`", by "`mainstay install`, the chart", values "`HOST:PORT`",
        "Address of the internal registry for nodes.";
    pub const REGISTRY_LOGINS: Annotation = "mainstay.dev/registry-logins";
        on "Secrets with `mainstay.dev/generate: registry-login`", by "`mainstay install`, the chart", values "`per-namespace`",
        "Gives each namespace a login of its own, valid for the repositories of that namespace only.";
    pub const BOOTSTRAPPED: Annotation = "mainstay.dev/bootstrapped";
        on "the ConfigMap `mainstay-bootstrap`", by "Mainstay", values "a digest",
        "The objects of the ConfigMap that were created last.";
    pub const BOOTSTRAPPING: Annotation = "mainstay.dev/bootstrapping";
        on "the ConfigMap `mainstay-bootstrap`", by "Mainstay", values "a digest and the created objects",
        "The progress while some objects of the ConfigMap are refused.";
    pub const LAST_VALID_SETTINGS: Annotation = "mainstay.dev/last-valid-settings";
        on "the ConfigMap `mainstay-settings`", by "Mainstay", values "the data, as JSON",
        "The last valid settings, which apply while the ConfigMap is invalid.";
    pub const ONLY_V1ALPHA1: Annotation = "mainstay.dev/v1alpha1";
        on "Functions in `v1alpha2`", by "Mainstay", values "fields, as JSON",
        "Fields that only `v1alpha1` has; none of them has an effect.";
    pub const VERSION: Annotation = "mainstay.dev/version";
        on "the Lease of the agent", by "Mainstay", values "a version",
        "Version of the agent that holds the Lease.";
    pub const LEADER: Label = "mainstay.dev/leader";
        on "the Pod of the agent", by "Mainstay", values "`true`",
        "The agent of this Pod leads. The Service of Receivers selects it.";
    pub const SHARD: Label = "mainstay.dev/shard";
        on "GitSyncs, namespaces", by "users", values "the name of a shard, such as `shard-0`",
        "Pins the GitSync, or all GitSyncs of the namespace, to the agent of this shard.";
    pub const SHARD_LEASE: Label = "mainstay.dev/shard-lease";
        on "the Leases of agents with shards", by "Mainstay", values "`member`, `leader`",
        "The Lease is that of a shard, or that of the leader of all shards.";
    pub const SHARD_VIEW: Annotation = "mainstay.dev/shard-view";
        on "the Leases of agents with shards", by "Mainstay",
        values "the agents, as JSON; on the Lease of the leader its identity",
        "The agents among which the agent of this shard divides the GitSyncs, and the Leases that have expired for it.";
    pub const HOME_CLUSTER: Annotation = "mainstay.dev/home-cluster";
        on "inventory ConfigMaps in remote clusters", by "Mainstay", values "the uid of the namespace `kube-system`",
        "The cluster of the GitSync.";
    pub const GIT_SYNC_UID: Annotation = "mainstay.dev/git-sync-uid";
        on "inventory ConfigMaps in remote clusters", by "Mainstay", values "a uid",
        "The uid of the GitSync.";
    pub const FUNCTION_NAME: Label = "serverless.kyma-project.io/function-name";
        on "children of a Function", by "Mainstay", values "a name",
        "The Function.";
    pub const MANAGED_BY: Label = "serverless.kyma-project.io/managed-by";
        on "children of a Function; copies of Secrets and ServiceAccounts", by "Mainstay; users on copies",
        values "`function-controller`; `user` on copies",
        "The controller of the object. Mainstay does not change a copy with the value `user`.";
    pub const FUNCTION_UID: Label = "serverless.kyma-project.io/uuid";
        on "children of a Function", by "Mainstay", values "a uid",
        "The uid of the Function.";
    pub const RESOURCE: Label = "serverless.kyma-project.io/resource";
        on "serving Pods of a Function", by "Mainstay", values "`deployment`",
        "Selects the serving Pods; build Pods do not have it.";
    pub const REPLICAS_PRESET: Label = "serverless.kyma-project.io/replicas-preset";
        on "Functions", by "users", values "the name of a preset",
        "Number of Pods.";
    pub const FUNCTION_RESOURCES_PRESET: Label = "serverless.kyma-project.io/function-resources-preset";
        on "Functions", by "users", values "the name of a preset",
        "CPU and memory of the serving Pods.";
    pub const BUILD_RESOURCES_PRESET: Label = "serverless.kyma-project.io/build-resources-preset";
        on "Functions", by "users", values "the name of a preset",
        "CPU and memory of the build.";
    pub const SERVING: Label = "mainstay.dev/serving";
        on "Functions", by "users", values "`deployment`, `knative`",
        "Runs the Function as a Deployment or on Knative, whatever `MAINSTAY_SERVING` says.";
    pub const REBUILD: Annotation = "mainstay.dev/rebuild";
        on "Functions", by "users, the web page", values "any new value",
        "Requests another build of the same source.";
    pub const BUILD_TAG: Annotation = "mainstay.dev/build-tag";
        on "build Jobs", by "Mainstay", values "a tag",
        "Tag of the built image.";
    pub const BUILD_ATTEMPT: Annotation = "mainstay.dev/build-attempt";
        on "build Jobs", by "Mainstay", values "a number from 1",
        "Number of the build attempt for this tag.";
    pub const BUILD_CAUSE: Annotation = "mainstay.dev/build-cause";
        on "build Jobs", by "Mainstay", values "a string",
        "The cause of the build.";
    pub const BUILD_SUSPENSIONS: Annotation = "mainstay.dev/build-suspensions";
        on "suspended build Jobs", by "Mainstay", values "a number",
        "How often the build was suspended.";
    pub const BUILD_SUSPENDED_UNTIL: Annotation = "mainstay.dev/build-suspended-until";
        on "suspended build Jobs", by "Mainstay", values "a time",
        "Time of the next attempt.";
    pub const BUILD_SUSPENDED_FOR: Annotation = "mainstay.dev/build-suspended-for";
        on "suspended build Jobs", by "Mainstay", values "a string",
        "Why the Pod could not start.";
    pub const CONFIG: Label = "serverless.kyma-project.io/config";
        on "Secrets and ServiceAccounts of the agent's namespace", by "users, `mainstay install`",
        values "`credentials` on Secrets, `service-account` on ServiceAccounts",
        "Copies the object to the other namespaces.";
    pub const PROPAGATED_FROM: Label = "mainstay.dev/propagated-from";
        on "copies of Secrets and ServiceAccounts", by "Mainstay", values "a namespace",
        "The namespace of the agent that copied the object.";
    pub const PROPAGATED: Annotation = "mainstay.dev/propagated";
        on "copies of Secrets and ServiceAccounts", by "Mainstay", values "a digest",
        "Digest of the copied content.";
    pub const COPY_OF: Annotation = "mainstay.dev/copy-of";
        on "copies of Secrets and ServiceAccounts", by "Mainstay", values "a string",
        "The source of the copy, and how a namespace keeps a content of its own.";
    pub const PROPAGATE: Label = "mainstay.dev/propagate";
        on "namespaces", by "users", values "`disabled`",
        "Keeps copies out of the namespace.";
    pub const SECRETS_DIGEST: Annotation = "mainstay.dev/secrets-digest";
        on "serving Pods of a Function; its Deployments and Knative Services", by "Mainstay", values "a digest; a digest for each Secret",
        "The values of Secrets in environment variables; a new value restarts the Pods.";
    pub const ADDRESS: Annotation = "mainstay.dev/address";
        on "Knative Services of Functions", by "Mainstay", values "`knative`",
        "No Service of Mainstay has the address. The change makes Knative reconcile again.";
    pub const LAYER: Image = "dev.mainstay.layer";
        on "layers of built images", by "Mainstay", values "`bytecode`, `server`, `dependencies`, `source`",
        "The content of the layer.";
    pub const INSTALLED_FROM: Image = "dev.mainstay.dependencies";
        on "layers with dependencies", by "Mainstay", values "a digest",
        "The list of dependencies that was installed.";
    pub const IMAGE_LABEL: Image = "dev.mainstay.image";
        on "images that Kaniko built", by "Mainstay", values "`function`",
        "The image belongs to a Function.";
    pub const SWEEP: Annotation = "mainstay.dev/image-sweep";
        on "Pods of the internal registry", by "Mainstay", values "an id",
        "The removal of unused images for which the Pod was started.";
    pub const API_RULE_LABEL: Label = "apirule.gateway.kyma-project.io/v1alpha1";
        on "objects made for an APIRule in `v1alpha1`", by "Mainstay", values "`NAME.NAMESPACE`, hashed if it is too long",
        "The APIRule.";
    pub const NEWER_API_RULE_LABEL: Label = "apirule.gateway.kyma-project.io/v1beta1";
        on "objects made for an APIRule in `v1beta1`", by "Mainstay", values "`NAME.NAMESPACE`, hashed if it is too long",
        "The APIRule.";
    pub const ORDERING: Annotation = "mainstay.dev/ordering";
        on "Triggers and Subscriptions", by "users", values "`source`",
        "Delivers the events of each source one after the other, in the order in which they were accepted.";
    pub const BROKER_LABEL: Label = "eventing.knative.dev/broker";
        on "Triggers", by "Mainstay", values "a name",
        "The Broker of the Trigger.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_key_has_all_its_texts_and_appears_once() {
        let keys: BTreeSet<_> = METADATA.iter().map(|row| row.key).collect();
        assert_eq!(keys.len(), METADATA.len());
        for row in METADATA {
            assert!(![row.on, row.by, row.values].contains(&""), "{row:?}");
            assert!(row.meaning.starts_with(char::is_uppercase) && row.meaning.ends_with('.'), "{row:?}");
        }
    }
}
