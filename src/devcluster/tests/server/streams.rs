//! `kubectl exec`, `attach` and `port-forward` with processes.

use crate::machine::{Kubectl, Machine};
use serde_json::json;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

/// Creates a pod that runs until it is deleted.
async fn sleeper(machine: &Machine) -> Kubectl {
    let kubectl = machine.serve().await;
    let container = json!({
        "name": "main", "image": "host", "command": ["sh", "-c", "pwd > $TMPDIR/place; exec sleep 1000"],
        "env": [{"name": "COLOR", "value": "red"}],
    });
    machine.pod("web", "", json!({"containers": [container], "terminationGracePeriodSeconds": 0})).await;
    kubectl.run(&["wait", "--for=condition=Ready", "pod/web", "--timeout=30s"]).await;
    kubectl
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_the_environment_and_the_directory_of_its_container() {
    let machine = Machine::new();
    let kubectl = sleeper(&machine).await;
    let script = "until test -s $TMPDIR/place; do sleep 0.05; done; echo $COLOR; test \"$(pwd)\" = \"$(cat $TMPDIR/place)\" \
                  && echo same; echo oops >&2; exit 7";
    for websockets in ["true", "false"] {
        let mut command = kubectl.command(&["exec", "web", "--", "sh", "-c", script]);
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "red\nsame\n");
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("oops\n"), "{output:?}");
    }
    let refused = kubectl.output(&["exec", "web", "--", "no-such-program"]).await;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("exec: \"no-such-program\": executable file not found in $PATH"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn input_arrives_whole_and_ends() {
    let machine = Machine::new();
    let kubectl = sleeper(&machine).await;
    for websockets in ["true", "false"] {
        let mut command = kubectl.command(&["exec", "-i", "web", "--", "sha256sum"]);
        command.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let output = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            child.stdin.take().unwrap().write_all(&vec![b'x'; 3 << 20]).unwrap();
            child.wait_with_output().unwrap()
        });
        let output = output.await.unwrap();
        let expected = format!("{}  -\n", digest(&vec![b'x'; 3 << 20]));
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    hex::encode(sha2::Sha256::digest(bytes))
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_left_by_a_command_end_with_its_container() {
    let machine = Machine::new();
    let kubectl = sleeper(&machine).await;
    let script = "setsid sleep 1234 > /dev/null 2>&1 & echo $!";
    let pid = kubectl.run(&["exec", "web", "--", "sh", "-c", script]).await;
    let place = std::path::PathBuf::from(format!("/proc/{}", pid.trim()));
    kubectl.run(&["delete", "pod", "web", "--wait=true"]).await;
    for _ in 0..500 {
        if !place.exists() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("{} still runs", pid.trim());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_leads_to_the_program_of_the_pod() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let container = json!({
        "name": "main", "image": "host", "readinessProbe": {"tcpSocket": {"port": 8123}, "periodSeconds": 1},
        "command": ["sh", "-c", "exec python3 -m http.server 8123 --bind $POD_ADDRESS"],
    });
    machine.pod("web", "", json!({"containers": [container], "terminationGracePeriodSeconds": 0})).await;
    kubectl.run(&["wait", "--for=condition=Ready", "pod/web", "--timeout=30s"]).await;
    for websockets in ["true", "false"] {
        let mut command = kubectl.command(&["port-forward", "pod/web", ":8123", "--address", "127.0.0.1"]);
        command.env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let answer = tokio::task::spawn_blocking(move || {
            let mut child = command.spawn().unwrap();
            let mut first = String::new();
            // Standard output is kept open, because `kubectl` writes a line per connection.
            let mut written = BufReader::new(child.stdout.take().unwrap());
            written.read_line(&mut first).unwrap();
            let port: u16 = first.split(':').nth(1).and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
            let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            answer
        });
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.0 200 OK") && answer.contains("</html>"), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn attaching_shows_what_the_container_writes() {
    let machine = Machine::new();
    let kubectl = machine.serve().await;
    let script = "while :; do echo tick; sleep 0.05; done";
    machine.pod("clock", script, json!({"terminationGracePeriodSeconds": 0})).await;
    machine.until("clock", "running", |pod| pod["status"]["phase"] == "Running").await;
    let mut child = kubectl.command(&["attach", "clock", "-q"]).stdout(Stdio::piped()).spawn().unwrap();
    let seen = tokio::task::spawn_blocking(move || {
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let seen: Vec<String> = lines.take(2).map(Result::unwrap).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        seen
    });
    assert_eq!(seen.await.unwrap(), ["tick", "tick"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_cannot_be_upgraded_is_refused() {
    let machine = Machine::new();
    let _kubectl = sleeper(&machine).await;
    for path in ["exec?command=true&stdout=1", "attach?stdout=1", "portforward"] {
        let answer = machine.world.get(&format!("/api/v1/namespaces/default/pods/web/{path}")).await;
        answer.refused(400, "BadRequest", "Upgrade request required");
    }
}
