//! Names that look like options, and paths that point outside of the repository.

use super::*;

const FILE: &str = "app/kustomization.yaml";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn argument_injection() {
    let mut attacked = Attacked::new().await;
    // Names of files and directories are always paths.
    let map = |name: &str| config_map(name, "1").into_bytes();
    attacked.stage(&[
        (
            "app/--enable-helm/kustomization.yaml",
            b"resources: [-e.yaml, '--load-restrictor=LoadRestrictionsNone', ./--help]\n",
        ),
        ("app/--enable-helm/-e.yaml", &map("e")),
        ("app/--enable-helm/--load-restrictor=LoadRestrictionsNone", &map("restrictor")),
        ("app/--enable-helm/--help/kustomization.yaml", b"resources: ['-f']\n"),
        ("app/--enable-helm/--help/-f", &map("help")),
        ("app/--post-renderer=sh/Chart.yaml", CHART.1),
        ("app/--post-renderer=sh/templates/--debug.yaml", &template("one")),
    ]);
    attacked.applies("odd names").await;
    assert_eq!(attacked.world.config_maps(), ["e", "help", "kept", "made", "other", "restrictor"]);
    attacked.clear();
    let commit = attacked.world.remote.commit("without");
    attacked.world.ask("other").await;
    attacked.world.allow_prune("demo", &commit).await;
    attacked.world.until("they are gone", |w| w.config_maps() == ["kept", "other"]).await;
    attacked
        .refuses(
            &[(FILE, b"resources:\n- \"a\\nb\"\n- \"a\\0b\"\n- --network\n- \"-e=KEY=hush\"\nimages: [{name: --x}]\n")],
            &[
                "it names a\\nb, which is not there",
                "which is not in the repository",
                "line 4: it names --network, which is not there",
            ],
        )
        .await;
    attacked.applies("without").await;
    // Values of the GitSync that look like options are refused, or never used as an option.
    let options: [(Value, &str); 12] = [
        (json!({"reference": "--upload-pack=touch x"}), "reference"),
        (json!({"reference": "main\n--x"}), "reference"),
        (json!({"reference": "-x"}), ""),
        (json!({"baseDir": "--help"}), "--help"),
        (json!({"baseDir": "/app\n--x"}), "is not a directory"),
        (json!({"targetNamespace": "--kubeconfig=x"}), ""),
        (json!({"namePrefix": "--x\n"}), "spec.namePrefix cannot be part of a name"),
        (json!({"overrideNamespace": "-n x"}), "spec.overrideNamespace is not a valid namespace"),
        (json!({"components": ["--network"]}), "spec.components[0]: it names --network, which is not there"),
        (json!({"images": [{"name": "(", "newTag": "1"}], "patches": [{"patch": "--x"}]}), ""),
        (json!({"render": {"helm": {"releaseName": "--post-renderer=sh"}}}), ""),
        (json!({"render": {"helm": {"valuesFiles": ["--set=a=b"]}}}), ""),
    ];
    let none = json!({"reference": "main", "baseDir": "/app", "targetNamespace": null, "namePrefix": null, "overrideNamespace": null,
        "components": null, "images": null, "patches": null, "render": null});
    for (change, expected) in options {
        let mut spec = none.clone();
        spec.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        attacked.world.change("demo", spec).await;
        let said = attacked.said();
        assert!(said.starts_with("False ") && said.contains(expected), "{change}: {said}");
        assert_eq!(
            (attacked.world.config_maps(), attacked.world.data("kept")),
            (vec!["kept".into(), "other".into()], "1".into())
        );
    }
    attacked.world.change("demo", none).await;
    attacked.world.ready("demo").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn symbolic_links() {
    let mut attacked = Attacked::new().await;
    for (link, target) in
        [("app/templates/a.yaml", "/etc/passwd"), ("app/files/x", "../../other/other.yaml"), ("app/charts", "/")]
    {
        attacked.stage(&[CHART, ("app/templates/b.yaml", &template("{{ .Files.Get \"files/x\" }}"))]);
        attacked.world.remote.symlink(link, target);
        attacked.is_refused(&[&format!("{link}: it is a symbolic link in a chart, and links are not followed")]).await;
        attacked.clear();
    }
    let named = "resources: [link.yaml]\nconfigMapGenerator: [{name: a, files: [x=link.yaml], envs: [dir/x]}]\npatches: [{path: link.yaml}]\ncomponents: [dir]\n";
    attacked.world.remote.symlink("app/link.yaml", "/etc/passwd").symlink("app/dir", "..");
    attacked.stage(&[(FILE, named.as_bytes())]);
    let said = attacked
        .is_refused(&[
            "it names link.yaml, a symbolic link, and links are not followed",
            "it names dir, a symbolic link",
            "dir/x, which is not there",
        ])
        .await;
    assert_eq!(said.matches("it names link.yaml, a symbolic link").count(), 3, "{said}");
    attacked.clear();
    // A kustomization that is a symbolic link, to a manifest or a directory.
    attacked.world.remote.symlink(FILE, "../other/other.yaml");
    attacked.is_refused(&[FILE]).await;
    attacked.clear();
    attacked.world.remote.symlink("app/link.yaml", "/proc/self/environ").symlink("app/dir", "/etc");
    attacked
        .is_refused(&["app/link.yaml: symbolic links are not followed", "app/dir: symbolic links are not followed"])
        .await;
    attacked.clear();
    // Values files.
    attacked.stage(&[CHART, ("app/templates/b.yaml", &template("one"))]);
    attacked.world.remote.symlink("values.yaml", "/etc/passwd");
    attacked.world.edit(
        "mainstay.dev/v1alpha1",
        "gitsyncs",
        "demo",
        json!({"spec": {"render": {"helm": {"valuesFiles": ["/values.yaml"]}}}}),
    );
    attacked.is_refused(&["spec.render.helm.valuesFiles names /values.yaml, a symbolic link"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submodules() {
    let mut attacked = Attacked::new().await;
    attacked.stage(&[CHART, ("app/templates/b.yaml", &template("one"))]);
    attacked.world.remote.submodule("app/charts/db");
    attacked.is_refused(&["app/charts/db: it is a submodule in a chart, and is not fetched"]).await;
    attacked.clear();
    attacked.stage(&[(FILE, b"resources: [sub, sub/a.yaml]\n")]);
    attacked.world.remote.submodule("app/sub");
    attacked
        .is_refused(&["it names sub, a submodule that is not fetched", "it names sub/a.yaml, which is not there"])
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_out_of_the_repository() {
    let mut attacked = Attacked::new().await;
    let paths = [
        "../../x.yaml",
        "/etc/passwd",
        "a/../../../x",
        ".git/config",
        "../.GIT/config",
        "..\\\\..\\\\x",
        "/app/kept.yaml",
    ];
    let lines = paths.iter().map(|path| format!("- \"{path}\"\n")).collect::<Vec<_>>().concat();
    let mut fields = format!("resources:\n{lines}");
    for field in ["files", "envs"] {
        fields.push_str(&format!(
            "{}: [{{name: a, {field}: [\"{}\"]}}]\n",
            if field == "files" { "configMapGenerator" } else { "secretGenerator" },
            paths.join("\", \"")
        ));
    }
    let said = attacked
        .refuses(&[(FILE, fields.as_bytes())], &["line 2: it names ../../x.yaml, which is not in the repository"])
        .await;
    let told = said.matches("which is not in the repository").count();
    assert!(told >= 20 || told == 19 && said.contains("more"), "{told}: {said}");
    // Files in the repository that the tool of this directory must not read.
    let expected = "it reads the file other/other.yaml, which is not in or below its directory";
    attacked.refuses(&[(FILE, b"configMapGenerator: [{name: a, files: [../other/other.yaml]}]\n")], &[expected]).await;
    let files = ["../../../etc/passwd", "/../x", "/.git/config", "charts/../../../x"];
    attacked.stage(&[CHART, ("app/templates/b.yaml", &template("one"))]);
    attacked.world.edit(
        "mainstay.dev/v1alpha1",
        "gitsyncs",
        "demo",
        json!({"spec": {"render": {"helm": {"valuesFiles": files}}}}),
    );
    let said = attacked.is_refused(&[]).await;
    assert_eq!(said.matches("which is not in the repository").count(), files.len(), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn git_directories_and_names_that_clash() {
    let mut attacked = Attacked::new().await;
    let config = attacked.world.remote.blob(b"[core]\n\tfsmonitor = touch x\n");
    let chart = attacked.world.remote.blob(CHART.1);
    let hooks = attacked.world.remote.tree_of(&[("100755", b"post-checkout", config)]);
    for (name, reason) in [
        (".git", "the name is reserved by Git"),
        (".GIT", "the name is reserved by Git"),
        ("..", "the name is reserved by Git"),
        ("a\\b\u{1}", "the name is not plain UTF-8 text"),
    ] {
        let git = attacked.world.remote.tree_of(&[("100644", b"config", config), ("40000", b"hooks", hooks)]);
        let tree = attacked.world.remote.tree_of(&[("40000", name.as_bytes(), git), ("100644", b"Chart.yaml", chart)]);
        attacked.world.remote.remove("app");
        let commit = attacked.world.remote.forged_of(&[("40000", b"app", tree)]);
        let round = attacked.rounds.to_string();
        attacked.is_refused_at(&commit, &["app/", reason], &round).await;
        attacked.clear();
        attacked.world.remote.commit("without");
    }
    // On a case-insensitive disk, one file would replace the other. Here both exist.
    let other = String::from_utf8(template("two")).unwrap().replace("name: made", "name: kept");
    attacked.world.remote.remove("app");
    attacked.stage(&[CHART, ("app/templates/a.yaml", &template("one")), ("app/templates/A.yaml", other.as_bytes())]);
    attacked.applies("both").await;
    assert_eq!((attacked.world.data("made"), attacked.world.data("kept")), ("one".into(), "two".into()));
}
