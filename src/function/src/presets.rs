//! Presets: named defaults for replicas and resources, which a Function's labels select.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::quantity::Quantity;
use mainstay_api::Amount;

/// A preset for replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplicasPreset {
    /// Minimum number of replicas.
    #[serde(default)]
    pub min: Option<i64>,
    /// Maximum number of replicas.
    #[serde(default)]
    pub max: Option<i64>,
}

/// A preset for CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourcesPreset {
    /// CPU request.
    #[serde(default)]
    pub request_cpu: Option<Amount>,
    /// Memory request.
    #[serde(default)]
    pub request_memory: Option<Amount>,
    /// CPU limit.
    #[serde(default)]
    pub limit_cpu: Option<Amount>,
    /// Memory limit.
    #[serde(default)]
    pub limit_memory: Option<Amount>,
}

/// Presets by name, and the default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presets<T> {
    /// All presets.
    pub all: BTreeMap<String, T>,
    /// Name of the default preset.
    pub default: String,
    /// The preset for Functions without a label, instead of the default.
    pub unnamed: Option<T>,
}

/// A preset selected by a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen<'a, T> {
    /// An existing preset, or the default.
    Known(&'a T),
    /// The label names a preset that does not exist; the default is used.
    Unknown(&'a T),
}

impl<T> Presets<T> {
    pub(super) fn of(default: &str, all: impl IntoIterator<Item = (&'static str, T)>) -> Self {
        let all = all.into_iter().map(|(name, preset)| (name.to_owned(), preset)).collect();
        Self { all, default: default.to_owned(), unnamed: None }
    }

    /// Returns the default preset. [`Settings`](super::Settings) always has one.
    pub fn fallback(&self) -> Option<&T> {
        self.all.get(&self.default)
    }

    /// Returns the preset that a label's value selects.
    pub fn choose(&self, label: Option<&str>) -> Option<Chosen<'_, T>> {
        let fallback = self.fallback()?;
        Some(match label.filter(|name| !name.is_empty()) {
            None => Chosen::Known(self.unnamed.as_ref().unwrap_or(fallback)),
            Some(name) => self.all.get(name).map_or(Chosen::Unknown(fallback), Chosen::Known),
        })
    }

    /// Returns the names of the presets, for messages.
    pub fn names(&self) -> String {
        self.all.keys().cloned().collect::<Vec<_>>().join(", ")
    }
}

impl ResourcesPreset {
    /// Returns all amounts.
    pub(super) fn amounts(&self) -> [Option<&Amount>; 4] {
        let Self { request_cpu, request_memory, limit_cpu, limit_memory } = self;
        [request_cpu, request_memory, limit_cpu, limit_memory].map(Option::as_ref)
    }

    /// Returns this preset. Missing or zero amounts come from `fallback`.
    pub(super) fn or(&self, fallback: &Self) -> Self {
        let pick = |own: &Option<Amount>, other: &Option<Amount>| {
            let own = own.as_ref().filter(|amount| !Quantity::parse(&amount.0).is_some_and(Quantity::is_zero));
            own.or(other.as_ref()).cloned()
        };
        Self {
            request_cpu: pick(&self.request_cpu, &fallback.request_cpu),
            request_memory: pick(&self.request_memory, &fallback.request_memory),
            limit_cpu: pick(&self.limit_cpu, &fallback.limit_cpu),
            limit_memory: pick(&self.limit_memory, &fallback.limit_memory),
        }
    }

    /// Returns this preset with a memory limit of at least `least`.
    pub(super) fn with_memory(mut self, least: &Amount) -> Self {
        let size = |amount: &Amount| Quantity::parse(&amount.0);
        if let Some(limit) = self.limit_memory.as_mut().filter(|limit| size(limit) < size(least)) {
            limit.clone_from(least);
        }
        self
    }

    fn of([request_cpu, request_memory, limit_cpu, limit_memory]: [&str; 4]) -> Self {
        Self {
            request_cpu: Some(request_cpu.into()),
            request_memory: Some(request_memory.into()),
            limit_cpu: Some(limit_cpu.into()),
            limit_memory: Some(limit_memory.into()),
        }
    }
}

/// Presets for replicas. The default is `S`.
pub fn replicas() -> Presets<ReplicasPreset> {
    let of = |min, max| ReplicasPreset { min: Some(min), max: Some(max) };
    Presets::of("S", [("S", of(1, 1)), ("M", of(1, 2)), ("L", of(1, 5)), ("XL", of(1, 10))])
}

/// Presets for resources of serving pods. The default is `M`. A memory limit below the runtime's minimum
/// ([`least_memory`](crate::runtimes::Runtime::least_memory)) is raised to it.
pub fn function() -> Presets<ResourcesPreset> {
    let of = ResourcesPreset::of;
    Presets::of(
        "M",
        [
            ("XS", of(["10m", "16Mi", "25m", "32Mi"])),
            ("S", of(["25m", "32Mi", "50m", "64Mi"])),
            ("M", of(["50m", "64Mi", "100m", "128Mi"])),
            ("L", of(["100m", "128Mi", "200m", "256Mi"])),
            ("XL", of(["200m", "256Mi", "400m", "512Mi"])),
        ],
    )
}

/// Presets for resources of builds. The default is `normal`.
///
/// A build without a preset has the limits of `normal`, but requests only the allowed minimum. So seven builds instead
/// of two fit on two cores.
pub fn build() -> Presets<ResourcesPreset> {
    let of = ResourcesPreset::of;
    let presets = Presets::of(
        "normal",
        [
            ("local-dev", of(["200m", "200Mi", "400m", "400Mi"])),
            ("slow", of(["400m", "400Mi", "700m", "700Mi"])),
            ("normal", of(["700m", "700Mi", "1100m", "1100Mi"])),
            ("fast", of(["1100m", "1100Mi", "1700m", "1700Mi"])),
        ],
    );
    Presets { unnamed: Some(of(["200m", "200Mi", "1100m", "1100Mi"])), ..presets }
}
