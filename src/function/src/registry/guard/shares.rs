//! Limits the concurrent requests of each namespace, so that no namespace can block the others.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Maximum number of concurrent requests of one namespace.
pub(super) const SHARE: usize = 48;

/// The number of current requests of each namespace.
#[derive(Clone, Default)]
pub(super) struct Shares(Arc<Mutex<BTreeMap<String, usize>>>);

/// A current request. The request counts until this value is dropped.
pub(super) struct Place {
    shares: Shares,
    namespace: String,
}

impl Shares {
    /// Counts a request of a namespace; `None` if the namespace has reached its maximum.
    pub(super) fn take(&self, namespace: &str) -> Option<Place> {
        let mut all = self.0.lock();
        let taken = all.entry(namespace.to_owned()).or_default();
        if *taken >= SHARE {
            return None;
        }
        *taken += 1;
        Some(Place { shares: self.clone(), namespace: namespace.to_owned() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.shares.0.lock();
        if let Some(taken) = all.get_mut(&self.namespace) {
            *taken -= 1;
            if *taken == 0 {
                all.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_has_so_many_places_and_takes_none_of_another() {
        let shares = Shares::default();
        let taken: Vec<_> = (0..SHARE).map(|_| shares.take("team").unwrap()).collect();
        assert!(shares.take("team").is_none() && shares.take("shop").is_some());
        drop(taken);
        assert!(shares.take("team").is_some() && shares.0.lock().is_empty());
    }
}
