//! The commands in `docs/moving.md`: a live cluster moves from Flux to Mainstay.

use std::{fs, path::Path};

use devcluster::{Action, Call, verbs::patch::Form};
use serde_json::{Value, json};

use mainstay_testkit::foreign::{define, kustomization, suspended_goes};
use mainstay_testkit::kubectl::Kubectl;
use mainstay_testkit::markdown::{blocks, commands};
use mainstay_testkit::world::{NAMESPACE, World, config_map, definition};

use crate::adoption::{KINDS, PERSON, all, call, content, file, replica_sets, rolled_out, some};

/// The path of a program that applies with Flux's own code; `.ci/real` builds it. Without it, objects are applied with
/// Flux's field manager.
const FLUX: &str = "MAINSTAY_TEST_FLUX";

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/moving.md");
    let text = fs::read_to_string(path).unwrap();
    text.replace("flux-system", NAMESPACE).replace("mainstay-system", NAMESPACE)
}

/// Returns all objects, without the fields that keep pods from running.
fn everything() -> Vec<Value> {
    let mut all = all("shop");
    let pods = all[2]["spec"]["template"]["spec"].as_object_mut().unwrap();
    pods.retain(|name, _| !["nodeSelector", "serviceAccountName"].contains(&name.as_str()));
    all
}

/// Applies objects like a Kustomization. Returns the entries of its inventory.
async fn apply(world: &World, kubectl: &Kubectl, objects: &[Value]) -> Vec<String> {
    let mut namespaced = objects.to_vec();
    for object in &mut namespaced {
        object["metadata"]["namespace"] = NAMESPACE.into();
    }
    if let Some(program) = std::env::var_os(FLUX) {
        let file = kubectl.file("apps.yaml", &file(&namespaced));
        let line = format!("{} {NAMESPACE}/apps {file}", program.display());
        let (code, out) = kubectl.shell(&line, Path::new("/")).await;
        assert_eq!(code, 0, "{out}");
        return out.lines().map(str::to_owned).collect();
    }
    let mut listed = Vec::new();
    for object in &mut namespaced {
        for (label, value) in [("name", "apps"), ("namespace", NAMESPACE)] {
            object["metadata"]["labels"][format!("kustomize.toolkit.fluxcd.io/{label}")] = value.into();
        }
        let text = |name: &str| object["metadata"][name].as_str().unwrap().to_owned();
        let group = object["apiVersion"].as_str().unwrap().rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        listed.push(format!("{NAMESPACE}_{}_{group}_{}", text("name"), object["kind"].as_str().unwrap()));
        let apply: Call = call(object, &text("name"), Action::Patch(Form::Apply, object.clone()));
        world.write_as("kustomize-controller", apply);
    }
    listed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_moves_from_flux_without_a_restart_and_the_next_commit_removes_what_it_removes() {
    let mut world = World::new().await;
    define(&world);
    let kubectl = Kubectl::of_user(&world.server, NAMESPACE, PERSON).await;
    let listed = apply(&world, &kubectl, &everything()).await;
    assert_eq!(listed.len(), KINDS.len());
    kustomization(&world, "apps", &listed);
    world.remote.file("apps/shop.yaml", file(&everything())).commit("as Flux has applied it");
    world.start();
    rolled_out(&world).await;
    let live = |w: &World| w.get("apps/v1", "deployments", "shop").unwrap();
    let (before, sets) = (live(&world)["spec"].clone(), replica_sets(&world));

    let document = document();
    let clone = tempfile::tempdir().unwrap();
    let path = world.remote.path().display().to_string();
    let (code, out) = kubectl.shell(&format!("git clone --quiet {path} ."), clone.path()).await;
    assert_eq!(code, 0, "{out}");
    let blocks = blocks(&document);
    let git_sync = blocks.iter().find(|block| block.language == "yaml").unwrap();
    fs::write(clone.path().join("gitsync.yaml"), &git_sync.text).unwrap();
    let lines = blocks.iter().filter(|block| block.language == "sh").flat_map(|block| commands(&block.text));
    let mut ran = 0;
    for line in lines {
        // Flux acts while kubectl waits for the deletion.
        let flux = suspended_goes(&world, "apps");
        let ((code, out), ()) = tokio::join!(kubectl.shell(&line, clone.path()), async {
            if line.contains("delete kustomization") {
                flux.await;
            }
        });
        assert_eq!(code, 0, "{line}\n{out}");
        if line.contains("mainstay diff") {
            assert!(out.contains("5 changed") && out.contains("mainstay.dev/sync"), "{out}");
        }
        ran += 1;
    }
    assert_eq!(ran, 5);
    assert_eq!(live(&world)["spec"], before);
    rolled_out(&world).await;
    assert_eq!(replica_sets(&world), sets);
    let labels = json!({"mainstay.dev/sync": format!("{NAMESPACE}.apps"), "old": "1"});
    assert_eq!(live(&world)["metadata"]["labels"], labels);

    for name in ["shop", "fresh"] {
        world.remote.file(&format!("apps/{name}.yaml"), file(&some(name)));
    }
    world.commit("apps", "most of it leaves").await;
    for kind in KINDS {
        assert_eq!(content(&world, kind, "shop"), content(&world, kind, "fresh"), "{}", kind.1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_flux_without_their_definition_stall_the_git_sync_until_they_are_removed() {
    let group = "source.toolkit.fluxcd.io";
    let mut world = World::new().await;
    let definition = definition()
        .replace("mainstay-tests.example.org", group)
        .replace("Widget", "HelmRepository")
        .replace("widget", "helmrepository")
        .replace("helmrepositorys", "helmrepositories");
    world.define(serde_json::from_str(&definition).unwrap());
    let repository =
        format!("apiVersion: {group}/v1\nkind: HelmRepository\nmetadata: {{name: charts}}\nspec: {{size: 1}}\n");
    world.remote.file("a.yaml", config_map("a", "1")).file("charts.yaml", &*repository).commit("one");
    world.synced(json!({})).await;
    world.undefine(&format!("helmrepositories.{group}"));
    // The watch fails, or the revert of an object whose deletion was seen.
    world.condition_is("demo", "Ready", "False ").await;
    let said = world.condition("demo", "Ready");
    assert!(said.contains("the cluster does not serve HelmRepository"), "{said}");
    assert!(said.contains("it is an object of Flux: remove its manifest; `mainstay convert flux`"), "{said}");
    world.condition_is("demo", "Stalled", "True ").await;
    world.remote.file("a.yaml", config_map("a", "2"));
    world.try_commit("demo", "two").await;
    world.condition_is("demo", "Stalled", "True ").await;
    world.remote.remove("charts.yaml");
    world.commit("demo", "three").await;
    assert_eq!(world.data("a"), "2");
}
