//! Mainstay keeps a Kubernetes cluster in sync with Git repositories: an agent in the cluster, and its command line.
//!
//! These are the main resources that users write. A `GitRepository` has the address and credentials of a repository. A
//! `GitSync` (for Flux users: a Kustomization that specifies its branch) selects the directory of a reference that is
//! applied, pruned and protected from drift. A `Function` (of Kyma Serverless) is source code, inline or in Git, that
//! is built into an image and served by a Deployment. A `Receiver` accepts the webhooks of a Git host. An `APIRule` (of
//! Kyma) exposes a Service at a host name.
//!
//! Every controller reconciles in four steps: observe, decide, perform, report. Only the step "decide" neither reads,
//! writes nor waits: it is a function of values. (For a GitSync, this step also reserves the objects of its plan, so
//! that no other GitSync plans them.) These are the crates in reading order, from the ground up; each is a folder of
//! `src` with its own front page:
//!
//! - [`mainstay_api`]: the custom resources, their conditions, and every well-known name
//! - [`mainstay_object`]: identity, content, order and health of any Kubernetes object; failures, cron schedules,
//!   expressions (CEL)
//! - [`mainstay_cluster`]: the client for the Kubernetes API: discovery, reads, applies, watches, Events, leader
//!   election; Secrets that are watched by name; the HTTP listener, certificates and liveness of the process
//! - [`mainstay_git`]: snapshots of Git remotes: lookups, fetches, mirrors (bare clones on disk)
//! - [`mainstay_manifest`]: decodes the files of a commit into desired objects: SOPS, kustomizations, charts,
//!   variables
//! - [`mainstay_engine`]: the store of managed objects, the one writer, drift detection, prevention, propagation,
//!   messages
//! - [`mainstay_gitsync`]: decides which objects of a commit are applied and pruned, and when; the controllers of
//!   GitSyncs and Receivers
//! - [`mainstay_notification`]: selects messages for Providers, sums up storms, and formats requests
//! - [`mainstay_traces`]: sends spans of commits, reverts and builds to an OpenTelemetry collector
//! - [`mainstay_function`]: creates the children of a Function; runtimes, image registries, build Jobs, bindings,
//!   admission webhooks
//! - [`mainstay_exposure`]: creates the routes of an APIRule to its Service; the controller of APIRules
//! - [`mainstay_eventing`]: CloudEvents, and their delivery to Triggers and Subscriptions, in a separate process
//! - [`mainstay_console`]: the web page, which reads and writes with the permissions of its current user
//! - this crate: [`agent`], the long-running process (wiring, leader election, health, metrics), and [`cli`], the
//!   commands
//!
//! Two more crates are `testkit` (shared by the tests) and `devcluster` (the embedded cluster, which knows nothing of
//! Mainstay). Files are named below by their crate and without its `src` folder: `gitsync/attempt.rs` is
//! `src/gitsync/src/attempt.rs`.
//!
//! # The way of a commit
//!
//! 1. [`gitsync::run`](mainstay_gitsync::run) is the task of one GitSync. It waits for its interval, a push
//!    ([`receiver`](mainstay_gitsync::receiver)), a commit that another consumer has found, a request or a change.
//!    Then it makes an attempt (`gitsync/attempt.rs`): it observes (`observe.rs`, 2 to 5), decides (`plan.rs`, 6),
//!    performs (`perform.rs`, 7 and 8) and reports (`report.rs`, 9 and 10).
//! 2. [`Source::lookup`](mainstay_git::Source::lookup) resolves the reference, with one request for all consumers of
//!    the remote.
//! 3. [`Source::fetch`](mainstay_git::Source::fetch) fetches the commit into the mirror: a
//!    [`Snapshot`](mainstay_git::Snapshot).
//! 4. [`manifest::decode`](fn@mainstay_manifest::decode) reads changed files into desired objects, or reports all
//!    problems. [`Kustomize::build`](mainstay_manifest::render::Kustomize::build) builds changed kustomizations, and
//!    [`Helm::render`](mainstay_manifest::render::Helm::render) renders changed charts. Encrypted objects are
//!    decrypted ([`manifest::decrypted()`](mainstay_manifest::decrypted())), and `gitsync/substitution.rs`
//!    substitutes variables ([`render::substitute()`](mainstay_manifest::render::substitute())).
//! 5. [`placement::place`](mainstay_gitsync::placement::place) determines kind and namespace of each object, and
//!    checks the GitSync's permissions. [`gitsync::windows`](mainstay_gitsync::windows) may hold the commit back.
//! 6. [`plan`](mainstay_gitsync::plan::plan()) decides which objects to apply and to prune, and reserves them.
//!    [`gitsync::prune`](mainstay_gitsync::prune) has the guards.
//! 7. [`managed::inventory`](mainstay_engine::managed::inventory) is written before the first apply, with old and
//!    intended objects, so a crash loses no object.
//! 8. [`Writer::put_stage`](mainstay_engine::apply::Writer::put_stage) applies stage by stage, each object with
//!    [`Writer::put`](mainstay_engine::apply::Writer::put), and adopts existing objects
//!    ([`managed::Appliers`](mainstay_engine::managed::Appliers)). Then
//!    [`Writer::prune`](mainstay_engine::apply::Writer::prune) deletes removed objects, each one as
//!    [`managed::deletion`](mainstay_engine::managed::deletion) allows.
//! 9. [`status::after`](mainstay_gitsync::status::after) converts the outcome into conditions, and the task writes
//!    the status.
//! 10. [`Message`](mainstay_engine::notification::Message)s go to the sinks in [`agent`]: log, Events, metrics,
//!     terminal.
//!
//! # The way of a manual change
//!
//! 1. [`Cluster::watch`](mainstay_cluster::Cluster::watch) passes the changed object to
//!    [`Drift`](mainstay_engine::drift::Drift). There is one watch per kind. The watches of Functions' children do
//!    the same ([`Drift::see_child`](mainstay_engine::drift::Drift::see_child)).
//! 2. The store records the object and returns the next step (`engine/managed/events.rs`).
//! 3. [`managed::projection`](mainstay_engine::managed::projection) reduces the object to the fields that Mainstay owns
//!    according to `managedFields`, and returns their digest. [`managed::verdict`](mainstay_engine::managed::verdict)
//!    compares the digest with the last apply: in sync, revert, wait for a deletion, or leave alone. A pause of the
//!    object comes first, then the policy of its owner. If the owner is suspended, nothing is compared. An object that
//!    is gone has no verdict: the policy decides whether it is recreated.
//! 4. A revert is a [`FollowUp`](mainstay_engine::apply::FollowUp) for
//!    [`Drift::run`](mainstay_engine::drift::Drift::run).
//!    [`managed::revert_backoff`](mainstay_engine::managed::revert_backoff) decides when it is due: immediately, or
//!    later if another client keeps writing.
//! 5. The loop starts as many due reverts as the server accepts, shared fairly by owners (`engine/drift/fair.rs`,
//!    `engine/drift/limit.rs`).
//! 6. [`Writer`](mainstay_engine::apply::Writer) locks the object, and asks the store whether the revert is still
//!    needed (`engine/apply/revert.rs`).
//! 7. The desired object is applied again; conflicting fields are removed (`engine/apply/server_side.rs`).
//! 8. The server's response becomes the new last apply, also in the inventory (`engine/managed/writes.rs`).
//! 9. The revert is reported by a [`Message`](mainstay_engine::notification::Message) with the fields, the values and
//!    the field manager.
//! 10. The owner's task is notified and writes the status: counts, last reverts, `Contended`.
//! 11. The audit finds drift that no watch has shown (`engine/drift/audit.rs`, `engine/apply/audit.rs`), and passes the
//!     drift to the same loop.
//!
//! # Where to find
//!
//! | topic | location |
//! |---|---|
//! | ref lookup, shared by all consumers of a remote | [`source::Source::lookup`](mainstay_git::Source::lookup) in `git/lookup.rs`; when: `git/poll.rs` |
//! | the status of a GitRepository | [`gitsync::repository`](mainstay_gitsync::repository), from the results of lookups ([`Source::last_lookup`](mainstay_git::Source::last_lookup)) |
//! | prune guards | [`gitsync::prune`](mainstay_gitsync::prune); for one object right before its deletion: [`managed::deletion`](mainstay_engine::managed::deletion) |
//! | every write to a managed object | [`apply`](mainstay_engine::apply): `put.rs` and `revert.rs` (both apply through `server_side.rs`), `replace.rs`, `prune.rs`, `replicas.rs` |
//! | impersonation for reads and writes | [`Writer::acting_for`](mainstay_engine::apply::Writer::acting_for), `gitsync/rights.rs` |
//! | objects in a remote cluster (`spec.kubeConfig`) | `gitsync/place.rs` (the cluster), `gitsync/clusters.rs` (a writer per Secret), `cluster/remote.rs` |
//! | replacement of objects with immutable fields | `engine/apply/replace.rs`, as [`managed::replacement`](mainstay_engine::managed::replacement) allows |
//! | prevention of manual changes | [`prevention`](mainstay_engine::prevention), as requested by `gitsync/prevented.rs` |
//! | adoption of existing objects | [`managed::Appliers`](mainstay_engine::managed::Appliers) in `engine/managed/adoption.rs` |
//! | field ownership projection | [`managed::projection`](mainstay_engine::managed::projection) |
//! | revert backoff | [`managed::revert_backoff`](mainstay_engine::managed::revert_backoff); every other backoff is a [`failure::Backoff`](mainstay_object::failure::Backoff) |
//! | consumers woken by a push or by another consumer's commit, and how often | [`source::Pushes`](mainstay_git::Pushes), `gitsync/receiver/matching.rs` |
//! | build queue | [`function::build_queue`](mainstay_function::build_queue) |
//! | stages of a Function | [`function::stage`](mainstay_function::stage) |
//!
//! # To add something, touch
//!
//! | to add | files | where |
//! |---|---|---|
//! | a message | 1 | a variant of [`notification::Message`](mainstay_engine::notification::Message) with severity, reason and text |
//! | a notification sink | 2 | a file in `agent/notify/`, a variant and its call in `agent/notify/mod.rs` |
//! | a type of Provider | 2 | a variant in `notification/provider_type.rs`, its request in `notification/format/` |
//! | a health rule | 1 | a row and a function in `object/health.rs` |
//! | a field of a custom resource | 3 | `api/`, the decision that reads it, `manifests/crds.yaml` (generated by `mainstay crd`) |
//! | a Git transport | 6 | a file in `git/transport/`; address, client, lookup, fetch and body each distinguish transports |
//! | a language version | 2 | a row in `function/runtimes/mod.rs`, the table in `docs/functions/runtimes.md` |
//! | a language | 4 | a folder and a row in `function/runtimes/`, a planner in `function/build/install/` and its row, a golden case |
//! | a kind of child of a Function | 5 | a file in `function/children/`, its kind, a row in `function/stage.rs`, a stage, a golden case |
//! | a CLI command | 3 | a file in `cli/`, a variant in `cli/mod.rs`, a golden help text |
//! | a Git host that sends webhooks | 3 | a variant of [`api::ReceiverType`](mainstay_api::ReceiverType), its header in `gitsync/receiver/signature.rs`, its payload in `gitsync/receiver/payload.rs` |
//! | a renderer | 3 | a file in `manifest/render/` beside `helm.rs`, the detection of its directories in `manifest/`, its call in `gitsync/rendering.rs` |
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

#[expect(clippy::disallowed_methods, reason = "it is the process: its tasks, its listener and its deadlines")]
pub mod agent;
#[expect(clippy::disallowed_methods, reason = "commands have arguments, an environment and a console")]
pub mod cli;
mod components;

pub use components::{Component, Components};
