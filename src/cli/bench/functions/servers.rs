//! Servers that are measured without a cluster: the runtimes' own, and a plain one to compare with.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tokio::process::Command;

use super::{Error, process::Process, stand::free_port};
use crate::runtimes::{CODE_DIR_ENV, Language, Runtime, SERVER_DIR};

/// What every function that is measured does.
const HELLO_JS: &str = "module.exports = { main: function (event, context) { return 'Hello World!'; } };\n";
/// The same in Python.
const HELLO_PY: &str = "def main(event, context):\n    return 'Hello World!'\n";
/// A server that does nothing but answer.
const PLAIN: &str = "const [port] = process.argv.slice(2);\n\
                     require('http').createServer((request, response) => response.end('Hello World!'))\n\
                     .listen(Number(port), '127.0.0.1');\n";

/// The hello-world of a language.
pub(super) fn hello(language: Language) -> &'static str {
    match language {
        Language::NodeJs => HELLO_JS,
        Language::Python => HELLO_PY,
    }
}

/// A running server.
pub(super) struct Server {
    pub address: String,
    _process: Process,
}

/// Starts a plain `node:http` server.
pub(super) async fn plain(directory: &Path) -> Result<Server, Error> {
    let file = directory.join("plain.js");
    fs::write(&file, PLAIN).map_err(Error::Load)?;
    let port = free_port()?;
    let mut command = Command::new("node");
    command.arg(&file).arg(port.to_string());
    answering(command, port, "/").await
}

/// Starts the hello-world under the runtime's server, as a pod would.
pub(super) async fn runtime(directory: &Path, runtime: &Runtime) -> Result<Server, Error> {
    let home = directory.join(runtime.name);
    let write = |path: PathBuf, contents: &[u8]| {
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder.and_then(|()| fs::write(&path, contents)).map_err(Error::Load)
    };
    write(home.join("code").join(runtime.handler_file()), hello(runtime.language).as_bytes())?;
    for file in runtime.server_files() {
        write(home.join("server").join(file.path), file.contents)?;
    }
    let port = free_port()?;
    let mut words = runtime.entrypoint().iter();
    let mut command = Command::new(words.next().copied().unwrap_or_default());
    command.args(words.map(|word| match word.strip_prefix(SERVER_DIR) {
        Some(file) => format!("{}{file}", home.join("server").display()),
        None => (*word).to_owned(),
    }));
    command.env(CODE_DIR_ENV, home.join("code")).env("FUNC_HOST", "127.0.0.1").env("FUNC_PORT", port.to_string());
    answering(command, port, "/healthz").await
}

async fn answering(command: Command, port: u16, path: &str) -> Result<Server, Error> {
    let mut process = Process::spawn(command)?;
    let address = format!("http://127.0.0.1:{port}/");
    process.answers(&format!("http://127.0.0.1:{port}{path}")).await?;
    Ok(Server { address, _process: process })
}
