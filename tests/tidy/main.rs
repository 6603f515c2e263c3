//! Rules of the house that the compiler cannot see.
//!
//! Plain tests, so that a developer meets them with `cargo test` and CI needs no extra step.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod circles;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// What every module may name.
const GROUND: &[&str] = &["api", "object", "failure"];

/// Who may name whom, besides the ground floor. A module that is missing here fails the test, so the table is the map.
const MAY_NAME: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("object", &[]),
    ("failure", &[]),
    ("cron", &[]),
    ("expression", &[]),
    ("certificate", &[]),
    ("liveness", &[]),
    ("listener", &[]),
    ("cluster", &[]),
    ("secrets", &["cluster"]),
    ("source", &[]),
    ("notification", &[]),
    ("sops", &[]),
    ("manifest", &["source", "sops"]),
    ("render", &["source", "manifest"]),
    ("managed", &["cluster", "expression"]),
    ("apply", &["managed", "cluster", "notification", "liveness"]),
    ("drift", &["apply", "managed", "cluster"]),
    ("propagation", &["apply", "managed", "cluster"]),
    ("prevention", &["managed", "apply", "cluster"]),
    ("fuzz", &["cluster", "cron", "gitsync", "managed", "manifest", "receiver", "registry", "sops", "source"]),
    (
        "gitsync",
        &[
            "cron",
            "expression",
            "source",
            "sops",
            "manifest",
            "render",
            "managed",
            "apply",
            "cluster",
            "prevention",
            "secrets",
            "notification",
            "liveness",
        ],
    ),
    ("runtimes", &[]),
    ("registry", &[]),
    ("build", &["source", "runtimes", "registry"]),
    (
        "function",
        &[
            "bindings",
            "cron",
            "source",
            "runtimes",
            "registry",
            "managed",
            "apply",
            "cluster",
            "secrets",
            "notification",
            "liveness",
        ],
    ),
    ("exposure", &["managed", "apply", "cluster", "notification", "liveness"]),
    ("bindings", &["cluster", "liveness"]),
    ("eventing", &["cluster", "listener"]),
    ("receiver", &["source", "cluster", "secrets", "notification", "liveness", "listener"]),
    ("admission", &["certificate", "source", "registry", "function", "cluster", "listener"]),
    (
        "agent",
        &[
            "admission",
            "certificate",
            "managed",
            "apply",
            "drift",
            "gitsync",
            "function",
            "exposure",
            "bindings",
            "propagation",
            "prevention",
            "registry",
            "receiver",
            "notification",
            "cluster",
            "secrets",
            "source",
            "render",
            "liveness",
            "listener",
        ],
    ),
    (
        "cli",
        &[
            "admission",
            "certificate",
            "agent",
            "managed",
            "drift",
            "gitsync",
            "function",
            "eventing",
            "exposure",
            "build",
            "registry",
            "runtimes",
            "manifest",
            "render",
            "notification",
            "cluster",
            "source",
            "liveness",
            "listener",
            "receiver",
        ],
    ),
];

/// Files and folders that act: they may wait, read clocks and files, and log. Everything else decides.
const ACTING: &[&str] = &[
    "src/main.rs",
    "src/admission/registration.rs",
    "src/admission/server.rs",
    "src/agent/",
    "src/build/",
    "src/cli/",
    "src/cluster/",
    "src/liveness.rs",
    "src/listener.rs",
    "src/receiver/reconcile.rs",
    "src/receiver/server.rs",
    "src/gitsync/rendering.rs",
    "src/render/copies.rs",
    "src/render/helm.rs",
    "src/render/kustomize.rs",
    "src/render/program.rs",
    "src/render/renderer.rs",
    "src/render/tool.rs",
    "src/render/turns.rs",
    "src/runtimes/libraries.rs",
    "src/secrets/once.rs",
    "src/secrets/repository.rs",
    "src/secrets/values.rs",
    "src/secrets/watch.rs",
    "src/source/lookup.rs",
    "src/source/remotes.rs",
    "src/source/search.rs",
    "src/source/permits.rs",
    "src/source/snapshot.rs",
    "src/source/servers.rs",
    "src/source/sweep.rs",
    "src/source/integrity.rs",
    "src/source/room.rs",
    "src/source/spool.rs",
    "src/source/storage.rs",
    "src/source/submodule_fetch.rs",
    "src/source/submodule_mirrors.rs",
    "src/source/lfs_fetch.rs",
    "src/source/large_files.rs",
    "src/source/watch.rs",
    "src/source/mirror.rs",
    "src/source/transfer.rs",
    "src/source/trust.rs",
    "src/source/transport/",
    "src/apply/audit.rs",
    "src/apply/delete.rs",
    "src/apply/dry_run.rs",
    "src/apply/follow_up.rs",
    "src/apply/ignored.rs",
    "src/apply/object_locks.rs",
    "src/apply/prune.rs",
    "src/apply/put.rs",
    "src/apply/replicas.rs",
    "src/apply/replace.rs",
    "src/apply/report.rs",
    "src/apply/rerun.rs",
    "src/apply/revert.rs",
    "src/apply/server_side.rs",
    "src/apply/transfer.rs",
    "src/apply/waiting.rs",
    "src/apply/writer.rs",
    "src/drift/audit.rs",
    "src/drift/autoscalers.rs",
    "src/drift/by_name.rs",
    "src/drift/watch.rs",
    "src/gitsync/abroad.rs",
    "src/gitsync/attempt.rs",
    "src/gitsync/clusters.rs",
    "src/gitsync/context.rs",
    "src/gitsync/decryption.rs",
    "src/gitsync/dependencies.rs",
    "src/gitsync/ending.rs",
    "src/gitsync/finalize.rs",
    "src/gitsync/failures.rs",
    "src/gitsync/inventory.rs",
    "src/gitsync/listing.rs",
    "src/gitsync/account.rs",
    "src/gitsync/observe.rs",
    "src/gitsync/perform.rs",
    "src/gitsync/place.rs",
    "src/gitsync/preview.rs",
    "src/gitsync/readable.rs",
    "src/gitsync/reconcile.rs",
    "src/gitsync/report.rs",
    "src/gitsync/rerun.rs",
    "src/gitsync/schedule.rs",
    "src/gitsync/whereabouts.rs",
    "src/gitsync/registry.rs",
    "src/eventing/control.rs",
    "src/eventing/dead_letters.rs",
    "src/eventing/deliver.rs",
    "src/eventing/journal/handle.rs",
    "src/eventing/journal/room.rs",
    "src/eventing/journal/store.rs",
    "src/eventing/journal/writer.rs",
    "src/eventing/run.rs",
    "src/eventing/send.rs",
    "src/eventing/server.rs",
    "src/eventing/watch.rs",
    "src/exposure/perform.rs",
    "src/exposure/reconcile.rs",
    "src/exposure/report.rs",
    "src/exposure/services.rs",
    "src/exposure/watch.rs",
    "src/bindings/context.rs",
    "src/bindings/reconcile.rs",
    "src/bindings/watch.rs",
    "src/function/context.rs",
    "src/function/git.rs",
    "src/function/knative.rs",
    "src/function/name_conflict.rs",
    "src/function/named_secrets.rs",
    "src/function/observe.rs",
    "src/function/perform.rs",
    "src/function/perform/",
    "src/function/pod_secrets.rs",
    "src/function/polling.rs",
    "src/function/quotas.rs",
    "src/function/reconcile.rs",
    "src/function/report.rs",
    "src/notification/deliver.rs",
    "src/prevention/keep.rs",
    "src/propagation/reconcile.rs",
    "src/propagation/write.rs",
    "src/registry/client/",
    "src/registry/storage.rs",
    "devcluster/apiserver/src/client/",
    "devcluster/controllers/src/",
    "devcluster/apiserver/src/admission/call.rs",
    "devcluster/apiserver/src/admission/drive.rs",
    "devcluster/apiserver/src/call.rs",
    "devcluster/apiserver/src/listen.rs",
    "devcluster/node/src/gateway/fetch.rs",
    "devcluster/node/src/gateway/forward.rs",
    "devcluster/node/src/gateway/keys.rs",
    "devcluster/node/src/gateway/serve.rs",
    "devcluster/node/src/gateway/serving/activator.rs",
    "devcluster/node/src/gateway/verify.rs",
    "devcluster/node/src/pods/",
    "devcluster/apiserver/src/registration.rs",
    "devcluster/apiserver/src/requests.rs",
    "devcluster/node/src/registry/answer.rs",
    "devcluster/node/src/registry/image.rs",
    "devcluster/node/src/registry/store.rs",
    "devcluster/node/src/registry/upload.rs",
    "devcluster/apiserver/src/server.rs",
    "devcluster/apiserver/src/service/",
    "devcluster/apiserver/src/verbs/",
];

/// The crates of the embedded cluster.
const EMBEDDED: [&str; 4] =
    ["devcluster/src", "devcluster/apiserver/src", "devcluster/controllers/src", "devcluster/node/src"];

/// What a deciding file must not contain.
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

#[test]
fn dependencies_point_one_way() {
    let mut wrong = Vec::new();
    for path in sources("src") {
        let inside = path.strip_prefix("src").unwrap();
        let module = inside.iter().next().and_then(|part| part.to_str()).unwrap();
        if matches!(module, "lib.rs" | "main.rs") {
            continue; // The front page lists all modules, the program starts one.
        }
        let module = module.trim_end_matches(".rs");
        let Some((_, allowed)) = MAY_NAME.iter().find(|(name, _)| *name == module) else {
            wrong.push(format!("`{module}` has no row in MAY_NAME"));
            continue;
        };
        let ground: &[&str] = match module {
            "api" => &[],
            "object" | "failure" => &["api"],
            _ => GROUND,
        };
        for named in modules_named_in(&production(&path)) {
            if named != module && !allowed.contains(&named.as_str()) && !ground.contains(&named.as_str()) {
                wrong.push(format!("{}: `{module}` must not name `{named}`", path.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Circles of files that are still there: by the module that they are in, how many files each circle has. An entry goes
/// when its circle does; none is added.
const CIRCLES: &[(&str, &[usize])] = &[
    ("build", &[2, 3, 3]),
    ("cli", &[2, 10]),
    ("cluster", &[3]),
    ("function", &[2, 2, 3]),
    ("registry", &[4]),
    ("runtimes", &[2]),
    ("source", &[6, 8]),
];

/// The same in the embedded cluster and in the measurement.
const CIRCLES_BESIDE: &[(&str, &[usize])] = &[];

#[test]
fn files_do_not_name_each_other_in_a_circle() {
    check_circles(&["src"], CIRCLES);
    check_circles(&[EMBEDDED.as_slice(), &["benches/agent/src"]].concat(), CIRCLES_BESIDE);
}

fn check_circles(crates: &[&str], known: &[(&str, &[usize])]) {
    let mut found: std::collections::BTreeMap<String, Vec<Vec<String>>> = std::collections::BTreeMap::new();
    for circle in crates.iter().flat_map(|root| circles::circles(root)) {
        let module = circle[0].split('/').next().unwrap().to_owned();
        found.entry(module).or_default().push(circle);
    }
    let sizes = |circles: &Vec<Vec<String>>| {
        let mut sizes: Vec<usize> = circles.iter().map(Vec::len).collect();
        sizes.sort_unstable();
        sizes
    };
    let present: Vec<(String, Vec<usize>)> = found.iter().map(|(module, all)| (module.clone(), sizes(all))).collect();
    let known: Vec<(String, Vec<usize>)> = known.iter().map(|(m, sizes)| ((*m).to_owned(), sizes.to_vec())).collect();
    assert_eq!(present, known, "the circles on the left are there, those on the right are known: {found:#?}");
}

#[test]
fn only_the_command_line_knows_the_embedded_cluster() {
    let wrong: Vec<_> = sources("src")
        .into_iter()
        .filter(|path| !path.starts_with("src/cli/dev"))
        .filter(|path| production(path).contains("devcluster::"))
        .collect();
    assert_eq!(wrong, Vec::<PathBuf>::new());
    for path in EMBEDDED.into_iter().flat_map(sources) {
        assert!(!production(&path).contains("mainstay"), "{} knows the agent", path.display());
    }
}

/// Whatever the agent deletes is deleted as it was judged. The command line asks whoever uninstalls.
#[test]
fn objects_are_deleted_in_one_place() {
    let deletes = |path: &PathBuf| production(path).contains("Propagation::");
    let all = sources("src").into_iter().filter(deletes);
    let all = all.filter(|path| !path.starts_with("src/cli") && !path.ends_with("tests.rs"));
    let all: Vec<_> = all.map(|path| path.to_str().unwrap().to_owned()).collect();
    assert_eq!(all, ["src/apply/delete.rs", "src/cluster/delete.rs"]);
}

#[test]
fn deciding_files_do_not_act() {
    let mut wrong = Vec::new();
    for path in sources("src").into_iter().chain(EMBEDDED.into_iter().flat_map(sources)) {
        let name = path.to_str().unwrap();
        if ACTING.iter().any(|acting| name == *acting || acting.ends_with('/') && name.starts_with(acting)) {
            continue;
        }
        let code = production(&path);
        wrong.extend(ACTS.iter().filter(|word| code.contains(**word)).map(|word| format!("{name}: `{word}`")));
    }
    assert_eq!(wrong, Vec::<String>::new(), "these files decide, so they must not act");
}

#[test]
fn only_files_that_act_lift_the_ban_on_acting() {
    let ban = "clippy::disallowed_methods";
    let mut wrong = Vec::new();
    for path in sources("src").into_iter().chain(EMBEDDED.into_iter().flat_map(sources)) {
        let code = production(&path);
        // The crate's own attribute is for its tests.
        for (_, after) in code.match_indices(ban).map(|(at, _)| code[at..].split_once('\n').unwrap()) {
            let lifted = after.lines().next().unwrap().trim_start_matches("pub").trim_start_matches("(crate)").trim();
            let Some(module) = lifted.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) else {
                wrong.extend((!lifted.is_empty()).then(|| format!("{}: `{lifted}` is no module", path.display())));
                continue;
            };
            let inside = path.parent().unwrap().join(module);
            let names = [format!("{}.rs", inside.display()), format!("{}/", inside.display())];
            if !ACTING.iter().any(|acting| names.iter().any(|name| name == acting || name.starts_with(acting))) {
                wrong.push(format!("{}: `{module}` decides", path.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_file_says_what_it_is_for() {
    for path in ["src", "benches"].into_iter().chain(EMBEDDED).flat_map(sources) {
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("//! "), "{} has no header", path.display());
    }
}

#[test]
fn names_say_what_things_are() {
    const VAGUE_FILES: &[&str] = &["util", "helper", "manager", "common", "misc"];
    const VAGUE_FUNCTIONS: &[&str] = &["fn handle_", "fn process_", "fn do_"];
    for path in ["src", "benches"].into_iter().chain(EMBEDDED).flat_map(sources) {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap();
        assert!(!VAGUE_FILES.iter().any(|vague| name.contains(vague)), "{}: which concept is it?", path.display());
        let code = production(&path);
        for vague in VAGUE_FUNCTIONS {
            assert!(!code.contains(vague), "{}: `{vague}…`: which verb is it?", path.display());
        }
    }
}

/// Words that do not come back in names of code and files, and what the field calls it.
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

/// What is free of old words, besides the embedded cluster and the measurements. The rest of `src` follows.
const RENAMED: &[&str] = &[
    "src/agent",
    "src/api",
    "src/apply",
    "src/build",
    "src/cli",
    "src/cluster",
    "src/drift",
    "src/failure",
    "src/function",
    "src/gitsync",
    "src/listener.rs",
    "src/liveness.rs",
    "src/managed",
    "src/manifest",
    "src/notification",
    "src/object",
    "src/receiver",
    "src/registry",
    "src/runtimes",
    "src/secrets",
    "src/source",
];

#[test]
fn old_words_do_not_come_back() {
    let mut wrong = Vec::new();
    let renamed = sources("src").into_iter().filter(|path| RENAMED.iter().any(|renamed| path.starts_with(renamed)));
    for path in renamed.chain(EMBEDDED.into_iter().chain(["benches"]).flat_map(sources)) {
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

/// The identifiers of code, without what stands in strings.
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

/// The words of an identifier, in lower case: `HashMap` and `hash_map` have two.
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
    for folder in ["src", "tests", "benches", "devcluster"] {
        for path in sources(folder) {
            assert!(!fs::read_to_string(&path).unwrap().contains(&marker), "{} skips a test", path.display());
        }
    }
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let readme = fs::read_to_string("README.md").unwrap();
    let command = readme.lines().find(|line| line.starts_with(".ci/test")).expect("README.md shows how to test");
    let ci = fs::read_to_string(".ci/run").unwrap();
    assert!(ci.lines().any(|line| line == command), ".ci/run does not run `{command}`");
}

fn sources(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder.as_ref()) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The file without comments and without its inline tests.
fn production(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The top-level modules after every `crate::`, whether `crate::a::B` or `crate::{a::B, c}`.
fn modules_named_in(code: &str) -> Vec<String> {
    let word = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut found = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let Some(group) = rest.strip_prefix('{') else {
            found.push(word(rest));
            continue;
        };
        let mut depth = 0usize;
        for item in group.split_inclusive([',', '{', '}']) {
            if depth == 0 {
                found.push(word(item.trim_start()));
            }
            if item.ends_with('{') {
                depth += 1;
            } else if item.ends_with('}') {
                if depth == 0 {
                    break;
                }
                depth -= 1;
            }
        }
    }
    found.retain(|name| !name.is_empty());
    found
}

#[test]
fn modules_are_found_in_plain_and_grouped_paths() {
    let code = "use crate::a::B; use crate::{c::{D, e::F}, g, h::I};\nlet x = crate::j::k();";
    assert_eq!(modules_named_in(code), ["a", "c", "g", "h", "j"]);
}

#[test]
fn one_cryptography_and_no_system_libraries() {
    let lock = fs::read_to_string("Cargo.lock").unwrap();
    for line in fs::read_to_string("deny.toml").unwrap().lines().filter(|line| line.contains("crate = ")) {
        let banned = line.split('"').nth(1).unwrap();
        assert!(!lock.contains(&format!("name = \"{banned}\"\n")), "deny.toml bans `{banned}`");
    }
}
