//! Measures resource usage of containers and kills those that exceed their limits.
//!
//! Memory, tasks and CPU time are summed over a container's process group and its descendants twice a second. A
//! container above its memory limit is killed, as the kernel would do. A pod's disk usage is measured periodically.
//!
//! Not here: CPU limits, and usage peaks between two measurements.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::meter::Meter;
use super::volumes::Volume;
use devcluster_apiserver::kinds::hooks;
use devcluster_apiserver::kubelet::ContainerUsage;

/// Interval of reading the processes.
const LOOK: Duration = Duration::from_millis(500);
/// Maximum number of measured files of a pod. A pod with more files exceeds its disk limit.
const MOST_FILES: usize = 1_000_000;

/// The limits of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Bytes of memory.
    memory: Option<u64>,
    /// Processes and threads.
    tasks: usize,
}

impl Limits {
    /// Returns the limits of a container. `tasks` is the node's limit.
    pub(super) fn of(container: &Value, tasks: usize) -> Self {
        let memory = hooks::quantity(&container["resources"]["limits"]["memory"]).filter(|bytes| *bytes > 0);
        Self { memory: memory.and_then(|nanos| u64::try_from(nanos / 1_000_000_000).ok()), tasks }
    }
}

/// The limit that a container exceeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Memory.
    Memory,
    /// Number of processes and threads.
    Tasks(String),
}

impl Fault {
    /// Returns the reason for the container's status.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Memory => "OOMKilled",
            Self::Tasks(_) => "Error",
        }
    }

    /// Returns the message for the container's status; may be empty.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Memory => "",
            Self::Tasks(message) => message,
        }
    }
}

/// The monitored containers by process group.
#[derive(Debug, Default)]
pub(super) struct Usage(Arc<Mutex<HashMap<i32, Entry>>>);

#[derive(Debug)]
struct Entry {
    /// Pod UID and container name.
    of: (String, String),
    limits: Limits,
    meter: Meter,
    sender: watch::Sender<Option<Fault>>,
}

/// A monitored container. Dropping it ends the monitoring.
pub(super) struct Watched {
    all: Arc<Mutex<HashMap<i32, Entry>>>,
    group: i32,
    fault: watch::Receiver<Option<Fault>>,
}

impl Watched {
    /// Waits until the container exceeds a limit.
    pub(super) async fn fault(&self) -> Fault {
        let mut fault = self.fault.clone();
        let found = fault.wait_for(Option::is_some).await.ok().and_then(|fault| fault.clone());
        match found {
            Some(fault) => fault,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.all.lock().remove(&self.group);
    }
}

impl Usage {
    /// Monitors a process group.
    pub(super) fn watch(&self, group: i32, of: (String, String), limits: Limits) -> Watched {
        let (sender, fault) = watch::channel(None);
        self.0.lock().insert(group, Entry { of, limits, meter: Meter::default(), sender });
        Watched { all: self.0.clone(), group, fault }
    }

    /// Returns the usage of a pod's containers over a window; `None` unless all are measured.
    pub(super) fn of(&self, uid: &str, window: Duration) -> Option<Vec<ContainerUsage>> {
        let all = self.0.lock();
        let of_pod = all.values().filter(|entry| entry.of.0 == uid);
        let usage = |entry: &Entry| {
            let (cpu_millis, memory) = entry.meter.over(window)?;
            Some(ContainerUsage { name: entry.of.1.clone(), cpu_millis, memory })
        };
        let found: Option<Vec<_>> = of_pod.map(usage).collect();
        found.filter(|found| !found.is_empty())
    }

    fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn compare(&self, processes: &HashMap<i32, Process>) {
        let mut all = self.0.lock();
        let now = Instant::now();
        let mut sums: HashMap<i32, (u64, usize, u64)> = HashMap::new();
        for process in processes.values() {
            if let Some(group) = owner(process, processes, |group| all.contains_key(&group)) {
                let sum = sums.entry(group).or_default();
                sum.0 += process.memory;
                sum.1 += process.threads;
                sum.2 += process.ticks;
            }
        }
        for (group, (memory, tasks, ticks)) in sums {
            let Some(entry) = all.get_mut(&group) else { continue };
            entry.meter.add(now, ticks, memory);
            if entry.limits.memory.is_some_and(|most| memory > most) {
                entry.sender.send_replace(Some(Fault::Memory));
            } else if tasks > entry.limits.tasks {
                let message = format!("{tasks} processes and threads, where {} are allowed", entry.limits.tasks);
                entry.sender.send_replace(Some(Fault::Tasks(message)));
            }
        }
    }
}

/// Returns the monitored group of a process or of one of its ancestors.
fn owner(process: &Process, all: &HashMap<i32, Process>, watched: impl Fn(i32) -> bool) -> Option<i32> {
    let mut at = process;
    for _ in 0..64 {
        if watched(at.group) {
            return Some(at.group);
        }
        at = all.get(&at.parent)?;
    }
    None
}

#[derive(Clone, Copy, Debug)]
struct Process {
    parent: i32,
    group: i32,
    threads: usize,
    /// CPU time of the process and its ended children, in ticks.
    ticks: u64,
    /// Resident memory in bytes.
    memory: u64,
}

/// Reads all processes of the machine; empty without `/proc`.
fn processes() -> HashMap<i32, Process> {
    let page = rustix::param::page_size() as u64;
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // The process may have ended.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses may contain any character. State, parent and group follow it.
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let number = |place: usize| fields.get(place).and_then(|field| field.parse::<i64>().ok()).unwrap_or(0);
        let small = |place: usize| i32::try_from(number(place)).unwrap_or(0);
        let process = Process {
            parent: small(1),
            group: small(2),
            ticks: (11..=14).map(|place| u64::try_from(number(place)).unwrap_or(0)).sum(),
            threads: usize::try_from(number(17)).unwrap_or(0),
            memory: u64::try_from(number(21)).unwrap_or(0) * page,
        };
        found.insert(id, process);
    }
    found
}

/// Measures the processes periodically, forever.
pub(super) async fn run(usage: &Usage) {
    loop {
        tokio::time::sleep(LOOK).await;
        if !usage.is_empty()
            && let Ok(processes) = tokio::task::spawn_blocking(processes).await
        {
            usage.compare(&processes);
        }
    }
}

/// Returns the eviction message if a pod exceeds its disk limit.
pub(super) async fn disk(directory: PathBuf, volumes: Arc<Vec<Volume>>, most: u64) -> Option<String> {
    let measured = tokio::task::spawn_blocking(move || {
        for volume in volumes.iter() {
            if let Some(limit) = volume.limit
                && size(&volume.place) > limit
            {
                let (name, limit) = (&volume.name, hooks::bytes(limit));
                return Some(format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". "));
            }
        }
        let limit = hooks::bytes(most);
        (size(&directory) > most)
            .then(|| format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "))
    });
    measured.await.ok().flatten()
}

/// Returns the disk usage of a directory in bytes; `u64::MAX` for too many files.
fn size(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let (mut bytes, mut files, mut open) = (0, 0, vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            files += 1;
            if files > MOST_FILES {
                return u64::MAX;
            }
            // The entry may have been removed.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                open.push(entry.path());
            }
            // Allocated blocks count, because a file may be sparse.
            bytes += metadata.blocks() * 512;
        }
    }
    bytes
}
