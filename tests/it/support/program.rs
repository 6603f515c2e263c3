//! The program itself, beside a world on the embedded cluster.

use std::{fs, process::Command};

use super::world::{NAMESPACE, World};

/// Exit code and output of a command of `mainstay`, in the namespace of the tests and as the administrator.
pub(crate) async fn mainstay(world: &World, arguments: &[&str]) -> (i32, String) {
    let server = world.server.embedded();
    let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config");
    fs::write(&config, server.kubeconfig(serving.address(), None)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.args(arguments).args(["-n", NAMESPACE, "--kubeconfig"]).arg(&config).env_clear();
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), text)
}
