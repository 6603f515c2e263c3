//! Converts Helm's error messages into problems.
//!
//! Invariant: only names of files, charts and functions, lines, paths of values, and literal text of the template are
//! shown from Helm's messages. The rest of a message may quote a Secret.

use std::path::Path;

use super::chart::{ChartFiles, of_source};
use super::closure::{join, parent};
use crate::Problem;
use mainstay_object::{Place, printable};

/// Maximum length of a displayed name, in characters.
const LONGEST: usize = 200;
/// Maximum number of displayed schema violations.
const SHOWN: usize = 5;
/// The hint for more details.
const SEE: &str =
    "run `helm template` in a checkout to see why: Helm's message may quote Secrets, so it is not shown here";

/// Helm's error message about a chart.
pub(super) struct Told<'t> {
    /// Path of the `Chart.yaml`.
    pub(super) chart: &'t str,
    pub(super) files: &'t ChartFiles,
    /// The directory of the chart's copy.
    pub(super) root: &'t Path,
    pub(super) words: &'t str,
}

/// Lines of the chart's files, by path and number.
type Lines<'l> = dyn Fn(&str, usize) -> Option<String> + 'l;

/// Messages about a whole chart: the prefix of Helm's message, the end of the name that follows, the problem (`{}` is
/// the name), and the remedy.
const WHOLE: &[(&str, &str, &str, &str)] = &[
    (
        "found in Chart.yaml, but missing in charts/ directory: ",
        "\n",
        "it depends on charts that are not in its directory charts/: {}",
        "run `helm dependency build` before the chart is committed or packed: nothing is downloaded",
    ),
    (
        "chart requires kubeVersion: ",
        " which is incompatible",
        "it requires Kubernetes {}, and the cluster has a different version",
        "see kubeVersion in Chart.yaml",
    ),
    (
        "library charts are not installable",
        "\n",
        "it is a library chart, which cannot be rendered on its own",
        "set `type: application`, or list the chart in .mainstayignore",
    ),
    ("validation: chart.metadata.", " ", "its {} is not valid for Helm", "correct it"),
    ("chart.metadata.", " ", "its {} is not valid for Helm", "correct it"),
    (
        "rendering template has a nested reference name: ",
        ":",
        "its templates include each other recursively",
        "break the cycle",
    ),
];

/// Returns the problem of a chart that Helm refused.
pub(super) fn refusal(told: &Told<'_>, lines: &Lines<'_>) -> Problem {
    let words = told.words;
    of_values(words, told)
        .or_else(|| of_schema(words, told))
        .or_else(|| of_whole(words, told))
        .or_else(|| of_template(words, told, lines))
        .unwrap_or_else(|| Problem::new(Place::file(told.chart), "helm refuses it", Some(SEE)))
}

/// Returns a name in Helm's message in the form in which it is displayed.
fn shown(name: &str) -> String {
    printable(name.trim()).chars().take(LONGEST).collect()
}

fn of_whole(words: &str, told: &Told<'_>) -> Option<Problem> {
    WHOLE.iter().find_map(|(before, after, what, hint)| {
        let (_, rest) = words.split_once(before)?;
        let name = rest.split_once(after).map_or(rest, |(name, _)| name);
        Some(Problem::new(Place::file(told.chart), what.replace("{}", &shown(name)), Some(hint)))
    })
}

/// Recognizes the message that a values file is unreadable.
fn of_values(words: &str, told: &Told<'_>) -> Option<Problem> {
    let own = ["values.yaml", "Chart.yaml", "Chart.lock"];
    let own = own.iter().find(|name| words.contains(&format!("cannot load {name}: ")));
    let file = if let Some(name) = own {
        join(parent(told.chart), name)
    } else {
        let (_, rest) = words.split_once("failed to parse ")?;
        let (path, _) = rest.split_once(": ")?;
        let name = Path::new(path).strip_prefix(told.root).ok()?.to_str()?;
        let at: usize = name.strip_prefix("values/")?.strip_suffix(".yaml")?.parse().ok()?;
        told.files.values.get(at).map_or_else(|| told.chart.to_owned(), |entry| entry.path.clone())
    };
    let place = Place { line: number_after(words, "yaml: line "), ..Place::file(file) };
    Some(if words.contains("excessive aliasing") {
        Problem::new(place, "its aliases expand to more than Helm takes", Some("write it out"))
    } else if words.contains("cannot unmarshal") {
        Problem::new(Place { line: 0, ..place }, "it is not a map of values", Some("write it as `key: value`"))
    } else {
        Problem::new(place, "the file is not valid YAML", Some("correct it"))
    })
}

/// Recognizes the message that values violate the schema. The names of the values are shown, not the values.
fn of_schema(words: &str, told: &Told<'_>) -> Option<Problem> {
    let (_, rest) = words.split_once("values don't meet the specifications of the schema(s)")?;
    let mut places: Vec<String> = Vec::new();
    for line in rest.lines().filter_map(|line| line.trim_start().strip_prefix("- at '")) {
        let Some((path, why)) = line.split_once("': ") else { continue };
        let path = if path.is_empty() { "/" } else { path };
        let names = ["missing propert", "additional propert"].iter().any(|known| why.starts_with(known));
        places.push(if names { format!("{} ({})", shown(path), shown(why)) } else { shown(path) });
    }
    places.truncate(SHOWN);
    let what = match &*places {
        [] => "the values do not match the chart's values.schema.json".to_owned(),
        places => format!("the values do not match the chart's values.schema.json at {}", places.join(", ")),
    };
    Some(Problem::new(Place::file(told.chart), what, Some("correct them; `helm template` in a checkout says more")))
}

/// Recognizes the message that a template cannot be rendered.
fn of_template(words: &str, told: &Told<'_>, lines: &Lines<'_>) -> Option<Problem> {
    if let Some((_, rest)) = words.split_once("YAML parse error on ") {
        let source = rest.split_once(": ").map_or(rest, |(source, _)| source);
        let file = of_source(told.chart, &told.files.files, source.trim())?;
        let what = match number_after(rest, "yaml: line ") {
            0 => "its output is not valid YAML, or not an object".to_owned(),
            line => format!("line {line} of its output is not valid YAML"),
        };
        return Some(Problem::new(Place::file(file), what, Some("`helm template --debug` in a checkout shows it")));
    }
    let (place, rest) = location(words, told)?;
    let line = lines(&place.file, place.line as usize).unwrap_or_default();
    let problem = |what: String, hint: &str| Some(Problem::new(place.clone(), what, Some(hint)));
    if words.contains("error calling include") && words.matches("error calling include").count() > 100 {
        return problem("templates include each other recursively".to_owned(), "break the cycle");
    }
    if let Some((_, rest)) = rest.split_once("function \"")
        && let Some((name, _)) = rest.split_once("\" not defined")
    {
        return problem(format!("Helm has no function {}", shown(name)), "correct its name");
    }
    if words.contains("execution error at (") {
        let text = rest.trim_start_matches([')', ':']).lines().next().unwrap_or_default().trim();
        let is_literal =
            !text.is_empty() && [format!("\"{text}\""), format!("`{text}`")].iter().any(|own| line.contains(own));
        let what = if is_literal {
            format!("the chart refuses the values: {}", shown(text))
        } else {
            "the chart refuses the values".to_owned()
        };
        return problem(what, "set the required value");
    }
    let expression = rest.rsplit_once(" at <").and_then(|(_, rest)| rest.split_once(">:")).map(|(own, _)| own);
    let expression = expression.filter(|own| !own.is_empty() && line.contains(*own)).map(shown);
    if words.contains("nil pointer evaluating") {
        let what = expression.map_or_else(
            || "it uses a value that is not there".to_owned(),
            |expression| format!("it uses a value that is not there: {expression}"),
        );
        return problem(what, "set it in the values, or correct its name");
    }
    let what = expression.map_or_else(
        || "the template is not valid for Helm".to_owned(),
        |expression| format!("the template cannot be rendered, at {expression}"),
    );
    problem(what, SEE)
}

/// Returns the innermost position in a file of the chart, and the part of the message after the position.
fn location<'w>(words: &'w str, told: &Told<'_>) -> Option<(Place, &'w str)> {
    let mut found = None;
    for (at, _) in words.match_indices('.') {
        // The end of a position: `CHART/templates/web.yaml:12:5`.
        let begin = words[..at].rfind([' ', '(', '\n', '"']).map_or(0, |before| before + 1);
        let token = &words[begin..];
        let end = token.find([' ', ')', '\n', '"']).unwrap_or(token.len());
        let mut parts = token[..end].split(':');
        let source = parts.next().unwrap_or_default();
        let Some(file) = of_source(told.chart, &told.files.files, source) else { continue };
        let mut number = || parts.next().and_then(|part| part.parse().ok()).unwrap_or(0);
        let (line, column) = (number(), number());
        if line > 0 {
            // Helm counts columns from 0.
            let column = if column > 0 { column + 1 } else { 0 };
            found = Some((Place { line, column, ..Place::file(file) }, &token[end..]));
        }
    }
    found
}

/// Returns the number after this string; 0 if there is none.
fn number_after(words: &str, before: &str) -> u32 {
    let rest = words.split_once(before).map_or("", |(_, rest)| rest);
    rest.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_git::{Entry, EntryKind};

    fn said(words: &str) -> String {
        let mut files = ChartFiles::default();
        let entry = |path: &str| Entry {
            path: path.into(),
            id: "0".repeat(40).parse().unwrap(),
            size: 1,
            kind: EntryKind::File,
            executable: false,
            flaw: None,
        };
        for path in ["app/Chart.yaml", "app/templates/b.yaml", "app/templates/_helpers.tpl"] {
            files.files.insert(path.into(), entry(path));
        }
        files.values.push(entry("prod/values.yaml"));
        let lines = |path: &str, line: usize| {
            (path == "app/templates/b.yaml" && line == 1).then(|| "a: {{ required \"set a\" .Values.x.y }}".to_owned())
        };
        let told = Told { chart: "app/Chart.yaml", files: &files, root: Path::new("/scratch/x"), words };
        refusal(&told, &lines).to_string()
    }

    #[test]
    fn places_and_names_are_shown_and_nothing_else() {
        let debug = "\n\nUse --debug flag to render out invalid YAML\n";
        for (words, expected) in [
            (
                "Error: template: web/templates/b.yaml:1:13: executing \"web/templates/b.yaml\" at <.Values.x.y>: nil \
                 pointer evaluating interface {}.y",
                "app/templates/b.yaml, line 1, column 14: it uses a value that is not there: .Values.x.y (set it in \
                 the values, or correct its name)",
            ),
            // Helm 4 wraps the line.
            (
                "Error: web/templates/b.yaml:1:13\n  executing \"web/templates/b.yaml\" at <.Values.x.y>:\n    nil \
                 pointer evaluating interface {}.y",
                "app/templates/b.yaml, line 1, column 14: it uses a value that is not there: .Values.x.y (set it in \
                 the values, or correct its name)",
            ),
            (
                "Error: parse error at (web/templates/b.yaml:1): function \"foo\" not defined",
                "app/templates/b.yaml, line 1: Helm has no function foo (correct its name)",
            ),
            (
                "Error: execution error at (web/templates/b.yaml:1:6): set a",
                "app/templates/b.yaml, line 1, column 7: the chart refuses the values: set a (set the required value)",
            ),
            (
                "Error: execution error at (web/templates/b.yaml:1:6): hush",
                "app/templates/b.yaml, line 1, column 7: the chart refuses the values (set the required value)",
            ),
            (
                "Error: YAML parse error on web/templates/b.yaml: error converting YAML to JSON: yaml: line 7: hush",
                "app/templates/b.yaml: line 7 of its output is not valid YAML (`helm template --debug` in a checkout \
                 shows it)",
            ),
            (
                "Error: An error occurred while checking for chart dependencies. You may need to run `helm dependency \
                 build` to fetch missing dependencies: found in Chart.yaml, but missing in charts/ directory: db, \
                 cache",
                "app/Chart.yaml: it depends on charts that are not in its directory charts/: db, cache (run \
                 `helm dependency build` before the chart is committed or packed: nothing is downloaded)",
            ),
            (
                "Error: validation: chart.metadata.version \"hush\" is invalid",
                "app/Chart.yaml: its version is not valid for Helm (correct it)",
            ),
            (
                "Error: chart requires kubeVersion: >=1.40 which is incompatible with Kubernetes v1.30.1",
                "app/Chart.yaml: it requires Kubernetes >=1.40, and the cluster has a different version (see \
                 kubeVersion in Chart.yaml)",
            ),
            (
                "Error: cannot load values.yaml: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal \
                 array into Go value of type map[string]interface {}",
                "app/values.yaml: it is not a map of values (write it as `key: value`)",
            ),
            (
                "Error: failed to parse /scratch/x/values/0.yaml: error converting YAML to JSON: yaml: line 3: hush",
                "prod/values.yaml, line 3: the file is not valid YAML (correct it)",
            ),
            (
                "Error: values don't meet the specifications of the schema(s) in the following chart(s):\nweb:\n- at \
                 '': missing property 'zz'\n- at '/a': 'hush' does not match pattern\n",
                "app/Chart.yaml: the values do not match the chart's values.schema.json at / (missing property 'zz'), \
                 /a (correct them; `helm template` in a checkout says more)",
            ),
            (
                "Error: hush",
                "app/Chart.yaml: helm refuses it (run `helm template` in a checkout to see why: Helm's message may \
                 quote Secrets, so it is not shown here)",
            ),
        ] {
            assert_eq!(said(&format!("{words}{debug}")), expected, "{words}");
        }
        let nested =
            "error calling include: template: web/templates/_helpers.tpl:1:20: executing \"x\" at <include \"x\" .>: "
                .repeat(200);
        assert!(said(&nested).contains("templates include each other recursively"), "{}", said(&nested));
    }
}
