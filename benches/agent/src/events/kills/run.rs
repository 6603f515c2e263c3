//! The measurement from the start of the processes to the accounts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinSet};

use super::{
    event::Ids,
    fleet::{CHECKS, Fleet},
    plan::{Plan, RECOVERY, SETTLED},
    report::Outcome,
    schedule::{Kill, Kind, schedule},
    sender::Sender,
    subscribers::Subscribers,
    subscriptions,
    tally::Tally,
};
use crate::{Error, Product, events::MEMORY, progress::progress, stand::Stand};

/// Interval of accounts after the last event.
const ROUND: Duration = Duration::from_secs(1);
/// Time for which deliveries that are repeated are awaited, after each event was delivered.
const REPEATED: Duration = Duration::from_secs(30);
/// Number of rounds with empty streams after which a missing event is lost.
const EMPTY: usize = 2;
/// Maximum number of printed lost events.
const PRINTED: usize = 20;

/// The measurement while it runs.
struct Run {
    fleet: Fleet,
    tally: Arc<Mutex<Tally>>,
    plan: Plan,
    killed: Vec<Kind>,
    /// Whether a process was not ready again in time.
    late: bool,
    /// Whether the last list of dead letters is complete.
    listed: bool,
    /// The end of all waits. A wait that takes too long is a finding.
    end: Instant,
}

/// Measures everything.
pub(super) async fn measure(product: &Product, plan: Plan) -> Result<Outcome, Error> {
    let end = Instant::now() + plan.longest();
    progress(&format!("the seed of the kills is {}", plan.seed));
    let stand = Stand::start(product, None, MEMORY).await?;
    stand.define(&product.event_definitions).await?;
    let (ids, tally) = (Ids::new(), Arc::<Mutex<Tally>>::default());
    let subscribers = Subscribers::start(ids, &tally).await?;
    subscriptions::create(&stand.client).await?;
    progress("start of the processes");
    let fleet = Fleet::start(&stand, &subscribers, ids).await?;
    subscriptions::until_ready(&stand.client).await?;
    let sender = Sender::new(fleet.publishers(), plan.rate, ids, &tally)?;
    let (stop, stopped) = watch::channel(false);
    let mut sending = JoinSet::new();
    sending.spawn(Arc::clone(&sender).send(stopped));
    let mut run = Run { fleet, tally, plan, killed: Vec::new(), late: false, listed: false, end };
    progress("kills");
    run.kill_all().await?;
    progress("until all processes are ready again");
    run.recover().await?;
    // The sender does not end before its receiver is dropped.
    let _ = stop.send(true);
    let length = run.until_sent(&mut sending).await?;
    progress("until each event is delivered or a dead letter");
    let settled = run.settle().await?;
    run.repeated().await?;
    let Run { mut fleet, tally, killed, late, listed, .. } = run;
    let usages = fleet.usages();
    fleet.stop().await?;
    let tally = tally.lock();
    for (number, to) in tally.lost().take(PRINTED) {
        progress(&format!("event {number} is lost for {}", to.namespace()));
    }
    let (counts, failures) = (tally.counts(), sender.failures());
    let (recoveries, failed) = (fleet.recoveries, fleet.failed);
    Ok(Outcome { plan, length, counts, failures, settled, killed, late, listed, recoveries, failed, usages })
}

impl Run {
    /// Kills processes by the schedule. Stops early if there is no time left.
    async fn kill_all(&mut self) -> Result<(), Error> {
        for Kill { after, kind, number, away } in schedule(self.plan.seed, self.plan.kills) {
            self.keep_for(after).await?;
            let begun = Instant::now();
            while !self.fleet.may_be_killed(kind, number).await {
                if self.must_settle() {
                    return Ok(());
                }
                self.late |= begun.elapsed() > RECOVERY;
                self.keep_for(CHECKS).await?;
            }
            self.fleet.kill(kind, number, away).await?;
            self.killed.push(kind);
            let accepted = self.tally.lock().accepted();
            progress(&format!("{} {number} is killed, {accepted} events are accepted", kind.names()[0]));
        }
        Ok(())
    }

    /// Waits until all processes are ready, and until enough events are accepted.
    async fn recover(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let is_ready = self.fleet.are_ready();
            self.late |= !is_ready && begun.elapsed() > RECOVERY;
            if is_ready && self.tally.lock().accepted() >= self.plan.events as usize {
                return Ok(());
            }
            if self.must_settle() {
                self.late |= !is_ready;
                return Ok(());
            }
            self.keep_for(CHECKS).await?;
        }
    }

    /// Whether the remaining time is needed for the deliveries.
    fn must_settle(&self) -> bool {
        Instant::now() + SETTLED >= self.end
    }

    /// Waits until the last events are accepted or given up. Returns the time of the sender.
    async fn until_sent(&mut self, sending: &mut JoinSet<Duration>) -> Result<Duration, Error> {
        loop {
            tokio::select! {
                Some(sent) = sending.join_next() => return sent.map_err(|error| Error::Start(error.into())),
                () = tokio::time::sleep(CHECKS) => self.fleet.keep().await?,
            }
        }
    }

    /// Waits until each accepted event is delivered or a dead letter. Returns the time; `None` if an event is lost, or at
    /// the end.
    async fn settle(&mut self) -> Result<Option<Duration>, Error> {
        let (begun, mut before, mut empty) = (Instant::now(), None, 0);
        while Instant::now() < self.end {
            let missing = self.tally.lock().missing();
            // An event leaves its stream after its delivery or dead letter.
            let is_empty = self.fleet.stored().await == Some(0);
            // The list of dead letters is long, so it is read when the deliveries have ended.
            if before == Some(missing) && self.read_letters().await? {
                if self.tally.lock().lost().next().is_none() {
                    return Ok(Some(begun.elapsed()));
                }
                empty = if is_empty { empty + 1 } else { 0 };
                if empty == EMPTY {
                    return Ok(None);
                }
            } else {
                empty = 0;
            }
            before = Some(missing);
            self.keep_for(ROUND).await?;
        }
        Ok(None)
    }

    /// Waits for deliveries that are repeated: NATS repeats those of a killed dispatcher after some seconds. Then reads
    /// the dead letters again.
    async fn repeated(&mut self) -> Result<(), Error> {
        let end = self.end.min(Instant::now() + REPEATED);
        while Instant::now() < end && self.fleet.stored().await != Some(0) {
            self.keep_for(ROUND).await?;
        }
        self.listed = self.read_letters().await?;
        while !self.listed && Instant::now() < self.end {
            self.keep_for(ROUND).await?;
            self.listed = self.read_letters().await?;
        }
        Ok(())
    }

    /// Reads the dead letters. Returns whether this was possible.
    async fn read_letters(&self) -> Result<bool, Error> {
        let Some(letters) = self.fleet.letters().await? else { return Ok(false) };
        self.tally.lock().bury(&letters);
        Ok(true)
    }

    /// Keeps the processes for this time.
    async fn keep_for(&mut self, time: Duration) -> Result<(), Error> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            tokio::time::sleep(CHECKS.min(end.saturating_duration_since(Instant::now()))).await;
            self.fleet.keep().await?;
        }
        Ok(())
    }
}
