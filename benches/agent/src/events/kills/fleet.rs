//! The processes: servers of NATS, publishers and dispatchers. They are killed, and replaced as by a kubelet.

use std::{
    ffi::OsString,
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio::process::Command;

use super::{
    event::Ids,
    plan::RECOVERY,
    schedule::Kind,
    servers::{self, CONFIGURATION, SERVERS, Server},
    subscribers::Subscribers,
    tally::Letter,
    tenant::{SUBSCRIBER, Tenant},
};
use crate::{
    Error, events::broker, process::Process, progress::progress, reserved::Reserved, stand::Stand, watchdog::Watched,
};

/// Deadline of the first start of each kind.
const START: Duration = Duration::from_mins(5);
/// Interval at which the processes are checked.
pub(super) const CHECKS: Duration = Duration::from_millis(100);
/// Timeout of a probe.
const PROBE: Duration = Duration::from_secs(2);
/// Timeout of a list of dead letters.
const LIST: Duration = Duration::from_secs(45);
/// Pause before a process that has ended by itself is started again.
const RESTART: Duration = Duration::from_secs(1);

/// A process with its place in the fleet.
struct Member {
    kind: Kind,
    number: usize,
    /// Address of clients.
    address: SocketAddr,
    /// The port of a publisher or dispatcher; a server of NATS has its own.
    _reserved: Option<Reserved>,
    /// URL of its readiness.
    ready: String,
    /// `None` while it is away.
    process: Option<Process>,
    /// The last start.
    since: Instant,
    /// Time of the next start, while it is away.
    back: Option<Instant>,
    /// Whether it was ready since its last start.
    was_ready: bool,
}

/// The cost of a process.
#[derive(Clone, Debug)]
pub(super) struct Usage {
    pub kind: Kind,
    pub number: usize,
    /// How it ended.
    pub end: &'static str,
    pub life: Duration,
    pub peak_mib: f64,
    pub processor_seconds: f64,
}

/// All processes.
pub(super) struct Fleet {
    /// The program `nats-server`.
    program: PathBuf,
    directory: PathBuf,
    kubeconfig: PathBuf,
    servers: Vec<Server>,
    /// Arguments with the addresses of the subscribers.
    services: Vec<String>,
    client: reqwest::Client,
    ids: Ids,
    members: Vec<Member>,
    ended: Vec<Usage>,
    /// Times from the start of a replaced process until it was ready.
    pub recoveries: Vec<(Kind, Duration)>,
    /// Number of processes that ended by themselves.
    pub failed: usize,
}

impl Fleet {
    /// Starts all processes, and waits until they are ready.
    pub(super) async fn start(stand: &Stand, subscribers: &Subscribers, ids: Ids) -> Result<Self, Error> {
        let directory = stand.directory().join("events");
        fs::create_dir_all(&directory).map_err(Error::Directory)?;
        let service = |(tenant, address): &(Tenant, SocketAddr)| {
            format!("--service={}/{SUBSCRIBER}:80={address}", tenant.namespace())
        };
        let mut fleet = Self {
            program: broker::program()?,
            servers: servers::prepare(&directory)?,
            directory,
            kubeconfig: stand.kubeconfig().to_owned(),
            services: subscribers.addresses.iter().map(service).collect(),
            client: reqwest::Client::builder().no_proxy().timeout(PROBE).build().map_err(Error::Client)?,
            ids,
            members: Vec::new(),
            ended: Vec::new(),
            recoveries: Vec::new(),
            failed: 0,
        };
        for kind in [Kind::Server, Kind::Publisher, Kind::Dispatcher] {
            for number in 0..kind.count() {
                fleet.add(kind, number)?;
            }
            fleet.until_ready(kind).await?;
        }
        fleet.recoveries.clear();
        Ok(fleet)
    }

    /// Starts another process.
    fn add(&mut self, kind: Kind, number: usize) -> Result<(), Error> {
        let loopback = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let (address, reserved, ready) = if kind == Kind::Server {
            let Server { clients, monitor, .. } = &self.servers[number];
            // The server is healthy if it has all that the others have.
            (loopback(clients.port), None, format!("http://{}/healthz", loopback(monitor.port)))
        } else {
            let reserved = Reserved::new()?;
            let address = loopback(reserved.port);
            (address, Some(reserved), format!("http://{address}/readyz"))
        };
        let process = Some(self.spawn(kind, number, address)?);
        let since = Instant::now();
        self.members.push(Member {
            kind,
            number,
            address,
            _reserved: reserved,
            ready,
            process,
            since,
            back: None,
            was_ready: false,
        });
        Ok(())
    }

    fn spawn(&self, kind: Kind, number: usize, address: SocketAddr) -> Result<Process, Error> {
        if kind == Kind::Server {
            let mut command = Command::new(&self.program);
            command.args(["--config", CONFIGURATION]).current_dir(&self.servers[number].directory);
            command.stderr(Stdio::null());
            return Process::spawn(command).map_err(|error| Error::Broker(error.to_string()));
        }
        let [role, _] = kind.names();
        let mut arguments: Vec<OsString> = ["eventing", "run", "--publisher-auth=none"].map(Into::into).to_vec();
        arguments.push(format!("--role={role}").into());
        arguments.push(format!("--instance={role}-{number}").into());
        arguments.push(format!("--listen={address}").into());
        arguments.push(format!("--nats-url={}", self.nats()).into());
        arguments.push(format!("--nats-replicas={SERVERS}").into());
        // The share must hold the events of an outage, and all dead letters.
        arguments.push("--nats-share=1Gi".into());
        arguments.push(Tenant::grant().into());
        arguments.extend(self.services.iter().map(OsString::from));
        arguments.extend(["--kubeconfig".into(), self.kubeconfig.clone().into()]);
        arguments.extend(["--data".into(), self.data()]);
        Process::start(&arguments, &environment(), &self.directory)
    }

    /// Returns the directory of a journal, which stays empty.
    fn data(&self) -> OsString {
        self.directory.join("data").into()
    }

    /// Returns the addresses of the servers of NATS.
    fn nats(&self) -> String {
        let url = |server: &Server| format!("nats://127.0.0.1:{}", server.clients.port);
        let urls: Vec<String> = self.servers.iter().map(url).collect();
        urls.join(",")
    }

    /// Returns the addresses of the publishers.
    pub(super) fn publishers(&self) -> Vec<SocketAddr> {
        let publishers = self.members.iter().filter(|member| member.kind == Kind::Publisher);
        publishers.map(|member| member.address).collect()
    }

    /// Waits until all processes of a kind are ready for the first time.
    async fn until_ready(&mut self, kind: Kind) -> Result<(), Error> {
        let begun = Instant::now();
        while !self.are_ready() {
            if begun.elapsed() > START {
                return Err(Error::NotReady { what: kind.names()[1], seconds: START.as_secs() });
            }
            tokio::time::sleep(CHECKS).await;
            self.keep().await?;
        }
        Ok(())
    }

    /// Whether each process runs and was ready since its start.
    pub(super) fn are_ready(&self) -> bool {
        self.members.iter().all(|member| member.process.is_some() && member.was_ready)
    }

    /// Starts processes whose time has come, and replaces those that have ended by themselves. Notes which are ready.
    pub(super) async fn keep(&mut self) -> Result<(), Error> {
        for at in 0..self.members.len() {
            let has_ended = match &mut self.members[at].process {
                Some(process) => process.has_ended()?,
                None => false,
            };
            if has_ended {
                self.failed += 1;
                self.retire(at, "**ended by itself**", RESTART);
                let Member { kind, number, .. } = &self.members[at];
                progress(&format!("{} {number} has ended by itself", kind.names()[0]));
            }
            let Member { kind, number, address, back, .. } = self.members[at];
            if back.is_some_and(|back| back <= Instant::now()) {
                let process = self.spawn(kind, number, address)?;
                let member = &mut self.members[at];
                (member.process, member.back, member.was_ready) = (Some(process), None, false);
                member.since = Instant::now();
            }
            let member = &self.members[at];
            if member.process.is_some() && !member.was_ready && self.is_ready(member).await {
                let member = &mut self.members[at];
                member.was_ready = true;
                self.recoveries.push((kind, member.since.elapsed()));
            }
        }
        Ok(())
    }

    async fn is_ready(&self, member: &Member) -> bool {
        self.client.get(&member.ready).send().await.is_ok_and(|answer| answer.status().is_success())
    }

    /// Whether a process may be killed: it runs, and all servers of NATS are healthy if it is one of them.
    pub(super) async fn may_be_killed(&self, kind: Kind, number: usize) -> bool {
        let is_victim = |member: &Member| (member.kind, member.number) == (kind, number);
        if !self.members.iter().any(|member| is_victim(member) && member.process.is_some()) {
            return false;
        }
        for server in self.members.iter().filter(|member| member.kind == Kind::Server && kind == Kind::Server) {
            if server.process.is_none() || !self.is_ready(server).await {
                return false;
            }
        }
        true
    }

    /// Kills a process, which is started again after a time.
    pub(super) async fn kill(&mut self, kind: Kind, number: usize, away: Duration) -> Result<(), Error> {
        let at = self.members.iter().position(|member| (member.kind, member.number) == (kind, number));
        match at.and_then(|at| self.retire(at, "killed", away)) {
            Some(mut process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Takes a process out of the fleet, and notes its cost. A process that was never ready counts if it was late.
    fn retire(&mut self, at: usize, end: &'static str, away: Duration) -> Option<Process> {
        let member = &mut self.members[at];
        let usage = member.usage(end);
        let process = member.process.take();
        let (kind, lived) = (member.kind, member.since.elapsed());
        let was_late = process.is_some() && !member.was_ready && lived > RECOVERY;
        member.back = Some(Instant::now() + away);
        self.recoveries.extend(was_late.then_some((kind, lived)));
        self.ended.extend(usage);
        process
    }

    /// Returns the cost of each process so far, in the order of their kinds.
    pub(super) fn usages(&self) -> Vec<Usage> {
        let running = self.members.iter().filter_map(|member| member.usage("running"));
        let mut all: Vec<Usage> = self.ended.iter().cloned().chain(running).collect();
        all.sort_by_key(|usage| (usage.kind as usize, usage.number));
        all
    }

    /// Returns the largest number of events that a server has stored; `None` unless all servers respond.
    pub(super) async fn stored(&self) -> Option<u64> {
        let mut most = 0;
        for server in &self.servers {
            let url = format!("http://127.0.0.1:{}/jsz?accounts=true&streams=true", server.monitor.port);
            let answer = self.client.get(url).send().await.ok()?.error_for_status().ok()?;
            let page: Value = serde_json::from_str(&answer.text().await.ok()?).ok()?;
            most = most.max(servers::stored(&page)?);
        }
        Some(most)
    }

    /// Returns the dead letters; `None` if they cannot be listed for the moment.
    pub(super) async fn letters(&self) -> Result<Option<Vec<Letter>>, Error> {
        let mut command = Command::new(std::env::current_exe().map_err(Error::Start)?);
        command.args(["eventing", "dead-letters", "--output=json"]).arg(format!("--nats-url={}", self.nats()));
        command.arg("--data").arg(self.data()).current_dir(&self.directory).kill_on_drop(true);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let child = child.map_err(Error::Start)?;
        let _watched = child.id().map(Watched::new);
        let Ok(listed) = tokio::time::timeout(LIST, child.wait_with_output()).await else { return Ok(None) };
        let output = listed.map_err(Error::Start)?;
        Ok(output.status.success().then(|| letters(&output.stdout, self.ids)).flatten())
    }

    /// Ends all processes.
    pub(super) async fn stop(&mut self) -> Result<(), Error> {
        for member in &mut self.members {
            if let Some(mut process) = member.process.take() {
                process.kill().await?;
            }
        }
        Ok(())
    }
}

impl Member {
    /// Returns the cost, if it runs. A process that has ended by itself has no memory any more.
    fn usage(&self, end: &'static str) -> Option<Usage> {
        let process = self.process.as_ref()?;
        Some(Usage {
            kind: self.kind,
            number: self.number,
            end,
            life: self.since.elapsed(),
            peak_mib: process.peak_mib().unwrap_or_default(),
            processor_seconds: process.processor_seconds().unwrap_or_default(),
        })
    }
}

/// Returns the environment variables of the processes, as in `manifests/eventing`. Each dead letter would be a warning.
fn environment() -> Vec<(OsString, OsString)> {
    let level = std::env::var_os("RUST_LOG").unwrap_or_else(|| "error".into());
    vec![("MALLOC_ARENA_MAX".into(), "1".into()), ("RUST_LOG".into(), level)]
}

/// Reads the list of dead letters.
fn letters(list: &[u8], ids: Ids) -> Option<Vec<Letter>> {
    let all: Vec<Value> = serde_json::from_slice(list).ok()?;
    let read = |letter: &Value| {
        let subscriber = letter["subscriber"].as_str().and_then(Tenant::of_subscriber);
        (subscriber, letter["attributes"]["id"].as_str().and_then(|id| ids.number(id)))
    };
    Some(all.iter().map(read).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn dead_letters_are_read_with_their_subscriber_and_number() {
        let letter = |subscriber: &str, id: &str| json!({"subscriber": subscriber, "attributes": {"id": id}});
        let ids = Ids::new();
        let list = json!([letter("subscription/bench-shop/subscriber", &ids.id(7)), letter("trigger/a/b", "7"), {}]);
        let expected = vec![(Some(Tenant::Shop), Some(7)), (None, None), (None, None)];
        assert_eq!(letters(list.to_string().as_bytes(), ids), Some(expected));
        assert_eq!(letters(b"no list", ids), None);
    }
}
