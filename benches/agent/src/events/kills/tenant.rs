//! The namespaces of the measurement. Events are published for both. Each has a subscriber.

/// Name of the Subscription of each namespace, and of its Service.
pub(super) const SUBSCRIBER: &str = "subscriber";

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tenant {
    /// Has no grant, so it receives its own events only.
    Shop,
    /// Has a grant, so it also receives the events of the shop.
    Partner,
}

impl Tenant {
    pub(super) const ALL: [Self; 2] = [Self::Shop, Self::Partner];

    /// Returns the name of the namespace.
    pub(super) const fn namespace(self) -> &'static str {
        match self {
            Self::Shop => "bench-shop",
            Self::Partner => "bench-partner",
        }
    }

    /// Returns the position in [`Self::ALL`].
    pub(super) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the namespace for which the event with a number is published.
    pub(super) fn of(number: u32) -> Self {
        Self::ALL[number as usize % Self::ALL.len()]
    }

    /// Whether the subscriber of this namespace receives the events of a namespace.
    pub(super) fn receives(self, events: Self) -> bool {
        self == events || (self, events) == (Self::Partner, Self::Shop)
    }

    /// Returns the grant, as an argument of `mainstay eventing run`.
    pub(super) fn grant() -> String {
        format!("--allow-subscriptions={}={}", Self::Partner.namespace(), Self::Shop.namespace())
    }

    /// Returns the namespace of a subscriber in the list of dead letters.
    pub(super) fn of_subscriber(id: &str) -> Option<Self> {
        let (namespace, name) = id.strip_prefix("subscription/")?.split_once('/')?;
        Self::ALL.into_iter().find(|tenant| tenant.namespace() == namespace && name == SUBSCRIBER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscriber_of_dead_letters_has_its_namespace() {
        for tenant in Tenant::ALL {
            assert_eq!(Tenant::of_subscriber(&format!("subscription/{}/subscriber", tenant.namespace())), Some(tenant));
            assert_eq!(Tenant::ALL[tenant.index()], tenant);
        }
        for other in ["", "subscription/bench-shop", "trigger/bench-shop/subscriber", "subscription/other/subscriber"] {
            assert_eq!(Tenant::of_subscriber(other), None, "{other}");
        }
    }
}
