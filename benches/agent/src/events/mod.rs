//! The cost of events: publishers, both stores and subscribers, compared with a NATS server without Mainstay.
//!
//! Not here: the TLS of NATS, which both have equally in an installation.

mod broker;
pub(super) mod kills;
mod publisher;
mod run;
mod subscribers;

use super::{
    Error, Product,
    counters::Requests,
    process::Process,
    progress,
    stand::{self, NAMESPACE, Stand},
    table::{Latencies, Row, Target, duration},
};

use broker::{Broker, Durability};
use run::{Measured, Run, Store};

/// Promised maximum memory of a process of events in MiB.
const MEMORY: f64 = 64.0;
/// Numbers of subscribers.
const SUBSCRIBERS: [usize; 2] = [1, 10];
/// The promised rate, compared with the broker.
const RATE: f64 = 0.5;
/// The promised 99th percentile, compared with the broker.
const SLOWER: u32 = 2;

/// Measures both stores and the broker with this many events.
pub(super) async fn measure(product: &Product, count: u32) -> Result<Vec<Row>, Error> {
    let stand = Stand::start(product, None, MEMORY).await?;
    stand.define(&product.event_definitions).await?;
    let (mut rows, directory) = (Vec::new(), stand.directory());
    let later = Broker::start(directory, Durability::Later).await?;
    let immediate = Broker::start(directory, Durability::Immediate).await?;
    for subscribers in SUBSCRIBERS {
        let mut bare = None;
        for store in [Store::Bare, Store::Nats, Store::BareOnDisk, Store::Journal] {
            progress::progress(&format!("{}, {subscribers} subscribers", store.text()));
            let broker = match store.durability() {
                Durability::Later => &later,
                Durability::Immediate => &immediate,
            };
            let measured = Run { stand: &stand, broker, store, subscribers, count }.measure().await?;
            rows.push(row(store, subscribers, &measured, bare.as_ref().filter(|_| !store.is_bare())));
            if store.is_bare() {
                bare = Some(measured);
            }
        }
    }
    Ok(rows)
}

/// Returns the row of a measurement. The broker without Mainstay, with the same durability, is the comparison of a store.
fn row(store: Store, subscribers: usize, measured: &Measured, bare: Option<&Measured>) -> Row {
    let targets = bare.map_or_else(Vec::new, |bare| {
        let (rate, p99) = (bare.rate * RATE, bare.p99 * SLOWER);
        vec![
            Target::new(format!("≥ {rate:.0} events/s"), measured.rate >= rate),
            Target::new(format!("p99 ≤ {}", duration(p99)), measured.p99 <= p99),
            Target::new(format!("≤ {MEMORY} MiB"), measured.peak_mib <= MEMORY),
        ]
    });
    let Measured { accepted, rate, p50, p99, peak_mib, processor_seconds } = *measured;
    Row {
        situation: format!(
            "{}, {subscribers} subscribers: {accepted:.0} events/s accepted, {rate:.0} delivered",
            store.text()
        ),
        wall: format!("p50 {}, p99 {}", duration(p50), duration(p99)),
        requests: Requests::default(),
        events: 0,
        peak_mib,
        processor_seconds,
        targets,
    }
}
