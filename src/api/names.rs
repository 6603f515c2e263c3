//! Every label, annotation, finalizer, field manager, reporter and object name: no such string stands elsewhere.

/// Field manager of everything that is applied from a repository.
pub const MANAGER: &str = "mainstay";
/// Field manager of the writes that are about Mainstay's own bookkeeping (status, finalizers, inventories).
pub const AGENT_MANAGER: &str = "mainstay-agent";
/// Field manager of what `mainstay dev` sets up for the user; the user may take it over with any other.
pub const DEV_MANAGER: &str = "mainstay-dev";
/// Second, unforced manager that holds `spec.replicas` while it is handed to an autoscaler.
pub const HANDOVER_MANAGER: &str = "mainstay-handover";
/// Manager name that API servers give to what was there before the first apply.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Label on every managed object: `<namespace>.<name>` of its GitSync, hashed when too long for a label.
pub const SYNC_LABEL: &str = "mainstay.dev/sync";
/// Label on inventory ConfigMaps: the same value as [`SYNC_LABEL`] has on the objects that they list.
pub const INVENTORY_LABEL: &str = "mainstay.dev/inventory";

/// Prefix of the annotations below, which the drift loop never reverts on a live object.
pub const ANNOTATION_PREFIX: &str = "mainstay.dev/";
/// `disabled` on a live object stops both loops for it (break glass).
pub const RECONCILE: &str = "mainstay.dev/reconcile";
/// RFC 3339 time at which a break glass ends by itself.
pub const UNTIL: &str = "mainstay.dev/until";
/// `disabled` on a live object keeps it when it leaves the repository.
pub const PRUNE: &str = "mainstay.dev/prune";
/// Value of [`RECONCILE`] and [`PRUNE`] that switches them off.
pub const DISABLED: &str = "disabled";
/// On a GitSync: the full commit id for which the prune guards are lifted.
pub const ALLOW_PRUNE: &str = "mainstay.dev/allow-prune";
/// On a GitSync: what happens to its objects when it is deleted; `prune` deletes them, anything else leaves them.
pub const ON_DELETE: &str = "mainstay.dev/on-delete";
/// On a GitSync: a value that differs from `status.lastHandledRequest` asks for a sync now.
pub const REQUESTED_AT: &str = "mainstay.dev/requestedAt";
/// Finalizer of a GitSync.
pub const FINALIZER: &str = "mainstay.dev/git-sync";

/// Flux v1's annotation that leaves a document out when it is `"true"`.
pub const FLUX_IGNORE: &str = "fluxcd.io/ignore";
/// Annotation that `kubectl rollout restart` sets in pod templates.
pub const RESTARTED_AT: &str = "kubectl.kubernetes.io/restartedAt";
/// Annotation in which client-side `kubectl apply` keeps what it applied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// File that leaves paths out, in gitignore syntax.
pub const IGNORE_FILE: &str = ".mainstayignore";

/// Name of the agent's Lease, and the reporting controller of its Events.
pub const LEASE: &str = "mainstay";
/// `reportingController` of Events.
pub const REPORTER: &str = "mainstay.dev/agent";
/// Field of an inventory ConfigMap's `binaryData`.
pub const INVENTORY_KEY: &str = "inventory";
