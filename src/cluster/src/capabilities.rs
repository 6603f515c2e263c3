//! The version of a cluster and its API versions, which Helm charts may use.
//!
//! Not here: requests ([`discover`](super::discover)).

use std::sync::Arc;

use serde::Deserialize;
use serde::de::Error as _;

use super::served::Table;

/// Maximum length of a version.
const LONGEST: usize = 128;

/// The version of a cluster and its API versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The version of Kubernetes, such as `v1.32.4`.
    pub kube_version: String,
    /// Each group and version (`apps/v1`, `v1`), and each kind in them (`apps/v1/Deployment`), sorted.
    pub api_versions: Vec<String>,
}

/// The last capabilities, and the table from which they were built.
pub(super) type Known = Option<(Arc<Table>, Arc<Capabilities>)>;

impl Capabilities {
    pub(super) fn of(version: &Version, table: &Table) -> Self {
        let mut api_versions = Vec::new();
        for (group, version, kind) in table.kinds.keys() {
            let api_version = if group.is_empty() { version.to_string() } else { format!("{group}/{version}") };
            api_versions.push(format!("{api_version}/{kind}"));
            api_versions.push(api_version);
        }
        api_versions.retain(|name| name.chars().all(|c| c.is_ascii_alphanumeric() || "./-".contains(c)));
        api_versions.sort_unstable();
        api_versions.dedup();
        Self { kube_version: version.git_version.clone(), api_versions }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Version {
    git_version: String,
}

impl Version {
    pub(super) fn parse(answer: &[u8]) -> Result<Self, serde_json::Error> {
        let version: Self = serde_json::from_slice(answer)?;
        let text = &version.git_version;
        let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || ".+-".contains(c));
        let is_version = text.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        if is_plain && is_version && text.len() <= LONGEST {
            Ok(version)
        } else {
            Err(serde_json::Error::custom("gitVersion is not a version of Kubernetes"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_are_versions() {
        let parse = |text: &str| Version::parse(format!("{{\"gitVersion\": \"{text}\"}}").as_bytes()).is_ok();
        for good in ["v1.32.4", "v1.30.0+k3s1", "v1.29.3-gke.1282000", "v1.35.0-alpha.1"] {
            assert!(parse(good), "{good}");
        }
        for bad in ["", "1.32", "--version", "v1 --post-renderer=x", "v", "latest"] {
            assert!(!parse(bad), "{bad}");
        }
        assert!(Version::parse(b"{}").is_err());
    }
}
