//! The templates of the chart are generated from the manifests.

mod table;

use mainstay_testkit::golden::check_golden;

use self::table::{TEMPLATES, Template};
use super::*;

/// Replacements in all templates.
const EVERYWHERE: [(&str, &str); 4] = [
    ("{{", "{{ \"{{\" }}"),
    (": mainstay-system\n", ": {{ .Release.Namespace | quote }}\n"),
    (".mainstay-system.svc.", ".{{ .Release.Namespace }}.svc."),
    (concat!(": mainstay:", env!("CARGO_PKG_VERSION"), "\n"), ": {{ .Values.image | quote }}\n"),
];

/// Adds a condition around each document with the label of a component.
fn with_conditions(text: &str) -> String {
    let mut documents = Vec::new();
    for document in text.split_inclusive("---\n") {
        let label = document.split_once("    mainstay.dev/component: ").map(|(_, rest)| rest.lines().next().unwrap());
        let condition = label.map(|label| format!("{{{{- if include \"mainstay.has\" (list . \"{label}\") }}}}\n"));
        documents.push(match (condition, document.strip_suffix("---\n")) {
            (None, _) => document.to_owned(),
            // The separator remains before the next document.
            (Some(condition), Some(body)) => format!("{condition}{body}{{{{- end }}}}\n---\n"),
            (Some(condition), None) => format!("{condition}{document}{{{{- end }}}}\n"),
        });
    }
    documents.concat()
}

/// Adds the choices for pods and containers: scheduling, pull policy, and the resources of each container.
fn with_choices(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let (mut container, mut is_resources) = ("", false);
    for line in text.lines() {
        container = line.strip_prefix("        - name: ").unwrap_or(container);
        is_resources &= line.starts_with("            ");
        if is_resources {
            continue;
        }
        is_resources = line == "          resources:";
        lines.push(if is_resources && container == "mainstay" {
            "          resources: {{- include \"mainstay.agentResources\" . | nindent 12 }}".to_owned()
        } else if is_resources {
            format!(
                "          resources: {{{{- default (dict) .Values.resources.{container} | toYaml | nindent 12 }}}}"
            )
        } else {
            line.to_owned()
        });
        if line.starts_with("          image: ") {
            lines.push("{{- include \"mainstay.imagePullPolicy\" . }}".to_owned());
        }
        if line == "    spec:" {
            lines.push("{{- include \"mainstay.pod\" . }}".to_owned());
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn templates_are_generated_from_the_manifests() {
    let manifests = Path::new(CHART).parent().unwrap();
    for Template { manifest, name, condition, replacements } in TEMPLATES {
        // Not read from the file, because another test may rewrite it concurrently.
        let mut text = match manifest {
            "crds.yaml" => {
                printed(&mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay")).arg("crd").output().unwrap())
            }
            _ => fs::read_to_string(manifests.join(manifest)).unwrap(),
        };
        for (from, to) in EVERYWHERE {
            text = text.replace(from, to);
        }
        text = with_conditions(&text);
        for (from, to) in replacements {
            assert!(text.contains(from), "manifests/{manifest} has no {from:?} any more");
            text = text.replace(from, to);
        }
        if text.contains("\nkind: Deployment\n") || text.contains("\nkind: StatefulSet\n") {
            text = with_choices(&text);
        }
        if manifest == "crds.yaml" {
            // Functions is the last CRD.
            text.push_str("{{- end }}\n");
        }
        if let Some(condition) = condition {
            text = format!("{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n");
        }
        let header = format!(
            "{{{{- /* Generated from manifests/{manifest}; `UPDATE_GOLDEN=1 cargo test chart` rewrites it. */}}}}\n"
        );
        check_golden(&format!("../../manifests/chart/templates/{name}"), &format!("{header}{text}"));
    }
    check_golden("../../manifests/chart/files/known_hosts.txt", mainstay_git::PUBLISHED);
}
