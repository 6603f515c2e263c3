//! The GitRepositories for the URLs in Applications.

use std::collections::BTreeMap;

use serde_json::json;

use super::converted::{Converted, Printed};
use super::refused::problems;
use super::report::Conversion;

/// One GitRepository for each namespace and URL.
#[derive(Debug, Default)]
pub(super) struct Repositories {
    made: BTreeMap<(String, String), Converted>,
}

impl Repositories {
    /// Returns the name of the GitRepository for a URL.
    pub(super) fn name_of(&mut self, namespace: &str, url: &str) -> String {
        let key = (namespace.to_owned(), url.to_owned());
        if let Some(made) = self.made.get(&key) {
            return made.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        }
        let plain = name(url);
        let is_taken = |name: &str| {
            let own = self.made.iter().filter(|((other, _), _)| other == namespace);
            own.map(|(_, made)| &made.object["metadata"]["name"]).any(|taken| taken == name)
        };
        let mut free = plain.clone();
        let mut number = 1;
        while is_taken(&free) {
            number += 1;
            free = format!("{plain}-{number}");
        }
        let mut made = Converted::new(Printed::GitRepository, namespace, &free);
        made.put("url", url);
        if is_ssh(url) {
            made.put("auth", json!({"type": "key", "secretName": free}));
        }
        self.made.insert(key, made);
        free
    }

    /// Returns the problems of the GitRepository for a URL.
    pub(super) fn problems(&self, namespace: &str, url: &str) -> Vec<String> {
        self.made.get(&(namespace.to_owned(), url.to_owned())).map(problems).unwrap_or_default()
    }

    /// Returns the GitRepositories, without notes.
    pub(super) fn into_conversion(self) -> Conversion {
        Conversion { objects: self.made.into_values().collect(), judged: Vec::new() }
    }
}

/// Whether the URL needs a login with an SSH key.
pub(super) fn is_ssh(url: &str) -> bool {
    url.starts_with("ssh://") || (!url.contains("://") && url.contains('@'))
}

/// Returns a name for a URL: the last part of its path.
fn name(url: &str) -> String {
    let last = url.trim_end_matches('/').trim_end_matches(".git").rsplit(['/', ':']).next().unwrap_or_default();
    let plain: String =
        last.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "repository".to_owned() } else { plain.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_a_name() {
        let mut repositories = Repositories::default();
        for (namespace, url, expected) in [
            ("a", "https://example.org/team/Shop.git", "shop"),
            ("a", "git@example.org:other/shop.git", "shop-2"),
            ("a", "https://example.org/team/Shop.git", "shop"),
            ("b", "git@example.org:other/shop.git", "shop"),
            ("b", "https://example.org/", "example-org"),
            ("b", "", "repository"),
        ] {
            assert_eq!(repositories.name_of(namespace, url), expected, "{url}");
        }
    }
}
