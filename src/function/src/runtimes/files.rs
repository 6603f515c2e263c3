//! The embedded files of the runtime servers, sorted by path.

use super::ServerFile;

macro_rules! file {
    ($folder:literal, $path:literal) => {
        ServerFile { path: $path, contents: include_bytes!(concat!($folder, "/", $path)) }
    };
}

/// The server of all Node.js runtimes.
pub(super) const NODEJS: &[ServerFile] = &[
    file!("nodejs", "body.js"),
    file!("nodejs", "calls.js"),
    file!("nodejs", "event.js"),
    file!("nodejs", "express.js"),
    file!("nodejs", "function.js"),
    file!("nodejs", "lazy.js"),
    file!("nodejs", "methods.js"),
    file!("nodejs", "metrics.js"),
    file!("nodejs", "output.js"),
    file!("nodejs", "package-lock.json"),
    file!("nodejs", "package.json"),
    file!("nodejs", "publish.js"),
    file!("nodejs", "reply.js"),
    file!("nodejs", "request.js"),
    file!("nodejs", "response.js"),
    file!("nodejs", "server.js"),
    file!("nodejs", "settings.js"),
    file!("nodejs", "termination.js"),
    file!("nodejs", "tracer.js"),
    file!("nodejs", "watchdog.js"),
];

/// The server of all Python runtimes.
pub(super) const PYTHON: &[ServerFile] = &[
    file!("python", "function_server/__init__.py"),
    file!("python", "function_server/calls.py"),
    file!("python", "function_server/connection.py"),
    file!("python", "function_server/event.py"),
    file!("python", "function_server/framework.py"),
    file!("python", "function_server/loop.py"),
    file!("python", "function_server/main.py"),
    file!("python", "function_server/message.py"),
    file!("python", "function_server/metrics.py"),
    file!("python", "function_server/publish.py"),
    file!("python", "function_server/reply.py"),
    file!("python", "function_server/settings.py"),
    file!("python", "function_server/stream.py"),
    file!("python", "function_server/termination.py"),
    file!("python", "function_server/tracer.py"),
    file!("python", "requirements.txt"),
    file!("python", "server.py"),
];
