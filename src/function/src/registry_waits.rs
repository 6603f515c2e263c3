//! Notifies Functions whose builds failed at a full or refusing registry, once the registry accepts uploads again.
//!
//! A registry sends no event when its volume grows or its login is corrected. So a small upload is started every few
//! seconds, and cancelled.
//!
//! Invariant: a registry is probed only while a build waits for it, and only if the operator chose the registry. The
//! Secrets of a Function's namespace could specify any address. Invariant: one probe serves all Functions with the same
//! login. A Function is notified with increasing delays.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::registry::{Access, Client, Deadlines, Error, ImageRef, Rights, SecretData};

/// Time between two probes, and the minimum delay before a Function is notified.
const PACE: Duration = Duration::from_secs(4);
/// Maximum delay before a Function is notified after failed attempts.
const LONGEST: Duration = Duration::from_secs(300);
/// Maximum number of logins per round, and of concurrent probes.
const AT_ONCE: (usize, usize) = (16, 4);
/// Size of the probing upload in bytes.
const UPLOAD: usize = 256 << 10;
/// Deadlines of a probe.
const DEADLINES: Deadlines = Deadlines {
    connect: Duration::from_secs(3),
    silence: Duration::from_secs(5),
    slowest: 64 << 10,
    patience: Duration::ZERO,
};

/// A registry, and a digest of the login for it.
type Target = (String, [u8; 32]);

/// A registry that Functions wait for.
#[derive(Debug)]
struct Awaited {
    image: ImageRef,
    data: SecretData,
    takes_uploads: watch::Sender<()>,
}

/// The registries that Functions wait for.
#[derive(Debug, Default)]
pub(super) struct RegistryWaits {
    awaited: Mutex<BTreeMap<Target, Awaited>>,
    begun: Notify,
}

/// The wait for a registry. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Waiting {
    job: String,
    takes_uploads: watch::Receiver<()>,
    earliest: Instant,
}

impl RegistryWaits {
    /// Waits for the registry of an image with the login of a Secret, after a Job failed. `woken` is the number of
    /// failed attempts after notifications.
    pub(super) fn wait(&self, image: &ImageRef, data: &SecretData, job: &str, woken: u32) -> Waiting {
        let mut awaited = self.awaited.lock();
        awaited.retain(|_, one| one.takes_uploads.receiver_count() > 0);
        let new = || Awaited { image: image.clone(), data: data.clone(), takes_uploads: watch::Sender::default() };
        let takes_uploads = awaited.entry(target(image, data)).or_insert_with(new).takes_uploads.subscribe();
        drop(awaited);
        self.begun.notify_one();
        let earliest = Instant::now() + PACE.saturating_mul(1 << woken.min(10)).min(LONGEST);
        Waiting { job: job.to_owned(), takes_uploads, earliest }
    }

    /// Probes registries while a Function waits, until `stop`.
    pub(super) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let turns = async {
            let mut last = None;
            loop {
                let targets = self.next(&mut last);
                if targets.is_empty() {
                    self.begun.notified().await;
                    continue;
                }
                sleep(PACE).await;
                let tried = stream::iter(targets)
                    .map(|(target, image, data)| async move { (target, try_upload(&image, &data).await) });
                let mut tried = tried.buffer_unordered(AT_ONCE.1);
                while let Some((target, result)) = tried.next().await {
                    match (result, self.awaited.lock().get(&target)) {
                        (Ok(()), Some(awaited)) => awaited.takes_uploads.send_replace(()),
                        (Ok(()), None) => {}
                        (Err(why), _) => tracing::debug!(registry = target.0, why, "the registry takes no upload yet"),
                    }
                }
            }
        };
        let _: Option<()> = stop.run_until_cancelled(turns).await;
    }

    /// Returns the registries of the next round. The round starts after the last registry of the previous round.
    fn next(&self, last: &mut Option<Target>) -> Vec<(Target, ImageRef, SecretData)> {
        let awaited = self.awaited.lock();
        let all = || awaited.iter().filter(|(_, one)| one.takes_uploads.receiver_count() > 0);
        let is_after = |target: &Target| last.as_ref().is_none_or(|last| target > last);
        let in_turn = all().filter(|(target, _)| is_after(target)).chain(all().filter(|(target, _)| !is_after(target)));
        let next: Vec<_> = in_turn
            .take(AT_ONCE.0)
            .map(|(target, one)| (target.clone(), one.image.clone(), one.data.clone()))
            .collect();
        *last = next.last().map(|(target, ..)| target.clone());
        next
    }
}

impl Waiting {
    /// Returns the name of the failed Job.
    pub(super) fn job(&self) -> &str {
        &self.job
    }

    /// Waits until the registry accepts an upload. Cancel-safe.
    pub(super) async fn takes_uploads(&mut self) {
        sleep_until(self.earliest.into()).await;
        if self.takes_uploads.changed().await.is_err() {
            // The sender is dropped only at the end of the agent.
            std::future::pending::<()>().await;
        }
    }
}

fn target(image: &ImageRef, data: &SecretData) -> Target {
    let mut digest = Sha256::new();
    for (key, value) in data {
        for part in [key.as_bytes(), &value.0] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
    }
    (image.registry.clone(), digest.finalize().into())
}

async fn try_upload(image: &ImageRef, data: &SecretData) -> Result<(), String> {
    let access = Access::own(data, image).map_err(|problem| problem.to_string())?;
    let text = |error: Error| mainstay_object::failure::chain(&error);
    let client = Client::new(image, access, Rights::PullAndPush, DEADLINES).map_err(text)?;
    client.try_upload(&Bytes::from(vec![0; UPLOAD])).await.map_err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn login(password: &str) -> SecretData {
        [("password".to_owned(), ByteString(password.into()))].into()
    }

    #[test]
    fn a_registry_is_asked_once_for_a_login_and_only_while_somebody_waits() {
        let waits = RegistryWaits::default();
        let image = |name: &str| format!("r.example.org/{name}:t").parse::<ImageRef>().unwrap();
        let mut last = None;
        assert!(waits.next(&mut last).is_empty());
        let one = waits.wait(&image("team-a"), &login("1"), "a", 0);
        let other = waits.wait(&image("team-b"), &login("1"), "b", 0);
        assert_eq!(waits.next(&mut last).len(), 1);
        drop(one);
        assert_eq!(waits.next(&mut last).len(), 1);
        drop(other);
        assert!(waits.next(&mut last).is_empty());
    }

    #[test]
    fn logins_take_turns() {
        let waits = RegistryWaits::default();
        let image: ImageRef = "r.example.org/team-a:t".parse().unwrap();
        let all: Vec<_> = (0..20).map(|number| waits.wait(&image, &login(&number.to_string()), "a", 0)).collect();
        let mut last = None;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..2 {
            let turn = waits.next(&mut last);
            assert_eq!(turn.len(), AT_ONCE.0);
            seen.extend(turn.into_iter().map(|(target, ..)| target));
        }
        assert_eq!(seen.len(), all.len());
    }

    #[test]
    fn a_function_that_was_woken_in_vain_waits_longer() {
        let waits = RegistryWaits::default();
        let image: ImageRef = "r.example.org/team-a:t".parse().unwrap();
        for (woken, seconds) in [(0, 4), (1, 8), (2, 16), (50, 300)] {
            let before = Instant::now();
            let earliest = waits.wait(&image, &login("1"), "a", woken).earliest;
            let least = before + Duration::from_secs(seconds);
            assert!(earliest >= least && earliest < least + Duration::from_secs(2), "{woken}");
        }
    }
}
