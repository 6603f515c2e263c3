//! The agent as a separate process beside a world, with the memory limit of its container.

use std::{
    fs::{self, File},
    net::SocketAddr,
    process::Stdio,
    time::Duration,
};

use super::{
    cpu_limit::CpuLimit,
    limited_process::LimitedProcess,
    world::{NAMESPACE, World, free_address},
};

/// The agent's memory limit in `manifests/deployment.yaml`, in MiB.
pub const POD_MIB: u64 = 160;

/// A running agent. The agent is killed when this value is dropped.
pub struct LimitedAgent {
    process: LimitedProcess,
    cpu: Option<CpuLimit>,
    directory: tempfile::TempDir,
    /// Address of the agent's health and metrics endpoints.
    pub listen: SocketAddr,
    _serving: devcluster::Serving,
}

impl LimitedAgent {
    /// Starts the agent with the environment of the Deployment. GitSyncs of these namespaces have all permissions.
    pub async fn start(world: &World, trusted: &[&str]) -> Self {
        Self::start_with(world, trusted, &[]).await
    }

    /// Starts the agent with further arguments.
    pub async fn start_with(world: &World, trusted: &[&str], arguments: &[String]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let server = world.server.embedded();
        let serving = server.serve("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        fs::write(directory.path().join("config"), server.kubeconfig(serving.address(), None)).unwrap();
        let listen = free_address();
        let mut command = crate::isolated(
            std::env::var_os("MAINSTAY_TEST_AGENT").unwrap_or_else(|| crate::program::executable().into()),
        );
        command.args(["agent", "--allow-local", "-n", NAMESPACE]).arg(format!("--listen={listen}"));
        // The hostile repositories are on this machine.
        command.arg("--allow-network=127.0.0.0/8");
        command.args(trusted.iter().map(|namespace| format!("--allow-namespace={namespace}")));
        command.args(arguments).arg("--kubeconfig").arg(directory.path().join("config"));
        command.arg("--data").arg(directory.path().join("data")).env_clear();
        command.envs([("MALLOC_ARENA_MAX", "1"), ("MALLOC_TRIM_THRESHOLD_", "131072"), ("RUST_LOG", "info")]);
        let base = format!(r#"{{"*": "registry.example.org/base@sha256:{}"}}"#, "1".repeat(64));
        command.env("MAINSTAY_BASE_IMAGES", base);
        let log = File::create(directory.path().join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let process = LimitedProcess::start(&mut command, POD_MIB);
        let agent = Self { process, cpu: None, directory, listen, _serving: serving };
        agent.until_ready().await;
        agent
    }

    async fn until_ready(&self) {
        // An error means that a provider is installed already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let ready = async {
            let ask = async || client.get(format!("http://{}/readyz", self.listen)).send().await;
            while !ask().await.is_ok_and(|answer| answer.status().is_success()) {
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        };
        tokio::time::timeout(crate::PATIENCE, ready).await.unwrap_or_else(|_| panic!("{}", self.log()));
    }

    /// Whether the kernel enforces the agent's memory limit.
    pub fn is_limited(&self) -> bool {
        self.process.is_limited()
    }

    /// Limits the agent's CPU. Returns whether this machine allows it.
    pub fn limit_cpu(&mut self, millicores: u64) -> bool {
        self.cpu = CpuLimit::set(self.process.id(), millicores);
        self.cpu.is_some()
    }

    /// Returns the agent's CPU time.
    pub fn cpu_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        let ticks = after_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok());
        // Linux reports 100 ticks per second.
        Duration::from_millis(ticks.sum::<u64>() * 10)
    }

    /// Checks that the agent is running.
    pub fn assert_alive(&mut self, during: &str) {
        if let Some(ended) = self.process.ended() {
            panic!("the agent ended ({ended}) during: {during}\n{}", self.log());
        }
    }

    /// Returns the end of the agent's log.
    pub fn log(&self) -> String {
        let log = fs::read(self.directory.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(8000)..]).into_owned()
    }

    /// Whether the agent has logged this string since its start.
    pub fn has_logged(&self, text: &str) -> bool {
        let log = fs::read(self.directory.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).contains(text)
    }

    /// Returns the agent's peak resident memory in MiB, corrected to the size of the release program.
    pub fn peak_mib(&self) -> u64 {
        self.process.peak_mib()
    }

    /// Returns the agent's anonymous memory in MiB, which the kernel can only swap out.
    pub fn own_mib(&self) -> u64 {
        self.process.own_mib()
    }
}
