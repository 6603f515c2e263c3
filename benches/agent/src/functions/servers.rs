//! The measured servers: a hello-world per language, and plain servers for comparison.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;

use super::{Error, process::Process, stand::free_port};
use crate::api::Runtime;

/// Source of the Node.js Function.
const HELLO_JS: &str = "module.exports = { main: function (event, context) { return 'Hello World!'; } };\n";
/// Source of the Python Function.
const HELLO_PY: &str = "def main(event, context):\n    return 'Hello World!'\n";
/// A minimal server.
const PLAIN: &str = "const [port] = process.argv.slice(2);\n\
                     require('http').createServer((request, response) => response.end('Hello World!'))\n\
                     .listen(Number(port), '127.0.0.1');\n";

/// Returns the hello-world of a runtime.
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

/// A minimal Express server. Its second argument is the package directory.
const EXPRESS: &str = "const [port, packages] = process.argv.slice(2);\n\
                       const app = require(packages + '/express')();\n\
                       app.get('/', (request, response) => response.send('Hello World!'));\n\
                       app.listen(Number(port), '127.0.0.1');\n";
/// A minimal Bottle server on waitress, as Bottle starts it.
const BOTTLE: &str = "import sys\n\
                      port, *packages = sys.argv[1:]\n\
                      sys.path[:0] = packages\n\
                      import bottle\n\
                      app = bottle.Bottle()\n\
                      @app.get('/')\n\
                      def hello():\n    return 'Hello World!'\n\
                      app.run(server='waitress', host='127.0.0.1', port=int(port), quiet=True)\n";
/// Pinned requirement of waitress.
const WAITRESS: &str =
    "waitress==3.0.2 --hash=sha256:c56d67fd6e87c2ee598b76abdd4e96cfad1f24cacdea5078d382b1f9d7b5ed2e\n";

/// Starts a plain `node:http` server.
pub(super) async fn plain(directory: &Path) -> Result<Server, Error> {
    start("node", "plain.js", PLAIN, &[], directory).await
}

/// Starts Express from the directory `packages`.
pub(super) async fn express(directory: &Path, packages: &Path) -> Result<Server, Error> {
    start("node", "express.js", EXPRESS, &[packages], directory).await
}

/// Starts Bottle from the directory `packages` on waitress, which is downloaded.
pub(super) async fn bottle(directory: &Path, packages: &Path) -> Result<Server, Error> {
    let waitress = fetch_waitress(directory).await?;
    start("python3", "hello_bottle.py", BOTTLE, &[packages, &waitress], directory).await
}

async fn fetch_waitress(directory: &Path) -> Result<PathBuf, Error> {
    let (lock, target) = (directory.join("waitress.txt"), directory.join("waitress"));
    fs::write(&lock, WAITRESS).map_err(Error::Load)?;
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        "--require-hashes",
        "--no-deps",
    ]);
    pip.args(["--only-binary", ":all:", "--target"]).arg(&target).arg("-r").arg(&lock).stdin(Stdio::null());
    let ended = pip.status().await.map_err(Error::Start)?;
    if ended.success() { Ok(target) } else { Err(Error::NotStarted) }
}

async fn start(program: &str, name: &str, source: &str, packages: &[&Path], directory: &Path) -> Result<Server, Error> {
    let file = directory.join(name);
    fs::write(&file, source).map_err(Error::Load)?;
    let port = free_port()?;
    let mut command = Command::new(program);
    command.arg(&file).arg(port.to_string()).args(packages);
    let mut process = Process::spawn(command)?;
    let address = format!("http://127.0.0.1:{port}/");
    process.answers(&address).await?;
    Ok(Server { address, _process: process })
}
