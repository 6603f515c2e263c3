//! The inputs of the container `push`, and programs that inspect images.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use mainstay_function::build::image::{Bounds, Platform};
use mainstay_function::build::push::{Error, Request, push};
use mainstay_function::registry::Deadlines;

use super::registry::{PASSWORD, USER};

/// A workspace and a registry Secret, as they are mounted in the container.
pub struct Build {
    pub directory: tempfile::TempDir,
}

impl Build {
    /// Returns the inputs for a function with one dependency.
    pub fn new() -> Self {
        let build = Self { directory: tempfile::tempdir().unwrap() };
        build.write("workspace/src/handler.js", "module.exports = { main: () => 'hello' }");
        build.write("workspace/src/package.json", "{\"dependencies\": {\"greeting\": \"1.0.0\"}}");
        build.write("workspace/deps/node_modules/greeting/index.js", "module.exports = 'hello'");
        build.link("workspace/deps/node_modules/.bin/greet", "../greeting/index.js");
        build.write("workspace/dependencies", &"ab".repeat(32));
        std::fs::create_dir_all(build.path("registry")).unwrap();
        build
    }

    /// Sets the registry in the Secret, with user name and password.
    pub fn registry(self, host: &str) -> Self {
        self.write("registry/registryAddress", host);
        self.write("registry/username", USER);
        self.write("registry/password", PASSWORD);
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub fn link(&self, name: &str, target: impl AsRef<Path>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    pub fn request(&self, image: &str) -> Request {
        Request {
            runtime: mainstay_function::runtimes::find("nodejs22").unwrap(),
            workspace: self.path("workspace"),
            registry: self.path("registry"),
            base_ca: None,
            image: image.parse().unwrap(),
            libraries: super::libraries::place().into(),
            base: "scratch".parse().unwrap(),
            shares_base: true,
            platform: "linux/amd64".parse::<Platform>().unwrap(),
            previous: None,
            bounds: Bounds::default(),
            deadlines: Deadlines { silence: Duration::from_secs(5), ..Deadlines::default() },
        }
    }
}

/// Returns the outcome of a push: the digest, the digest with `reused`, or the reason and the message of the failure.
pub async fn outcome(request: &Request) -> String {
    match push(request).await {
        Ok(report) if report.reused => format!("{} reused", report.digest),
        Ok(report) => report.digest,
        Err(error) => refused(&error),
    }
}

fn refused(error: &Error) -> String {
    let failure = error.failure();
    for secret in [PASSWORD, "Basic", "Bearer", "token-of-this-test"] {
        assert!(!failure.message.contains(secret), "{}", failure.message);
    }
    format!("{:?}{}: {}", failure.reason, if failure.retry { ", again" } else { "" }, failure.message)
}

/// Runs an external program.
pub async fn run(program: &str, arguments: &[&str]) -> String {
    let output = crate::isolated_async(program).args(arguments).stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(crate::PATIENCE, output).await.expect("it ends in time");
    let output = output.unwrap_or_else(|e| panic!("{program}: {e} (apt-get install skopeo umoci)"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {complaint}");
    String::from_utf8(output.stdout).unwrap()
}
