//! `mainstay install`: values from files, and the report about an earlier installation.

use std::io::Write as _;
use std::process::{Output, Stdio};

use serde::Deserialize as _;
use serde_json::{Value, json};

use mainstay_testkit::shell::Shell;

/// Namespace of the installations in a cluster.
const HOME: &str = "mainstay-tests-install";

/// Runs `mainstay install` with files in its directory; `-` is standard input.
fn install(flags: &[&str], files: &[(&str, &str)]) -> Output {
    let directory = tempfile::tempdir().unwrap();
    let mut stdin = "";
    for (name, text) in files {
        if *name == "-" {
            stdin = text;
        } else {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
    }
    let mut command = mainstay_testkit::isolated(env!("CARGO_BIN_EXE_mainstay"));
    command.arg("install").args(flags).current_dir(directory.path());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// Returns the agent's Deployment.
fn agent(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let mut documents = serde_yaml::Deserializer::from_str(&text).map(|one| Value::deserialize(one).unwrap());
    documents.find(|one| one["kind"] == "Deployment" && one["metadata"]["name"] == "mainstay").unwrap()
}

#[test]
fn flags_win_over_files_and_later_files_over_earlier_ones() {
    let files = [
        (
            "base.yaml",
            "git: {url: 'https://h/x'}\nreplicas: 2\nnodeSelector: {pool: infra, zone: a}\nimage: r.io/mainstay:1\n\
             tolerations: [{key: a, operator: Exists}]\n",
        ),
        ("-", "nodeSelector: {pool: blue}\nresources: {mainstay: {limits: {cpu: null, memory: 1Gi}}}\n"),
        ("empty.yaml", "# nothing\n"),
    ];
    let from_files = ["--values=base.yaml", "--values=-", "--values=empty.yaml"];
    let merged = agent(&install(&from_files, &files));
    let pod = &merged["spec"]["template"]["spec"];
    assert_eq!((&merged["spec"]["replicas"], &pod["nodeSelector"]), (&json!(2), &json!({"pool": "blue", "zone": "a"})));
    assert_eq!(pod["containers"][0]["resources"]["limits"], json!({"memory": "1Gi"}), "null removes the default");
    assert_eq!(pod["containers"][0]["resources"]["requests"], json!({"cpu": "50m", "memory": "64Mi"}));

    let flags = ["--replicas=3", "--node-selector=zone=b", "--toleration=b", "--image=r.io/mainstay:2"];
    let merged = agent(&install(&[&from_files[..], &flags].concat(), &files));
    let pod = &merged["spec"]["template"]["spec"];
    assert_eq!((&merged["spec"]["replicas"], &pod["nodeSelector"]), (&json!(3), &json!({"pool": "blue", "zone": "b"})));
    assert_eq!(pod["tolerations"], json!([{"key": "b", "operator": "Exists"}]));
    assert_eq!(pod["containers"][0]["image"], "r.io/mainstay:2");
}

#[test]
fn a_wrong_value_is_refused_with_its_file_its_path_and_what_it_is_for() {
    let refused = |flags: &[&str], files: &[(&str, &str)]| {
        let output = install(flags, files);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let wrong =
        "git: {url: 'https://h/x', brunch: main}\nreplicas: two\ntolerations:\n- {key: a}\n- {efect: NoSchedule}\n";
    assert_eq!(
        refused(&["--values=wrong.yaml", "--image-pull-policy=always"], &[("wrong.yaml", wrong)]),
        "error: these values cannot be used:\n  \
         wrong.yaml: git.brunch: there is no such value; did you mean git.branch?\n  \
         wrong.yaml: replicas: it is a string, but must be an integer. Number of agents. One leads, the others \
         stand by and take \
         over within 15 seconds.\n  \
         wrong.yaml: tolerations[1].efect: the name cannot be used: it must be one of key, operator, value, effect, \
         tolerationSeconds. A toleration as in a pod: key, operator, value, effect, tolerationSeconds.\n  \
         --image-pull-policy (imagePullPolicy): it must be one of Always, IfNotPresent, Never. When nodes pull the \
         images of the \
         installation. Without it, the default of Kubernetes applies: always for the tag latest, else if the node \
         lacks the \
         image.\nhint: mainstay install --help; manifests/chart/values.yaml has all values\n"
    );
    let secret = "git: {url: 'https://me:hunter2@h/x', name: a_b}\nextraEnv: {MAINSTAY_GIT_INTERVALL: 1m}\nextraArgs: \
                  [--nonsense=1]\n";
    let said = refused(&["--values=-"], &[("-", secret)]);
    assert!(said.contains("\n  standard input: git.name: it does not match ") && !said.contains("hunter2"), "{said}");
    let said = refused(&["--values=-"], &[("-", &secret.replace(", name: a_b", ""))]);
    for expected in [
        "standard input: git.url, as --git-url: an address with a user or password would be stored in the open",
        "standard input: extraEnv, as --extra-env MAINSTAY_GIT_INTERVALL: ",
        "standard input: extraArgs, as --extra-arg: the agent refuses it: unexpected argument '--nonsense'",
    ] {
        assert!(said.contains(expected) && !said.contains("hunter2"), "{expected}: {said}");
    }
    let said = refused(&["--values=a.yaml"], &[("a.yaml", "image: a\n")]);
    assert!(said.contains("--git-url is needed, or git.url in a file of --values"), "{said}");
    let said = refused(&["--values=a.yaml"], &[("a.yaml", "image: [a\n")]);
    assert!(said.starts_with("error: could not read a.yaml\n"), "{said}");
    let said = refused(&["--values=a.yaml"], &[("a.yaml", "image: a\nimage: b\n")]);
    assert!(said.starts_with("error: could not read a.yaml\n") && said.contains("duplicate"), "{said}");
    let said = refused(&["--values=nowhere.yaml"], &[]);
    assert!(said.starts_with("error: could not read nowhere.yaml\n"), "{said}");
}

/// The report of each choice matches the effect of `kubectl apply`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_installation_says_what_goes_and_what_stays_of_the_first() {
    let shell = Shell::embedded(HOME).await;
    let install = format!("mainstay install -n {HOME} --git-url https://h/x --image r.io/mainstay:1");
    let chosen = "--replicas 2 --node-selector pool=infra --toleration a=b:NoSchedule --allow-network 10.0.0.0/8";
    let first = shell.run(&format!("{install} {chosen} | kubectl apply -f -")).await;
    assert_eq!(first.err, "", "nothing is there yet");
    let again = shell.run(&format!("{install} {chosen} >/dev/null")).await;
    assert_eq!(again.err, "", "nothing goes");
    // Manual changes: a priority class, a variable and more memory.
    shell
        .run(&format!(
            "kubectl -n {HOME} patch deployment mainstay -p \
             '{{\"spec\":{{\"template\":{{\"spec\":{{\"nodeSelector\":{{\"by\":\"hand\"}},\"priorityClassName\":\"high\",\
             \"containers\":[{{\"name\":\"mainstay\",\"env\":[{{\"name\":\"HTTPS_PROXY\",\"value\":\"http://u:hunter2@p\"}}],\
             \"resources\":{{\"limits\":{{\"memory\":\"1Gi\"}}}}}}]}}}}}}}}'"
        ))
        .await;
    let before = shell.run(&install).await.out;
    let second = shell.run(&format!("{install} | kubectl apply -f -")).await;
    let about = format!("warning: Deployment {HOME}/mainstay has ");
    let goes = ", which this command does not set: it is removed; add ";
    let mut expected = Vec::new();
    for (what, flag) in [
        ("2 replicas", "--replicas 2"),
        ("the node selector by=hand", "--node-selector by=hand"),
        ("the node selector pool=infra", "--node-selector pool=infra"),
        ("the toleration a=b:NoSchedule", "--toleration a=b:NoSchedule"),
    ] {
        expected.push(format!("{about}{what}{goes}{flag} to keep it"));
    }
    expected.push(format!(
        "{about}the priority class high from another manager: `kubectl apply` leaves it; add --priority-class high to \
         make it part of \
         the installation"
    ));
    for (what, flag) in [
        ("the resources mainstay.limits.memory=1Gi", "--resources mainstay.limits.memory=1Gi"),
        ("the argument --allow-network=10.0.0.0/8 of mainstay", "--allow-network=10.0.0.0/8"),
    ] {
        expected.push(format!("{about}{what}{goes}{flag} to keep it"));
    }
    expected.push(format!(
        "{about}the variable HTTPS_PROXY of mainstay from another manager: `kubectl apply` leaves it; add --extra-env \
         HTTPS_PROXY=… to \
         make it part of the installation"
    ));
    let registry = format!("warning: Deployment {HOME}/serverless-docker-registry has ");
    for (what, flag) in [
        ("the node selector pool=infra", "--node-selector pool=infra"),
        ("the toleration a=b:NoSchedule", "--toleration a=b:NoSchedule"),
    ] {
        expected.push(format!("{registry}{what}{goes}{flag} to keep it"));
    }
    assert_eq!(second.err.lines().collect::<Vec<_>>(), expected);

    let live = shell.object(&format!("deployment mainstay -n {HOME}")).await;
    let pod = &live["spec"]["template"]["spec"];
    assert_eq!(
        (&live["spec"]["replicas"], &pod["nodeSelector"], &pod["tolerations"]),
        (&json!(1), &json!(null), &json!(null))
    );
    assert_eq!(pod["priorityClassName"], "high");
    let container = &pod["containers"][0];
    assert_eq!(container["resources"]["limits"]["memory"], "160Mi");
    assert!(!container["args"].to_string().contains("10.0.0.0/8"));
    assert!(container["env"].to_string().contains("HTTPS_PROXY"));
    assert_eq!(shell.run(&install).await.out, before, "the same bytes, whatever is in the cluster");

    // An unreadable cluster does not prevent the output.
    let away = shell.run(&format!("{install} --kubeconfig /nowhere/at/all")).await;
    assert_eq!(away.out, before);
    assert!(
        away.err.starts_with("warning: the removed parts of an earlier installation are not known, because "),
        "{}",
        away.err
    );
}

#[test]
fn the_program_links_no_zlib_of_the_system() {
    let output = mainstay_testkit::isolated("ldd").arg(env!("CARGO_BIN_EXE_mainstay")).output().unwrap();
    let linked = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && linked.contains("libc.so") && !linked.contains("libz"), "{linked}");
}
