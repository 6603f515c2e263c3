//! The checks, their levels and their versions.

use super::labels::{Level, Standard, Version};
use super::pod::{Finding, Pod};
use super::{baseline, restricted};

type Check = fn(&Pod<'_>) -> Option<Finding>;

/// A check of a level. Each form applies from a minor version until the next form does.
struct Row {
    id: &'static str,
    level: Level,
    forms: &'static [(u64, Check)],
    /// The check of the lower level that this check replaces.
    replaces: &'static str,
}

const fn row(id: &'static str, level: Level, forms: &'static [(u64, Check)]) -> Row {
    Row { id, level, forms, replaces: "" }
}

const fn replacing(id: &'static str, replaces: &'static str, forms: &'static [(u64, Check)]) -> Row {
    Row { id, level: Level::Restricted, forms, replaces }
}

/// All checks, in the order in which the message of a refusal lists them.
const CHECKS: &[Row] = &[
    row("appArmorProfile", Level::Baseline, &[(0, baseline::app_armor_profile)]),
    row("capabilities_baseline", Level::Baseline, &[(0, baseline::capabilities)]),
    row("hostNamespaces", Level::Baseline, &[(0, baseline::host_namespaces)]),
    row("hostPathVolumes", Level::Baseline, &[(0, baseline::host_path_volumes)]),
    row("hostPorts", Level::Baseline, &[(0, baseline::host_ports)]),
    row("hostProbesAndHostLifecycle", Level::Baseline, &[(34, baseline::hosts_of_probes)]),
    row("privileged", Level::Baseline, &[(0, baseline::privileged)]),
    row("procMount", Level::Baseline, &[(0, baseline::proc_mount), (35, baseline::proc_mount_of_host_users)]),
    row("seLinuxOptions", Level::Baseline, &[(0, baseline::se_linux_options), (31, baseline::se_linux_options_1_31)]),
    row(
        "seccompProfile_baseline",
        Level::Baseline,
        &[(0, baseline::seccomp_annotations), (19, baseline::seccomp_profile)],
    ),
    row(
        "sysctls",
        Level::Baseline,
        &[
            (0, baseline::sysctls),
            (27, baseline::sysctls_1_27),
            (29, baseline::sysctls_1_29),
            (32, baseline::sysctls_1_32),
        ],
    ),
    row("windowsHostProcess", Level::Baseline, &[(0, baseline::windows_host_process)]),
    row(
        "allowPrivilegeEscalation",
        Level::Restricted,
        &[(8, restricted::allow_privilege_escalation), (25, restricted::allow_privilege_escalation_on_linux)],
    ),
    replacing(
        "capabilities_restricted",
        "capabilities_baseline",
        &[(22, restricted::capabilities), (25, restricted::capabilities_on_linux)],
    ),
    replacing("procMount_restricted", "procMount", &[(35, baseline::proc_mount)]),
    replacing("restrictedVolumes", "hostPathVolumes", &[(0, restricted::volumes)]),
    row(
        "runAsNonRoot",
        Level::Restricted,
        &[(0, restricted::run_as_non_root), (35, restricted::run_as_non_root_of_host_users)],
    ),
    row("runAsUser", Level::Restricted, &[(23, restricted::run_as_user), (35, restricted::run_as_user_of_host_users)]),
    replacing(
        "seccompProfile_restricted",
        "seccompProfile_baseline",
        &[(19, restricted::seccomp_profile), (25, restricted::seccomp_profile_on_linux)],
    ),
];

impl Row {
    /// Returns the form of the check for a version.
    fn at(&self, version: Version) -> Option<Check> {
        self.forms.iter().rev().find(|(since, _)| Version::Minor(*since) <= version).map(|(_, check)| *check)
    }
}

/// Returns the findings of a standard's checks for a pod.
pub(super) fn evaluate(standard: Standard, pod: &Pod<'_>) -> Vec<Finding> {
    let held = || CHECKS.iter().filter(|row| row.level <= standard.level && row.at(standard.version).is_some());
    let is_replaced = |row: &Row| held().any(|other| other.replaces == row.id);
    let checks = held().filter(|row| !is_replaced(row)).filter_map(|row| row.at(standard.version));
    checks.filter_map(|check| check(pod)).collect()
}
