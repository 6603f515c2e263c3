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
//! wait. The crates in reading order, from the ground up; each is a folder of `src` with a front page of its own:
//!
//! - [`mainstay_api`]: the custom resources, their conditions, and every well-known name
//! - [`mainstay_object`]: identity, content, order and health of any Kubernetes object; failures, cron schedules, expressions (CEL)
//! - [`mainstay_cluster`]: the client for the Kubernetes API: discovery, reads, applies, watches, Events, leader election; Secrets
//!   that are watched by name; the HTTP listener, certificates and liveness of the process
//! - [`mainstay_git`]: a Git remote becomes a snapshot: lookups, fetches, mirrors (bare clones on disk)
//! - [`mainstay_manifest`]: the files of a commit become desired objects: decoding, SOPS, kustomizations, charts, variables
//! - [`mainstay_engine`]: the store of managed objects, the one writer, drift detection, prevention, propagation, messages
//! - [`mainstay_gitsync`]: decides what of a commit is applied and pruned, and when; the controllers of GitSyncs and Receivers
//! - [`mainstay_function`]: a Function becomes its children; runtimes, image registries, build Jobs, bindings, admission webhooks
//! - [`mainstay_exposure`]: an APIRule becomes the routes by which others reach a Service; the controller of APIRules
//! - [`mainstay_eventing`]: CloudEvents, and the Triggers and Subscriptions that they go to; a process of its own
//! - this crate: [`agent`], the long-running process (wiring, leader election, health, metrics), and [`cli`], the commands
//!
//! Beside them stand `testkit` (what the tests share) and `devcluster` (the embedded cluster, which knows nothing of Mainstay).
//! Files are named below by their crate and without its `src` folder: `gitsync/attempt.rs` is `src/gitsync/src/attempt.rs`.
//!
//! # The way of a commit
//!
//! 1. [`gitsync::run`](mainstay_gitsync::run) is the task of one GitSync: it waits for its interval, a push ([`receiver`](mainstay_gitsync::receiver)), a commit that another one has found, a request or a change,
//!    and makes an attempt (`gitsync/attempt.rs`): it observes (`observe.rs`, 2 to 5), decides (`plan.rs`, 6), performs
//!    (`perform.rs`, 7 and 8) and reports (`report.rs`, 9 and 10).
//! 2. [`Source::lookup`](mainstay_git::Source::lookup) resolves the reference, with one request for all consumers of the remote.
//! 3. [`Source::fetch`](mainstay_git::Source::fetch) brings the commit into the mirror: a [`Snapshot`](mainstay_git::Snapshot).
//! 4. [`manifest::decode`](fn@mainstay_manifest::decode) reads changed files: desired objects, or all problems;
//!    [`Kustomize::build`](mainstay_manifest::render::Kustomize::build) builds the kustomizations and [`Helm::render`](mainstay_manifest::render::Helm::render)
//!    renders the charts among them that changed; what is encrypted in them is decrypted ([`manifest::decrypted()`](mainstay_manifest::decrypted())), and
//!    `gitsync/substitution.rs` puts the values of variables into them ([`render::substitute()`](mainstay_manifest::render::substitute())).
//! 5. [`placement::place`](mainstay_gitsync::placement::place) gives each object its kind and namespace, and checks what the GitSync
//!    may touch. [`gitsync::windows`](mainstay_gitsync::windows) may hold the commit back.
//! 6. [`plan`](mainstay_gitsync::plan::plan()) decides what to apply and what to prune, and reserves the objects; [`gitsync::prune`](mainstay_gitsync::prune)
//!    holds the guards.
//! 7. [`managed::inventory`](mainstay_engine::managed::inventory) is written before the first apply, with old and intended objects: a crash loses none.
//! 8. [`Writer::put_stage`](mainstay_engine::apply::Writer::put_stage) applies stage by stage, each object with
//!    [`Writer::put`](mainstay_engine::apply::Writer::put), and adopts existing objects ([`managed::Appliers`](mainstay_engine::managed::Appliers)); then
//!    [`Writer::prune`](mainstay_engine::apply::Writer::prune) deletes what left the repository, each object as [`managed::deletion`](mainstay_engine::managed::deletion) allows.
//! 9. [`status::after`](mainstay_gitsync::status::after) turns the outcome into conditions, and the task writes the status.
//! 10. [`Message`](mainstay_engine::notification::Message)s go to the sinks in [`agent`]: log, Events, metrics, terminal.
//!
//! # The way of a hand edit
//!
//! 1. [`Cluster::watch`](mainstay_cluster::Cluster::watch) yields the changed object to [`Drift`](mainstay_engine::drift::Drift); there is one watch
//!    per kind. The watches of Functions' children go the same way ([`Drift::see_child`](mainstay_engine::drift::Drift::see_child)).
//! 2. The store takes the object in and says what follows (`engine/managed/events.rs`).
//! 3. [`managed::projection`](mainstay_engine::managed::projection) reduces it to the fields that `managedFields` says are ours, as a digest; [`managed::verdict`](mainstay_engine::managed::verdict)
//!    compares that with the last apply: in sync, revert, recreate, or leave alone (break glass, policy).
//! 4. What must go back is a [`FollowUp`](mainstay_engine::apply::FollowUp) for [`Drift::run`](mainstay_engine::drift::Drift::run). [`managed::revert_backoff`](mainstay_engine::managed::revert_backoff)
//!    decides when it is due: at once, or later if another client keeps writing.
//! 5. Of what is due, the loop begins as many as the server takes, shared fairly by owners (`engine/drift/fair.rs`, `engine/drift/limit.rs`).
//! 6. [`Writer`](mainstay_engine::apply::Writer) locks the object, and asks the store whether it still has to be reverted (`engine/apply/revert.rs`).
//! 7. The desired object is applied again; what collides with it makes way (`engine/apply/server_side.rs`).
//! 8. The server's answer is the new last apply, also in the inventory (`engine/managed/writes.rs`).
//! 9. The revert is a [`Message`](mainstay_engine::notification::Message) with the fields, the values and the field manager.
//! 10. The owner's task is notified and writes the status: counts, last reverts, `Contended`.
//! 11. What no watch has shown, the audit finds (`engine/drift/audit.rs`, `engine/apply/audit.rs`), and hands it to the same loop.
//!
//! # Where to find
//!
//! | what | where |
//! |---|---|
//! | ref lookup, shared by all consumers of a remote | [`source::Source::lookup`](mainstay_git::Source::lookup) in `git/lookup.rs`; when: `git/poll.rs` |
//! | what the status of a GitRepository says | [`gitsync::repository`](mainstay_gitsync::repository), from what lookups come to ([`Source::last_lookup`](mainstay_git::Source::last_lookup)) |
//! | prune guards | [`gitsync::prune`](mainstay_gitsync::prune); of one object right before its deletion: [`managed::deletion`](mainstay_engine::managed::deletion) |
//! | every write to a managed object | [`apply`](mainstay_engine::apply): `put.rs` and `revert.rs` (both apply through `server_side.rs`), `replace.rs`, `prune.rs`, `replicas.rs` |
//! | by whose rights objects are read and written | [`Writer::acting_for`](mainstay_engine::apply::Writer::acting_for), `gitsync/rights.rs` |
//! | objects in another cluster (`spec.kubeConfig`) | `gitsync/place.rs` (where they are), `gitsync/clusters.rs` (a writer for each Secret), `cluster/remote.rs` |
//! | what cannot be changed is deleted and created anew | `engine/apply/replace.rs`, as [`managed::replacement`](mainstay_engine::managed::replacement) allows |
//! | what nobody may change by hand | [`prevention`](mainstay_engine::prevention), as `gitsync/prevented.rs` wants it |
//! | adoption of existing objects | [`managed::Appliers`](mainstay_engine::managed::Appliers) in `engine/managed/adoption.rs` |
//! | field ownership projection | [`managed::projection`](mainstay_engine::managed::projection) |
//! | revert backoff | [`managed::revert_backoff`](mainstay_engine::managed::revert_backoff); every other backoff is a [`failure::Backoff`](mainstay_object::failure::Backoff) |
//! | who is woken by a push, or by a commit that another one has found, and how often | [`source::Pushes`](mainstay_git::Pushes), `gitsync/receiver/matching.rs` |
//! | build queue | [`function::build_queue`](mainstay_function::build_queue) |
//! | stages of a Function | [`function::stage`](mainstay_function::stage) |
//!
//! # To add something, touch
//!
//! | to add | files | where |
//! |---|---|---|
//! | a message | 1 | a variant of [`notification::Message`](mainstay_engine::notification::Message) with severity, reason and text |
//! | a notification sink | 2 | a file in `agent/notify/`, a variant and its call in `agent/notify/mod.rs` |
//! | a health rule | 1 | a row and a function in `object/health.rs` |
//! | a field of a custom resource | 3 | `api/`, the decision that reads it, `manifests/crds.yaml` (generated by `mainstay crd`) |
//! | a Git transport | 6 | a file in `git/transport/`; address, client, lookup, fetch and body each tell transports apart |
//! | a language version | 2 | a row in `function/runtimes/mod.rs`, the table in `docs/functions/runtimes.md` |
//! | a language | 4 | a folder and a row in `function/runtimes/`, a planner in `function/build/install/` and its row, a golden case |
//! | a kind of child of a Function | 5 | a file in `function/children/`, its kind, a row in `function/stage.rs`, a stage, a golden case |
//! | a CLI command | 3 | a file in `cli/`, a variant in `cli/mod.rs`, a golden help text |
//! | a Git host that sends webhooks | 3 | a variant of [`api::ReceiverType`](mainstay_api::ReceiverType), its header in `gitsync/receiver/signature.rs`, its payload in `gitsync/receiver/payload.rs` |
//! | a renderer | 3 | a file in `manifest/render/` beside `helm.rs`, what recognises its directories in `manifest/`, its call in `gitsync/rendering.rs` |
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

#[expect(clippy::disallowed_methods, reason = "it is the process: its tasks, its listener and its deadlines")]
pub mod agent;
#[expect(clippy::disallowed_methods, reason = "commands have arguments, an environment and a console")]
pub mod cli;
mod components;

pub use components::{Component, Components};
