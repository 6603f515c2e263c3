//! The measurement from the start of the processes to the accounts.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinSet};

use super::{
    fleet::{CHECKS, Fleet},
    plan::Plan,
    report::{Outcome, RECOVERY, SETTLED},
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
/// Maximum number of printed lost events.
const PRINTED: usize = 20;

/// The measurement while it runs.
struct Run {
    fleet: Fleet,
    tally: Arc<Mutex<Tally>>,
    plan: Plan,
    killed: Vec<Kind>,
}

/// Measures everything.
pub(super) async fn measure(product: &Product, plan: Plan) -> Result<Outcome, Error> {
    progress(&format!("the seed of the kills is {}", plan.seed));
    let stand = Stand::start(product, None, MEMORY).await?;
    stand.define(&product.event_definitions).await?;
    let tally = Arc::<Mutex<Tally>>::default();
    let subscribers = Subscribers::start(&tally).await?;
    subscriptions::create(&stand.client).await?;
    progress("start of the processes");
    let fleet = Fleet::start(&stand, &subscribers).await?;
    subscriptions::until_ready(&stand.client).await?;
    let sender = Sender::new(fleet.publishers(), plan.rate, &tally)?;
    let (stop, stopped) = watch::channel(false);
    let mut sending = JoinSet::new();
    sending.spawn(Arc::clone(&sender).send(stopped));
    let mut run = Run { fleet, tally, plan, killed: Vec::new() };
    progress("kills");
    run.kill_all().await?;
    progress("until all processes are ready again");
    let recovered = run.recover().await?;
    // The sender does not end before its receiver is dropped.
    let _ = stop.send(true);
    let length = run.until_sent(&mut sending).await?;
    progress("until each event is delivered or a dead letter");
    let settled = run.settle().await?;
    run.repeated().await?;
    let Run { mut fleet, tally, killed, .. } = run;
    let usages = fleet.usages();
    fleet.stop().await?;
    let tally = tally.lock();
    for (number, to) in tally.lost().take(PRINTED) {
        progress(&format!("event {number} is lost for {}", to.namespace()));
    }
    let (counts, failures) = (tally.counts(), sender.failures());
    let (recoveries, failed) = (fleet.recoveries, fleet.failed);
    Ok(Outcome { plan, length, counts, failures, settled, killed, recovered, recoveries, failed, usages })
}

impl Run {
    /// Kills processes by the schedule. Stops early if the servers of NATS do not become healthy in time.
    async fn kill_all(&mut self) -> Result<(), Error> {
        for Kill { after, kind, number, away } in schedule(self.plan.seed, self.plan.kills) {
            self.keep_for(after).await?;
            let begun = Instant::now();
            while !self.fleet.may_be_killed(kind, number).await {
                if begun.elapsed() > RECOVERY {
                    return Ok(());
                }
                self.keep_for(CHECKS).await?;
            }
            self.fleet.kill(kind, number, away).await?;
            self.killed.push(kind);
            let accepted = self.tally.lock().accepted();
            progress(&format!("{} {number} is killed, {accepted} events are accepted", kind.names()[0]));
        }
        Ok(())
    }

    /// Waits until all processes are ready, and until enough events are accepted. Returns whether this was in time.
    async fn recover(&mut self) -> Result<bool, Error> {
        let begun = Instant::now();
        let wanted = Duration::from_secs(1) * self.plan.events / self.plan.rate;
        while begun.elapsed() < RECOVERY + wanted {
            self.keep_for(CHECKS).await?;
            if self.fleet.are_ready() && self.tally.lock().accepted() >= self.plan.events as usize {
                return Ok(true);
            }
        }
        Ok(false)
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

    /// Waits until each accepted event is delivered or a dead letter. Returns the time; `None` at the deadline.
    async fn settle(&mut self) -> Result<Option<Duration>, Error> {
        let (begun, mut before) = (Instant::now(), None);
        while begun.elapsed() < SETTLED {
            let missing = self.tally.lock().missing();
            // The list of dead letters is long, so it is read when the deliveries have ended.
            if before == Some(missing) && self.read_letters().await? && self.tally.lock().lost().next().is_none() {
                return Ok(Some(begun.elapsed()));
            }
            before = Some(missing);
            self.keep_for(ROUND).await?;
        }
        Ok(None)
    }

    /// Waits for deliveries that are repeated: NATS repeats those of a killed dispatcher after some seconds. Then reads
    /// the dead letters again.
    async fn repeated(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < REPEATED && self.fleet.stored().await != Some(0) {
            self.keep_for(ROUND).await?;
        }
        self.read_letters().await.map(drop)
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
