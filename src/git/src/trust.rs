//! Verifies signatures: a commit of a remote with a [`Verification`](super::Verification) is fetched only if it is
//! verified.
//!
//! Invariant: the verified object is the one that is read. Both are taken from the mirror by the id that the lookup
//! returned.
//! Invariant: only successful checks are cached, per object, commit, name and keys, and only while these keys are
//! valid.

use std::sync::Arc;

use jiff::Timestamp;

use super::error::{Error, Fault};
use super::judgements::Judged;
use super::reference::ResolvedRef;
use super::remote::Remote;
use super::remotes::Source;
use super::snapshot::Snapshot;
use super::verify::{SignatureFault, Verification, earlier};

/// Prefix of tags.
const TAGS: &str = "refs/tags/";

impl Source {
    /// Verifies that the resolved commit is signed as the remote requires. Fetches it, unless a check is cached.
    pub async fn verify(&self, remote: &Remote, found: &ResolvedRef) -> Result<(), Error> {
        match &remote.verification {
            Some(keys) if !self.was_judged(remote, &judged(keys, found)) => self.fetch(remote, found).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Returns whether the mirror needs the tag object that points to the commit.
    pub(super) fn needs_tag(remote: &Remote, found: &ResolvedRef) -> bool {
        found.tip != found.commit.0 && remote.verification.as_ref().is_some_and(|keys| keys.asks_for_tag())
    }

    /// Verifies the commit of a snapshot, and the tag that points to it.
    pub(super) async fn judge(&self, remote: &Remote, found: &ResolvedRef, snapshot: &Snapshot) -> Result<(), Error> {
        let Some(keys) = &remote.verification else { return Ok(()) };
        let judged = judged(keys, found);
        if self.was_judged(remote, &judged) {
            return Ok(());
        }
        let (keys, found, now) = (Arc::clone(keys), found.clone(), Timestamp::now());
        let judgement = snapshot.blocking(move |snapshot| judge(&keys, &found, snapshot, now)).await?;
        let until = judgement.map_err(|(what, cause)| Error::Verify {
            url: remote.url.clone(),
            what,
            cause: Arc::new(cause),
        })?;
        self.state(remote).judgements.lock().add(judged, until);
        Ok(())
    }

    fn was_judged(&self, remote: &Remote, judged: &Judged) -> bool {
        self.state(remote).judgements.lock().has(judged, Timestamp::now())
    }
}

fn judged(keys: &Verification, found: &ResolvedRef) -> Judged {
    Judged { tip: found.tip, commit: found.commit, name: found.name.clone(), keys: keys.digest() }
}

/// Verifies the required signatures. Returns the time until which the result is valid. Blocks.
fn judge(
    keys: &Verification,
    found: &ResolvedRef,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Result<Option<Timestamp>, (String, Fault)> {
    let mut until = None;
    if keys.asks_for_tag() {
        let what = |fault: Fault| (format!("the tag {} at commit {}", found.short(), found.commit), fault);
        let Some(name) = found.name.strip_prefix(TAGS) else {
            let fault = SignatureFault::NoTag { mode: keys.mode(), reference: found.short().to_owned() };
            return Err((format!("commit {}", found.commit), fault.into()));
        };
        if found.tip == found.commit.0 {
            return Err(what(SignatureFault::LightweightTag.into()));
        }
        let raw = snapshot.raw_tag(found.tip).map_err(what)?;
        until = keys.judge_tag(&raw, name, &found.commit.to_string(), now).map_err(what)?;
    }
    if keys.asks_for_commit() {
        let what = |fault: Fault| (format!("commit {}", found.commit), fault);
        let raw = snapshot.raw_commit().map_err(what)?;
        until = earlier(until, keys.judge_commit(&raw, now).map_err(what)?);
    }
    Ok(until)
}
