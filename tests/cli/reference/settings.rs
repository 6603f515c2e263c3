//! The page of the settings: flags of the agent from its help, and variables from their table.

use std::fmt::Write as _;

use mainstay_function::VARIABLES;

use super::{cell, check_page, printed};

/// A flag as the help shows it.
#[derive(Debug, Default)]
struct Flag {
    /// As `--memory <SIZE>`.
    name: String,
    meaning: String,
    values: Vec<String>,
    variable: String,
    default: String,
}

#[test]
fn settings_are_those_of_the_agent() {
    let flags = flags(&printed(&["agent", "--help"]));
    assert!(flags.len() > 20, "{flags:?}");
    let mut text =
        "A flag takes precedence over its environment variable. [Settings](../operate/settings.md) explains the \
                    ConfigMap `mainstay-settings`. It takes precedence over the environment of the agent.\n\n\
                    ## Flags of the agent\n\n| flag | variable | default | meaning |\n|---|---|---|---|\n"
            .to_owned();
    for flag in &flags {
        assert!(!flag.meaning.is_empty(), "{flag:?}");
        let values =
            if flag.values.is_empty() { String::new() } else { format!(". One of: {}", flag.values.join(", ")) };
        let (name, variable, default) = (code(&flag.name), code(&flag.variable), code(&flag.default));
        writeln!(text, "| {name} | {variable} | {default} | {}{values} |", cell(&flag.meaning)).unwrap();
    }
    text += "\n## Settings of Functions\n\nEach of them is an environment variable of the agent, or a key of the \
             ConfigMap. An empty value means the default. A duration is written as `90s`, `15m` or `24h`. The items of a \
             list are separated \
             by commas.\n\n| setting | form | default | meaning |\n|---|---|---|---|\n";
    for known in VARIABLES {
        let default = code(known.default);
        writeln!(text, "| `{}` | {} | {default} | {} |", known.name, known.form, cell(known.meaning)).unwrap();
    }
    check_page("settings", "Settings and flags", &text);
}

/// The text as code; empty if there is none.
fn code(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("`{text}`") }
}

/// Reads the flags of a help text.
fn flags(help: &str) -> Vec<Flag> {
    let options = help.split_once("Options:\n").unwrap().1;
    let mut flags: Vec<Flag> = Vec::new();
    for line in options.lines() {
        let text = line.trim();
        let indent = line.len() - line.trim_start().len();
        if indent < 10 && text.starts_with('-') {
            let name = text.split_once("--").map_or_else(|| text.to_owned(), |(_, name)| format!("--{name}"));
            flags.push(Flag { name, ..Flag::default() });
            continue;
        }
        let Some(flag) = flags.last_mut() else { continue };
        let within = |begin: &str| text.strip_prefix(begin)?.strip_suffix(']');
        if let Some(variable) = within("[env: ") {
            variable.trim_end_matches('=').clone_into(&mut flag.variable);
        } else if let Some(default) = within("[default: ") {
            default.clone_into(&mut flag.default);
        } else if let Some((value, _)) = text.strip_prefix("- ").and_then(|rest| rest.split_once(':')) {
            flag.values.push(format!("`{value}`"));
        } else if !text.is_empty() && text != "Possible values:" {
            flag.meaning += if flag.meaning.is_empty() { "" } else { " " };
            flag.meaning += text;
        }
    }
    flags.retain(|flag| !flag.name.starts_with("--help"));
    flags
}
