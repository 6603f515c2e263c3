//! The time of each step of a Function, and their table.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    time::{Duration, Instant},
};

use super::{functions::Case, steps};
use crate::observer::Seen;

/// The steps of one Function.
pub(super) struct Timeline {
    start: Instant,
    steps: BTreeMap<String, Duration>,
}

impl Timeline {
    /// Creates a timeline that starts with the creation of the Function.
    pub(super) fn new(start: Instant) -> Self {
        Self { start, steps: BTreeMap::new() }
    }

    /// Records an observed object if it belongs to this Function or its pods.
    pub(super) fn note(&mut self, function: &str, seen: &Seen, at: Instant) {
        let of_it = seen.name.strip_prefix(function).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        for step in seen.state.split(',').filter(|step| of_it && !step.is_empty()) {
            self.at(step, at);
        }
    }

    /// Records a step at its earliest time.
    pub(super) fn at(&mut self, step: &str, at: Instant) {
        let length = at.saturating_duration_since(self.start);
        let known = self.steps.entry(step.to_owned()).or_insert(length);
        *known = length.min(*known);
    }

    /// Whether the Function ran within the target time.
    pub(super) fn held(&self, promised: Duration) -> bool {
        self.steps.get(steps::RUNNING).is_some_and(|length| *length <= promised)
    }
}

/// Formats a row per step and a column per Function, in seconds since its creation.
pub(super) fn markdown(lines: &[(Case, Timeline)]) -> String {
    let mut text = "\nSeconds since each Function was created, alone on the cluster:\n\n| step |".to_owned();
    let mut row = |name: &str, cell: &dyn Fn(&Case, &Timeline) -> String| {
        text.push_str(name);
        for (case, line) in lines {
            // Writing to a String cannot fail.
            let _ = write!(text, " {} |", cell(case, line));
        }
        text.push('\n');
    };
    row("", &|case, _| case.title.to_owned());
    row("|---|", &|_, _| "---".to_owned());
    for step in steps::ALL {
        row(&format!("| {step} |"), &|_, line| match line.steps.get(*step) {
            Some(length) => format!("{:.2}", length.as_secs_f64()),
            None => "–".to_owned(),
        });
    }
    row("| promised |", &|case, line| {
        let verdict = if line.held(case.promised) { "held" } else { "**missed**" };
        format!("≤ {}, {verdict}", case.promised.as_secs())
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nodes::functions;

    #[test]
    fn a_step_counts_when_it_is_seen_first_and_those_of_others_do_not() {
        let start = Instant::now();
        let mut line = Timeline::new(start);
        let after = |seconds| start + Duration::from_secs(seconds);
        let seen = |name: &str, state: &str| Seen { name: name.to_owned(), state: state.to_owned() };
        line.note("f", &seen("f", "Job created"), after(1));
        line.note("f", &seen("f", "Job created,Job complete"), after(3));
        line.note("f", &seen("f-abc", "image pulled"), after(4));
        line.note("f", &seen("fg", "pod ready"), after(4));
        line.at(steps::RUNNING, after(6));
        let table = markdown(&[(functions::all(None).remove(0), line)]);
        for row in ["| Job created | 1.00 |", "| Job complete | 3.00 |", "| image pulled | 4.00 |", "| pod ready | – |"]
        {
            assert!(table.contains(row), "{row} in {table}");
        }
        assert!(table.ends_with("| Running | 6.00 |\n| promised | ≤ 5, **missed** |\n"), "{table}");
    }
}
