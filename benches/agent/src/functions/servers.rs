//! The measured servers: a hello-world in each language, and a plain server for comparison.

use std::{fs, path::Path};

use tokio::process::Command;

use super::{Error, process::Process, stand::free_port};
use crate::api::Runtime;

/// Source of the function for Node.js.
const HELLO_JS: &str = "module.exports = { main: function (event, context) { return 'Hello World!'; } };\n";
/// The same in Python.
const HELLO_PY: &str = "def main(event, context):\n    return 'Hello World!'\n";
/// A server that does nothing but answer.
const PLAIN: &str = "const [port] = process.argv.slice(2);\n\
                     require('http').createServer((request, response) => response.end('Hello World!'))\n\
                     .listen(Number(port), '127.0.0.1');\n";

/// The hello-world of a runtime.
pub(super) fn hello(runtime: Runtime) -> &'static str {
    match runtime {
        Runtime::NodeJs => HELLO_JS,
        Runtime::Python => HELLO_PY,
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
    let mut process = Process::spawn(command)?;
    let address = format!("http://127.0.0.1:{port}/");
    process.answers(&address).await?;
    Ok(Server { address, _process: process })
}
