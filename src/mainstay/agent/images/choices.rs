//! The images that ImagePolicies have chosen.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::agent::kept::Name;
use mainstay_api::image_policy::ChosenImage;

/// The choices of all ImagePolicies.
#[derive(Debug, Default)]
pub(super) struct Choices {
    all: Mutex<HashMap<Name, Choice>>,
    changed: watch::Sender<u64>,
}

/// The choice of an ImagePolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// The number of the task that made it.
    pub(super) number: u64,
    /// The labels of the ImagePolicy.
    pub(super) labels: BTreeMap<String, String>,
    pub(super) image: ChosenImage,
}

impl Choices {
    /// Follows the choices.
    pub(super) fn listen(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns the choices of a namespace by the names of the ImagePolicies whose labels are selected.
    pub(super) fn of(
        &self,
        namespace: &str,
        selects: impl Fn(&BTreeMap<String, String>) -> bool,
    ) -> BTreeMap<String, ChosenImage> {
        let all = self.all.lock();
        let own = all.iter().filter(|(policy, choice)| policy.0 == namespace && selects(&choice.labels));
        own.map(|(policy, choice)| (policy.1.clone(), choice.image.clone())).collect()
    }

    /// Sets a choice.
    pub(super) fn set(&self, policy: &Name, choice: Choice) {
        let old = self.all.lock().insert(policy.clone(), choice.clone());
        if old.as_ref() != Some(&choice) {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Removes a choice, unless a newer task has made it.
    pub(super) fn remove(&self, policy: &Name, number: u64) {
        let mut all = self.all.lock();
        if all.get(policy).is_some_and(|choice| choice.number == number) {
            all.remove(policy);
            self.changed.send_modify(|count| *count += 1);
        }
    }
}
