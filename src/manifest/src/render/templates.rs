//! Detects whether templates read the time, the time zone, or the cluster's capabilities, and whether their output can
//! differ between two runs.
//!
//! Not here: whether the part of a template that reads a fact is executed.

use super::calls::{Calls, calls};
use super::chart::is_archive;

/// Functions that depend on the time.
const TIME: [&str; 8] =
    ["now", "ago", "date", "dateInZone", "date_in_zone", "htmlDate", "htmlDateInZone", "durationRound"];
/// Functions that depend on the time zone, but not on the time.
const ZONE: [&str; 2] = ["toDate", "mustToDate"];
/// The object with the cluster's capabilities.
const CAPABILITIES: &str = "Capabilities";

/// The directory of a chart's templates.
const TEMPLATES: &str = "templates";

/// The facts that templates read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The time.
    pub(super) time: bool,
    /// The time zone.
    pub(super) zone: bool,
    /// The cluster's capabilities.
    pub(super) capabilities: bool,
    /// The functions that the templates call.
    called: Calls,
    /// The functions that other files would call if they were rendered as templates.
    elsewhere: Calls,
}

impl Asked {
    /// Returns whether two runs can print different documents. Only functions whose result differs can cause a
    /// difference, because the tool sorts maps and templates.
    pub(super) fn varies(&self) -> bool {
        let others = self.elsewhere.unknown || self.elsewhere.braces || self.called.braces;
        self.called.unknown || ((self.called.tpl || self.elsewhere.tpl) && others)
    }

    /// Inspects a file of a chart, or a values file, which may contain templates, too.
    pub(super) fn look_at(&mut self, path: &str, content: &[u8]) {
        if is_archive(path) {
            // A packed chart is not inspected, so it counts as if it read all facts.
            (self.time, self.capabilities, self.called.unknown) = (true, true, true);
            return;
        }
        let text = String::from_utf8_lossy(content);
        if path.ends_with("Chart.yaml") && text.contains("kubeVersion") {
            self.capabilities = true;
        }
        // Files in other directories are templates only if `tpl` renders them.
        let is_template = path.split('/').any(|part| part == TEMPLATES);
        let found = if is_template { &mut self.called } else { &mut self.elsewhere };
        *found = found.with(calls(&text));
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

    #[test]
    fn charts_vary_by_the_functions_that_their_templates_call() {
        let varies = |files: &[(&str, &str)]| {
            let mut asked = Asked::default();
            for (path, text) in files {
                asked.look_at(path, text.as_bytes());
            }
            asked.varies()
        };
        let plain = ("c/templates/a.yaml", "a: {{ .Values.a | default \"x\" | quote }}");
        let tpl = ("c/templates/b.yaml", "b: {{ tpl .Values.b . }}");
        let random = ("c/values.yaml", "b: '{{ randAlpha 5 }}'");
        assert!(!varies(&[plain, tpl, ("c/README.md", "See {{ .Values.a }}.")]));
        assert!(!varies(&[plain, random]), "values are templates only for `tpl`");
        assert!(varies(&[plain, tpl, random]));
        assert!(varies(&[plain, ("c/charts/db/templates/a.yaml", "a: {{ randAlpha 5 }}")]));
        assert!(varies(&[tpl, ("c/templates/c.yaml", "c: {{ printf \"{{ %s }}\" .Values.c }}")]));
        assert!(varies(&[plain, ("c/charts/db-1.tgz", "\u{1}")]));
    }
}
