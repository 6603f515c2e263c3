//! Kustomizations are built from snapshots, and only after a change of the files that they read.

use mainstay_manifest::render::{Built, Kustomize};

use super::*;

#[tokio::test]
async fn a_kustomization_is_built_only_if_something_that_it_reads_has_changed() {
    let mut origin = small();
    origin
        .file("app/kustomization.yaml", "resources: [../base]\n")
        .file("base/kustomization.yaml", "resources: [map.yaml]\n")
        .file("base/map.yaml", "a: 1\n")
        .commit("kustomizations");
    let mirrors = tempfile::tempdir().unwrap();
    let mut allowing = settings(mirrors.path());
    allowing.allow_local = true;
    let source = Source::new(allowing);
    let remote = anonymous(origin.path().to_str().unwrap());
    let tools = tempfile::tempdir().unwrap();
    let tool = tools.path().join("kustomize");
    // Fails without the directory of the base.
    let script = "cd \"$3/../base\" && read -r line < map.yaml && echo \"$line\"";
    // Another process writes the tool. A file that this process has open for writing could be inherited by a child and
    // then not be executable.
    let mut writer = mainstay_testkit::isolated("/bin/sh");
    writer.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$2\" && chmod 755 \"$2\"", "write", script]).arg(&tool);
    assert!(writer.status().unwrap().success());
    let scratch = mirrors.path().join("render");
    let kustomize = Kustomize::new(Some(tools.path().as_os_str()), scratch.clone());

    let file = || Built::Kustomization("app/kustomization.yaml", None);
    let first = sync(&source, &remote, "main").await.unwrap();
    let built = kustomize.build("shop", &first, file(), None).await.unwrap();
    assert_eq!(built.documents.unwrap().unwrap(), b"a: 1\n");
    let digest = built.key;
    assert!(kustomize.build("shop", &first, file(), Some(digest)).await.unwrap().documents.is_none());
    origin.file("base/other.yaml", "x").file("app/README.md", "x").commit("not read");
    let second = sync(&source, &remote, "main").await.unwrap();
    assert!(kustomize.build("shop", &second, file(), Some(digest)).await.unwrap().documents.is_none());
    origin.file("base/map.yaml", "a: 2\n").commit("read");
    let third = sync(&source, &remote, "main").await.unwrap();
    let built = kustomize.build("shop", &third, file(), Some(digest)).await.unwrap();
    assert_eq!(built.documents.unwrap().unwrap(), b"a: 2\n");
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 1\n", "a".repeat(64));
    origin.file("base/map.yaml", pointer).commit("in Git LFS");
    let fourth = sync(&source, &remote, "main").await.unwrap();
    let problem = kustomize.build("shop", &fourth, file(), Some(digest)).await.unwrap().documents.unwrap().unwrap_err();
    assert!(problem[0].what.contains("it reads base/map.yaml, which is kept in Git LFS"), "{problem:?}");
    assert_eq!(std::fs::read_dir(&scratch).unwrap().count(), 0, "nothing stays behind");

    // Without the tool, the message says how to install it.
    let none = Kustomize::new(None, scratch).build("shop", &third, file(), None).await.unwrap();
    let problem = none.documents.unwrap().unwrap_err()[0].to_string();
    assert!(
        problem.starts_with("app/kustomization.yaml: it is built by `kustomize` or `kubectl kustomize`"),
        "{problem}"
    );
}
