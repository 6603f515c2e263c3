//! The shard that this agent holds: the other agents that it follows, and the pushes that the leader passes on.

use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tokio::sync::watch;

use super::settings::Settings;
use super::share::{Counts, Share};
use mainstay_cluster::secrets::{Referrer, Secrets};
use mainstay_cluster::shards::{Followed, Member, PushNote, Seen};
use mainstay_cluster::{Cluster, Leadership};
use mainstay_gitsync::Context;

/// The shard that this agent holds.
pub(super) struct Shard {
    pub(super) member: Member,
    /// The election of the leader, who also does the work that is not that of a GitSync.
    pub(super) leadership: Leadership,
    /// The annotation of the shard's Lease.
    pub(super) note: watch::Sender<Option<String>>,
    /// The Leases that this process has seen.
    pub(super) seen: Seen,
}

/// The connections of a shard with other agents.
pub(super) struct Joined {
    /// The GitSyncs of this agent.
    pub(super) share: Share,
    /// The pushes that this agent receives as the leader.
    pub(super) push_note: watch::Sender<PushNote>,
    /// The pushes that another agent has received as the leader.
    pub(super) received: watch::Receiver<PushNote>,
    pub(super) followed: Followed,
}

impl Shard {
    /// Returns the connections with other agents.
    pub(super) fn join(&self, settings: &Settings, cluster: &Cluster, counts: Arc<Counts>) -> Joined {
        let (ownership, owned) = watch::channel(Arc::default());
        let (acknowledged, dropped) = watch::channel(0);
        let ((push_note, reported), (hear, received)) =
            (watch::channel(PushNote::begin(Timestamp::now())), watch::channel(PushNote::default()));
        let timing = settings.timing;
        let followed = Followed {
            cluster: cluster.clone(),
            namespace: settings.namespace.clone(),
            me: self.member,
            identity: settings.identity.clone(),
            seen: self.seen.clone(),
            lease: timing.lease,
            grace: timing.retry.mul_f64(2.5),
            note: self.note.clone(),
            push_note: reported,
            received: hear,
            ownership,
            dropped,
        };
        Joined { share: Share::new(owned, acknowledged, timing.lease, counts), push_note, received, followed }
    }
}

/// Wakes the GitSyncs that follow the sources of pushes that the leader has received.
pub(super) async fn hear(mut received: watch::Receiver<PushNote>, context: Arc<Context>) {
    let mut last = 0;
    while received.changed().await.is_ok() {
        let push_note = received.borrow_and_update().clone();
        // A new leader begins with a higher number, unless its clock is behind.
        let new = usize::try_from(push_note.count.checked_sub(last).unwrap_or(push_note.count)).unwrap_or(usize::MAX);
        last = push_note.count;
        for (namespace, source) in push_note.reported.iter().rev().take(new) {
            context.wake_followers(namespace, source, Instant::now());
        }
    }
}

/// Records that the objects of the leader's work may reference Secrets, as long as they are not listed: this agent begins
/// to lead.
pub(super) fn set_led_here(secrets: &Secrets) {
    for referrer in [Referrer::Receiver, Referrer::ImageRepository, Referrer::ImageUpdateAutomation, Referrer::Function]
    {
        secrets.set_unlisted(referrer);
    }
}

/// Records that no kind of the leader's work references Secrets here, as long as this agent does not lead.
pub(super) fn set_led_elsewhere(secrets: &Secrets) {
    for referrer in [Referrer::Receiver, Referrer::ImageRepository, Referrer::ImageUpdateAutomation] {
        secrets.set_listed(referrer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_begins_to_lead_knows_no_purposes_until_the_leaders_kinds_are_listed() {
        let secrets = Secrets::default();
        for referrer in [
            Referrer::GitRepository,
            Referrer::GitSync,
            Referrer::Provider,
            Referrer::OciRepository,
            Referrer::HelmChart,
            Referrer::Function,
        ] {
            secrets.set_listed(referrer);
        }
        set_led_elsewhere(&secrets);
        assert!(secrets.purposes("shop").is_ok());
        set_led_here(&secrets);
        for referrer in
            [Referrer::Receiver, Referrer::ImageRepository, Referrer::ImageUpdateAutomation, Referrer::Function]
        {
            assert_eq!(secrets.purposes("shop").err(), Some(referrer), "its list is slow");
            secrets.set_listed(referrer);
        }
        assert!(secrets.purposes("shop").is_ok());
    }
}
