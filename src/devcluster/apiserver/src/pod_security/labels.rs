//! The Pod Security policy in the labels of a namespace.

use std::fmt;

use serde_json::Value;

use crate::status::Cause;

/// The strictness of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    const ALL: [(&'static str, Self); 3] =
        [("privileged", Self::Privileged), ("baseline", Self::Baseline), ("restricted", Self::Restricted)];

    fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, level)| *level);
        found.ok_or_else(|| format!("must be one of {}", Self::ALL.map(|(name, _)| name).join(", ")))
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, level)| level == self).map_or("", |(name, _)| name);
        f.write_str(name)
    }
}

/// The Kubernetes version whose checks apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// `v1.` and this number.
    Minor(u64),
    Latest,
}

impl Version {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "latest" {
            return Ok(Self::Latest);
        }
        let minor = text.strip_prefix("v1.").filter(|minor| *minor == "0" || !minor.starts_with('0'));
        let minor = minor.filter(|minor| minor.bytes().all(|byte| byte.is_ascii_digit()));
        let minor = minor.and_then(|minor| minor.parse().ok()).map(Self::Minor);
        minor.ok_or_else(|| "must be \"latest\" or \"v1.x\"".to_owned())
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Minor(minor) => write!(f, "v1.{minor}"),
            Self::Latest => f.write_str("latest"),
        }
    }
}

/// The level and version that pods are checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Standard {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl Standard {
    const PRIVILEGED: Self = Self { level: Level::Privileged, version: Version::Latest };
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level, self.version)
    }
}

/// The policy of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    /// A pod that violates this standard is refused.
    pub(super) enforce: Standard,
    /// A pod or workload that violates this standard causes a warning.
    pub(super) warn: Standard,
}

/// Returns the policy in the labels and the errors in the labels. An invalid `enforce` label enforces the strictest
/// level. An invalid `warn` label disables warnings.
pub(super) fn policy(labels: &Value) -> (Policy, Vec<Cause>) {
    let mut causes = Vec::new();
    let mut enforce = Standard::PRIVILEGED;
    let mut warn = Standard::PRIVILEGED;
    let level = level_of(labels, "enforce", &mut causes);
    enforce.level = level.unwrap_or(Ok(Level::Privileged)).unwrap_or(Level::Restricted);
    enforce.version = version_of(labels, "enforce-version", &mut causes).unwrap_or(Version::Latest);
    level_of(labels, "audit", &mut causes);
    version_of(labels, "audit-version", &mut causes);
    let warned = level_of(labels, "warn", &mut causes);
    let warned_version = version_of(labels, "warn-version", &mut causes);
    warn.level = warned.unwrap_or(Ok(Level::Privileged)).unwrap_or(Level::Privileged);
    warn.version = warned_version.unwrap_or(Version::Latest);
    // An enforced level also warns about the workloads that create pods.
    if warned.is_none() && matches!(level, Some(Ok(level)) if level > Level::Privileged) {
        warn.level = enforce.level;
        if warned_version.is_none() {
            warn.version = enforce.version;
        }
    }
    (Policy { enforce, warn }, causes)
}

/// Returns the level of a label; `None` if missing, `Err` if invalid.
fn level_of(labels: &Value, label: &str, causes: &mut Vec<Cause>) -> Option<Result<Level, ()>> {
    read(labels, label, causes, Level::parse)
}

/// Returns the version of a label. An invalid version counts as the latest.
fn version_of(labels: &Value, label: &str, causes: &mut Vec<Cause>) -> Option<Version> {
    Some(read(labels, label, causes, Version::parse)?.unwrap_or(Version::Latest))
}

fn read<T>(
    labels: &Value,
    label: &str,
    causes: &mut Vec<Cause>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<Result<T, ()>> {
    let label = format!("pod-security.kubernetes.io/{label}");
    let value = &labels[&label];
    let parsed = parse(value.as_str()?);
    Some(parsed.map_err(|why| causes.push(Cause::invalid(format!("metadata.labels[{label}]"), value, &why))))
}
