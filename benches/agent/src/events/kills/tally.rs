//! Accounts for each event: accepted, delivered, a dead letter, or lost.
//!
//! Invariant: only an accepted event can be lost, and only for a subscriber that receives its namespace.

use http::StatusCode;

use super::tenant::Tenant;

/// The partner refuses one event of this number, so dead letters exist. Odd, so that both namespaces have some.
const REFUSED: u32 = 201;
/// Each subscriber fails once at one event of this number. Odd, too.
const FAILING: u32 = 101;

/// A dead letter: its subscriber, and the number of its event. `None` is none of this measurement.
pub(super) type Letter = (Option<Tenant>, Option<u32>);

/// All events, by their number.
#[derive(Debug, Default)]
pub(super) struct Tally {
    events: Vec<Event>,
    /// Number of deliveries to a subscriber that does not receive the namespace of the event.
    foreign: usize,
    /// Number of deliveries of events that were not published.
    unknown: usize,
    /// Number of dead letters of a subscriber that does not receive the namespace of the event.
    foreign_letters: usize,
    /// Number of dead letters of events that were not published, or of an unknown subscriber.
    unknown_letters: usize,
}

/// An event.
#[derive(Debug, Default)]
struct Event {
    is_accepted: bool,
    /// The deliveries to each subscriber.
    fates: [Fate; Tenant::ALL.len()],
}

/// The deliveries of an event to a subscriber.
#[derive(Clone, Copy, Debug, Default)]
struct Fate {
    delivered: u32,
    failed: u32,
    letters: u32,
}

impl Fate {
    fn is_lost(self) -> bool {
        self.delivered == 0 && self.letters == 0
    }
}

/// The sums.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub published: usize,
    pub accepted: usize,
    /// Number of pairs of an accepted event and a subscriber that should receive it.
    pub expected: usize,
    /// Number of these pairs that were delivered.
    pub delivered: usize,
    /// Number of these pairs that are dead letters only.
    pub dead: usize,
    /// Number of these dead letters that the subscriber has refused.
    pub refused: usize,
    /// Number of these pairs that were neither delivered nor dead letters.
    pub lost: usize,
    /// Number of all successful deliveries.
    pub deliveries: usize,
    /// Number of successful deliveries after the first one of an event to a subscriber.
    pub duplicates: usize,
    /// Number of pairs that were delivered, and are dead letters, too.
    pub both: usize,
    /// Number of dead letters after the first one of an event for a subscriber.
    pub letters_again: usize,
    pub foreign: usize,
    pub foreign_letters: usize,
    pub unknown: usize,
}

impl Tally {
    /// Adds an event, which is about to be published. Returns its number.
    pub(super) fn begin(&mut self) -> u32 {
        self.events.push(Event::default());
        u32::try_from(self.events.len() - 1).unwrap_or(u32::MAX)
    }

    /// Notes that an event was accepted.
    pub(super) fn accept(&mut self, number: u32) {
        if let Some(event) = self.events.get_mut(number as usize) {
            event.is_accepted = true;
        }
    }

    /// Returns the number of accepted events.
    pub(super) fn accepted(&self) -> usize {
        self.events.iter().filter(|event| event.is_accepted).count()
    }

    /// Notes a delivery to the subscriber of a namespace. Returns its response.
    pub(super) fn deliver(&mut self, to: Tenant, number: Option<u32>) -> StatusCode {
        let event = number.and_then(|number| Some((number, self.events.get_mut(number as usize)?)));
        let Some((number, event)) = event else {
            self.unknown += 1;
            return StatusCode::OK;
        };
        if !to.receives(Tenant::of(number)) {
            self.foreign += 1;
            return StatusCode::OK;
        }
        let fate = &mut event.fates[to.index()];
        if is_refused(to, number) {
            fate.failed += 1;
            return StatusCode::BAD_REQUEST;
        }
        if number % FAILING == FAILING - 1 && fate.failed == 0 {
            fate.failed = 1;
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        fate.delivered += 1;
        StatusCode::OK
    }

    /// Replaces the known dead letters by these.
    pub(super) fn bury(&mut self, letters: &[Letter]) {
        (self.foreign_letters, self.unknown_letters) = (0, 0);
        for fate in self.events.iter_mut().flat_map(|event| &mut event.fates) {
            fate.letters = 0;
        }
        for (to, number) in letters {
            let event = number.and_then(|number| Some((number, self.events.get_mut(number as usize)?)));
            match (to, event) {
                (Some(to), Some((number, event))) if to.receives(Tenant::of(number)) => {
                    event.fates[to.index()].letters += 1;
                }
                (Some(_), Some(_)) => self.foreign_letters += 1,
                _ => self.unknown_letters += 1,
            }
        }
    }

    /// Returns the number of accepted events that a subscriber has not received, with or without dead letters.
    pub(super) fn missing(&self) -> usize {
        self.expected().filter(|(_, _, fate)| fate.delivered == 0).count()
    }

    /// Returns the lost events, each with the namespace of the subscriber.
    pub(super) fn lost(&self) -> impl Iterator<Item = (u32, Tenant)> {
        self.expected().filter(|(_, _, fate)| fate.is_lost()).map(|(number, to, _)| (number, to))
    }

    /// Returns the sums.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts {
            published: self.events.len(),
            accepted: self.accepted(),
            foreign: self.foreign,
            foreign_letters: self.foreign_letters,
            unknown: self.unknown + self.unknown_letters,
            ..Counts::default()
        };
        for (number, to, fate) in self.expected() {
            counts.expected += 1;
            let is_dead = fate.delivered == 0 && fate.letters > 0;
            counts.delivered += usize::from(fate.delivered > 0);
            counts.dead += usize::from(is_dead);
            counts.refused += usize::from(is_dead && fate.failed > 0 && is_refused(to, number));
            counts.lost += usize::from(fate.is_lost());
        }
        for fate in self.events.iter().flat_map(|event| event.fates) {
            counts.deliveries += fate.delivered as usize;
            counts.duplicates += fate.delivered.saturating_sub(1) as usize;
            counts.both += usize::from(fate.delivered > 0 && fate.letters > 0);
            counts.letters_again += fate.letters.saturating_sub(1) as usize;
        }
        counts
    }

    /// Returns each accepted event with each subscriber that should receive it.
    fn expected(&self) -> impl Iterator<Item = (u32, Tenant, Fate)> {
        let accepted = (0_u32..).zip(&self.events).filter(|(_, event)| event.is_accepted);
        accepted.flat_map(|(number, event)| {
            let receiving = Tenant::ALL.into_iter().filter(move |to| to.receives(Tenant::of(number)));
            receiving.map(move |to| (number, to, event.fates[to.index()]))
        })
    }
}

/// Whether the subscriber of a namespace refuses an event.
fn is_refused(to: Tenant, number: u32) -> bool {
    to == Tenant::Partner && number % REFUSED == REFUSED - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns this number of accepted events.
    fn accepted(count: u32) -> Tally {
        let mut tally = Tally::default();
        for number in 0..count {
            assert_eq!(tally.begin(), number);
            tally.accept(number);
        }
        tally
    }

    fn lost(tally: &Tally) -> Vec<(u32, Tenant)> {
        tally.lost().collect()
    }

    #[test]
    fn an_accepted_event_is_lost_for_each_subscriber_that_lacks_it() {
        let mut tally = accepted(2);
        let all = [(0, Tenant::Shop), (0, Tenant::Partner), (1, Tenant::Partner)];
        assert_eq!((lost(&tally), tally.missing()), (all.to_vec(), 3));
        for (number, to) in all {
            assert_eq!(tally.deliver(to, Some(number)), StatusCode::OK);
        }
        assert_eq!((lost(&tally), tally.missing()), (Vec::new(), 0));
        let expected =
            Counts { published: 2, accepted: 2, expected: 3, delivered: 3, deliveries: 3, ..Counts::default() };
        assert_eq!(tally.counts(), expected);
    }

    #[test]
    fn an_event_that_was_not_accepted_is_not_lost_but_may_be_delivered() {
        let mut tally = Tally::default();
        let number = tally.begin();
        assert_eq!((lost(&tally), tally.accepted()), (Vec::new(), 0));
        tally.deliver(Tenant::Shop, Some(number));
        let expected = Counts { published: 1, deliveries: 1, ..Counts::default() };
        assert_eq!(tally.counts(), expected);
    }

    #[test]
    fn further_deliveries_of_an_event_to_a_subscriber_are_duplicates() {
        let mut tally = accepted(1);
        for to in [Tenant::Shop, Tenant::Shop, Tenant::Shop, Tenant::Partner] {
            tally.deliver(to, Some(0));
        }
        let counts = tally.counts();
        assert_eq!((counts.deliveries, counts.duplicates, counts.delivered, counts.lost), (4, 2, 2, 0));
    }

    #[test]
    fn events_without_a_grant_and_unpublished_events_are_counted_apart() {
        let mut tally = accepted(2);
        tally.deliver(Tenant::Shop, Some(1));
        tally.deliver(Tenant::Shop, Some(2));
        tally.deliver(Tenant::Partner, None);
        tally.bury(&[
            (Some(Tenant::Shop), Some(1)),
            (None, Some(0)),
            (Some(Tenant::Shop), None),
            (Some(Tenant::Shop), Some(7)),
        ]);
        let counts = tally.counts();
        assert_eq!((counts.foreign, counts.foreign_letters, counts.unknown), (1, 1, 5));
        assert_eq!((counts.deliveries, counts.lost), (0, 3), "they count as deliveries to no subscriber");
    }

    #[test]
    fn a_refused_event_is_lost_unless_it_is_a_dead_letter() {
        let mut tally = accepted(REFUSED);
        for number in 0..REFUSED {
            for to in Tenant::ALL.into_iter().filter(|to| to.receives(Tenant::of(number))) {
                // The first response may be a failure.
                tally.deliver(to, Some(number));
                tally.deliver(to, Some(number));
            }
        }
        let refused = (REFUSED - 1, Tenant::Partner);
        assert_eq!((lost(&tally), tally.missing()), (vec![refused], 1));
        let letter = (Some(refused.1), Some(refused.0));
        tally.bury(&[letter, letter, (Some(Tenant::Shop), Some(0))]);
        assert_eq!((lost(&tally), tally.missing()), (Vec::new(), 1));
        let counts = tally.counts();
        assert_eq!((counts.dead, counts.refused, counts.both, counts.letters_again), (1, 1, 1, 1));
        // Each list of dead letters is complete.
        tally.bury(&[]);
        assert_eq!(lost(&tally), [refused]);
    }

    #[test]
    fn a_failing_subscriber_takes_the_event_at_the_second_delivery() {
        let (mut tally, number) = (accepted(FAILING), FAILING - 1);
        for to in Tenant::ALL.into_iter().filter(|to| to.receives(Tenant::of(number))) {
            assert_eq!(tally.deliver(to, Some(number)), StatusCode::INTERNAL_SERVER_ERROR);
            assert_eq!(tally.deliver(to, Some(number)), StatusCode::OK);
        }
        assert_eq!(tally.counts().duplicates, 0);
    }
}
