//! The condition types and reasons of GitSyncs, Receivers, Providers, Alerts and APIRules, as `kubectl wait` and kstatus tools interpret
//! them.

use super::reasons::reasons;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// Condition types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// The commit is applied and, with `wait`, healthy.
    Ready,
    /// A sync is running or being retried.
    Reconciling,
    /// Only the user can correct the problem.
    Stalled,
    /// All managed objects are healthy.
    Healthy,
    /// Another client keeps writing to fields of managed objects.
    Contended,
    /// Objects drifted from the repository and were not reverted.
    Drifted,
    /// A new commit waits for a window.
    Frozen,
    /// Manual changes of managed objects are rejected.
    Prevented,
    /// Applies, prunes and reverts are stopped.
    Suspended,
    /// The references of a GitRepository were looked up, and HEAD is known.
    Resolved,
    /// The server of a GitRepository accepts the credentials.
    Authenticated,
    /// The host key of a GitRepository was pinned at first use.
    HostKeyPinned,
    /// A trusted key has signed the last artifact of an OCIRepository or a HelmChart.
    SourceVerified,
    /// The host of an APIRule is reachable.
    Exposed,
}

impl Type {
    /// Returns the value of `conditions[].type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::Healthy => "Healthy",
            Self::Contended => "Contended",
            Self::Drifted => "Drifted",
            Self::Frozen => "Frozen",
            Self::Prevented => "Prevented",
            Self::Suspended => "Suspended",
            Self::Resolved => "Resolved",
            Self::Authenticated => "Authenticated",
            Self::HostKeyPinned => "HostKeyPinned",
            Self::SourceVerified => "SourceVerified",
            Self::Exposed => "Exposed",
        }
    }
}

reasons! {
    /// Condition reasons.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Reason {
        Applied: "Everything of the commit is applied.", "";
        NoManifests: "The commit is applied and has no manifest below `baseDir`.", "Check `spec.baseDir` and `.mainstayignore`: `mainstay manifests DIR` lists each file with the reason.";
        Progressing: "An attempt is running: Reconciling names its step. Or the commit is applied, and some objects are not healthy yet.", "Wait. `mainstay tree NAME` shows the health of each object.";
        Healthy: "All objects are healthy.", "";
        HealthTimeout: "Some objects are not healthy within `spec.timeout`.", "Look at the object in the message: `mainstay tree NAME`, then `kubectl describe`. Raise `spec.timeout` if the object needs longer.";
        EventsNotDelivered: "A Trigger or a Subscription cannot deliver events within `spec.timeout`.", "Look at the object in the message with `kubectl describe`. Correct its Broker, its Service or its sink; without any status, install the component `eventing`, or the eventing of Knative or Kyma.";
        ObjectFailed: "An object reports a failure.", "Look at the object in the message with `kubectl describe`, and correct its manifest.";
        ObjectMissing: "An object does not exist, and `spec.drift` or a pause keeps the agent from creating it.", "Set `spec.drift: Revert`, end the pause, or wait for the next attempt that `mainstay diff` shows.";
        Suspended: "`spec.suspend` or `spec.suspendUntil` stops applies, prunes and reverts.", "Run `mainstay resume NAME`.";
        NotSuspended: "The GitSync is not suspended.", "";
        DependencyNotReady: "A GitSync in `spec.dependsOn` is not ready.", "Look at the GitSync in the message: `mainstay status`.";
        DependencyCycle: "GitSyncs depend on each other in a ring.", "Remove one entry of `spec.dependsOn` from the ring in the message.";
        SpecInvalid: "A field of the spec is invalid, or names a ConfigMap or a ServiceAccount that does not exist.", "Correct the field in the message, or create the object.";
        SecretNotFound: "A Secret that the GitSync or its GitRepository names does not exist.", "Create the Secret in the same namespace. The agent sees it immediately.";
        SourceNotFound: "The GitRepository in `spec.gitRepository` does not exist, or a source in `spec.repositories` or `spec.resources` of a Receiver, which then stays Ready.", "Create the source in the same namespace, or correct the name.";
        GitAuthorizationFailed: "The Git server refuses the credentials.", "Check the keys of the Secret and the permissions of the account: `mainstay check --repository NAME`.";
        Resolved: "The agent knows the commit of HEAD.", "";
        Authenticated: "The Git server accepts the credentials.", "";
        SourceUnavailable: "The Git server cannot be reached, or its response cannot be read.", "Check the address, the network policy and the proxy. The agent retries; what was applied stays enforced.";
        SourceInvalid: "The reference or `baseDir` does not exist in the repository.", "Correct `spec.reference` or `spec.baseDir`, or push the missing branch, tag or directory.";
        VerificationFailed: "The commit, the artifact or the chart is not signed by a trusted key or identity. The last one stays in use.", "Sign it, or add the signer to `spec.verify`: the key to its Secret, or the identity to `matchOIDCIdentity`.";
        Verified: "A trusted key or identity has signed the artifact or the chart.", "";
        NotVerified: "No artifact or chart was verified yet by the spec and the Secret of its signers. The last one stays in use.", "Wait for the next lookup. The condition Ready shows why one fails.";
        ManifestInvalid: "The commit holds a document that cannot be applied. The previous commit stays enforced.", "Correct the file and the line in the message, and commit.";
        MemoryExhausted: "The agent has no memory left for this namespace.", "Raise the memory limit of the agent (`mainstay install --resources mainstay.limits.memory=320Mi`), or split the directory.";
        ApplyFailed: "The API server refuses some objects. The others are applied.", "Correct the field in the message. `kubectl apply --dry-run=server -f FILE` shows the full response of the server.";
        RevertFailed: "Some changed objects cannot be reverted.", "Look at the error in the message. `mainstay diff` shows the fields.";
        Immutable: "Some objects differ in a field that the API server does not let change.", "Delete the object, or allow its replacement: annotation `mainstay.dev/replace: enabled`, or `spec.replace`.";
        OwnershipConflict: "Some objects belong to another GitSync, or to another tool that still manages them.", "Remove the object from one of the two, or run the commands in the message.";
        PruneFailed: "Some removed objects cannot be deleted.", "Look at the error in the message.";
        PruneHeld: "A guard keeps removed objects from deletion.", "Run the command in the message to allow the deletion for this commit.";
        Deleting: "The GitSync is being deleted with its objects.", "Wait. `mainstay status NAME` shows objects whose deletion waits for a finalizer.";
        WatchFailed: "The API server does not let the agent watch a kind. Drift of that kind is not seen immediately.", "Grant the agent `list` and `watch` on the kind in the message.";
        ClusterUnavailable: "The API server cannot be reached.", "Check the cluster, and for a remote cluster its kubeconfig Secret. The agent retries.";
        Contended: "Another client keeps changing the same fields. Reverts of these objects slow down.", "Stop that client, or leave the fields to it: `mainstay ignore-for KIND NAME`.";
        NotContended: "No other client keeps changing fields that the branch sets.", "";
        Drifted: "Some objects differ from the repository.", "Run `mainstay diff` to see the fields, and the reason for which they are not reverted.";
        NotDrifted: "No object is known to differ from the repository.", "";
        DriftIgnored: "`spec.drift` is `Ignore`, so the agent does not look for drift.", "Set `spec.drift` to `Revert` or `Report`.";
        WindowClosed: "A window delays a new commit.", "Wait for the time in the message, or run `mainstay sync NAME --override-window`.";
        WindowOpen: "No commit waits for a window. A window may be closed nevertheless.", "";
        Prevented: "The API server refuses hand edits.", "";
        NotSupported: "The API server cannot refuse hand edits.", "Upgrade to Kubernetes 1.30 or later, or remove `spec.prevent`.";
        NameConflict: "The name of an object that the agent creates is already in use.", "Rename or delete the object in the message.";
        Receiving: "The agent accepts deliveries for the Receiver.", "";
        TokenNotFound: "The Secret of the Receiver, or its key `token`, is missing.", "Create the Secret: `kubectl create secret generic NAME --from-literal=token=$(openssl rand -hex 20)`.";
        TokenInvalid: "The token of the Receiver has fewer than 16 bytes or other faults.", "Store a longer token, and change it at the Git host, too.";
        Sending: "The Provider or the Alert is valid, and the last message was delivered.", "";
        ProviderNotFound: "The Provider of the Alert does not exist.", "Create the Provider in the same namespace, or correct `spec.providerRef`.";
        TypeNotSupported: "The agent cannot send to this type of Provider.", "Choose a type of the table in the documentation, such as `generic`.";
        NotDelivered: "The service of the Provider cannot be reached, or refuses a message.", "Look at the message. The agent tries again for an hour.";
        ArtifactStored: "The agent has the artifact or the chart.", "";
        ArtifactFailed: "The artifact cannot be found, read or unpacked. The last one stays in use.", "Look at the message: correct the version, the login or the archive, or wait for the registry.";
        TagsListed: "The agent knows the tags of the image repository.", "";
        TagChosen: "The ImagePolicy has chosen a tag.", "";
        ImageFailed: "The tags or the digest cannot be read, or no tag fits. The last tags and the last choice stay in use.", "Look at the message: correct the image, the login, the filter or the range, or wait for the registry.";
        ImagesUpdated: "The branch has the images that the ImagePolicies have chosen.", "";
        PushDisabled: "The ImageUpdateAutomation names no Secret with write access, so nothing is pushed.", "Create a Secret with credentials that may push, and name it in `spec.git.push.secretRef`.";
        UpdateFailed: "The branch cannot be read, a marker is faulty, or the push was refused. Nothing was pushed.", "Look at the message: correct the file and the line, the credentials or the branch's protection.";
        NotServed: "The agent does not listen for deliveries.", "Start the agent with `--receive`.";
        PinnedAtFirstUse: "The agent pinned the first host key that the server presented.", "Compare the fingerprint with the one that the operator of the host publishes.";
        Served: "The routes of the APIRule exist and are accepted.", "";
        Invalid: "The APIRule is invalid. The last valid version stays served.", "Correct the field in the message.";
        HostOccupied: "Another APIRule has the host.", "Choose another host, or delete the APIRule in the message.";
        ServiceNotFound: "The Service of the APIRule does not exist.", "Create the Service, or correct `spec.service.name`.";
        ServiceNotAllowed: "The Service of the APIRule may route outside its namespace, by its type or its endpoints.", "Use a Service of type ClusterIP, NodePort or LoadBalancer with a selector, and delete EndpointSlices that a user wrote. The operator can permit these with `--allow-written-endpoints`.";
        NoRouteApi: "The cluster has neither Istio nor the Gateway API.", "Install one of them.";
        AuthNotSupported: "The cluster cannot make a check that the APIRule asks for. The path is not routed.", "Install what the message names, or change the access strategy.";
        NotAccepted: "The gateway does not accept a route.", "Look at the status of the HTTPRoute in the message.";
        ManagedElsewhere: "Another controller serves the APIRule.", "Remove that controller, or change the APIRule to have Mainstay serve it.";
        InternalError: "The agent met a defect of its own, and tries again.", "Report it with the line of code in the log: `mainstay logs`.";
    }
}

/// Sets a condition. Its `lastTransitionTime` changes only with the status. `message` is cut at 32 KiB, the API's
/// limit.
pub fn set(
    conditions: &mut Vec<Condition>,
    kind: Type,
    status: &str,
    reason: Reason,
    message: &str,
    generation: Option<i64>,
    now: jiff::Timestamp,
) {
    let old = conditions.iter().position(|c| c.type_ == kind.as_str());
    let new = Condition {
        type_: kind.as_str().to_owned(),
        status: status.to_owned(),
        reason: reason.as_str(),
        message: message.to_owned(),
        observed_generation: generation,
        last_transition_time: Time(now),
    };
    let condition = following(old.map(|at| &conditions[at]), new);
    match old {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

/// Returns `new` as the successor of `old`. The `lastTransitionTime` changes only with the status, and the message is
/// cut at 32 KiB, the API's limit.
pub(super) fn following(old: Option<&Condition>, new: Condition) -> Condition {
    let same = old.filter(|old| old.status == new.status);
    Condition {
        message: cut(&new.message, 32 * 1024 - 1).to_owned(),
        last_transition_time: same.map_or(new.last_transition_time, |old| old.last_transition_time.clone()),
        ..new
    }
}

/// Returns the longest prefix of `text` with at most `most` bytes that ends at a character boundary.
pub fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Returns the condition of a type, if it exists.
pub fn status(conditions: &[Condition], kind: Type) -> Option<&Condition> {
    conditions.iter().find(|c| c.type_ == kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_the_transition_time_only_with_the_status() {
        let mut all = vec![];
        let at = |s: i64| jiff::Timestamp::from_second(s).unwrap();
        set(&mut all, Type::Ready, "True", Reason::Applied, "a", Some(1), at(1));
        set(&mut all, Type::Ready, "True", Reason::Applied, "b", Some(2), at(2));
        assert_eq!((all[0].last_transition_time.0, all[0].message.as_str()), (at(1), "b"));
        set(&mut all, Type::Ready, "False", Reason::ApplyFailed, "c", Some(2), at(3));
        assert_eq!((all.len(), all[0].last_transition_time.0), (1, at(3)));
    }
}
