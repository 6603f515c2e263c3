//! Outcomes of containers that a test has set ([`devcluster_apiserver::fault_injection::Simulation`]).
//!
//! Init containers that succeed do so immediately; the first that fails ends the pod. Otherwise the pod ends with the
//! last of its containers with a simulated outcome.

use std::time::Duration;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use devcluster_apiserver::client::Client;
use devcluster_apiserver::object::text;

/// The simulated outcome of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SimulatedOutcome {
    /// Time from the start of the simulation to the pod's end.
    pub(super) after: Duration,
    /// Whether an init container fails, so that the main containers never start.
    pub(super) init_fails: bool,
    ends: Vec<End>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct End {
    container: String,
    code: i64,
    message: Option<String>,
}

/// The outcome of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate<'a> {
    /// The container exits with a code and a termination message.
    Ends(i64, Option<&'a str>),
    /// The container never starts.
    Waits,
}

impl SimulatedOutcome {
    /// Returns the simulated outcome of a pod; `None` if no container has one.
    pub(super) fn of(client: &Client, pod: &Value) -> Option<Self> {
        let simulated = |list: &str| -> Vec<(End, Duration)> {
            let containers = pod["spec"][list].as_array().into_iter().flatten();
            containers.filter_map(|container| end(client, container)).collect()
        };
        let (init, main) = (simulated("initContainers"), simulated("containers"));
        if init.is_empty() && main.is_empty() {
            return None;
        }
        let failing = init.iter().find(|(end, _)| end.code != 0);
        let after = match failing {
            Some((_, after)) => *after,
            None => main.iter().map(|(_, after)| *after).max().unwrap_or_default(),
        };
        let init_fails = failing.is_some();
        let ends = init.into_iter().chain(main).map(|(end, _)| end).collect();
        Some(Self { after, init_fails, ends })
    }

    /// Exit code of the pod: the first that is not 0.
    pub(super) fn code(&self) -> i64 {
        self.ends.iter().map(|end| end.code).find(|code| *code != 0).unwrap_or(0)
    }

    /// The outcome of a container of a finished pod.
    pub(super) fn fate(&self, name: &str, init: bool) -> Fate<'_> {
        let own = self.ends.iter().find(|end| end.container == name);
        let failed = self.ends.iter().position(|end| end.code != 0);
        let place = self.ends.iter().position(|end| end.container == name);
        match own {
            _ if self.init_fails && !init => Fate::Waits,
            Some(_) if self.init_fails && place > failed => Fate::Waits,
            Some(end) => Fate::Ends(end.code, end.message.as_deref()),
            None => Fate::Ends(0, None),
        }
    }
}

fn end(client: &Client, container: &Value) -> Option<(End, Duration)> {
    let name = text(container, "/name");
    let simulation = client.server().faults().simulation(text(container, "/image"), name)?;
    let message = simulation.termination_message.map(|message| {
        let args: Vec<&str> = container["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let digest = hex::encode(Sha256::digest(args.join("\0")));
        message.replace("{digest}", &format!("sha256:{digest}"))
    });
    Some((End { container: name.to_owned(), code: simulation.exit_code.into(), message }, simulation.after))
}
