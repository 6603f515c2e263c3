//! Chromium, controlled through its DevTools protocol over two named pipes.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Stdio},
    sync::{Arc, atomic::AtomicU64, atomic::Ordering},
    time::Duration,
};

use mainstay_testkit::PATIENCE;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// Deadline of a call. It is longer than that of a condition, so that a failure shows the page.
const CALL: Duration = Duration::from_secs(PATIENCE.as_secs() + 60);

type Answers = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

/// A running browser.
pub(super) struct Chromium {
    child: Child,
    commands: Mutex<File>,
    answers: Answers,
    /// Exceptions and messages of pages, and dialogs.
    complaints: Arc<Mutex<Vec<Value>>>,
    next: AtomicU64,
    _home: tempfile::TempDir,
}

/// A tab of a browser.
pub(super) struct Tab {
    chromium: Arc<Chromium>,
    session: String,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Chromium {
    /// Starts a browser that connects to `address` for `host`, and does not check the certificate of `host`. It
    /// reaches no other host beyond the loopback address.
    pub(super) async fn start(host: &str, address: &str) -> Arc<Self> {
        let home = tempfile::tempdir().unwrap();
        let pipe = |name: &str| home.path().join(name);
        let made = mainstay_testkit::isolated("mkfifo").arg(pipe("in")).arg(pipe("out")).status().unwrap();
        assert!(made.success());
        let mut command = mainstay_testkit::isolated("sh");
        command.args(["-c", "exec chromium-headless-shell \"$@\" 3<\"$HOME/in\" 4>\"$HOME/out\"", "chromium"]);
        command.args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]);
        command.args(["--disable-background-networking", "--no-first-run", "--remote-debugging-pipe"]);
        command.args(["--ignore-certificate-errors", "--no-proxy-server"]);
        command.arg(format!("--host-resolver-rules=MAP {host} {address}, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"));
        command.arg(format!("--user-data-dir={}", pipe("profile").display())).arg("about:blank");
        command.env("HOME", home.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("apt-get install chromium-headless-shell");
        let (to, from) = (pipe("in"), pipe("out"));
        let opened = tokio::task::spawn_blocking(move || {
            let commands = OpenOptions::new().write(true).open(to).unwrap();
            (commands, File::open(from).unwrap())
        });
        let (commands, messages) = opened.await.unwrap();
        let (answers, complaints) = (Answers::default(), Arc::<Mutex<Vec<Value>>>::default());
        let (pending, heard) = (Arc::clone(&answers), Arc::clone(&complaints));
        std::thread::spawn(move || read(messages, &pending, &heard));
        Arc::new(Self {
            child,
            commands: Mutex::new(commands),
            answers,
            complaints,
            next: AtomicU64::new(1),
            _home: home,
        })
    }

    async fn call(&self, session: Option<&str>, method: &str, parameters: Value) -> Result<Value, String> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.answers.lock().insert(id, answer);
        let mut message = json!({"id": id, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands
            .lock()
            .write_all(&bytes)
            .expect("the browser has ended: `chromium-headless-shell --version` should print a version");
        let answer = tokio::time::timeout(CALL, answered).await.unwrap_or_else(|_| panic!("{method} got no answer"));
        let mut answer = answer.map_err(|_| "the browser has ended".to_owned())?;
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer["result"].take()),
        }
    }

    /// Opens a tab with its own cookies.
    pub(super) async fn tab(self: &Arc<Self>) -> Tab {
        let call = async |method, parameters| self.call(None, method, parameters).await.unwrap();
        let context = call("Target.createBrowserContext", json!({})).await["browserContextId"].take();
        let target = json!({"url": "about:blank", "browserContextId": context});
        let target = call("Target.createTarget", target).await["targetId"].take();
        let attached = call("Target.attachToTarget", json!({"targetId": target, "flatten": true})).await;
        let session = attached["sessionId"].as_str().unwrap().to_owned();
        let tab = Tab { chromium: Arc::clone(self), session };
        for domain in ["Page", "Runtime", "Log"] {
            tab.call(&format!("{domain}.enable"), json!({})).await.unwrap();
        }
        tab
    }

    /// Returns the exceptions, warnings, errors and dialogs of all pages.
    pub(super) fn complaints(&self) -> Vec<Value> {
        self.complaints.lock().clone()
    }
}

/// Distributes the messages of the browser until it ends.
fn read(messages: File, answers: &Mutex<HashMap<u64, oneshot::Sender<Value>>>, complaints: &Mutex<Vec<Value>>) {
    let mut messages = BufReader::new(messages);
    loop {
        let mut bytes = Vec::new();
        if messages.read_until(0, &mut bytes).unwrap_or(0) == 0 {
            // Dropping the senders ends all pending calls.
            answers.lock().clear();
            return;
        }
        bytes.pop();
        let Ok(message) = serde_json::from_slice::<Value>(&bytes) else { continue };
        if let Some(id) = message["id"].as_u64() {
            if let Some(answer) = answers.lock().remove(&id) {
                let _ = answer.send(message);
            }
            continue;
        }
        let is_complaint = match message["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" | "Page.javascriptDialogOpening" => true,
            // The status of a response is not an error of a page. Hints of the browser are none either: it gives one,
            // by chance, when a field was filled before the page gave it the focus.
            "Log.entryAdded" => {
                let entry = &message["params"]["entry"];
                entry["source"] != "network" && matches!(entry["level"].as_str(), Some("warning" | "error"))
            }
            _ => false,
        };
        if is_complaint {
            complaints.lock().push(message["params"].clone());
        }
    }
}

impl Tab {
    async fn call(&self, method: &str, parameters: Value) -> Result<Value, String> {
        self.chromium.call(Some(&self.session), method, parameters).await
    }

    /// Returns the value of an expression. A promise is awaited.
    async fn try_value(&self, expression: &str) -> Result<Value, String> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.call("Runtime.evaluate", parameters).await?;
        match answer.get("exceptionDetails") {
            Some(details) => Err(format!("{expression}: {details}")),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Returns the value of an expression, once the page and its scripts are loaded.
    pub(super) async fn value(&self, expression: &str) -> Value {
        self.until("document.readyState === 'complete'").await;
        self.try_value(expression).await.unwrap()
    }

    /// Waits until an expression is true. Navigation in the meantime is not a failure.
    pub(super) async fn until(&self, expression: &str) {
        let polled = format!(
            "new Promise((done) => {{ const look = () => ({expression}) ? done(true) : setTimeout(look, 20); look(); }})"
        );
        let holds = async {
            while !matches!(self.try_value(&polled).await, Ok(Value::Bool(true))) {
                tokio::task::yield_now().await;
            }
        };
        if tokio::time::timeout(PATIENCE, holds).await.is_err() {
            let page = self.try_value("location.href + ': ' + document.body.innerText").await;
            panic!("{expression} never held at {page:?}; {:?}", self.chromium.complaints());
        }
    }

    /// Waits until the page shows a string.
    pub(super) async fn shows(&self, text: &str) {
        self.until(&format!("document.body && document.body.innerText.includes({})", json!(text))).await;
    }

    /// Opens an address, and waits until its page is loaded.
    pub(super) async fn open(&self, url: &str) {
        self.value("window.isOld = true").await;
        let opened = self.call("Page.navigate", json!({"url": url})).await.unwrap();
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        self.until("!window.isOld && document.readyState === 'complete'").await;
    }

    /// Clicks the element of a selector with this text.
    pub(super) async fn click(&self, selector: &str, text: &str) {
        let found = format!(
            "Array.from(document.querySelectorAll({})).find((one) => one.innerText.trim() === {})",
            json!(selector),
            json!(text)
        );
        self.until(&format!("Boolean({found})")).await;
        self.value(&format!("{found}.click()")).await;
    }

    /// Types into the field with this name.
    pub(super) async fn fill(&self, name: &str, text: &str) {
        let field = format!("document.querySelector('[name={name}]')");
        self.until(&format!("Boolean({field})")).await;
        self.value(&format!("{field}.focus()")).await;
        self.call("Input.insertText", json!({"text": text})).await.unwrap();
    }

    /// Presses the key Enter.
    pub(super) async fn enter(&self) {
        let key =
            json!({"type": "keyDown", "key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13, "text": "\r"});
        self.call("Input.dispatchKeyEvent", key).await.unwrap();
    }

    /// Sets the width of the page and its theme.
    pub(super) async fn look(&self, width: u32, theme: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size).await.unwrap();
        let theme = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.call("Emulation.setEmulatedMedia", theme).await.unwrap();
    }

    /// Returns the violations that axe-core finds, with their elements.
    pub(super) async fn violations(&self, axe: &Path) -> Value {
        if self.value("typeof axe").await == "undefined" {
            let script = std::fs::read_to_string(axe)
                .unwrap_or_else(|_| panic!("{} is missing: `.ci/test --install` fetches it", axe.display()));
            self.value(&format!("{script}; true")).await;
        }
        let found = "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice']}).then((all) => \
                     all.violations.map((one) => one.id + ': ' + one.help + ': ' + one.nodes.map((node) => node.html + ' ' + \
                     node.failureSummary).join('; ')))";
        self.value(found).await
    }

    /// Writes a picture of the page down to this height, as PNG or WebP.
    pub(super) async fn picture(&self, path: &Path, height: u32) {
        use base64::prelude::{BASE64_STANDARD, Engine as _};
        let size = format!(
            "({{width: document.documentElement.clientWidth, height: Math.min(document.documentElement.scrollHeight, {height})}})"
        );
        let mut clip = self.value(&size).await;
        json_patch::merge(&mut clip, &json!({"x": 0, "y": 0, "scale": 1}));
        let format = if path.extension().is_some_and(|end| end == "webp") { "webp" } else { "png" };
        let parameters = json!({"format": format, "quality": 35, "captureBeyondViewport": true, "clip": clip});
        let picture = self.call("Page.captureScreenshot", parameters).await.unwrap();
        std::fs::write(path, BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()).unwrap();
    }
}
