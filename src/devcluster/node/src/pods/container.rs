//! A container, from its first start to its last end.
//!
//! A container that cannot start reports why and retries. A finished container restarts by the pod's policy, with the
//! kubelet's backoff.
//!
//! Not here: the pod's status. `pod` derives it from each [`Update`].

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::context::Context;
use super::image::{self, Image};
use super::logs::StoredLog;
use super::marks::Mark;
use super::probes::seconds;
use super::probes::{self, Probing, Verdict};
use super::process::{Group, Program, code, command, run};
use super::program::{Sandbox, program};
use super::status::{Ended, State};
use super::usage::{Fault, Limits};
use super::volumes::Volume;
use devcluster_apiserver::object::{count, text};

/// Maximum size of a termination message in bytes, and the part of a log that replaces it.
const LONGEST_MESSAGE: usize = 4096;
const LAST_LINES: usize = 80;
const LAST_BYTES: usize = 2048;
/// First and longest backoff after a crash.
const BACKOFF: Duration = Duration::from_secs(10);
const LONGEST_BACKOFF: Duration = Duration::from_mins(5);
/// Interval of looking for a missing image.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// A container that ran this long resets its backoff.
const FORGIVEN: Duration = Duration::from_mins(10);
/// How long to wait for the output of a dead container.
const DRAIN: Duration = Duration::from_millis(500);
/// Delay before a retry for a cause without an event.
const AGAIN: Duration = Duration::from_secs(5);

/// Message from a container to its pod.
#[derive(Debug)]
pub(super) enum Update {
    /// The state of the container and its number of restarts.
    State(State, i64),
    /// The ID of the image.
    Image(String),
    /// Whether the container is ready.
    Ready(bool),
    /// The container passed its startup probe.
    Started,
    /// The container will not run again.
    Over,
}

/// A container of a pod, with all inputs.
pub(super) struct Container {
    pub(super) ctx: Context,
    pub(super) index: usize,
    pub(super) pod: Arc<Value>,
    pub(super) spec: Value,
    /// Whether the container may run again after success and after failure.
    pub(super) policy: Policy,
    pub(super) sandbox: Sandbox,
    pub(super) volumes: Arc<Vec<Volume>>,
    pub(super) updates: mpsc::Sender<(usize, Update)>,
    /// The grace period, once the pod terminates.
    pub(super) stop: watch::Receiver<Option<Duration>>,
    /// Notifies of changed ConfigMaps and Secrets.
    pub(super) objects: watch::Receiver<u64>,
    /// Keeps the files of the image while the container may run.
    pub(super) image: Option<Arc<Image>>,
}

/// Restart policy of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// After every end.
    Always,
    /// After a failure.
    OnFailure,
    /// Never.
    Never,
}

impl Container {
    /// Runs the container until it will not run again or the pod terminates.
    pub(super) async fn run(mut self) {
        self.course().await;
        self.send(Update::Over).await;
    }

    async fn course(&mut self) {
        let mut restarts = 0;
        let mut delay = Duration::ZERO;
        loop {
            let Some(program) = self.prepare(restarts).await else { return };
            let begun = Instant::now();
            let ended = self.live(&program, restarts).await;
            let failed = ended.code != 0;
            self.send(Update::State(State::Ended(ended), restarts)).await;
            let again = match self.policy {
                Policy::Always => true,
                Policy::OnFailure => failed,
                Policy::Never => false,
            };
            if !again || self.stop.borrow().is_some() {
                return;
            }
            if begun.elapsed() >= FORGIVEN {
                delay = Duration::ZERO;
            }
            if !self.back_off(delay, restarts).await {
                return;
            }
            delay = if delay.is_zero() { BACKOFF } else { (delay * 2).min(LONGEST_BACKOFF) };
            restarts += 1;
        }
    }

    /// Waits for the backoff. Returns false if the pod terminates.
    async fn back_off(&mut self, delay: Duration, restarts: i64) -> bool {
        if delay.is_zero() {
            return true;
        }
        let metadata = &self.pod["metadata"];
        let message = format!(
            "back-off {} restarting failed container={} pod={}_{}({})",
            shown(delay),
            self.name(),
            text(metadata, "/name"),
            text(metadata, "/namespace"),
            text(metadata, "/uid"),
        );
        self.event("Warning", "BackOff", &format!("Back-off restarting failed container {}", self.name()));
        self.send(Update::State(State::Waiting("CrashLoopBackOff", message), restarts)).await;
        self.pause(delay).await
    }

    fn name(&self) -> &str {
        text(&self.spec, "/name")
    }

    pub(super) async fn send(&self, update: Update) {
        // Fails if the pod is gone, which also ends this task.
        let _ = self.updates.send((self.index, update)).await;
    }

    pub(super) fn event(&self, kind: &str, reason: &str, message: &str) {
        self.ctx.client.report(&self.pod, "kubelet", kind, reason, message);
    }

    /// Sleeps. Returns false if the pod terminates.
    async fn pause(&mut self, time: Duration) -> bool {
        tokio::select! {
            _ = self.stop.wait_for(Option::is_some) => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    /// Waits until the program can be started; `None` if the pod terminates first.
    async fn prepare(&mut self, restarts: i64) -> Option<Program> {
        let mut reported = String::new();
        loop {
            if self.stop.borrow().is_some() {
                return None;
            }
            self.objects.borrow_and_update();
            let (reason, message) = match image::ready(&self.ctx, text(&self.spec, "/image")).await {
                Ok(image) => {
                    self.send(Update::Image(image.id.clone())).await;
                    match program(&self.ctx, &self.pod, &self.spec, &self.sandbox, &self.volumes, &image) {
                        Ok(program) => {
                            self.image = Some(image);
                            return Some(program);
                        }
                        Err(message) => ("CreateContainerConfigError", message),
                    }
                }
                Err(message) => ("ErrImagePull", message),
            };
            let state = State::Waiting(reason, message.clone());
            // The same image error is sent once; only the waiting state repeats. Watchers then see no change.
            if reason != "ErrImagePull" || reported != message {
                self.send(Update::State(state, restarts)).await;
            }
            if reported != message {
                self.event("Warning", "Failed", &format!("Error: {message}"));
                reported.clone_from(&message);
            }
            if reason == "ErrImagePull" {
                let image = text(&self.spec, "/image");
                let message = format!("Back-off pulling image \"{image}\": ErrImagePull: {message}");
                self.send(Update::State(State::Waiting("ImagePullBackOff", message), restarts)).await;
                // A pushed image causes no event, but a retry reads only one file.
                if !self.pause(LOOK_AGAIN).await {
                    return None;
                }
                continue;
            }
            tokio::select! {
                _ = self.stop.wait_for(Option::is_some) => return None,
                _ = self.objects.changed() => {}
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// Runs the program to its end.
    async fn live(&mut self, program: &Program, restarts: i64) -> Ended {
        let begun = Timestamp::now();
        let id = format!("devcluster://{:032x}{:032x}", fastrand::u128(..), fastrand::u128(..));
        let mut ended = Ended { code: 128, reason: "StartError", message: String::new(), begun, over: begun, id };
        let log =
            self.ctx.node.logs.open(text(&self.pod, "/metadata/uid"), self.name(), self.sandbox.directory.clone());
        let fresh = log.begin().and_then(|()| std::fs::write(&self.sandbox.termination, ""));
        let mark = Mark::new(&self.ctx.node().directory());
        let mut program = program.clone();
        program.env.push(mark.variable());
        let program = &program;
        let started = fresh.and_then(|()| Group::start(&self.ctx.node.watchdog, program));
        let (mut group, stdout, stderr) = match started {
            Ok(started) => started,
            Err(error) => {
                log.end();
                ended.message = match error.kind() {
                    ErrorKind::NotFound => format!("exec: {:?}: executable file not found in $PATH", program.name),
                    _ => format!("exec: {:?}: {error}", program.name),
                };
                self.event("Warning", "Failed", &format!("Error: {}", ended.message));
                return ended;
            }
        };
        let mut output = JoinSet::new();
        let (out, err) = (log.clone(), log.clone());
        output.spawn(async move { out.keep("stdout", stdout).await });
        output.spawn(async move { err.keep("stderr", stderr).await });
        self.event("Normal", "Started", &format!("Started container {}", self.name()));
        self.send(Update::State(State::Running(begun, ended.id.clone()), restarts)).await;
        let listed = self.ctx.node.running.list(text(&self.pod, "/metadata/uid"), self.name(), program);
        let fault = self.watch_over(&mut group, program).await;
        drop(listed);
        ended.code = code(group.wait().await);
        ended.over = Timestamp::now();
        drop(mark);
        let drained = async { while output.join_next().await.is_some() {} };
        // Do not wait for a process that left the group and still holds the pipe.
        let _ = tokio::time::timeout(DRAIN, drained).await;
        drop(output);
        log.end();
        ended.reason = if ended.code == 0 { "Completed" } else { "Error" };
        ended.message = self.message(&log, ended.code);
        if let Some(fault) = fault {
            ended.reason = fault.reason();
            if !fault.message().is_empty() {
                fault.message().clone_into(&mut ended.message);
            }
        }
        ended
    }

    /// Runs probes and enforces limits until the container ends. Returns the limit that it exceeded.
    async fn watch_over(&mut self, group: &mut Group, program: &Program) -> Option<Fault> {
        let of = (text(&self.pod, "/metadata/uid").to_owned(), self.name().to_owned());
        let limits = Limits::of(&self.spec, self.ctx.node().options.tasks);
        let watched = self.ctx.node().usage.watch(group.id(), of, limits);
        let mut probing = Probing::start(&self.ctx, &self.spec, self.sandbox.address, program);
        if probing.nothing_to_start() {
            self.send(Update::Started).await;
        }
        if probing.nothing_to_await() {
            self.send(Update::Ready(true)).await;
        }
        loop {
            tokio::select! {
                _ = group.wait() => return None,
                fault = watched.fault() => {
                    // The caller reads the exit status.
                    let _ = group.kill().await;
                    return Some(fault);
                }
                grace = stopped(&mut self.stop) => {
                    self.send(Update::Ready(false)).await;
                    self.end(group, program, grace).await;
                    return None;
                }
                verdict = probing.next() => match verdict {
                    Verdict::Started => self.send(Update::Started).await,
                    Verdict::Ready(ready) => self.send(Update::Ready(ready)).await,
                    Verdict::Failed(message) => self.event("Warning", "Unhealthy", &message),
                    Verdict::Dead(probe) => {
                        let name = self.name();
                        let message = format!("Container {name} failed {probe} probe, will be restarted");
                        self.event("Normal", "Killing", &message);
                        self.send(Update::Ready(false)).await;
                        let grace = count(&self.pod, "/spec/terminationGracePeriodSeconds");
                        self.end(group, program, seconds(grace.try_into().unwrap_or(30))).await;
                        return None;
                    }
                },
            }
        }
    }

    /// Stops a running container: `preStop` hook, SIGTERM, and SIGKILL after the grace period.
    async fn end(&self, group: &mut Group, program: &Program, grace: Duration) {
        let end = tokio::time::Instant::now() + grace;
        let hook = &self.spec["lifecycle"]["preStop"];
        if hook.is_object() {
            // The hook is aborted at the end of the grace period, or when the container ends.
            tokio::select! {
                _ = group.wait() => return,
                _ = tokio::time::timeout_at(end, self.hook(hook, program)) => {}
            }
        }
        group.terminate();
        if tokio::time::timeout_at(end, group.wait()).await.is_err() {
            // The caller reads the exit status.
            let _ = group.kill().await;
        }
    }

    async fn hook(&self, hook: &Value, program: &Program) {
        if let Some(seconds) = hook["sleep"]["seconds"].as_u64() {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
        } else if hook["exec"].is_object() {
            let command = command(&hook["exec"], program);
            if let Err(why) = run(&self.ctx.node.watchdog, &command, LONGEST_BACKOFF).await {
                self.event("Warning", "FailedPreStopHook", &format!("PreStopHook failed: {why}"));
            }
        } else if let Err(why) = probes::ask(hook, &self.spec, self.sandbox.address, LONGEST_BACKOFF).await {
            self.event("Warning", "FailedPreStopHook", &format!("PreStopHook failed: {why}"));
        }
    }

    /// Returns the termination message.
    fn message(&self, log: &StoredLog, code: i64) -> String {
        let written = last_written(&self.sandbox.termination);
        let falls_back = text(&self.spec, "/terminationMessagePolicy") == "FallbackToLogsOnError";
        if written.is_empty() && falls_back && code != 0 {
            return log.last_words(LAST_LINES, LAST_BYTES);
        }
        written
    }
}

/// Reads a container's termination message. Anything but a regular file yields an empty message.
fn last_written(path: &Path) -> String {
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut written = Vec::new();
    if let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from)
        && file.metadata().is_ok_and(|metadata| metadata.is_file())
    {
        // An unreadable message counts as empty.
        let _ = file.take(LONGEST_MESSAGE as u64).read_to_end(&mut written);
    }
    String::from_utf8_lossy(&written).into_owned()
}

/// Waits until the pod terminates. Returns the grace period.
pub(super) async fn stopped(stop: &mut watch::Receiver<Option<Duration>>) -> Duration {
    match stop.wait_for(Option::is_some).await {
        Ok(grace) => grace.unwrap_or_default(),
        // The pod was deleted.
        Err(_) => Duration::ZERO,
    }
}

/// Formats a delay as the kubelet does: `10s`, `2m40s`.
fn shown(delay: Duration) -> String {
    match (delay.as_secs() / 60, delay.as_secs() % 60) {
        (0, seconds) => format!("{seconds}s"),
        (minutes, seconds) => format!("{minutes}m{seconds}s"),
    }
}
