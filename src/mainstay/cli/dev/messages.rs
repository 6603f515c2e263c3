//! The output of `dev`: an introduction, then the messages.
//!
//! Invariant: with JSON, every line of standard output is one object with a field `event`.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde_json::json;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

use super::{CommandError, FollowedRepository, NAMESPACE, OutputArgument, PodMode, local_directory};
use mainstay_engine::notification::Message;
use mainstay_object::Owner;

/// The parts that `dev` has started.
pub(super) struct Started {
    /// Address of the embedded cluster.
    pub server: String,
    /// Address of the cluster's gateway for the hosts of APIRules.
    pub gateway: SocketAddr,
    /// The gateway's HTTPS address, and the file with its CA certificate for clients.
    pub secure: (SocketAddr, PathBuf),
    /// Path of the cluster's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The followed repository.
    pub followed: Option<FollowedRepository>,
    /// How pods run.
    pub pods: PodMode,
    /// Address for webhooks, if an agent runs.
    pub receivers: Option<String>,
    /// The directory of this run, if another run uses the default directory.
    pub other_room: Option<PathBuf>,
    /// Whether saved files are followed instead of commits.
    pub is_work_tree: bool,
}

/// Prints the introduction.
pub(super) fn started(output: OutputArgument, started: &Started) -> Result<(), CommandError> {
    let kubeconfig = absolute(&started.kubeconfig);
    let followed = started.followed.as_ref();
    let facts = json!({
        "event": "started",
        "server": started.server,
        "gateway": format!("http://{}", started.gateway),
        "gatewayTls": format!("https://{}", started.secure.0),
        "gatewayCa": absolute(&started.secure.1),
        "kubeconfig": kubeconfig,
        "repository": followed.map(|followed| &followed.shown),
        "sync": followed.map(|followed| format!("{NAMESPACE}/{}", followed.name)),
        "receivers": started.receivers,
        "page": page(&kubeconfig),
        "directory": started.other_room,
    });
    output.print_next(&facts, || text(started, &kubeconfig)).map(drop)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Prints a Function's namespace and name with its new URL.
fn print_move(output: OutputArgument, (namespace, name): &(String, String), url: &str) -> Result<(), CommandError> {
    let facts = json!({"event": "moved", "kind": "Function", "namespace": namespace, "name": name, "url": url});
    let line = || format!("{}  function {namespace}/{name}  answers at  {url}\n", now());
    output.print_next(&facts, line).map(drop)
}

/// Prints a message, with the URL of its object.
fn print_message(output: OutputArgument, message: &Message, url: Option<String>) -> Result<(), CommandError> {
    let mut facts = serde_json::to_value(message).map_err(CommandError::WriteJson)?;
    facts.as_object_mut().zip(url.clone()).map(|(facts, url)| facts.insert("url".to_owned(), url.into()));
    let line = || {
        let text = message.to_string().replace("\n    ", "\n          ");
        let url = url.map(|url| format!("  {url}")).unwrap_or_default();
        format!("{}  {text}{url}\n", now())
    };
    output.print_next(&facts, line).map(drop)
}

/// Returns the time of day.
fn now() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
}

fn text(started: &Started, kubeconfig: &Path) -> String {
    let mut text = format!("An embedded cluster is at {}.\n", started.server);
    text.push_str(&format!("Its web page: {}\n", page(kubeconfig)));
    if let Some(room) = &started.other_room {
        let room = room.display();
        text.push_str(&format!(
            "Another `mainstay dev` runs in this directory, so this one keeps its files in {room}.\n"
        ));
    }
    let mut tries = vec![format!("export KUBECONFIG={}", quoted(kubeconfig))];
    let Some(followed) = &started.followed else {
        tries.push("kubectl get namespaces".into());
        return text + &next(&tries);
    };
    let what = if started.is_work_tree { "what is saved in " } else { "" };
    text.push_str(&format!("GitSync {NAMESPACE}/{} keeps it on {what}{}.\n", followed.name, followed.shown));
    if let Some(receivers) = &started.receivers {
        text.push_str(&format!("Receivers take webhooks at {receivers}.\n"));
        let port = started.gateway.port();
        text.push_str(&format!("Hosts of APIRules are served on port {port}: curl http://HOST.localhost:{port}\n"));
        let (secure, authority) = (started.secure.0.port(), quoted(&absolute(&started.secure.1)));
        text.push_str(&format!("Over HTTPS: curl --cacert {authority} https://HOST.localhost:{secure}\n"));
    }
    if started.pods == PodMode::Simulated {
        text.push_str(
            "Pods are simulated. To run the Functions of this repository as local processes, use --run-code.\n",
        );
    }
    tries.push("kubectl get gitsyncs,functions,deployments --all-namespaces".into());
    match &followed.local {
        Some(path) if started.is_work_tree => {
            tries.push(format!("cd {}             # saved files are applied immediately", quoted(path)));
        }
        Some(path) if path.ends_with(local_directory::DEMONSTRATION) => tries.extend([
            "kubectl -n shop edit deployment web               # reverted immediately".into(),
            "kubectl -n shop delete service api                # recreated".into(),
            format!("cd {}", quoted(path)),
            "sed -i 's/Welcome/Hello/' web/configmap.yaml && git commit -am 'say hello'".into(),
        ]),
        Some(path) => {
            tries.push(format!("cd {} && git commit                     # applied immediately", quoted(path)));
        }
        None => {}
    }
    tries.push("mainstay status                                   # reverted edits and their authors".into());
    text + &next(&tries)
}

fn next(tries: &[String]) -> String {
    format!("Try in another terminal:\n  {}\nCtrl-C ends it.\n\n", tries.join("\n  "))
}

/// Returns the command that opens the web page of the cluster, in any directory and without a variable.
fn page(kubeconfig: &Path) -> String {
    format!("mainstay ui --kubeconfig {}", quoted(kubeconfig))
}

/// Returns a path quoted for the shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Prints messages and the URLs of Functions until `stop`.
pub(super) async fn print(
    mut messages: broadcast::Receiver<Message>,
    output: OutputArgument,
    cluster: devcluster::Cluster,
    stop: CancellationToken,
) -> Result<(), CommandError> {
    let url_of = |(namespace, name): &(String, String)| cluster.service_urls(namespace, name).into_iter().next();
    let mut moves = cluster.service_moves();
    // The last printed URL of each Function that was ready.
    let mut printed: BTreeMap<(String, String), Option<String>> = BTreeMap::new();
    loop {
        let message = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            message = messages.recv() => message,
            Ok(()) = moves.changed() => {
                for (function, old) in &mut printed {
                    if let Some(new) = url_of(function).filter(|new| old.as_ref() != Some(new)) {
                        print_move(output, function, &new)?;
                        *old = Some(new);
                    }
                }
                continue;
            }
        };
        match message {
            Ok(message) => {
                let function = ready(&message).map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
                let url = function.as_ref().and_then(url_of);
                print_message(output, &message, url.clone())?;
                printed.extend(function.map(|function| (function, url)));
            }
            Err(RecvError::Lagged(missed)) => tracing::warn!(missed, "messages came faster than they could be printed"),
            Err(RecvError::Closed) => return Ok(()),
        }
    }
}

/// Returns namespace and name of the Function that a message reports as ready; its Service has the same namespace and
/// name.
fn ready(message: &Message) -> Option<(&str, &str)> {
    match message {
        Message::Stage { subject: Owner::Function(function), reason, status, .. }
            if reason.as_str() == "DeploymentReady" && status == "True" =>
        {
            Some((function.namespace(), function.name()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_the_page_names_the_kubeconfig() {
        assert_eq!(page(Path::new("/a b/kubeconfig")), "mainstay ui --kubeconfig '/a b/kubeconfig'");
    }

    #[test]
    fn quotes_paths_for_the_shell() {
        assert_eq!(quoted(Path::new("/a/b-c.d")), "/a/b-c.d");
        assert_eq!(quoted(Path::new("/a b/it's")), r"'/a b/it'\''s'");
    }
}
