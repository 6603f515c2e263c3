//! Mainstay keeps a Kubernetes cluster in sync with Git repositories: an agent in the cluster, and its command line.
//!
//! Users write five kinds of resources. A `GitRepository` says where a repository is and how it is opened. A `GitSync`
//! (for Flux users: a Kustomization that names its branch) says which directory of which reference is applied, pruned and
//! protected from drift. A `Function` (of Kyma Serverless) is source code, inline or in Git, that is built into an image
//! and served by a Deployment. A `Receiver` takes the webhooks of a Git host. An `APIRule`
//! (of Kyma) exposes a Service under a host.
//!
//! Every controller reconciles in four steps: observe, decide, perform, report. Deciding is a function over values (that of
//! a GitSync also reserves the objects of its plan, so that no other GitSync plans them); the other three read, write and
//! wait. The modules in reading order, from the ground up:
//!
//! - [`api`]: the custom resources, their conditions, and every well-known name
//! - [`failure`]: the class of a failure, and the backoff of retries
//! - [`cron`](mod@cron): cron expressions in a time zone become instants
//! - [`expression`]: expressions (CEL) that users write for health and dependencies become answers about JSON, at a bounded cost
//! - [`certificate`]: certificates that the agent makes: for its webhooks and for the registry in the cluster
//! - [`liveness`]: detects tasks of the agent that are stuck, for its liveness probe
//! - [`object`]: identity, content, order and health of any Kubernetes object
//! - [`cluster`]: the client for the Kubernetes API: discovery, reads, applies, watches, Events, leader election
//! - [`secrets`]: the Secrets that GitSyncs and Functions use, and ConfigMaps with values, each watched by its name
//! - [`sops`]: files that SOPS has encrypted become the values that were encrypted, in memory
//! - [`source`]: a Git remote becomes a snapshot: lookups, fetches, mirrors (bare clones on disk)
//! - [`manifest`]: the files of a commit become desired objects
//! - [`render`]: directories that are not plain manifests become documents: kustomizations and charts, by the official
//!   tools; and the syntax of variables
//! - [`notification`]: messages about what the agent did; the log, Events, metrics and the terminal are their sinks
//! - [`managed`]: the store of the objects that GitSyncs and Functions own: desired state, last apply, verdicts (what to
//!   do about a change), revert backoffs; in memory, and as an inventory in ConfigMaps
//! - [`apply`]: the one writer of managed objects: applies, adoption, reverts, prune
//! - [`propagation`]: registry and package logins of the agent's namespace are copied to the others
//! - [`prevention`]: admission policies that have the API server refuse hand edits of what a GitSync manages
//! - [`drift`]: watches managed objects and decides what must be reverted
//! - [`gitsync`]: decides what of a commit is applied and pruned, and when; the controller of GitSyncs
//! - [`runtimes`]: the language runtimes of Functions
//! - [`registry`]: image registries: image names, which registry a Function uses, credentials, client
//! - [`build`]: what runs inside a build Job: fetch the source, install dependencies, push the image
//! - [`function`]: a Function becomes its children; the controller of Functions
//! - [`listener`]: an HTTP listener whose clients cost a bounded number of connections for a bounded time
//! - [`receiver`]: webhooks of Git hosts: what was pushed to is looked up at once; the controller of Receivers
//! - [`bindings`]: ServiceBindingUsages become environment variables of Functions
//! - [`eventing`]: CloudEvents, and the Triggers and Subscriptions that they go to; a process of its own
//! - [`exposure`]: an APIRule becomes the routes by which others reach a Service; the controller of APIRules
//! - [`admission`]: admission webhooks: Functions and GitRepositories are completed and judged when they are written
//! - [`agent`]: the long-running process: wiring, leader election, health, metrics
//! - [`cli`]: the commands
//!
//! # The way of a commit
//!
//! 1. [`gitsync::run`] is the task of one GitSync: it waits for its interval, a push ([`receiver`]), a request or a change,
//!    and makes an attempt (`gitsync/attempt.rs`): it observes (`observe.rs`, 2 to 5), decides (`plan.rs`, 6), performs
//!    (`perform.rs`, 7 and 8) and reports (`report.rs`, 9 and 10).
//! 2. [`Source::lookup`](source::Source::lookup) resolves the reference, with one request for all consumers of the remote.
//! 3. [`Source::fetch`](source::Source::fetch) brings the commit into the mirror: a [`Snapshot`](source::Snapshot).
//! 4. [`manifest::decode`](fn@manifest::decode) reads changed files: desired objects, or all problems;
//!    [`Kustomize::build`](render::Kustomize::build) builds the kustomizations and [`Helm::render`](render::Helm::render)
//!    renders the charts among them that changed; what is encrypted in them is decrypted ([`manifest::decrypted()`]), and
//!    `gitsync/substitution.rs` puts the values of variables into them ([`render::substitute()`]).
//! 5. [`placement::place`](gitsync::placement::place) gives each object its kind and namespace, and checks what the GitSync
//!    may touch. [`gitsync::windows`] may hold the commit back.
//! 6. [`plan`](gitsync::plan::plan()) decides what to apply and what to prune, and reserves the objects; [`gitsync::prune`]
//!    holds the guards.
//! 7. [`managed::inventory`] is written before the first apply, with old and intended objects: a crash loses none.
//! 8. [`Writer::put_stage`](apply::Writer::put_stage) applies stage by stage, each object with
//!    [`Writer::put`](apply::Writer::put), and adopts existing objects ([`managed::take_over`]); then
//!    [`Writer::prune`](apply::Writer::prune) deletes what left the repository, each object as [`managed::deletion`] allows.
//! 9. [`status::after`](gitsync::status::after) turns the outcome into conditions, and the task writes the status.
//! 10. [`Message`](notification::Message)s go to the sinks in [`agent`]: log, Events, metrics, terminal.
//!
//! # The way of a hand edit
//!
//! 1. [`Cluster::watch`](cluster::Cluster::watch) yields the changed object to [`Drift`](drift::Drift); there is one watch
//!    per kind. The watches of Functions' children go the same way ([`Drift::see_child`](drift::Drift::see_child)).
//! 2. The store takes the object in and says what follows (`managed/events.rs`).
//! 3. [`managed::projection`] reduces it to the fields that `managedFields` says are ours, as a digest; [`managed::verdict`]
//!    compares that with the last apply: in sync, revert, recreate, or leave alone (break glass, policy).
//! 4. What must go back is a [`FollowUp`](apply::FollowUp) for [`Drift::run`](drift::Drift::run). [`managed::revert_backoff`]
//!    decides when it is due: at once, or later if another client keeps writing.
//! 5. Of what is due, the loop begins as many as the server takes, shared fairly by owners (`drift/fair.rs`, `drift/limit.rs`).
//! 6. [`Writer`](apply::Writer) locks the object, and asks the store whether it still has to be put back (`apply/revert.rs`).
//! 7. The desired object is applied again; what collides with it makes way (`apply/server_side.rs`).
//! 8. The server's answer is the new last apply, also in the inventory (`managed/writes.rs`).
//! 9. The revert is a [`Message`](notification::Message) with the fields, the values and the field manager.
//! 10. The owner's task is notified and writes the status: counts, last reverts, `Contended`.
//! 11. What no watch has shown, the audit finds (`drift/audit.rs`, `apply/audit.rs`), and hands it to the same loop.
//!
//! # Where to find
//!
//! | what | where |
//! |---|---|
//! | ref lookup, shared by all consumers of a remote | [`source::Source::lookup`] in `source/lookup.rs`; when: `source/poll.rs` |
//! | prune guards | [`gitsync::prune`]; of one object right before its deletion: [`managed::deletion`] |
//! | every write to a managed object | [`apply`]: `put.rs` and `revert.rs` (both apply through `server_side.rs`), `replace.rs`, `prune.rs`, `replicas.rs` |
//! | by whose rights objects are read and written | [`Writer::acting_for`](apply::Writer::acting_for), `gitsync/rights.rs` |
//! | objects in another cluster (`spec.kubeConfig`) | `gitsync/place.rs` (where they are), `gitsync/clusters.rs` (a writer for each Secret), `cluster/remote.rs` |
//! | what cannot be changed is deleted and created anew | `apply/replace.rs`, as [`managed::replacement`] allows |
//! | what nobody may change by hand | [`prevention`], as `gitsync/prevented.rs` wants it |
//! | adoption of existing objects | [`managed::take_over`] in `managed/ownership.rs` |
//! | field ownership projection | [`managed::projection`] |
//! | revert backoff | [`managed::revert_backoff`]; every other backoff is a [`failure::Backoff`] |
//! | who is woken by a push, and how often | [`source::Pushes`], `receiver/matching.rs` |
//! | build queue | [`function::build_queue`] |
//! | stages of a Function | [`function::stage`] |
//!
//! # To add something, touch
//!
//! | to add | files | where |
//! |---|---|---|
//! | a message | 1 | a variant of [`notification::Message`] with severity, reason and text |
//! | a notification sink | 2 | a file in `agent/notify/`, a variant and its call in `agent/notify/mod.rs` |
//! | a health rule | 1 | a row and a function in `object/health.rs` |
//! | a field of a custom resource | 3 | `api/`, the decision that reads it, `manifests/crds.yaml` (generated by `mainstay crd`) |
//! | a Git transport | 6 | a file in `source/transport/`; address, client, lookup, fetch and body each tell transports apart |
//! | a language version | 2 | a row in `runtimes/mod.rs`, the README's table |
//! | a language | 4 | a folder and a row in `runtimes/`, a planner in `build/install/` and its row, a golden case |
//! | a kind of child of a Function | 5 | a file in `function/children/`, its kind, a row in `function/stage.rs`, a stage, a golden case |
//! | a CLI command | 3 | a file in `cli/`, a variant in `cli/mod.rs`, a golden help text |
//! | a Git host that sends webhooks | 3 | a variant of [`api::ReceiverType`], its header in `receiver/signature.rs`, its payload in `receiver/payload.rs` |
//! | a renderer | 3 | a file in `render/` beside `helm.rs`, what recognises its directories in `manifest/`, its call in `gitsync/rendering.rs` |
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods))]

pub mod admission;
#[expect(clippy::disallowed_methods, reason = "it is the process: its tasks, its listener and its deadlines")]
pub mod agent;
pub mod api;
pub mod apply;
pub mod bindings;
#[expect(clippy::disallowed_methods, reason = "it works on files and with registries, in a container of its own")]
pub mod build;
pub mod certificate;
#[expect(clippy::disallowed_methods, reason = "commands have arguments, an environment and a console")]
pub mod cli;
#[expect(clippy::disallowed_methods, reason = "it speaks to the API server, with deadlines")]
pub mod cluster;
pub mod cron;
pub mod drift;
pub mod eventing;
pub mod exposure;
pub mod expression;
pub mod failure;
pub mod function;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod gitsync;
#[expect(clippy::disallowed_methods, reason = "it is on the network, with deadlines")]
pub mod listener;
#[expect(clippy::disallowed_methods, reason = "it measures the time since the last progress")]
pub mod liveness;
pub mod managed;
pub mod manifest;
pub mod notification;
pub mod object;
pub mod prevention;
pub mod propagation;
pub mod receiver;
pub mod registry;
pub mod render;
pub mod runtimes;
pub mod secrets;
pub mod sops;
pub mod source;
