//! The observed state of child objects: a few fields, read from each whole object.
//!
//! Invariant: the size of the state does not depend on the size of the object. Long strings are cut.
//!
//! Not here: the desired state; see `drift`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::children::job::{DESTINATION, EXECUTOR, FETCH, PUSH};
use super::quantity::Quantity;
use super::secret_digests;
use mainstay_api::build::{BuildReport, MAX_MESSAGE, Termination, parse_termination};
use mainstay_api::conditions::cut;
use mainstay_api::function_failure::CRASH_LOOP;
use mainstay_api::names::{
    BUILD_ATTEMPT, BUILD_CAUSE, BUILD_SUSPENDED_FOR, BUILD_SUSPENDED_UNTIL, BUILD_SUSPENSIONS, BUILD_TAG, DISABLED,
    FUNCTION_UID, MANAGER, RECONCILE,
};
use mainstay_engine::managed::{AppliedConfiguration, fields};
use mainstay_object::is_unprintable;

/// Maximum size in bytes of a string from a pod or a condition.
const MAX_TEXT: usize = 1024;
/// Label on the pods of a Knative Revision.
const REVISION_LABEL: &str = "serving.knative.dev/revision";
/// API group of Functions.
const GROUP: &str = "serverless.kyma-project.io";
/// Maximum attempt number of a Job. The bound prevents an overflow.
const MAX_ATTEMPTS: i64 = 1_000_000;

/// The fields that all children have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildIdentity {
    /// Name.
    pub name: String,
    /// UID.
    pub uid: String,
    /// Resource version.
    pub version: String,
    /// Whether the child is being deleted.
    pub terminating: bool,
    /// Whether the child may be deleted: it is not paused.
    pub may_go: bool,
    /// The state that an earlier agent applied, if known.
    pub last_applied: Option<AppliedConfiguration>,
}

/// The progress of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The Job has not ended.
    Running,
    /// The Job succeeded.
    Complete,
    /// The Job failed.
    Failed {
        /// Reason of the Job's condition.
        reason: String,
        /// Message of the Job's condition.
        message: String,
    },
}

/// A build Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Name, UID and resource version.
    pub identity: ChildIdentity,
    /// Tag of the Job's image.
    pub tag: String,
    /// The Job's image at the push address.
    pub image: String,
    /// The number of this attempt to build the tag.
    pub attempt: i64,
    /// The reasons for the creation of the Job, as `SOURCE, RETRY`.
    pub causes: String,
    /// The Job's progress.
    pub progress: Progress,
    /// When the Job was created or resumed.
    pub created: Option<Timestamp>,
    /// Why the Job is suspended; `None` if it is not suspended.
    pub suspension: Option<Suspension>,
    /// How often the Job was suspended.
    pub suspensions: u32,
    /// The Job's namespace.
    pub namespace: Arc<str>,
    /// Requests and limits of CPU and memory of the Job's containers, if they are set.
    pub resources: Option<Sizes>,
    /// The image of Kaniko's executor, if Kaniko builds.
    pub executor: Option<String>,
}

/// A suspended Job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suspension {
    /// When the Job is resumed; `None` if another client suspended it.
    pub until: Option<Timestamp>,
    /// Why the Job's pod could not start.
    pub why: String,
}

/// Requests and limits of CPU and memory.
pub(crate) type Sizes = [Option<Quantity>; 4];

/// The requests and limits in the resources of a container.
pub(super) fn sizes(resources: &Value) -> Sizes {
    ["/requests/cpu", "/requests/memory", "/limits/cpu", "/limits/memory"].map(|path| {
        // The API server normalises quantities, so the string may differ from the applied one.
        resources.pointer(path).and_then(Value::as_str).and_then(Quantity::parse)
    })
}

/// A Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployment {
    /// Name, UID and resource version.
    pub identity: ChildIdentity,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed: i64,
    /// Image of the first container.
    pub image: String,
    /// `spec.replicas`.
    pub replicas: i64,
    /// `status.replicas`.
    pub pods: i64,
    /// Whether the agent is the only owner of `spec.replicas`. In this case the field would be reset to 1 if the agent
    /// stopped applying it.
    pub owns_replicas_alone: bool,
    /// The record of the digests of its Secrets.
    pub secrets: String,
    /// The Deployment's conditions: type, status, reason, message.
    pub conditions: Vec<Condition>,
}

impl Deployment {
    /// Returns the name of the ReplicaSet with the current template; `None` until the status has observed it. The
    /// Deployment controller quotes only this name in its `Progressing` condition.
    pub(crate) fn version(&self) -> Option<&str> {
        let progressing = self.conditions.iter().find(|condition| condition.kind == "Progressing")?;
        let (_, rest) = progressing.message.split_once('"').filter(|_| self.observed >= self.generation)?;
        rest.split_once('"').map(|(name, _)| name)
    }

    /// Whether the Deployment has the minimum number of available pods, of any version.
    pub(crate) fn is_available(&self) -> bool {
        self.conditions.iter().any(|condition| {
            condition.kind == "Available"
                && condition.status == "True"
                && condition.reason == "MinimumReplicasAvailable"
        })
    }
}

/// One condition of a Deployment or a Knative Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// `type`.
    pub kind: String,
    /// `status`.
    pub status: String,
    /// `reason`.
    pub reason: String,
    /// `message`.
    pub message: String,
    /// `lastUpdateTime`.
    pub updated: String,
    /// `lastTransitionTime`.
    pub moved: String,
}

/// The role of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The pod belongs to the build Job with this UID.
    Build(String),
    /// The pod serves requests of a Function.
    Serving,
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Name, UID and resource version.
    pub identity: ChildIdentity,
    /// The pod's role.
    pub role: Role,
    /// The version that the pod serves: the name of its ReplicaSet or Knative Revision. Empty for a build.
    pub version: String,
    /// Whether the pod has ended: its phase is `Succeeded` or `Failed`.
    pub over: bool,
    /// Why the pod cannot run, as a reason and a message.
    pub problem: Option<(String, String)>,
    /// How the pod ended: the first failed container, or the successful push.
    pub end: Option<End>,
}

impl Pod {
    /// Returns the build's report once the last container has ended. The pod itself ends some seconds later.
    pub(crate) fn report(&self) -> Option<&BuildReport> {
        match self.end.as_ref()? {
            End { code: 0, termination: Termination::Built(report), .. } => Some(report),
            _ => None,
        }
    }

    /// Whether no node has room for the pod.
    pub(crate) fn is_unschedulable(&self) -> bool {
        self.problem.as_ref().is_some_and(|(reason, _)| reason == "Unschedulable")
    }

    /// Whether the pod belongs to the build Job with this UID.
    pub fn is_of(&self, job: &str) -> bool {
        matches!(&self.role, Role::Build(uid) if uid == job)
    }
}

/// The end of a build's pod.
#[derive(Clone, Debug, PartialEq)]
pub struct End {
    /// The container.
    pub container: String,
    /// The container's exit code.
    pub code: i64,
    /// `OOMKilled`, `Error`, …
    pub reason: String,
    /// The container's termination message.
    pub termination: Termination,
}

// A report contains a float, which is never NaN because it was read from JSON.
impl Eq for End {}

/// Returns the UID of the Function that controls an object.
pub(crate) fn function_of(live: &Value) -> Option<&str> {
    controlled_by(live, GROUP, "Function")
}

/// Returns the UID of the controller of an object if the controller has this group and kind. Compares the group as
/// well, like the garbage collector.
fn controlled_by<'v>(live: &'v Value, group: &str, kind: &str) -> Option<&'v str> {
    let owners = live.pointer("/metadata/ownerReferences")?.as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true && owner["kind"] == kind)?;
    let version = owner["apiVersion"].as_str()?;
    version.split_once('/').filter(|(of, _)| *of == group)?;
    owner["uid"].as_str()
}

/// Reads the fields that all children have.
pub(crate) fn identity(live: &Value) -> ChildIdentity {
    ChildIdentity {
        name: text(live, "/metadata/name").to_owned(),
        uid: text(live, "/metadata/uid").to_owned(),
        version: text(live, "/metadata/resourceVersion").to_owned(),
        terminating: live.pointer("/metadata/deletionTimestamp").is_some_and(|v| !v.is_null()),
        may_go: annotation(live, RECONCILE) != DISABLED,
        last_applied: None,
    }
}

/// Reads the state of a Job.
pub(crate) fn job(live: &Value) -> Job {
    let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
    let end = conditions
        .into_iter()
        .flatten()
        .find(|c| c["status"] == "True" && matches!(c["type"].as_str(), Some("Complete" | "Failed")));
    let progress = match end {
        Some(end) if end["type"] == "Complete" => Progress::Complete,
        Some(end) => Progress::Failed {
            reason: short(end["reason"].as_str().unwrap_or_default()),
            message: short(end["message"].as_str().unwrap_or_default()),
        },
        None => Progress::Running,
    };
    Job {
        identity: identity(live),
        tag: annotation(live, BUILD_TAG).to_owned(),
        image: image(live).to_owned(),
        causes: short(&annotation(live, BUILD_CAUSE).replace(',', ", ")),
        attempt: annotation(live, BUILD_ATTEMPT).parse().unwrap_or(1).clamp(1, MAX_ATTEMPTS),
        progress,
        // A resumed Job gets a new start time.
        created: ["/status/startTime", "/metadata/creationTimestamp"]
            .into_iter()
            .filter_map(|path| text(live, path).parse().ok())
            .max(),
        suspension: (live.pointer("/spec/suspend") == Some(&Value::Bool(true))).then(|| Suspension {
            until: annotation(live, BUILD_SUSPENDED_UNTIL).parse().ok(),
            why: short(annotation(live, BUILD_SUSPENDED_FOR)),
        }),
        suspensions: annotation(live, BUILD_SUSPENSIONS).parse().unwrap_or(0),
        namespace: text(live, "/metadata/namespace").into(),
        resources: push(live).and_then(|push| push.get("resources")).map(sizes),
        executor: push(live).filter(|push| push["name"] == EXECUTOR).map(|push| short(text(push, "/image"))),
    }
}

/// Returns the container that pushes the image.
fn push(live: &Value) -> Option<&Value> {
    let containers = live.pointer("/spec/template/spec/containers").and_then(Value::as_array);
    containers.into_iter().flatten().find(|container| container["name"] == PUSH || container["name"] == EXECUTOR)
}

/// Returns the image from the arguments of the container that pushes.
fn image(live: &Value) -> &str {
    let Some(push) = push(live) else { return "" };
    let before = if push["name"] == EXECUTOR { DESTINATION } else { "--image=" };
    let args = push["args"].as_array().into_iter().flatten();
    args.filter_map(Value::as_str).find_map(|arg| arg.strip_prefix(before)).unwrap_or_default()
}

/// Reads the state of a Deployment.
pub(crate) fn deployment(live: &Value) -> Deployment {
    let number = |path: &str| live.pointer(path).and_then(Value::as_i64);
    let replicas = ["f:spec", "f:replicas"];
    let ours = fields::applied_by(live, MANAGER).is_some_and(|f| fields::owns(f, &replicas));
    let shared = fields::entries(live).any(|entry| entry.manager != MANAGER && fields::owns(entry.fields, &replicas));
    let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
    Deployment {
        identity: identity(live),
        generation: number("/metadata/generation").unwrap_or(0),
        observed: number("/status/observedGeneration").unwrap_or(0),
        image: text(live, "/spec/template/spec/containers/0/image").to_owned(),
        replicas: number("/spec/replicas").unwrap_or(1),
        pods: number("/status/replicas").unwrap_or(0),
        owns_replicas_alone: ours && !shared,
        secrets: secret_digests::recorded(live),
        conditions: conditions.into_iter().flatten().take(8).map(condition).collect(),
    }
}

/// Reads one condition, with its strings cut.
pub(super) fn condition(live: &Value) -> Condition {
    let text = |field: &str| short(live[field].as_str().unwrap_or_default());
    Condition {
        kind: text("type"),
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        updated: text("lastUpdateTime"),
        moved: text("lastTransitionTime"),
    }
}

/// Reads the state of a pod.
pub(crate) fn pod(live: &Value) -> Pod {
    let role = controlled_by(live, "batch", "Job").map_or(Role::Serving, |uid| Role::Build(uid.to_owned()));
    let end = matches!(role, Role::Build(_)).then(|| end(live)).flatten();
    let over = matches!(text(live, "/status/phase"), "Succeeded" | "Failed");
    let problem = match &role {
        Role::Serving if !over => cannot_start(live).or_else(|| problem(live)),
        _ if !over => problem(live),
        Role::Build(_) => stopped(live),
        // A serving pod that was stopped is replaced; the old pod remains only as a record.
        Role::Serving => None,
    };
    let version = match &role {
        Role::Serving => serving_version(live).unwrap_or_default().to_owned(),
        Role::Build(_) => String::new(),
    };
    Pod { identity: identity(live), version, problem, end, role, over }
}

/// Returns the version that a pod serves. A Revision's pods have a ReplicaSet too, but only the Revision is known here.
fn serving_version(live: &Value) -> Option<&str> {
    let revision = live.pointer("/metadata/labels").and_then(|labels| labels.get(REVISION_LABEL)?.as_str());
    let owners = live.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten();
    let mut sets = owners.filter(|owner| owner["controller"] == true && owner["kind"] == "ReplicaSet");
    revision.or_else(|| sets.next()?["name"].as_str())
}

/// Returns why the cluster stopped a pod: eviction, refused admission by the node, or loss of the node.
fn stopped(live: &Value) -> Option<(String, String)> {
    let reason = text(live, "/status/reason");
    (!reason.is_empty()).then(|| (short(reason), short(text(live, "/status/message")).trim().to_owned()))
}

/// Returns the Function's UID from a pod's labels. A pod's controller is a Job or a ReplicaSet, not the Function.
pub(crate) fn function_of_pod(live: &Value) -> Option<&str> {
    live.pointer("/metadata/labels")?.get(FUNCTION_UID)?.as_str()
}

fn statuses(live: &Value) -> impl Iterator<Item = &Value> {
    ["/status/initContainerStatuses", "/status/containerStatuses"]
        .into_iter()
        .filter_map(|path| live.pointer(path).and_then(Value::as_array))
        .flatten()
}

/// Returns the end of the first failed container, else that of the successful push.
fn end(live: &Value) -> Option<End> {
    let ended = |status: &Value| {
        let terminated = status.pointer("/state/terminated")?;
        let message = terminated["message"].as_str().unwrap_or_default();
        Some(End {
            container: status["name"].as_str().unwrap_or_default().to_owned(),
            code: terminated["exitCode"].as_i64().unwrap_or(0),
            reason: short(terminated["reason"].as_str().unwrap_or_default()),
            termination: match parse_termination(message) {
                _ if status["name"] == EXECUTOR && terminated["exitCode"] == 0 => built(live, terminated),
                // User packages run in this container and can write anything into its termination message.
                _ if status["name"] != FETCH && status["name"] != PUSH => {
                    Termination::Other(last(message, MAX_MESSAGE).to_owned())
                }
                Termination::Other(log) => Termination::Other(last(&log, MAX_MESSAGE).to_owned()),
                termination => termination,
            },
        })
    };
    let ends = statuses(live).filter_map(ended).collect::<Vec<_>>();
    let failed = ends.iter().find(|end| end.code != 0);
    failed.or_else(|| ends.iter().find(|end| end.container == PUSH || end.container == EXECUTOR)).cloned()
}

/// Builds the report for Kaniko's executor, whose termination message is the digest. The caller validates the digest.
fn built(live: &Value, terminated: &Value) -> Termination {
    let time = |ended: &Value, field: &str| ended[field].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let began = statuses(live).next().and_then(|first| time(first.pointer("/state/terminated")?, "startedAt"));
    let took = time(terminated, "finishedAt").zip(began).map(|(end, begin)| end.duration_since(begin).as_secs_f64());
    Termination::Built(BuildReport {
        digest: cut(terminated["message"].as_str().unwrap_or_default().trim(), MAX_TEXT).to_owned(),
        reused: false,
        dependencies: String::new(),
        base: String::new(),
        seconds: took.unwrap_or_default(),
    })
}

/// The kubelet's reason while it waits before another pull.
pub(super) const IMAGE_PULL_BACK_OFF: &str = "ImagePullBackOff";
/// The kubelet's reason after a failed pull.
const ERROR: &str = "ErrImagePull";

/// Returns the message of a failed pull without the back-off prefix, so that it is the same for both reasons.
fn image_problem(message: &str) -> &str {
    let waits = message.strip_prefix("Back-off pulling image ");
    // The kubelet repeats the cause after the image name.
    waits.and_then(|rest| rest.split_once(": ErrImagePull: ")).map_or(message, |(_, cause)| cause)
}

/// Returns why the code cannot be loaded. The runtime server writes the cause into its termination message. The message
/// is the same after every restart, so the status does not change while the kubelet retries.
fn cannot_start(live: &Value) -> Option<(String, String)> {
    statuses(live).filter(|status| status["ready"] != true).find_map(|status| {
        let ended = ["/state/terminated", "/lastState/terminated"].into_iter().find_map(|path| status.pointer(path))?;
        let message = short(ended["message"].as_str()?.trim());
        let container = status["name"].as_str().unwrap_or_default();
        let text = format!("container {container}: {message}; it ended with exit code {}", ended["exitCode"]);
        (!message.is_empty()).then(|| (CRASH_LOOP.to_owned(), text))
    })
}

/// Returns why a pod cannot run.
fn problem(live: &Value) -> Option<(String, String)> {
    for status in statuses(live) {
        if let Some(waiting) = status.pointer("/state/waiting") {
            let reason = waiting["reason"].as_str().unwrap_or_default();
            if !matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
                let container = status["name"].as_str().unwrap_or_default();
                let message = waiting["message"].as_str().unwrap_or_default();
                let is_image = matches!(reason, IMAGE_PULL_BACK_OFF | ERROR);
                let (reason, message) =
                    if is_image { (IMAGE_PULL_BACK_OFF, image_problem(message)) } else { (reason, message) };
                let why = short(message);
                let last = status.pointer("/lastState/terminated").map(|last| {
                    let reason = last["reason"].as_str().unwrap_or_default();
                    format!("; it ended with exit code {} ({reason})", last["exitCode"])
                });
                let text = format!("container {container}: {why}{}", last.unwrap_or_default());
                return Some((short(reason), text));
            }
        }
    }
    let conditions = live.pointer("/status/conditions").and_then(Value::as_array);
    let scheduled = conditions.into_iter().flatten().find(|c| c["type"] == "PodScheduled" && c["status"] == "False")?;
    let text = |field: &str| short(scheduled[field].as_str().unwrap_or_default());
    Some((text("reason"), text("message")))
}

fn annotation<'v>(live: &'v Value, name: &str) -> &'v str {
    let read = |field: &str| live.get("metadata")?.get(field)?.get(name)?.as_str();
    read("annotations").or_else(|| read("labels")).unwrap_or_default()
}

fn text<'v>(live: &'v Value, path: &str) -> &'v str {
    live.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns a string as one line, cut to `MAX_TEXT` bytes.
pub(super) fn short(text: &str) -> String {
    cut(text, MAX_TEXT).chars().map(|c| if is_unprintable(c) { ' ' } else { c }).collect()
}

/// Returns the longest suffix of `text` with at most `most` bytes.
fn last(text: &str, most: usize) -> &str {
    let mut start = text.len().saturating_sub(most);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}
