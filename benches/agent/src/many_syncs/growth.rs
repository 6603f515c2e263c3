//! How the cost grows with the number of GitSyncs. Each number is measured in a world of its own.

use super::{
    Error, Product,
    place::Place,
    progress,
    situations::{self, Timed},
    table::{Row, Target},
    world::World,
};

/// Target for the growth of time, CPU and memory, relative to the growth of the number of GitSyncs.
const PROMISED: f64 = 1.05;

/// Measures the first sync and an upgrade for each number.
pub(super) async fn all(product: &Product, place: &Place, counts: &[u32]) -> Result<Vec<Row>, Error> {
    let (mut rows, mut before): (Vec<Row>, Option<(u32, Vec<Timed>)>) = (Vec::new(), None);
    for &count in counts {
        progress(&format!("{count} GitSyncs"));
        let mut world = World::start(product, place, count as usize).await?;
        let mut measured = vec![situations::created(&mut world).await?];
        measured.push(situations::upgraded(&mut world).await?);
        measured.push(situations::restart(&mut world).await?);
        if let Some((fewer, old)) = &before {
            for (row, old) in measured.iter_mut().zip(old) {
                let targets = targets(f64::from(count) / f64::from(*fewer), old, row);
                row.row.targets.extend(targets);
            }
        }
        let done = before.replace((count, measured));
        rows.extend(done.into_iter().flat_map(|(_, rows)| rows).map(|timed| timed.row));
    }
    rows.extend(before.into_iter().flat_map(|(_, rows)| rows).map(|timed| timed.row));
    Ok(rows)
}

/// Compares a row with the row of fewer GitSyncs. `times` is the ratio of the numbers.
fn targets(times: f64, old: &Timed, new: &Timed) -> [Target; 3] {
    let most = times * PROMISED;
    let target = |what: &str, old: f64, new: f64| {
        let ratio = new / old;
        Target::new(format!("{what} {ratio:.2} ≤ {most:.2}"), ratio <= most)
    };
    [
        target("time", old.took.as_secs_f64(), new.took.as_secs_f64()),
        target("CPU", old.row.processor_seconds, new.row.processor_seconds),
        target("memory", old.row.peak_mib, new.row.peak_mib),
    ]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::counters::Requests;

    #[test]
    fn growth_beyond_the_number_is_a_missed_promise() {
        let row = |seconds, processor_seconds, peak_mib| Timed {
            row: Row {
                situation: String::new(),
                wall: String::new(),
                requests: Requests::default(),
                events: 0,
                peak_mib,
                processor_seconds,
                targets: Vec::new(),
            },
            took: Duration::from_secs(seconds),
        };
        let missed = |old: &Timed, new: &Timed| {
            targets(4.0, old, new)
                .into_iter()
                .filter(|target| !target.held)
                .map(|target| target.text)
                .collect::<Vec<_>>()
        };
        assert_eq!(missed(&row(1, 1.0, 50.0), &row(4, 4.2, 60.0)), [""; 0]);
        assert_eq!(missed(&row(1, 1.0, 50.0), &row(5, 4.3, 60.0)), ["time 5.00 ≤ 4.20", "CPU 4.30 ≤ 4.20"]);
    }
}
