//! Tests of ignored files: without rules, and by rules above the base directory. Reports of ignored files are tested,
//! too.

use super::*;

/// Returns the use of each file, one per line.
fn reported(base_dir: &str, files: &[(&str, &str)]) -> String {
    let contents: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    let mut read = |entry: &Entry| Ok(contents.iter().find(|(path, _)| *path == entry.path).unwrap().1.to_vec());
    let reports = report(&listing(&contents), base_dir, &mut read, &limits()).unwrap();
    let state = |report: &FileReport| match &report.state {
        FileState::Read(objects) => format!("{}: read {objects}", report.path),
        FileState::Built => format!("{}: built", report.path),
        FileState::Rendered => format!("{}: rendered", report.path),
        FileState::LeftOut(why) => format!("{}: left out, {why}", report.path),
        FileState::Problems(problems) => format!("{}: {} problems", report.path, problems.len()),
    };
    reports.iter().map(state).collect::<Vec<_>>().join("\n")
}

#[test]
fn hidden_files_and_files_of_other_tools_block_nothing() {
    let files = [
        (".github/workflows/ci.yaml", "on: push\njobs: {}\n".to_owned()),
        (".pre-commit-config.yaml", "repos: []\n".to_owned()),
        ("app/.helm/a.yaml", "{{".to_owned()),
        ("package.json", "{\"name\": \"a\"".to_owned()),
        ("web/tsconfig.build.json", "// comments\n{}".to_owned()),
        ("docker-compose.yml", "services: {web: {image: a}}\n".to_owned()),
        ("renovate.json", "{}".to_owned()),
        // This file is a manifest.
        ("compose.yaml", config_map("a")),
        ("a.yaml", config_map("b")),
    ];
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    check(
        &files,
        "
ConfigMap b @ a.yaml, document 1, line 1, column 1
ConfigMap a @ compose.yaml, document 1, line 1, column 1",
    );
    assert_eq!(
        reported("", &files),
        "\
.github/workflows/ci.yaml: left out, the name of .github begins with a dot
.pre-commit-config.yaml: left out, the name of .pre-commit-config.yaml begins with a dot
a.yaml: read 1
app/.helm/a.yaml: left out, the name of app/.helm begins with a dot
compose.yaml: read 1
docker-compose.yml: left out, it is a file of another tool
package.json: left out, it is a file of another tool
renovate.json: left out, it is a file of another tool
web/tsconfig.build.json: left out, it is a file of another tool"
    );
    // A file that may be a manifest is not ignored silently, and neither is a file with any other name.
    for (path, text) in [("compose.yaml", "apiVersion: v1\nkind: X\n"), ("other.json", "{\"name\": \"a\"}")] {
        assert_eq!(decode_files(&[(path, text)]).problems.len(), 1, "{path}");
    }
}

#[test]
fn rules_above_the_directory_count_in_it() {
    let (a, b, c) = (config_map("a"), config_map("b"), config_map("c"));
    let files = [
        (".mainstayignore", "# all teams\n*.draft.yaml\n/apps/old/\n!.deploy/\n"),
        ("apps/a.yaml", &a),
        ("apps/b.draft.yaml", "x"),
        ("apps/old/b.yaml", &b),
        ("apps/.deploy/c.yaml", &c),
        ("apps/chart/Chart.yaml", "name: a\nversion: 1\n"),
        ("apps/chart/templates/a.yaml", "{{"),
        ("apps/web/kustomization.yaml", "resources: [web.yaml]"),
        ("apps/web/web.yaml", &a),
    ];
    assert_eq!(
        reported("apps", &files),
        "\
apps/.deploy/c.yaml: read 1
apps/a.yaml: read 1
apps/b.draft.yaml: left out, the rule \"*.draft.yaml\" (.mainstayignore:2)
apps/chart/Chart.yaml: rendered
apps/chart/templates/a.yaml: left out, it is part of apps/chart/Chart.yaml
apps/old/b.yaml: left out, the rule \"/apps/old/\" (.mainstayignore:3)
apps/web/kustomization.yaml: built
apps/web/web.yaml: left out, it is part of apps/web/kustomization.yaml"
    );
}

#[test]
fn the_rule_is_named_that_leaves_out_every_manifest() {
    let left_out = |files: &[(&str, &str)]| decode_files(files).left_out;
    let (a, b) = (config_map("a"), config_map("b"));
    let all = [(".mainstayignore", "*\n"), ("a.yaml", &*a), ("apps/b.yaml", &*b), ("README.md", "text")];
    let expected = "2 files are left out, a.yaml by the rule \"*\" (.mainstayignore:1)";
    assert_eq!(left_out(&all).as_deref(), Some(expected));
    let one = [(".mainstayignore", "\n/a.yaml\n"), ("a.yaml", &*a)];
    assert_eq!(left_out(&one).as_deref(), Some("a.yaml is left out by the rule \"/a.yaml\" (.mainstayignore:2)"));
    let some = [(".mainstayignore", "a.yaml\n"), ("a.yaml", &*a), ("b.yaml", &*b)];
    assert_eq!(left_out(&some), None, "b.yaml is read");
    assert_eq!(left_out(&[("README.md", "text")]), None);
}
