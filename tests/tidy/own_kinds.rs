//! The kinds of Mainstay's CRDs are defined in one place, and so are the writes of their statuses.

use std::path::PathBuf;

use super::{PRODUCT, production, sources};

/// The agent, in the root package.
const AGENT: &str = "src/mainstay/agent";

fn product_files() -> impl Iterator<Item = PathBuf> {
    PRODUCT.into_iter().flat_map(sources).filter(|path| !path.ends_with("tests.rs"))
}

/// Returns the groups and plurals of CRDs from which the code makes a kind.
fn written_kinds(code: &str, definitions: &[(String, String)]) -> Vec<String> {
    let code: String = code.chars().filter(|char| !char.is_whitespace()).collect();
    let calls = ["Kind::custom(", "Kind::fixed("].into_iter().flat_map(|call| code.split(call).skip(1));
    let arguments = calls.map(|rest| rest.split(')').next().unwrap_or_default());
    let is_own = |arguments: &&str| {
        definitions.iter().any(|(group, plural)| {
            let group = arguments.starts_with(&format!("\"{group}\"")) || arguments.starts_with(&format!("\"{group}/"));
            group || arguments.contains(&format!("\"{plural}\""))
        })
    };
    arguments.filter(is_own).map(str::to_owned).collect()
}

fn own_definitions() -> Vec<(String, String)> {
    let definitions = mainstay_api::definitions().into_iter();
    let mut own: Vec<_> = definitions.map(|one| (one.spec.group, one.spec.names.plural)).collect();
    own.push(("gateway.kyma-project.io".to_owned(), "apirules".to_owned()));
    own
}

/// `Kind::of` takes group, version, name and plural from the type of the CRD.
#[test]
fn kinds_of_our_definitions_are_made_from_their_types() {
    let own = own_definitions();
    let found: Vec<_> = product_files()
        .flat_map(|path| written_kinds(&production(&path), &own).into_iter().map(move |kind| (path.clone(), kind)))
        .collect();
    assert!(found.is_empty(), "use Kind::of: {found:#?}");
}

#[test]
fn kinds_are_found_in_code() {
    let own = own_definitions();
    let found = |code: &str| written_kinds(code, &own).len();
    assert_eq!(found("Kind::custom(\n    \"mainstay.dev\", \"v1alpha1\", \"GitSync\", \"gitsyncs\", true)"), 1);
    assert_eq!(found("Kind::fixed(\"mainstay.dev/v1alpha1\", \"GitSync\", \"gitsyncs\", Scope::Namespaced)"), 1);
    assert_eq!(found("Kind::fixed(version, kind, \"functions\", Scope::Namespaced)"), 1);
    assert_eq!(found("Kind::fixed(\"v1\", \"Secret\", \"secrets\", Scope::Namespaced); Kind::of::<GitSync>()"), 0);
}

/// `status_write` delays a status after a refused write. `tasks` writes a status once, and `pins` counts its refusals there.
#[test]
fn statuses_of_the_agent_are_written_with_a_backoff() {
    let writes = |path: &PathBuf| production(path).contains("Part::Status");
    let found: Vec<_> = sources(AGENT).into_iter().filter(writes).collect();
    let expected = ["pins", "status_write", "tasks"].map(|name| PathBuf::from(format!("{AGENT}/{name}.rs")));
    assert_eq!(found, expected);
}
