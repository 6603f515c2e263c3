//! Repositories that attack renderers. Each class of `spec/rendering.md` §7 has a test here, named after the class,
//! against the whole product. Each attack ends in a Problem that names the file. No object is applied, other GitSyncs
//! continue, and no message contains file content.
//!
//! | class | here | more of it |
//! |---|---|---|
//! | argument injection | `argument_injection` | names of releases and files of values: `source::charts`, `render::chart` |
//! | symbolic links, submodules, `..`, absolute paths | `symbolic_links`, `submodules`, `paths_out_of_the_repository` | `render::closure`, `manifest::tests` |
//! | `.git`, names that differ by case | `git_directories_and_names_that_clash` | `hostile_names` |
//! | remote bases | `remote_bases`, `remote_bases_in_disguise` | `render::kustomization` |
//! | no network at all | `hidden_remote_bases_are_refused` | `render::network` |
//! | plug-ins, functions, Helm's plug-ins and post-renderers | `plugins_and_functions` | `render::refusal` |
//! | template bombs, alias bombs, deep nesting | `template_bombs`, `bombs_of_kustomizations` | `source::charts`, `manifest::tests` |
//! | endless output | `endless_output` | `render::program`, also CPU time, memory and the deadline |
//! | `lookup`, names of hosts, the environment, files, random values | `lookup_and_chance` | `source::charts`, `charts`
//! |
//! | files of gigabytes, packed charts | `sparse_gigabytes`, `packed_charts` | `source::hostile`, `render::schema` |
//! | schemas that are fetched | `schemas` | `render::schema` |
//! | SOPS | `sops_files` | `sops` (tampered values, MAC, cut short, other keys), `src/manifest/src/sops/tests.rs` |
//! | substitution that changes the structure | `substitution` | `substitute` (values of Secrets in messages) |
//! | check/use gap | `changes_behind_the_check` | `overlays`, `service_accounts` |
//!
//! The renderer in its own container runs the same program with the same limits (`renderer`).

mod bombs;
mod charts;
mod encrypted;
mod kustomizations;
mod names;
mod values;

use serde_json::{Value, json};

use mainstay_testkit::world::{World, config_map};

/// Occurs in files, and must not occur in messages.
const SECRET: &str = "hush-hush";

/// A world with two GitSyncs of one repository: `demo`, which is attacked, and `other`.
struct Attacked {
    world: World,
    rounds: u32,
}

impl Attacked {
    async fn new() -> Self {
        Self::with(json!({})).await
    }

    /// Creates the world. `spec` is the spec of the GitSync `demo`.
    async fn with(spec: Value) -> Self {
        let mut world = World::new().await;
        world.remote.file("app/kept.yaml", config_map("kept", "1")).file("other/other.yaml", config_map("other", "0"));
        world.remote.commit("one");
        let mut whole = json!({"baseDir": "/app"});
        json_patch::merge(&mut whole, &spec);
        world.sync("demo", whole);
        world.sync("other", json!({"baseDir": "/other"}));
        world.start();
        world.ready("demo").await;
        world.ready("other").await;
        Self { world, rounds: 0 }
    }

    fn said(&self) -> String {
        self.world.condition("demo", "Ready")
    }

    /// Stages files. Other staged files in `app` stay.
    fn stage(&mut self, files: &[(&str, &[u8])]) {
        for (path, content) in files {
            self.world.remote.file(path, content);
        }
    }

    /// Commits the staged files. Checks that the commit is refused with all these messages, and returns Ready.
    async fn is_refused(&mut self, expected: &[&str]) -> String {
        self.rounds += 1;
        let round = self.rounds.to_string();
        self.world.remote.file("other/other.yaml", config_map("other", &round));
        let commit = self.world.remote.commit("hostile");
        self.is_refused_at(&commit, expected, &round).await
    }

    /// Checks that an existing commit is refused with all these messages.
    async fn is_refused_at(&mut self, commit: &str, expected: &[&str], round: &str) -> String {
        self.world.ask("demo").await;
        let at = |w: &World| w.status("demo")["attemptedCommit"] == commit;
        self.world.until_or("it was tried", at, || self.said()).await;
        let said = self.said();
        assert!(said.starts_with("False ManifestInvalid: "), "{expected:?}: {said}");
        for expected in expected {
            assert!(said.contains(expected), "{expected}: {said}");
        }
        assert!(!said.contains(SECRET) && said.len() < 20_000, "{said}");
        // The commit is not applied, and the other GitSync applies it.
        self.world.ask("other").await;
        self.world.ready("other").await;
        assert_eq!(
            (self.world.config_maps(), self.world.data("kept")),
            (vec!["kept".into(), "other".into()], "1".into())
        );
        assert_eq!(self.world.data("other"), round);
        said
    }

    /// One attack: commits these files, checks the refusal, and removes them.
    async fn refuses(&mut self, files: &[(&str, &[u8])], expected: &[&str]) -> String {
        self.stage(files);
        let said = self.is_refused(expected).await;
        self.clear();
        said
    }

    /// Commits the staged files, which both GitSyncs apply. Neither prunes before it knows the other's desired objects.
    async fn applies(&mut self, message: &str) {
        self.world.remote.commit(message);
        self.world.ask("demo").await;
        self.world.ask("other").await;
        self.world.ready("demo").await;
        self.world.ready("other").await;
    }

    /// Resets the next commit to the initially applied files.
    fn clear(&mut self) {
        self.world.remote.clear().file("app/kept.yaml", config_map("kept", "1"));
        self.world.remote.file("other/other.yaml", config_map("other", &self.rounds.to_string()));
    }
}

/// The file that makes `app` a chart.
const CHART: (&str, &[u8]) = ("app/Chart.yaml", b"apiVersion: v2\nname: small\nversion: 0.1.0\n");

/// Returns a template of the chart in `app`.
fn template(value: &str) -> Vec<u8> {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: made\ndata:\n  key: {value}\n").into_bytes()
}
