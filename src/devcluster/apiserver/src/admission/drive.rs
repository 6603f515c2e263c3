//! Drives a write through its webhook calls: makes the calls, then lets the write be computed again.
//!
//! [`admitted`] is asynchronous. [`admitted_here`] is for synchronous callers. It makes the calls on a new thread and
//! blocks the caller's thread until they finish. A webhook served by the blocked runtime thread always times out.

use super::{Answer, Response, Stop, WebhookCall, call, hooks, policies};
use crate::{
    server::Server,
    status::Status,
    verbs::{Settings, metadata},
};
use futures::future::join_all;
use std::sync::Arc;

/// Maximum number of computations of one write. Concurrent writes can make each computation start again.
const ROUNDS: usize = 200;

/// A write in progress.
struct Course<'a> {
    server: &'a Server,
    settings: Settings,
    warnings: Vec<String>,
    rounds: usize,
}

enum Next<T> {
    Done(Result<T, Status>),
    Ask(Vec<WebhookCall>),
}

impl<'a> Course<'a> {
    fn new(server: &'a Server, settings: &Settings) -> Self {
        let mut settings = settings.clone();
        let webhooks = hooks::any(server);
        settings.admit = webhooks || policies::any(server);
        settings.warned = Arc::default();
        if webhooks {
            // Generated values must be the same in every computation of the write.
            settings.uid = Some(metadata::new_uid());
            settings.seed = Some(fastrand::u64(..));
        }
        Self { server, settings, warnings: Vec::new(), rounds: 0 }
    }

    fn step<T>(&mut self, attempt: &mut impl FnMut(&Settings) -> Result<T, Stop>) -> Next<T> {
        loop {
            match self.attempt(attempt) {
                Next::Ask(webhook_calls) => {
                    let others = self.answer_here(webhook_calls);
                    if !others.is_empty() {
                        return Next::Ask(others);
                    }
                }
                done @ Next::Done(_) => return done,
            }
        }
    }

    /// Answers the calls to webhooks in this process. Returns the other calls.
    fn answer_here(&mut self, webhook_calls: Vec<WebhookCall>) -> Vec<WebhookCall> {
        let Some(own) = self.server.options().webhook else { return webhook_calls };
        let mut others = Vec::new();
        for webhook_call in webhook_calls {
            match own(self.server, &webhook_call.client["service"], &webhook_call.review) {
                Some(response) => self.learn(vec![webhook_call], vec![Ok(Response::of(&response))]),
                None => others.push(webhook_call),
            }
        }
        others
    }

    fn attempt<T>(&mut self, attempt: &mut impl FnMut(&Settings) -> Result<T, Stop>) -> Next<T> {
        self.rounds += 1;
        match attempt(&self.settings) {
            Ok(done) => Next::Done(Ok(done)),
            Err(Stop::Refused(status)) => Next::Done(Err(status)),
            Err(Stop::Ask(_)) if self.rounds > ROUNDS => {
                let why = "the object changed each time that its webhooks had been asked";
                Next::Done(Err(Status::new(409, "Conflict", why)))
            }
            Err(Stop::Ask(webhook_calls)) => Next::Ask(webhook_calls),
        }
    }

    /// Returns the warnings of webhooks and policies for the client.
    fn all_warnings(self) -> Vec<String> {
        let mut warnings = self.warnings;
        warnings.append(&mut self.settings.warned.lock());
        warnings
    }

    fn learn(&mut self, webhook_calls: Vec<WebhookCall>, answers: Vec<Answer>) {
        let known = Arc::make_mut(&mut self.settings.answers);
        for (webhook_call, answer) in webhook_calls.into_iter().zip(answers) {
            for warning in answer.iter().flat_map(|response| &response.warnings) {
                if !self.warnings.contains(warning) {
                    self.warnings.push(warning.clone());
                }
            }
            known.insert(webhook_call.digest, answer);
        }
    }
}

async fn ask_all(server: &Server, webhook_calls: &[WebhookCall]) -> Vec<Answer> {
    join_all(webhook_calls.iter().map(|webhook_call| call::ask(server, webhook_call, metadata::new_uid()))).await
}

/// Executes a write with admission. Also returns the warnings for the client.
pub(crate) async fn admitted<T>(
    server: &Server,
    settings: &Settings,
    mut attempt: impl FnMut(&Settings) -> Result<T, Stop>,
) -> (Result<T, Status>, Vec<String>) {
    let mut course = Course::new(server, settings);
    loop {
        match course.step(&mut attempt) {
            Next::Done(outcome) => return (outcome, course.all_warnings()),
            Next::Ask(webhook_calls) => {
                let answers = ask_all(course.server, &webhook_calls).await;
                course.learn(webhook_calls, answers);
            }
        }
    }
}

/// Executes a write with admission. Blocks the thread during webhook calls.
pub(crate) fn admitted_here<T>(
    server: &Server,
    settings: &Settings,
    mut attempt: impl FnMut(&Settings) -> Result<T, Stop>,
) -> Result<T, Status> {
    let mut course = Course::new(server, settings);
    loop {
        match course.step(&mut attempt) {
            Next::Done(outcome) => return outcome,
            Next::Ask(webhook_calls) => {
                let answers = away(server, &webhook_calls);
                course.learn(webhook_calls, answers);
            }
        }
    }
}

/// Makes the calls on a new thread.
fn away(server: &Server, webhook_calls: &[WebhookCall]) -> Vec<Answer> {
    let ask = || {
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
                Some(runtime.block_on(ask_all(server, webhook_calls)))
            });
            asking.join().ok().flatten()
        })
    };
    let many = tokio::runtime::Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread);
    // On a multi-threaded runtime, other threads take over the tasks of this thread.
    let answers = if many { tokio::task::block_in_place(ask) } else { ask() };
    let failed = || Err("failed to call webhook: no thread could be started".to_owned());
    answers.unwrap_or_else(|| webhook_calls.iter().map(|_| failed()).collect())
}
