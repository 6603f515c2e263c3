//! The ID and the data of events.

use crate::events::publisher::DATA;

/// The data of each event.
pub(super) static CONTENT: [u8; DATA] = [b'x'; DATA];

/// The IDs of a run. No other run has them, so its events count as unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ids {
    run: i64,
}

impl Ids {
    pub(super) fn new() -> Self {
        Self { run: jiff::Timestamp::now().as_microsecond() }
    }

    /// Returns the ID of the event with a number.
    pub(super) fn id(self, number: u32) -> String {
        format!("{}-{number}", self.run)
    }

    /// Returns the number of the event with an ID.
    pub(super) fn number(self, id: &str) -> Option<u32> {
        let (run, number) = id.rsplit_once('-')?;
        if run.parse::<i64>() == Ok(self.run) { number.parse().ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_another_run_has_no_number() {
        let (own, other) = (Ids { run: 7 }, Ids { run: 8 });
        assert_eq!((own.id(3), own.number("7-3")), ("7-3".to_owned(), Some(3)));
        for id in [&*other.id(3), "3", "", "7", "7-", "7-x", "-3"] {
            assert_eq!(own.number(id), None, "{id}");
        }
    }
}
