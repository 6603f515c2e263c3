//! Detects whether templates read the time, the time zone, or the cluster's capabilities.
//!
//! Not here: whether that part of a template is executed.

use super::chart::is_archive;

/// Functions that depend on the time.
const TIME: [&str; 8] =
    ["now", "ago", "date", "dateInZone", "date_in_zone", "htmlDate", "htmlDateInZone", "durationRound"];
/// Functions that depend on the time zone, but not on the time.
const ZONE: [&str; 2] = ["toDate", "mustToDate"];
/// The object with the cluster's capabilities.
const CAPABILITIES: &str = "Capabilities";

/// The facts that templates read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The time.
    pub(super) time: bool,
    /// The time zone.
    pub(super) zone: bool,
    /// The cluster's capabilities.
    pub(super) capabilities: bool,
}

impl Asked {
    /// Adds a file of a chart, or a values file, which may contain templates, too.
    pub(super) fn look_at(&mut self, path: &str, content: &[u8]) {
        if is_archive(path) {
            // A packed chart is not inspected, so it may read anything.
            *self = Self { time: true, zone: self.zone, capabilities: true };
            return;
        }
        let text = String::from_utf8_lossy(content);
        if path.ends_with("Chart.yaml") && text.contains("kubeVersion") {
            self.capabilities = true;
        }
        for action in text.split("{{").skip(1) {
            let action = action.split_once("}}").map_or(action, |(action, _)| action);
            for word in action.split(|c: char| !c.is_alphanumeric() && c != '_') {
                self.time |= TIME.contains(&word);
                self.zone |= ZONE.contains(&word);
                self.capabilities |= word == CAPABILITIES;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_in_actions_counts() {
        let asked = |path: &str, text: &str| {
            let mut asked = Asked::default();
            asked.look_at(path, text.as_bytes());
            (asked.time, asked.capabilities)
        };
        assert_eq!(
            asked("c/values.yaml", "# set it now, or see Capabilities\na: '{{ .Values.known }}'\n"),
            (false, false)
        );
        assert_eq!(asked("c/templates/a.yaml", "a: {{ now | date \"2006\" }}"), (true, false));
        assert_eq!(asked("c/templates/a.yaml", "a: {{ toDate \"2006\" .Values.a | unixEpoch }}"), (false, false));
        assert_eq!(asked("c/templates/a.yaml", "{{- if $.Capabilities.APIVersions.Has \"a/v1\" }}"), (false, true));
        assert_eq!(asked("c/values.yaml", "a: '{{ ago (toDate .x) }}'"), (true, false));
        assert_eq!(asked("c/Chart.yaml", "kubeVersion: '>=1.28'"), (false, true));
        assert_eq!(asked("c/charts/db-1.tgz", "\u{1}"), (true, true));
    }
}
