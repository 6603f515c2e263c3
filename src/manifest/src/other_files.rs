//! Recognizes YAML and JSON files of other tools by name. Such files are skipped in any directory.
//!
//! Invariant: a file that may be a manifest, because it contains apiVersion and kind, is read.

/// File names in lower case.
const NAMES: &[&str] = &[
    "angular.json",
    "app.json",
    "appveyor.yml",
    "azure-pipelines.yml",
    "azure-pipelines.yaml",
    "biome.json",
    "bitbucket-pipelines.yml",
    "bower.json",
    "buildspec.yml",
    "cdk.json",
    "cloudbuild.yaml",
    "cloudbuild.yml",
    "codecov.yml",
    "codecov.yaml",
    "components.json",
    "composer.json",
    "compose.yaml",
    "compose.yml",
    "cypress.json",
    "deno.json",
    "docker-compose.yaml",
    "docker-compose.yml",
    "firebase.json",
    "jest.config.json",
    "jsconfig.json",
    "lefthook.yml",
    "lerna.json",
    "manifest.webmanifest.json",
    "mkdocs.yaml",
    "mkdocs.yml",
    "nest-cli.json",
    "netlify.json",
    "nodemon.json",
    "now.json",
    "nx.json",
    "package-lock.json",
    "package.json",
    "pnpm-lock.yaml",
    "pnpm-workspace.yaml",
    "project.json",
    "pubspec.yaml",
    "pubspec.yml",
    "pyrightconfig.json",
    "readthedocs.yml",
    "release-please-config.json",
    "renovate.json",
    "rush.json",
    "serverless.yml",
    "serverless.yaml",
    "sonar-project.json",
    "taskfile.yaml",
    "taskfile.yml",
    "tsconfig.json",
    "tslint.json",
    "turbo.json",
    "typedoc.json",
    "vercel.json",
    "wrangler.json",
];
/// Prefixes and suffixes of names: `tsconfig.build.json`, `docker-compose.prod.yml`.
const PATTERNS: &[(&str, &str)] = &[
    ("tsconfig.", ".json"),
    ("docker-compose.", ".yml"),
    ("docker-compose.", ".yaml"),
    ("compose.", ".yml"),
    ("compose.", ".yaml"),
    ("azure-pipelines.", ".yml"),
    ("taskfile.", ".yml"),
];

/// Returns whether a file belongs to another tool, judging by its name.
pub(super) fn is_of_another_tool(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    NAMES.contains(&&*name) || PATTERNS.iter().any(|(begin, end)| name.starts_with(begin) && name.ends_with(end))
}

/// Returns whether a file with the name of another tool's file may still be a manifest. The file is not decoded.
pub(super) fn may_be_manifest(content: &[u8]) -> bool {
    let has = |word: &[u8]| content.windows(word.len()).any(|bytes| bytes == word);
    has(b"apiVersion") && has(b"kind")
}
