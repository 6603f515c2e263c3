//! Parses settings from the data of a ConfigMap. Its keys are variables, or value paths of Kyma's chart.
//!
//! Invariant: one invalid key refuses the whole ConfigMap. Every invalid key is reported, and none is ignored silently.

use std::collections::BTreeMap;

use super::super::{BaseImage, Builder, Settings};
use super::paths::{self, Path};
use super::table::{EXECUTOR_ARGS, EXECUTOR_IMAGE, Set, VARIABLES};
use super::unknown::{REFUSED, nearest};
use super::{InvalidVariable, incomplete};
use crate::runtimes;

const KANIKO: &str = "builds run Kaniko only with MAINSTAY_BUILDER=kaniko";
/// Prefix of the paths of base images.
const IMAGES: &str = "images.runtimes.";

/// A key that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithoutEffect {
    /// The key.
    pub key: String,
    /// The reason that the key has no effect.
    pub why: &'static str,
}

/// The parsed keys, in the order in which they are applied.
#[derive(Default)]
struct Read<'d> {
    /// The keys of each variable, with their values.
    variables: BTreeMap<&'static str, Vec<(&'d str, &'d str)>>,
    presets: Vec<(&'d str, &'d str, Set)>,
    /// The key, repository and tag for each runtime.
    images: BTreeMap<&'d str, (&'d str, Option<&'d str>, Option<&'d str>)>,
    without_effect: Vec<WithoutEffect>,
    refused: Vec<InvalidVariable>,
}

impl Settings {
    /// Returns `base` with the settings from a ConfigMap, and the keys without an effect. For an empty value, the value
    /// of `base` is kept. Fails with all invalid keys.
    pub fn from_config_map(
        base: Self,
        data: &BTreeMap<String, String>,
    ) -> Result<(Self, Vec<WithoutEffect>), Vec<InvalidVariable>> {
        let mut read = Read::default();
        for (key, value) in data.iter().filter(|(_, value)| !value.trim().is_empty()) {
            read.take(key, value.trim());
        }
        let Read { variables, presets, images, mut without_effect, mut refused } = read;
        let mut settings = base;
        let mut refuse = |key: &str, why: String| refused.push(InvalidVariable { name: key.to_owned(), why });
        for known in VARIABLES {
            match variables.get(known.name).map(Vec::as_slice) {
                None => {}
                Some([(key, value)]) => {
                    if let Err(why) = (known.set)(&mut settings, value) {
                        refuse(key, why);
                    }
                }
                Some(several) => {
                    let keys = several.iter().map(|(key, _)| *key).collect::<Vec<_>>().join(" and ");
                    refuse(several[0].0, format!("{keys} are the same setting; keep one of them"));
                }
            }
        }
        for (key, value, set) in presets {
            if let Err(why) = set(&mut settings, value) {
                refuse(key, why);
            }
        }
        for (runtime, (key, repository, tag)) in images {
            match image(runtime, repository, tag) {
                Ok(image) => _ = settings.base_images.insert(runtime.to_owned(), image),
                Err(why) => refuse(key, why),
            }
        }
        if settings.builder != Builder::Kaniko {
            let of_kaniko =
                [EXECUTOR_IMAGE, EXECUTOR_ARGS].into_iter().filter_map(|name| variables.get(name)).flatten();
            without_effect.extend(of_kaniko.map(|(key, _)| WithoutEffect { key: (*key).to_owned(), why: KANIKO }));
            without_effect.sort_by(|a, b| a.key.cmp(&b.key));
        }
        refused.extend(incomplete(&settings));
        refused.sort_by(|a, b| a.name.cmp(&b.name));
        if refused.is_empty() { Ok((settings, without_effect)) } else { Err(refused) }
    }
}

impl<'d> Read<'d> {
    fn take(&mut self, key: &'d str, value: &'d str) {
        if let Some(known) = VARIABLES.iter().find(|known| known.name == key) {
            return self.variables.entry(known.name).or_default().push((key, value));
        }
        if let Some((runtime, part)) = key.strip_prefix(IMAGES).and_then(|rest| rest.rsplit_once('.')) {
            let image = self.images.entry(runtime).or_insert((key, None, None));
            match part {
                "repository" => return image.1 = Some(value),
                "tag" => return image.2 = Some(value),
                _ => {}
            }
        }
        let why = match paths::find(key) {
            Some(Path::Variable(name)) => return self.variables.entry(name).or_default().push((key, value)),
            Some(Path::Preset(set)) => return self.presets.push((key, value, set)),
            Some(Path::WithoutEffect(why)) => {
                return self.without_effect.push(WithoutEffect { key: key.to_owned(), why });
            }
            Some(Path::Refused(why)) => why.to_owned(),
            None => unknown(key),
        };
        self.refused.push(InvalidVariable { name: key.to_owned(), why });
    }
}

fn unknown(key: &str) -> String {
    if let Some((_, why)) = REFUSED.iter().find(|(name, _)| *name == key) {
        return format!("it is not a setting of Mainstay; remove it: {why}");
    }
    let path = key.strip_suffix(".value").unwrap_or(key);
    let known = VARIABLES.iter().map(|known| known.name.to_owned()).chain(paths::names());
    match nearest(path, known) {
        Some(known) => format!("it is not a setting of Mainstay; did you mean {known}?"),
        None => "it is not a setting of Mainstay; remove it, or correct its name".to_owned(),
    }
}

/// Returns the base image of a runtime.
fn image(runtime: &str, repository: Option<&str>, tag: Option<&str>) -> Result<BaseImage, String> {
    if runtimes::find(runtime).is_none() {
        return Err(format!("there is no runtime \"{runtime}\""));
    }
    let Some(repository) = repository else { return Err(format!("{IMAGES}{runtime}.repository is missing")) };
    let name = match tag {
        None => repository.to_owned(),
        Some(digest) if digest.starts_with("sha256:") => format!("{repository}@{digest}"),
        Some(tag) => format!("{repository}:{tag}"),
    };
    BaseImage::parse(&name).map_err(|error| format!("\"{name}\": {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<(Settings, Vec<WithoutEffect>), Vec<String>> {
        let data = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let read = Settings::from_config_map(Settings::default(), &data);
        read.map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
    }

    #[track_caller]
    fn refused(pairs: &[(&str, &str)], expected: &[&str]) {
        let mistakes = read(pairs).unwrap_err();
        assert_eq!(mistakes.len(), expected.len(), "{mistakes:?}");
        for (mistake, expected) in mistakes.iter().zip(expected) {
            assert!(mistake.contains(expected), "{mistake:?} has not {expected:?}");
        }
    }

    #[test]
    fn the_data_of_an_override_can_be_used_as_they_are() {
        let (settings, without_effect) = read(&[
            ("containers.manager.envs.functionBuildMaxSimultaneousJobs.value", "7"),
            ("containers.manager.envs.targetCPUUtilizationPercentage", "80"),
            ("containers.manager.envs.buildRequestsCPU", "800m"),
            ("webhook.values.function.replicas.defaultPreset", "L"),
            (
                "webhook.values.function.resources.presets",
                r#"{"M": {"requestCpu": "1m", "requestMemory": "1Mi", "limitCpu": "1", "limitMemory": "64Mi"}}"#,
            ),
            ("webhook.values.buildJob.resources.minRequestCpu.value", "100m"),
            ("webhook.container.envs.maxReplicas", "3"),
            ("WEBHOOK_DEFAULTING_RUNTIME", "python312"),
            ("containers.manager.envs.secretRequeueDuration.value", "5m"),
            ("docker-registry.persistence.size", "20Gi"),
            ("metrics.enabled", ""),
            ("containers.manager.envs.functionBuildExecutorArgs.value", "--insecure,--cache=true"),
        ])
        .unwrap();
        assert_eq!((settings.max_simultaneous_jobs, settings.target_cpu_percentage), (7, 80));
        assert_eq!(settings.build_resources.fallback().unwrap().request_cpu, Some("800m".into()));
        assert_eq!((&*settings.replicas.default, settings.replicas.fallback().unwrap().max), ("L", Some(3)));
        assert_eq!(settings.resources.fallback().unwrap().limit_cpu, Some("1".into()));
        assert_eq!((&*settings.default_runtime, settings.min_build_resources.cpu), ("python312", "100m".into()));
        let ignored = without_effect.iter().map(|one| &*one.key).collect::<Vec<_>>();
        let expected = [
            "containers.manager.envs.functionBuildExecutorArgs.value",
            "containers.manager.envs.secretRequeueDuration.value",
            "docker-registry.persistence.size",
        ];
        assert_eq!(ignored, expected);
    }

    #[test]
    fn every_mistake_is_named_and_no_login_is_repeated() {
        refused(
            &[
                ("containers.manager.envs.functionBuildMaxSimultaneousJob.value", "7"),
                ("dockerRegistry.password", "hunter2"),
                ("webhook.values.function.resources.minRequestCpu", "much"),
            ],
            &[
                "Job.value: it is not a setting of Mainstay; did you mean \
                 containers.manager.envs.functionBuildMaxSimultaneousJobs?",
                "dockerRegistry.password: logins belong into Secrets",
                "minRequestCpu: \"much\" is not a quantity",
            ],
        );
        refused(
            &[
                ("APP_FUNCTION_BUILD_MAX_SIMULTANEOUS_JOBS", "1"),
                ("containers.manager.envs.functionBuildMaxSimultaneousJobs", "2"),
            ],
            &["are the same setting; keep one of them"],
        );
        refused(&[("MAINSTAY_TRUST_REGISTRY", "true")], &["remove it: only an image whose digest"]);
        refused(&[("anything", "x")], &["anything: it is not a setting of Mainstay; remove it"]);
    }

    #[test]
    fn base_images_are_given_in_two_parts() {
        let digest = format!("sha256:{}", "1".repeat(64));
        let (repository, tag) = ("images.runtimes.nodejs22.repository", "images.runtimes.nodejs22.tag");
        let (settings, _) = read(&[(repository, "h.io/node"), (tag, &digest)]).unwrap();
        assert_eq!(settings.base_images["nodejs22"].to_string(), format!("h.io/node@{digest}"));
        refused(&[(repository, "h.io/node"), (tag, "22")], &["must be pinned by its digest"]);
        refused(&[(tag, &digest)], &["images.runtimes.nodejs22.repository is missing"]);
        refused(&[("images.runtimes.cobol.repository", "h.io/x")], &["there is no runtime \"cobol\""]);
    }
}
