//! The generated pages of the book's reference. `UPDATE_GOLDEN=1` rewrites them.

mod metadata;
mod metrics;
mod settings;

use std::fmt::Write as _;

use mainstay_testkit::golden::check_golden;
use serde_json::Value;

const GENERATED: &str = "This page is generated.";

fn printed(words: &[&str]) -> String {
    let mut program = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    let output = program.args(words).env_clear().env("HOME", "/").current_dir("/").output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn check_page(name: &str, title: &str, body: &str) {
    check_golden(&format!("../../docs/reference/{name}.md"), &format!("# {title}\n\n{GENERATED} {body}"));
}

/// Formats a string as a table cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

#[test]
fn reasons_are_those_that_explain_prints() {
    let facts: Value = serde_json::from_str(&printed(&["explain", "-o", "json"])).unwrap();
    let items = facts["items"].as_array().unwrap();
    let mut text = "`mainstay explain REASON` prints the same.\n".to_owned();
    let mut of = "";
    for item in items {
        let field = |name: &str| item[name].as_str().unwrap();
        if of != field("of") {
            of = field("of");
            write!(text, "\n## {of}\n\n| reason | meaning | remedy |\n|---|---|---|\n").unwrap();
        }
        let [meaning, remedy] = ["meaning", "remedy"].map(|name| cell(field(name)));
        writeln!(text, "| `{}` | {meaning} | {remedy} |", field("reason")).unwrap();
    }
    check_page("reasons", "Conditions and reasons", &text);
}

/// Writes the rows of a schema and its descendants.
fn rows(path: &str, schema: &Value, is_required: bool, text: &mut String) {
    let kind = match (schema["type"].as_str(), schema["items"]["type"].as_str()) {
        _ if schema["x-kubernetes-int-or-string"] == true => "integer or string".to_owned(),
        (Some("array"), Some(items)) => format!("list of {items}"),
        (Some("object"), _) if schema["additionalProperties"].is_object() => "map".to_owned(),
        (kind, _) => kind.unwrap_or("any").to_owned(),
    };
    let values = schema["enum"].as_array().map(|all| all.iter().filter_map(Value::as_str).collect::<Vec<_>>());
    let values =
        values.filter(|all| !all.is_empty()).map(|all| format!(" One of: {}.", all.join(", "))).unwrap_or_default();
    let default = match &schema["default"] {
        Value::Null if is_required => "required".to_owned(),
        Value::Null => String::new(),
        default => format!("`{default}`"),
    };
    let description = cell(schema["description"].as_str().unwrap_or_default());
    writeln!(text, "| `{path}` | {kind} | {default} | {description}{values} |").unwrap();
    let (of, path) = match kind.as_str() {
        _ if schema["items"].is_object() => (&schema["items"], format!("{path}[]")),
        "map" => (&schema["additionalProperties"], format!("{path}.*")),
        _ => (schema, path.to_owned()),
    };
    fields(&path, of, text);
}

fn fields(path: &str, schema: &Value, text: &mut String) {
    let required: Vec<_> = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        rows(&format!("{path}.{name}"), field, required.contains(&name.as_str()), text);
    }
}

#[test]
fn custom_resources_are_those_of_the_definitions() {
    let definitions = mainstay_api::definitions().into_iter().chain([mainstay_api::api_rule::definition()]);
    let mut pages = Vec::new();
    for definition in definitions {
        let definition = serde_json::to_value(definition).unwrap();
        let (group, kind) =
            (definition["spec"]["group"].as_str().unwrap(), definition["spec"]["names"]["kind"].as_str().unwrap());
        for version in definition["spec"]["versions"].as_array().unwrap() {
            let name = version["name"].as_str().unwrap();
            let schema = &version["schema"]["openAPIV3Schema"];
            let mut text = format!("It lists the fields of `{kind}` in `{group}/{name}`.\n");
            for part in ["spec", "status"] {
                write!(text, "\n## {part}\n\n| field | type | default | description |\n|---|---|---|---|\n").unwrap();
                fields(part, &schema["properties"][part], &mut text);
            }
            let page = format!("{}-{name}", kind.to_lowercase());
            check_page(&page, &format!("{kind} {name}"), &text);
            pages.push(page);
        }
    }
    assert!(pages.len() >= 6, "{pages:?}");
}

#[test]
fn the_help_of_each_command_is_a_section() {
    let help = printed(&["--help"]);
    let list = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names: Vec<_> =
        names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(names.contains(&"sync") && names.len() > 20, "{names:?}");
    let mut text = format!("`mainstay help COMMAND` prints the same.\n\n```text\n{help}```\n");
    for name in names {
        write!(text, "\n## mainstay {name}\n\n```text\n{}```\n", printed(&[name, "--help"])).unwrap();
    }
    check_page("command-help", "Help of the commands", &text);
}
