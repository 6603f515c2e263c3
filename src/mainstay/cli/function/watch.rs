//! `--watch`: prints the conditions of a Function until it runs.

use std::{sync::Arc, time::Instant};

use serde_json::Value;

use crate::cli::{Error, Exit, output, stop};
use mainstay_api::function_conditions::{Reason, Type};
use mainstay_cluster::reflector::Change;
use mainstay_cluster::{Cluster, Kind, Selection};
use mainstay_object::failure::chain;
use mainstay_object::printable;

/// Prints changed conditions until the Function runs with the applied generation, has failed, or the timeout is over.
pub(super) async fn until_running(
    cluster: &Cluster,
    kind: &Arc<Kind>,
    namespace: &str,
    name: &str,
    generation: i64,
    deadline: Option<Instant>,
    on_stdout: bool,
) -> Result<Exit, Error> {
    let stop = stop::on_signal()?;
    let mut reflector = cluster.states(kind, Selection::named(Some(namespace), name));
    let mut shown: Vec<String> = Vec::new();
    let over = async {
        match deadline {
            Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
            None => std::future::pending().await,
        }
    };
    let mut over = std::pin::pin!(over);
    loop {
        let change = tokio::select! {
            () = stop.cancelled() => return Ok(Exit::Differs),
            () = &mut over => {
                output::note(&format!("! Function - {name} is not running yet; timed out\n"));
                return Ok(Exit::Differs);
            }
            change = reflector.next() => change,
        };
        let function = match change {
            Change::Changed { live, .. } => live,
            Change::Failed(error) => {
                output::note(&format!("not connected, trying again: {}\n", chain(&error)));
                continue;
            }
            Change::Gone { .. } => {
                output::note(&format!("! Function - {name} was deleted\n"));
                return Ok(Exit::Differs);
            }
            Change::Complete { .. } | Change::Unreadable { .. } | Change::Resumed => continue,
        };
        let lines = lines(&function);
        for line in lines.iter().filter(|line| !shown.contains(line)) {
            if on_stdout { output::print(line)? } else { output::note(line) }
        }
        shown = lines;
        match progress(&function, generation) {
            Progress::Waiting => {}
            Progress::Running => return Ok(Exit::Fine),
            Progress::Failed => return Ok(Exit::Differs),
        }
    }
}

/// Returns the conditions of a live object, in the order of the stages.
fn conditions(function: &Value) -> impl Iterator<Item = &Value> {
    let all = function["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    Type::ALL.into_iter().filter_map(move |kind| all.iter().find(|condition| condition["type"] == kind.as_str()))
}

fn lines(function: &Value) -> Vec<String> {
    let line = |condition: &Value| {
        let text = |field: &str| printable(condition[field].as_str().unwrap_or_default()).into_owned();
        format!("  {}  {}  {}  {}\n", text("type"), text("status"), text("reason"), text("message"))
    };
    conditions(function).map(line).collect()
}

/// The progress of a Function towards the applied generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// The Function may start to run.
    Waiting,
    /// The Function runs with the applied generation.
    Running,
    /// The Function cannot run without a change by the user.
    Failed,
}

/// Returns the progress, from the conditions of a generation. Conditions of older generations are ignored.
fn progress(function: &Value, generation: i64) -> Progress {
    let is_newer = |condition: &&Value| condition["observedGeneration"].as_i64().is_some_and(|seen| seen >= generation);
    let current: Vec<_> = conditions(function).filter(is_newer).collect();
    let all_true = current.iter().all(|condition| condition["status"] == "True");
    // Failed reads from Git are not final: they are retried, and the GitRepository may just have been applied.
    let is_final = |condition: &&Value| {
        condition["status"] == "False" && condition["reason"] != Reason::SourceUpdateFailed.as_str()
    };
    if current.iter().any(is_final) {
        Progress::Failed
    } else if all_true && current.len() == Type::ALL.len() {
        Progress::Running
    } else {
        Progress::Waiting
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(conditions: &[(&str, &str, i64)], expected: Progress) {
        let conditions: Vec<_> = conditions
            .iter()
            .map(|(kind, status, seen)| json!({"type": kind, "status": status, "observedGeneration": seen}))
            .collect();
        assert_eq!(progress(&json!({"status": {"conditions": conditions}}), 2), expected, "{conditions:?}");
    }

    #[test]
    fn waits_while_pods_serve_an_older_generation() {
        let (ready, built, running) = ("ConfigurationReady", "BuildReady", "Running");
        check(&[], Progress::Waiting);
        check(&[(running, "True", 1), (built, "True", 2), (ready, "True", 2)], Progress::Waiting);
        check(&[(running, "True", 1), (built, "False", 1), (ready, "True", 2)], Progress::Waiting);
        check(&[(running, "True", 1), (built, "Unknown", 2), (ready, "True", 2)], Progress::Waiting);
        check(&[(running, "True", 2), (built, "True", 2), (ready, "True", 2)], Progress::Running);
        check(&[(running, "True", 1), (built, "False", 2), (ready, "True", 2)], Progress::Failed);
        check(&[(running, "False", 3), (built, "True", 3), (ready, "True", 3)], Progress::Failed);
        let unread = json!({"type": ready, "status": "False", "reason": "SourceUpdateFailed", "observedGeneration": 2});
        assert_eq!(progress(&json!({"status": {"conditions": [unread]}}), 2), Progress::Waiting);
    }
}
