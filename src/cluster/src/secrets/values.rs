//! The ConfigMaps and Secrets with values that one GitSync names.

use super::{Followed, Known, Purpose, Secrets};
use mainstay_api::git_sync::{SubstituteSource, SubstituteSourceKind};

/// The followed sources of one GitSync; none by default.
#[derive(Debug, Default)]
pub struct ValueSources(Vec<(SubstituteSource, Followed)>);

impl ValueSources {
    /// From now on these sources are followed, and no others; what is known of each.
    pub async fn of(&mut self, secrets: &Secrets, namespace: &str, sources: &[SubstituteSource]) -> Vec<Known> {
        let is_same = |(followed, wanted): (&(SubstituteSource, Followed), &SubstituteSource)| {
            followed.0.kind == wanted.kind && followed.1.of() == (namespace, &wanted.name)
        };
        if self.0.len() != sources.len() || !self.0.iter().zip(sources).all(is_same) {
            let follow = |source: &SubstituteSource| match source.kind {
                SubstituteSourceKind::Secret => secrets.follow(namespace, &source.name, Purpose::Values),
                SubstituteSourceKind::ConfigMap => secrets.follow_config_map(namespace, &source.name),
            };
            // A reference that stays has both for a moment, so that its watch goes on.
            self.0 = sources.iter().map(|source| (source.clone(), follow(source))).collect();
        }
        let mut known = Vec::with_capacity(self.0.len());
        for (_, followed) in &mut self.0 {
            known.push(followed.known().await);
        }
        known
    }

    /// All of them, to wait for changes.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Followed> {
        self.0.iter_mut().map(|(_, followed)| followed)
    }
}
