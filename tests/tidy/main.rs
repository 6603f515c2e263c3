//! Rules of the repository that the compiler cannot check.
//!
//! The rules are plain tests, so `cargo test` reports violations and CI needs no extra step.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod addresses;
mod book;
mod circles;
mod code;
mod develop;
mod functions;
mod health;
mod keys;
mod memory;
mod own_kinds;
mod prose;
mod random;
mod real_tests;
mod security;
mod supply_chain;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use code::production;

/// Crates and folders that act: they may wait, read clocks and files, and log. All others decide.
const ACTING_CRATES: &[&str] =
    &["src/cluster/", "src/mainstay/", "src/devcluster/controllers/src/", "src/devcluster/node/src/pods/"];

/// Files that act without methods that `clippy.toml` disallows. Other acting files lift that lint on their `mod` line.
const ACTING: &[&str] = &[
    "src/git/src/permits.rs",
    "src/git/src/room.rs",
    "src/git/src/servers.rs",
    "src/git/src/snapshot.rs",
    "src/git/src/spool.rs",
    "src/git/src/submodule_fetch.rs",
    "src/git/src/sweep.rs",
    "src/manifest/src/render/tool.rs",
    "src/manifest/src/render/turns.rs",
    "src/engine/src/apply/adopt.rs",
    "src/engine/src/apply/delete.rs",
    "src/engine/src/apply/dry_run.rs",
    "src/engine/src/apply/follow_up.rs",
    "src/engine/src/apply/ignored.rs",
    "src/engine/src/apply/object_locks.rs",
    "src/engine/src/apply/prune.rs",
    "src/engine/src/apply/replace.rs",
    "src/engine/src/apply/replicas.rs",
    "src/engine/src/apply/report.rs",
    "src/engine/src/apply/rerun.rs",
    "src/engine/src/apply/server_side.rs",
    "src/engine/src/apply/transfer.rs",
    "src/engine/src/apply/waiting.rs",
    "src/engine/src/drift/autoscalers.rs",
    "src/engine/src/drift/inventories.rs",
    "src/engine/src/drift/by_name.rs",
    "src/gitsync/src/abroad.rs",
    "src/gitsync/src/account.rs",
    "src/gitsync/src/contest_watch.rs",
    "src/gitsync/src/decryption.rs",
    "src/gitsync/src/former_owners.rs",
    "src/gitsync/src/handovers.rs",
    "src/gitsync/src/inventory.rs",
    "src/gitsync/src/listing.rs",
    "src/gitsync/src/receiver/turns.rs",
    "src/gitsync/src/registry.rs",
    "src/gitsync/src/remote.rs",
    "src/gitsync/src/rendering.rs",
    "src/gitsync/src/sources.rs",
    "src/gitsync/src/whereabouts.rs",
    "src/function/src/bindings/context.rs",
    "src/function/src/bindings/watch.rs",
    "src/function/src/git.rs",
    "src/function/src/knative.rs",
    "src/function/src/name_conflict.rs",
    "src/function/src/observe.rs",
    "src/function/src/pod_secrets.rs",
    "src/function/src/report.rs",
    "src/exposure/src/watch.rs",
    "src/eventing/src/jetstream/letters.rs",
    "src/eventing/src/jetstream/memory.rs",
    "src/eventing/src/jetstream/publish.rs",
    "src/eventing/src/jetstream/tests.rs",
    "src/eventing/src/jetstream/tests/",
    "src/eventing/src/resolver.rs",
    "src/eventing/src/run.rs",
    "src/eventing/src/send.rs",
    "src/devcluster/apiserver/src/call.rs",
    "src/devcluster/apiserver/src/client/",
    "src/devcluster/apiserver/src/service/",
    "src/devcluster/apiserver/src/verbs/",
    "src/devcluster/node/src/registry/image.rs",
];

/// The crates of the embedded cluster.
const EMBEDDED: [&str; 4] =
    ["src/devcluster/src", "src/devcluster/apiserver/src", "src/devcluster/controllers/src", "src/devcluster/node/src"];

/// The crates of the product.
const PRODUCT: [&str; 15] = [
    "src/bounded-json/src",
    "src/api/src",
    "src/object/src",
    "src/cluster/src",
    "src/git/src",
    "src/manifest/src",
    "src/engine/src",
    "src/gitsync/src",
    "src/notification/src",
    "src/traces/src",
    "src/function/src",
    "src/exposure/src",
    "src/eventing/src",
    "src/console/src",
    "src/mainstay",
];

/// Strings that a deciding file must not contain.
const ACTS: &[&str] = &[
    "async fn",
    "async move",
    ".await",
    "kube::Client",
    "std::fs",
    "std::env",
    "tokio::fs",
    "tokio::time",
    "::now()",
    "info!(",
    "warn!(",
    "debug!(",
];

/// Remaining circles: the number of files in each, by crate. Remove an entry with its circle; do not add one.
const CIRCLES: &[(&str, &[usize])] = &[
    ("src/cluster/src", &[3]),
    ("src/function/src", &[2, 2, 3, 4, 7]),
    ("src/git/src", &[6, 8]),
    ("src/mainstay", &[2, 10]),
];

#[test]
fn files_do_not_name_each_other_in_a_circle() {
    check_circles(&[PRODUCT.as_slice(), &EMBEDDED, &["benches/agent/src"]].concat(), CIRCLES);
}

fn check_circles(crates: &[&str], known: &[(&str, &[usize])]) {
    let mut found: std::collections::BTreeMap<String, Vec<Vec<String>>> = std::collections::BTreeMap::new();
    for root in crates {
        for circle in circles::circles(root) {
            found.entry((*root).to_owned()).or_default().push(circle);
        }
    }
    let sizes = |circles: &Vec<Vec<String>>| {
        let mut sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        sizes
    };
    let present: Vec<(String, Vec<usize>)> = found.iter().map(|(name, all)| (name.clone(), sizes(all))).collect();
    let known: Vec<(String, Vec<usize>)> =
        known.iter().map(|(name, sizes)| ((*name).to_owned(), sizes.to_vec())).collect();
    assert_eq!(present, known, "the circles on the left are there, those on the right are known: {found:#?}");
}

/// Items are `pub` only for other crates, so that the compiler finds dead code. Types are exempt, because signatures
/// need them.
#[test]
fn public_functions_and_constants_have_a_user_in_another_crate() {
    let words = |root: &str| -> BTreeSet<String> {
        let texts = sources(root).into_iter().map(|path| fs::read_to_string(path).unwrap());
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        texts.flat_map(|text| text.split(|c| !is_part(c)).map(str::to_owned).collect::<Vec<_>>()).collect()
    };
    let users: Vec<(&str, BTreeSet<String>)> =
        PRODUCT.into_iter().chain(["src/testkit/src", "tests", "benches"]).map(|root| (root, words(root))).collect();
    let mut unused = Vec::new();
    for root in PRODUCT.into_iter().filter(|root| *root != "src/mainstay") {
        for path in
            sources(root).into_iter().filter(|path| !path.iter().any(|part| part == "tests" || part == "tests.rs"))
        {
            for name in production(&path).lines().filter_map(public_item) {
                if !users.iter().any(|(user, words)| *user != root && words.contains(name)) {
                    unused.push(format!("{}: `{name}`", path.display()));
                }
            }
        }
    }
    assert_eq!(unused, Vec::<String>::new(), "no other crate uses these: `pub(crate)`");
}

/// Returns the function, constant or module that a line makes public.
fn public_item(line: &str) -> Option<&str> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split_whitespace().peekable();
    while words.next_if(|word| matches!(*word, "async" | "unsafe")).is_some() {}
    let kind = words.next()?;
    let mut name = words.next()?;
    match (kind, name) {
        ("const", "fn") => name = words.next()?,
        ("fn" | "const" | "static" | "mod", _) => {}
        _ => return None,
    }
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn public_items_are_found_in_lines() {
    let of = |line| public_item(line).unwrap_or_default();
    assert_eq!(
        ["    pub async fn a(&self)", "pub const fn b<T>()", "pub const C: u8 = 1;", "pub mod d;"].map(of),
        ["a", "b", "C", "d"]
    );
    assert_eq!(["pub(crate) fn a()", "pub struct B;", "fn c()"].map(of), [""; 3]);
}

#[test]
fn the_embedded_cluster_knows_nothing_of_the_agent() {
    for path in EMBEDDED.into_iter().flat_map(sources) {
        assert!(!production(&path).contains("mainstay"), "{} knows the agent", path.display());
    }
}

/// The agent deletes an object only with its observed UID and version, and so does the web page, with the token of its user.
/// The command line confirms an uninstall.
#[test]
fn objects_are_deleted_in_one_place() {
    let deletes = |path: &PathBuf| production(path).contains("Propagation::");
    let all = PRODUCT.into_iter().flat_map(sources).filter(deletes);
    let all = all.filter(|path| !path.starts_with("src/mainstay/cli") && !path.ends_with("tests.rs"));
    let mut all: Vec<_> = all.map(|path| path.to_str().unwrap().to_owned()).collect();
    all.sort();
    assert_eq!(all, ["src/cluster/src/delete.rs", "src/console/src/serve/delete.rs", "src/engine/src/apply/delete.rs"]);
}

/// One place decides what a managed object needs: a commit, an edit, a restart and an audit all lead there.
#[test]
fn verdicts_about_objects_are_reached_in_one_place() {
    let imports = |path: &PathBuf| {
        let is_import = |line: &str| line.starts_with("use ") && line.contains("verdict::{") && line.contains("decide");
        production(path).lines().any(is_import)
    };
    let found: Vec<_> = sources("src/engine/src").into_iter().filter(imports).collect();
    // The fuzzer compares the decision with a model.
    assert_eq!(found, ["events", "fuzz"].map(|name| PathBuf::from(format!("src/engine/src/managed/{name}.rs"))));
    assert_eq!(production(&found[0]).matches("decide(").count(), 1);
}

/// Connections are authorized in one place: no other code of the product or of the embedded cluster binds a port.
#[test]
fn ports_are_bound_in_one_place() {
    let binds = |path: &PathBuf| {
        ["TcpListener::bind", "TcpSocket::new", "axum::serve"].iter().any(|word| production(path).contains(word))
    };
    let found: Vec<_> = PRODUCT.into_iter().chain(EMBEDDED).flat_map(sources).filter(binds).collect();
    assert!(
        found.iter().all(|path| path.ends_with("tests.rs")),
        "these files bind ports, not loopback::Listener: {found:?}"
    );
}

/// A complete list shows which objects are gone, and one place decides this for all watches. `watch` creates the events
/// of a watch, and `limited` creates those of an absent namespace. `scope` merges the watches of several namespaces,
/// and `reflector` processes the events.
#[test]
fn events_of_watches_are_taken_in_by_the_reflector() {
    let matches = |path: &PathBuf| production(path).contains("WatchEvent::Begin");
    let all = PRODUCT.into_iter().flat_map(sources).filter(|path| !path.ends_with("tests.rs")).filter(matches);
    let mut all: Vec<_> = all.map(|path| path.to_str().unwrap().to_owned()).collect();
    all.sort();
    let expected = ["limited", "reflector", "scope", "watch"].map(|name| format!("src/cluster/src/{name}.rs"));
    assert_eq!(all, expected);
}

/// Selector values are escaped where selectors are built. No other code writes a selector into a request.
#[test]
fn selectors_of_requests_are_built_in_one_place() {
    let builds = |path: &PathBuf| {
        let code = production(path);
        code.contains("fieldSelector") || code.contains("labelSelector=") || code.contains("metadata.name=")
    };
    let found: Vec<_> = PRODUCT.into_iter().flat_map(sources).filter(builds).collect();
    assert_eq!(found, [PathBuf::from("src/cluster/src/selection.rs")]);
}

/// One file validates and names the local directory.
#[test]
fn the_local_directory_is_named_in_one_file() {
    let names =
        |path: &PathBuf| [r#"".mainstay""#, r#"".mainstay/"#].iter().any(|word| production(path).contains(word));
    let found: Vec<_> = PRODUCT.into_iter().flat_map(sources).filter(names).collect();
    assert_eq!(found, [PathBuf::from("src/mainstay/cli/local_directory.rs")]);
}

/// Other users of the machine could read a temporary directory with the permissions of the umask.
#[test]
fn temporary_directories_of_commands_are_made_in_one_place() {
    let makes = |path: &PathBuf| {
        production(path).lines().any(|line| line.contains("tempdir(") || line.contains("TempDir::new"))
    };
    let found: Vec<_> = sources("src/mainstay").into_iter().filter(makes).collect();
    assert_eq!(found, [PathBuf::from("src/mainstay/cli/private_directory.rs")]);
}

/// Code that serves untrusted requests.
const LISTENERS: &[&str] = &[
    "src/eventing/src",
    "src/function/src/admission",
    "src/function/src/registry/guard",
    "src/gitsync/src/receiver",
    "src/console/src/serve",
    "src/mainstay/agent/health.rs",
    "src/devcluster/apiserver/src/admission/review.rs",
    "src/devcluster/apiserver/src/service",
    "src/devcluster/apiserver/src/verbs/decode.rs",
    "src/devcluster/node/src/registry/answer.rs",
    "src/devcluster/node/src/registry/image.rs",
    "src/devcluster/node/src/registry/manifest.rs",
];
/// Calls that parse JSON or read a body without limits on its values, depth or size.
const UNBOUNDED: &[&str] =
    &["serde_json::from_slice", "serde_json::from_str", "serde_json::from_reader", "Limited::new", ".collect().await"];
/// Files that only parse an annotation, the server's own responses, or stored events, which have the size of a request.
const READ_NO_REQUEST: &[&str] = &[
    "src/function/src/admission/convert.rs",
    "src/devcluster/apiserver/src/service/yaml.rs",
    "src/eventing/src/dead_letters.rs",
    "src/eventing/src/journal/tables.rs",
    "src/eventing/src/jetstream/letters.rs",
    "src/eventing/src/jetstream/publish.rs",
];

/// Few bytes of JSON may occupy much memory. `bounded_json` counts values before it keeps them.
#[test]
fn listeners_read_what_others_send_within_bounds() {
    let mut wrong = Vec::new();
    for path in PRODUCT.into_iter().chain(EMBEDDED).flat_map(sources) {
        let is_listener = LISTENERS.iter().any(|room| path.starts_with(room));
        let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs" || part == "fuzz.rs");
        if !is_listener || is_test || READ_NO_REQUEST.iter().any(|file| path.ends_with(file)) {
            continue;
        }
        let code = production(&path);
        wrong.extend(
            UNBOUNDED.iter().filter(|word| code.contains(**word)).map(|word| format!("{}: `{word}`", path.display())),
        );
    }
    assert_eq!(wrong, Vec::<String>::new(), "use `bounded_json::Bounds` and `mainstay_cluster::body`");
    for room in LISTENERS.iter().chain(READ_NO_REQUEST) {
        assert!(Path::new(room).exists(), "{room} is gone");
    }
}

/// `cluster::secrets` reads the Secrets that objects refer to, and checks their purpose. The other files read Secrets
/// of the agent, their metadata or their names, or Secrets named on the command line.
#[test]
fn secrets_that_objects_name_are_read_in_one_place() {
    let reads = |path: &PathBuf| production(path).contains(r#""Secret", "secrets", Scope"#);
    let all = PRODUCT.into_iter().flat_map(sources).filter(|path| !path.ends_with("tests.rs")).filter(reads);
    let mut all: Vec<_> = all.map(|path| path.to_str().unwrap().to_owned()).collect();
    all.sort();
    let expected = [
        "src/cluster/src/secrets/once.rs",
        "src/cluster/src/secrets/watch.rs",
        "src/console/src/serve/suggestions.rs",
        "src/engine/src/propagation/copy.rs",
        "src/function/src/admission/registration.rs",
        "src/function/src/named_secrets.rs",
        "src/gitsync/src/former_owners.rs",
        "src/mainstay/agent/nats_login.rs",
        "src/mainstay/agent/registry_login.rs",
        "src/mainstay/agent/ssh_keys.rs",
        "src/mainstay/cli/check/repository.rs",
        "src/mainstay/cli/identity.rs",
        "src/mainstay/cli/uninstall.rs",
        "src/mainstay/cli/uninstall/registry.rs",
    ];
    assert_eq!(all, expected);
}

#[test]
fn deciding_files_do_not_act() {
    let mut wrong = Vec::new();
    for path in PRODUCT.into_iter().chain(EMBEDDED).flat_map(sources) {
        let name = path.to_str().unwrap();
        let listed = |paths: &[&str]| {
            paths.iter().any(|acting| name == *acting || name.starts_with(acting) && acting.ends_with('/'))
        };
        if listed(ACTING_CRATES) || listed(ACTING) || lifts_the_ban(&path) {
            continue;
        }
        let code = production(&path);
        wrong.extend(ACTS.iter().filter(|word| code.contains(**word)).map(|word| format!("{name}: `{word}`")));
    }
    assert_eq!(wrong, Vec::<String>::new(), "these files decide, so they must not act");
}

#[test]
fn acting_files_of_the_list_exist() {
    for path in ACTING_CRATES.iter().chain(ACTING) {
        assert!(Path::new(path).exists(), "{path} is gone");
    }
}

/// Whether the `mod` line of a file, or of a parent module, lifts the lint against acting methods.
fn lifts_the_ban(path: &Path) -> bool {
    let mut module = path.with_extension("");
    loop {
        let (Some(folder), Some(name)) = (module.parent(), module.file_name().and_then(|name| name.to_str())) else {
            return false;
        };
        let parents = [folder.join("mod.rs"), folder.join("lib.rs"), folder.with_extension("rs")];
        for parent in parents.iter().filter_map(|parent| fs::read_to_string(parent).ok()) {
            let mut lines = parent.lines();
            while let Some(line) = lines.next() {
                if line.starts_with("#[expect(clippy::disallowed_methods") {
                    let declared = lines.next().unwrap_or_default().trim_end_matches(';').rsplit(' ').next();
                    if declared == Some(name) {
                        return true;
                    }
                }
            }
        }
        module = folder.to_owned();
    }
}

/// The lint is lifted for whole files only, so that acting files are visible from outside.
#[test]
fn the_ban_on_acting_is_lifted_for_whole_files() {
    let mut wrong = Vec::new();
    for path in PRODUCT.into_iter().chain(EMBEDDED).flat_map(sources) {
        let code = production(&path);
        for (at, _) in code.match_indices("clippy::disallowed_methods") {
            // The attribute of the crate is for its tests.
            let lifted = code[at..].split_once('\n').map_or("", |(_, rest)| rest.lines().next().unwrap_or_default());
            let declared = lifted.trim_start_matches("pub").trim_start_matches("(crate)").trim();
            let is_module = declared.starts_with("mod ") && declared.ends_with(';');
            if !lifted.is_empty() && !is_module {
                wrong.push(format!("{}: `{lifted}` is no module", path.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_file_says_what_it_is_for() {
    for path in ["src", "benches"].into_iter().flat_map(sources) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} has no header", path.display());
    }
}

#[test]
fn names_say_what_things_are() {
    const VAGUE_FILES: &[&str] = &["util", "helper", "manager", "common", "misc"];
    const VAGUE_FUNCTIONS: &[&str] = &["fn handle_", "fn process_", "fn do_"];
    for path in ["src", "benches"].into_iter().flat_map(sources) {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap();
        assert!(!VAGUE_FILES.iter().any(|vague| name.contains(vague)), "{}: which concept is it?", path.display());
        let code = production(&path);
        for vague in VAGUE_FUNCTIONS {
            assert!(!code.contains(vague), "{}: `{vague}…`: which verb is it?", path.display());
        }
    }
}

/// Words that must not appear in names of code and files, with the standard term.
const OLD_WORDS: &[(&str, &str)] = &[
    ("actors", "controllers"),
    ("affirm", "confirm"),
    ("agenda", "work queue"),
    ("bell", "notify"),
    ("bells", "notifiers"),
    ("blame", "attribute"),
    ("book", "store, log"),
    ("books", "stores, logs"),
    ("calm", "not contended"),
    ("doubled", "duplicate"),
    ("emptied", "empty containers"),
    ("hands", "client"),
    ("happening", "event"),
    ("heard", "received"),
    ("heat", "revert backoff"),
    ("holdings", "inventory"),
    ("hurry", "reset backoff"),
    ("ledger", "store, aggregator"),
    ("levers", "fault injection"),
    ("news", "event, difference"),
    ("party", "tenant"),
    ("podless", "without pod"),
    ("pulse", "liveness"),
    ("question", "request"),
    ("setback", "failure"),
    ("setbacks", "failures"),
    ("standing", "last-applied configuration"),
    ("standstill", "stuck"),
    ("stray", "unknown"),
    ("strays", "unknown variables"),
    ("tell", "emit, report"),
    ("teller", "emitter"),
    ("ticket", "generation"),
    ("told", "reported"),
    ("touched", "affected"),
    ("wish", "retry after"),
    ("wished", "retry after"),
];

/// Paths whose old names remain to be renamed.
const TO_RENAME: &[&str] = &[
    "src/object/src/expression",
    "src/object/src/cron.rs",
    "src/cluster/src/certificate.rs",
    "src/manifest/src/render",
    "src/manifest/src/sops",
    "src/engine/src/prevention",
    "src/engine/src/propagation",
    "src/function/src/admission",
    "src/function/src/bindings",
    "src/exposure",
    "src/eventing",
];

#[test]
fn old_words_do_not_come_back() {
    let mut wrong = Vec::new();
    let renamed = PRODUCT.into_iter().chain(EMBEDDED).chain(["benches"]).flat_map(sources);
    for path in renamed.filter(|path| !TO_RENAME.iter().any(|room| path.starts_with(room))) {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap().to_owned();
        let names = identifiers(&production(&path)).into_iter().chain([name]);
        for name in names.collect::<std::collections::BTreeSet<_>>() {
            let words = words_of(&name);
            let found = OLD_WORDS.iter().filter(|(old, _)| words.iter().any(|word| word == old));
            wrong.extend(found.map(|(old, new)| format!("{}: `{name}`: not {old}, but {new}", path.display())));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Returns the identifiers of code, without strings.
fn identifiers(code: &str) -> Vec<String> {
    let mut quoted = false;
    let mut plain = String::new();
    let code = code.replace("\\\\", "").replace("\\\"", "").replace("'\"'", "");
    for character in code.chars() {
        quoted ^= character == '"';
        plain.push(if quoted { ' ' } else { character });
    }
    let names = plain.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Splits an identifier into words in lower case: `HashMap` and `hash_map` have two.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_was_lower = false;
    for character in name.chars() {
        if character == '_' || (character.is_uppercase() && before_was_lower) {
            words.push(String::new());
        }
        before_was_lower = character.is_lowercase();
        if character != '_' {
            words.last_mut().expect("there is at least one").extend(character.to_lowercase());
        }
    }
    words
}

#[test]
fn identifiers_are_cut_into_words_and_strings_are_left_out() {
    let code = "let news_of = old(\"tell \\\" bell\", 'c', TellerOf::QUEUE);";
    assert_eq!(identifiers(code), ["let", "news_of", "old", "c", "TellerOf", "QUEUE"]);
    assert_eq!(
        ["news_of", "TellerOf", "QUEUE"].map(words_of),
        [vec!["news", "of"], vec!["teller", "of"], vec!["queue"]]
    );
}

#[test]
fn no_test_is_skipped() {
    let marker = format!("#[{}", "ignore");
    for folder in ["src", "tests", "benches"] {
        for path in sources(folder) {
            assert!(!fs::read_to_string(&path).unwrap().contains(&marker), "{} skips a test", path.display());
        }
    }
}

/// Files that create the child processes of tests, with a clean environment.
const PROCESSES: [&str; 2] = ["src/devcluster/tests/server/process.rs", "src/testkit/src/process.rs"];

/// Other child processes would read the user's home, configuration and locale.
#[test]
fn processes_of_tests_begin_in_an_environment_of_their_own() {
    let begins = concat!("Command", "::new(");
    let found = ["src/devcluster/tests", "src/testkit/src", "tests"].into_iter().flat_map(sources);
    let found: Vec<_> = found.filter(|path| fs::read_to_string(path).unwrap().contains(begins)).collect();
    assert_eq!(found, PROCESSES.map(PathBuf::from));
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let readme = fs::read_to_string("README.md").unwrap();
    let command = readme.lines().find(|line| line.starts_with(".ci/test")).expect("README.md shows how to test");
    let ci = fs::read_to_string(".ci/run").unwrap();
    assert!(ci.lines().any(|line| line == command), ".ci/run does not run `{command}`");
}

fn sources(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    files(folder, "rs")
}

/// Returns the files of a folder and of its subfolders that have this extension.
fn files(folder: impl AsRef<Path>, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder.as_ref()) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(path, extension));
        } else if path.extension().is_some_and(|ext| ext == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn one_cryptography_and_no_system_libraries() {
    let lock = fs::read_to_string("Cargo.lock").unwrap();
    for line in fs::read_to_string("deny.toml").unwrap().lines().filter(|line| line.contains("crate = ")) {
        let banned = line.split('"').nth(1).unwrap();
        assert!(!lock.contains(&format!("name = \"{banned}\"\n")), "deny.toml bans `{banned}`");
    }
}
