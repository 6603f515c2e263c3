//! The program as its users run it: in a cleared environment, by output and exit code.

use std::{path::Path, process::Output};

use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::golden::check_golden;

/// Runs the program in a cleared environment with an empty home directory.
fn mainstay(arguments: &[&str], home: &Path) -> Output {
    mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"))
        .args(arguments)
        .env_clear()
        .env("HOME", home)
        .current_dir(home)
        .output()
        .unwrap()
}

/// Returns exit code, standard output and standard error of a run as one text.
fn transcript(arguments: &[&str]) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = mainstay(arguments, home.path());
    let text = format!(
        "$ mainstay {}\n{}{}exit {}\n",
        arguments.join(" "),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
        output.status.code().unwrap()
    );
    text.replace(home.path().to_str().unwrap(), "$HOME")
}

#[test]
fn help_lists_the_commands() {
    check_golden("cli/help.txt", &transcript(&["--help"]));
}

#[test]
fn unknown_command_fails_with_2() {
    check_golden("cli/unknown.txt", &transcript(&["frobnicate"]));
}

#[test]
fn prints_the_definitions_of_the_manifests() {
    let output = mainstay(&["crd"], Path::new("/"));
    assert!(output.status.success());
    check_golden("../../manifests/crds.yaml", &String::from_utf8(output.stdout).unwrap());
}

#[test]
fn the_definition_of_apirules_is_that_of_its_component() {
    let definition = serde_yaml::to_string(&mainstay_api::api_rule::definition()).unwrap();
    check_golden("../../manifests/exposure/crd.yaml", &definition);
}

#[test]
fn install_prints_what_is_applied_but_for_the_definitions() {
    let ssh = ["install", "--no-crds", "--git-url", "git@github.com:team/shop.git", "--git-email", "a@example.com"];
    let more = ["--git-path=apps,infra/base", "--namespace=flux", "--image", "registry.example.com/mainstay:9"];
    check_golden("cli/install-ssh.txt", &transcript(&[&ssh[..], &more].concat()));
    let output = mainstay(&["install", "--git-url", "https://github.com/team/shop"], Path::new("/"));
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let warning = "warning: --image is not set, and nodes cannot pull the default mainstay:";
    assert!(output.status.success() && said.starts_with(warning) && said.lines().count() == 1, "{said}");
    let documents = serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    let secrets: Vec<Value> = documents.filter(|document| document["kind"] == "Secret").collect();
    assert_eq!(secrets.len(), 2);
    let is_empty = |secret: &Value| secret.get("data").is_none() && secret.get("stringData").is_none();
    assert!(secrets.iter().all(is_empty), "the agent makes the login, and the certificates");
    let definitions = mainstay(&["crd"], Path::new("/")).stdout;
    assert!(text.contains(&String::from_utf8(definitions).unwrap()), "the definitions are those of `mainstay crd`");
    // The flags replace names and images of `manifests/`.
    let other =
        mainstay(&["install", "--git-url=https://h/x", "-n=flux", "--image=there:9", "--no-crds"], Path::new("/"));
    assert!(other.stderr.is_empty(), "an image that is named is not judged");
    let other = String::from_utf8(other.stdout).unwrap();
    assert!(!other.contains("mainstay-system") && !other.contains(concat!("mainstay:", env!("CARGO_PKG_VERSION"))));
    assert_eq!(other.matches("there:9").count(), 5, "both containers, the builds, and two containers of the registry");
}

#[test]
fn install_brings_the_login_of_a_private_image_to_all_that_run_it() {
    let flags = ["install", "--git-url=https://h/x", "--no-crds", "-n=flux", "--image=harbor.local/mainstay:9"];
    let output = mainstay(&[&flags[..], &["--image-pull-secret=harbor"]].concat(), Path::new("/"));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = serde_yaml::Deserializer::from_str(&text).map(|document| Value::deserialize(document).unwrap());
    let pods: Vec<Value> = documents.filter(|document| document["kind"] == "Deployment").collect();
    let names: Vec<_> = pods.iter().map(|one| one["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["mainstay", "serverless-docker-registry"], "whose first container is of that image, too");
    for one in &pods {
        assert_eq!(one["spec"]["template"]["spec"]["imagePullSecrets"], json!([{"name": "harbor"}]));
    }
    let environment = pods[0]["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    assert!(environment.contains(&json!({"name": "MAINSTAY_IMAGE_PULL_SECRET", "value": "harbor"})));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(
        told.contains("kubectl label secret harbor -n flux serverless.kyma-project.io/config=credentials"),
        "{told}"
    );
    let without = String::from_utf8(mainstay(&flags, Path::new("/")).stdout).unwrap();
    assert!(!without.contains("imagePullSecrets") && !without.contains("IMAGE_PULL"));
}

#[test]
fn install_reports_invalid_flags() {
    let flags =
        ["install", "--git-url", "https://me:hunter2@git.example.com/x", "--namespace", "Flux", "--git-path=../x"];
    check_golden("cli/install-refused.txt", &transcript(&flags));
    check_golden("cli/install-missing.txt", &transcript(&["install"]));
    check_golden("cli/install-no-file.txt", &transcript(&["install", "--git-url=git@h:x", "--known-hosts=nowhere"]));
}

#[test]
fn every_command_has_help() {
    for command in [
        "install",
        "identity",
        "check",
        "uninstall",
        "agent",
        "manifests",
        "sync",
        "status",
        "diff",
        "tree",
        "trace",
        "ui",
        "console",
        "eventing",
        "events",
        "completion",
        "pause",
        "resume",
        "get",
        "suspend",
        "version",
        "logs",
        "dev",
        "bench",
    ] {
        check_golden(&format!("cli/{command}.txt"), &transcript(&[command, "--help"]));
    }
}

#[test]
fn help_prints_the_same_for_a_command_as_its_flag() {
    let run = |words: &str| mainstay(&words.split(' ').collect::<Vec<_>>(), Path::new("/"));
    for command in ["sync", "get", "suspend", "version", "function", "function init", "init function", "build fetch"] {
        let (asked, flag) = (run(&format!("help {command}")), run(&format!("{command} --help")));
        assert_eq!((asked.status.code(), asked.stderr.as_slice()), (Some(0), &b""[..]), "{command}");
        assert_eq!(String::from_utf8(asked.stdout).unwrap(), String::from_utf8(flag.stdout).unwrap(), "{command}");
    }
    assert_eq!(run("help").stdout, run("--help").stdout);
    let unknown = run("help frobnicate");
    let said = String::from_utf8(unknown.stderr).unwrap();
    assert!(unknown.status.code() == Some(2) && said.contains("unrecognized subcommand 'frobnicate'"), "{said}");
}

#[test]
fn shells_complete_commands_and_flags() {
    let program = env!("CARGO_BIN_EXE_mainstay");
    let complete = |words: &str, at: usize| {
        let current = words.split(' ').nth(at).unwrap();
        let script = format!(
            "source <({program} completion bash); COMP_WORDS=({words}); COMP_CWORD={at}; COMP_TYPE=9; \
             _clap_complete_mainstay mainstay '{current}'; echo \"${{COMPREPLY[@]}}\""
        );
        let output = mainstay_testkit::isolated("bash").args(["-c", &script]).output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete("mainstay stat", 1), "status\n");
    assert_eq!(complete("mainstay status --wa", 2), "--watch\n");
    assert_eq!(complete("mainstay get git", 2), "gitrepositories gitsyncs\n");
    for (shell, starts) in [("zsh", "#compdef mainstay"), ("fish", "complete ")] {
        let output = mainstay(&["completion", shell], Path::new("/"));
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(script.starts_with(starts) && script.contains("COMPLETE"), "{script}");
    }
}

#[test]
fn every_build_command_has_help() {
    for step in ["fetch", "push"] {
        check_golden(&format!("cli/build-{step}.txt"), &transcript(&["build", step, "--help"]));
    }
}

#[test]
fn every_eventing_command_has_help() {
    for command in ["run", "dead-letters", "replay"] {
        check_golden(&format!("cli/eventing-{command}.txt"), &transcript(&["eventing", command, "--help"]));
    }
}

#[test]
fn every_function_command_has_help() {
    check_golden("cli/function.txt", &transcript(&["function", "--help"]));
    for command in ["init", "apply", "sync", "run"] {
        let ours = transcript(&["function", command, "--help"]);
        check_golden(&format!("cli/function-{command}.txt"), &ours);
        let theirs = transcript(&[command, "function", "--help"]);
        assert_eq!(ours.split_once('\n').unwrap().1, theirs.split_once('\n').unwrap().1, "the same in the other order");
    }
}

/// The tutorial on Functions and GitOps, unchanged except for the first word. Its shell has no kubeconfig.
#[test]
fn the_commands_of_the_tutorial_print_a_function_that_is_ready_to_be_committed() {
    let home = tempfile::tempdir().unwrap();
    let script = "mkdir my-function; kyma init function --runtime python38 --dir $PWD/my-function; cd my-function; ls; cat config.yaml
        cat handler.py requirements.txt; cd ..; GH_FOLDER=flux; mkdir $GH_FOLDER
        kyma apply function --filename $PWD/my-function/config.yaml --output yaml --dry-run > ./${GH_FOLDER}/my-function.yaml
        cat flux/my-function.yaml; echo \"    sourcePath: $PWD/my-function
triggers:
    - version: evt1
      source: the-source
      type: t1\" >> my-function/config.yaml
        kyma apply function --filename $PWD/my-function/config.yaml --output yaml --dry-run > ./${GH_FOLDER}/my-function.yaml
        cat flux/my-function.yaml";
    let script = format!("set -e; kyma() {{ {} \"$@\"; }}\n{script}", env!("CARGO_BIN_EXE_mainstay"));
    let mut command = mainstay_testkit::isolated("bash");
    let command = command.args(["-c", &script]).env_clear().env("HOME", home.path()).env("PATH", "/usr/bin:/bin");
    let output = command.current_dir(home.path()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    let place = std::fs::canonicalize(home.path()).unwrap();
    check_golden("cli/function-tutorial.txt", &text.replace(place.to_str().unwrap(), "$HOME"));
}

#[test]
fn a_workspace_that_cannot_be_applied_says_why_and_where() {
    let home = tempfile::tempdir().unwrap();
    let mut all = String::new();
    let mut said = |arguments: &[&str]| {
        let output = mainstay(arguments, home.path());
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
        all.push_str(&format!("$ mainstay {}\n{}", arguments.join(" "), String::from_utf8(output.stderr).unwrap()));
    };
    let dry_run = ["function", "apply", "--dry-run"];
    said(&dry_run);
    said(&["init", "function", "--runtime", "cobol"]);
    said(&["init", "function", "--name", "My_Function"]);
    let write = |text: &str| std::fs::write(home.path().join("config.yaml"), text).unwrap();
    write("name: a\nnamespace: b\nruntime: nodejs22\nsorce:\n  sourceType: inline\n");
    said(&dry_run);
    let head = "name: a\nnamespace: b\nsource: {sourceType: inline";
    write(&format!("{head}, sourceHandlerName: ../../etc/passwd}}\n"));
    said(&dry_run);
    write(&format!("{head}, sourcePath: /etc, sourceHandlerName: passwd}}\n"));
    said(&dry_run);
    write(&format!("{head}}}\n"));
    said(&dry_run);
    std::fs::write(home.path().join("handler.js"), " ").unwrap();
    std::fs::write(home.path().join("package.json"), "[]").unwrap();
    said(&dry_run);
    said(&["init", "function"]);
    said(&["sync", "function", "a", "--no-wait"]);
    let place = std::fs::canonicalize(home.path()).unwrap();
    check_golden("cli/function-refused.txt", &all.replace(place.to_str().unwrap(), "$HOME"));
}

#[test]
fn explains_how_to_name_a_cluster() {
    check_golden("cli/no-cluster.txt", &transcript(&["sync"]));
}

#[test]
fn reports_an_invalid_kubeconfig() {
    check_golden("cli/no-kubeconfig.txt", &transcript(&["pause", "deploy", "web", "--kubeconfig", "/nowhere/at/all"]));
}

#[test]
fn refuses_an_invalid_duration() {
    check_golden("cli/no-duration.txt", &transcript(&["pause", "deploy", "web", "--for", "5"]));
}

#[test]
fn the_agent_does_not_start_with_unknown_settings() {
    let home = tempfile::tempdir().unwrap();
    let agent = |variables: &[(&str, &str)]| {
        let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
        command.args(["agent", "--kubeconfig", "/nowhere/at/all"]).env_clear().env("HOME", home.path());
        let output = command.envs(variables.iter().copied()).current_dir(home.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let said = agent(&[("MAINSTAY_PLATFROM", "linux/arm64"), ("MAINSTAY_SEED", "1")]);
    assert!(
        said.contains("MAINSTAY_PLATFROM: it is not a setting of Mainstay; did you mean MAINSTAY_PLATFORM?"),
        "{said}"
    );
    assert!(said.contains("MAINSTAY_SEED: it is not a setting of Mainstay"), "{said}");
    let service = [("MAINSTAY_SERVICE_HOST", "10.0.0.1"), ("MAINSTAY_PORT", "tcp://10.0.0.1:8080")];
    let said = agent(&service);
    assert!(!said.contains("MAINSTAY_") && said.contains("/nowhere/at/all"), "{said}");
}
