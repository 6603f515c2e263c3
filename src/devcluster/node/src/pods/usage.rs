//! Resource usage of containers, and the killing of those that exceed their limits.
//!
//! Memory, tasks and processor time are summed over a container's process group and its descendants twice a second; a
//! container over its memory limit is killed as the kernel would have done it. The disk of a pod is measured now and then.
//!
//! Deliberately absent: limits of processor time, and of what happens between two looks.

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

/// Between two looks at the processes.
const LOOK: Duration = Duration::from_millis(500);
/// Files of a pod that are measured; a pod with more of them uses too much.
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
    /// The limits that a container states, and the node's.
    pub(super) fn of(container: &Value, tasks: usize) -> Self {
        let memory = hooks::quantity(&container["resources"]["limits"]["memory"]).filter(|bytes| *bytes > 0);
        Self { memory: memory.and_then(|nanos| u64::try_from(nanos / 1_000_000_000).ok()), tasks }
    }
}

/// The reason why a container was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It used more memory than its limit.
    Memory,
    /// It had too many processes and threads.
    Tasks(String),
}

impl Fault {
    /// The reason in the container's status.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Memory => "OOMKilled",
            Self::Tasks(_) => "Error",
        }
    }

    /// The message in the container's status, when there is one.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::Memory => "",
            Self::Tasks(message) => message,
        }
    }
}

/// The containers that are looked after, by process group.
#[derive(Debug, Default)]
pub(super) struct Usage(Arc<Mutex<HashMap<i32, Entry>>>);

#[derive(Debug)]
struct Entry {
    /// The UID of its pod, and its name.
    of: (String, String),
    limits: Limits,
    meter: Meter,
    sender: watch::Sender<Option<Fault>>,
}

/// A container that is looked after as long as this is there.
pub(super) struct Watched {
    all: Arc<Mutex<HashMap<i32, Entry>>>,
    group: i32,
    fault: watch::Receiver<Option<Fault>>,
}

impl Watched {
    /// Waits until the container uses too much.
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
    /// Looks after a process group.
    pub(super) fn watch(&self, group: i32, of: (String, String), limits: Limits) -> Watched {
        let (sender, fault) = watch::channel(None);
        self.0.lock().insert(group, Entry { of, limits, meter: Meter::default(), sender });
        Watched { all: self.0.clone(), group, fault }
    }

    /// What the containers of a pod used over this time, if that is known of all of them.
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

/// The watched group that a process belongs to: its own, or that of an ancestor.
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
    /// Processor time of its own and of its children that have ended, in ticks of the kernel.
    ticks: u64,
    /// Bytes in memory.
    memory: u64,
}

/// All processes of the machine; none where there is no `/proc`.
fn processes() -> HashMap<i32, Process> {
    let page = rustix::param::page_size() as u64;
    let mut found = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // It may have ended since.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name in parentheses may hold anything; state, parent and group follow it.
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

/// Looks at the processes for ever.
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

/// The disk limit that a pod exceeds, as the message of an eviction.
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

/// Bytes of all files below a directory; a huge number when there are too many to count.
fn size(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let (mut bytes, mut files, mut open) = (0, 0, vec![directory.to_owned()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            files += 1;
            if files > MOST_FILES {
                return u64::MAX;
            }
            // It may have been removed since.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                open.push(entry.path());
            }
            // The blocks of a file count, not its size, which may be sparse.
            bytes += metadata.blocks() * 512;
        }
    }
    bytes
}
