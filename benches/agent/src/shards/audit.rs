//! The writes of each agent, from the audit log of the API server.
//!
//! A record is that of a write of an object of the load if its response has the object's resource version. A write whose
//! version is already known changed nothing.
//!
//! Not here: the policy of the log (`tests/real/audit-shards.yaml`).

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
    io::{BufRead as _, BufReader, Seek as _, SeekFrom},
    path::Path,
};

use serde::Deserialize;

use super::{Error, changes::Cause, load::PREFIX, watch::number};
use crate::stand::NAMESPACE;

/// Prefix of the user name of a ServiceAccount.
const ACCOUNT: &str = "system:serviceaccount:";

/// The fields of a record that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    stage: String,
    #[serde(rename = "requestURI")]
    request_uri: String,
    verb: String,
    user: User,
    object_ref: Option<Reference>,
    response_status: Option<Status>,
    response_object: Option<Response>,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Deserialize)]
struct Reference {
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    code: u16,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
}

/// A successful write of an agent.
#[derive(Debug, PartialEq, Eq)]
enum Write {
    /// An object of the load was written, and had this version afterwards.
    Object { name: String, agent: String, version: u64 },
    /// Objects of the load were deleted.
    Deletion { name: String, agent: String },
    /// Another object was written.
    Other,
}

/// Reads a record. Returns `None` for a refused request, a dry run, and a user who is not an agent.
fn write(line: &str) -> Result<Option<Write>, serde_json::Error> {
    let record: Record = serde_json::from_str(line)?;
    let account = record.user.username.strip_prefix(ACCOUNT).and_then(|account| account.split_once(':'));
    let Some((NAMESPACE, agent)) = account else { return Ok(None) };
    let is_done = record.response_status.is_some_and(|status| (200..300).contains(&status.code));
    if record.stage != "ResponseComplete" || !is_done || record.request_uri.contains("dryRun=") {
        return Ok(None);
    }
    let (agent, verb) = (agent.to_owned(), &*record.verb);
    let object = record.object_ref.filter(|of| of.resource == "configmaps" && of.namespace == NAMESPACE);
    Ok(Some(match object {
        // A deletion of a collection names none.
        Some(of) if verb == "deletecollection" || verb == "delete" && of.name.starts_with(PREFIX) => {
            Write::Deletion { name: of.name, agent }
        }
        Some(of) if of.name.starts_with(PREFIX) => {
            let version = record.response_object.and_then(|object| object.metadata.resource_version);
            Write::Object { name: of.name, agent, version: number(version.as_deref()) }
        }
        _ => Write::Other,
    }))
}

/// The writes in an audit log.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// The writes of each object in the order of the log: the version and the agent.
    objects: HashMap<String, Vec<(u64, String)>>,
    deletions: Vec<String>,
    total: usize,
}

/// The result of an evaluation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Evaluation {
    /// Number of successful writes.
    pub total: usize,
    /// Number of writes of objects of the load.
    pub objects: usize,
    /// Number of these that changed nothing.
    pub unchanged: usize,
    /// Objects that two agents changed for one change, with the agents.
    pub contested: Vec<String>,
    /// Number of changes for which an agent applied an object that another one had changed, without an effect.
    pub applied_twice: usize,
    /// Changes for which the log has no write.
    pub missing: Vec<String>,
    /// Objects that an agent deleted.
    pub deletions: Vec<String>,
}

/// Returns the length of a log, at which the records of a measurement begin.
pub(super) fn length(path: &Path) -> Result<u64, Error> {
    std::fs::metadata(path).map(|file| file.len()).map_err(Error::Audit)
}

impl Log {
    /// Reads a log from an offset on.
    pub(super) fn read(path: &Path, from: u64) -> Result<Self, Error> {
        let mut file = File::open(path).map_err(Error::Audit)?;
        file.seek(SeekFrom::Start(from)).map_err(Error::Audit)?;
        let mut log = Self::default();
        for line in BufReader::new(file).lines() {
            if let Some(write) = write(&line.map_err(Error::Audit)?).map_err(Error::AuditRecord)? {
                log.add(write);
            }
        }
        Ok(log)
    }

    /// Returns the agents whose write of an object had this version as its result, in the order of the log. Only the first
    /// one changed the object.
    pub(super) fn writers(&self, name: &str, version: u64) -> Vec<&str> {
        let writes = self.objects.get(name).into_iter().flatten();
        writes.filter(|(written, _)| *written == version).map(|(_, agent)| agent.as_str()).collect()
    }

    fn add(&mut self, write: Write) {
        self.total += 1;
        match write {
            Write::Object { name, agent, version } => self.objects.entry(name).or_default().push((version, agent)),
            Write::Deletion { name, agent } => self.deletions.push(format!("{name} by {agent}")),
            Write::Other => {}
        }
    }

    /// Assigns each write to a change. `changes` has the beginnings of the changes of each object in order; the first
    /// change of each is its creation.
    pub(super) fn evaluate<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
        changes: &HashMap<String, Vec<(u64, Cause)>>,
    ) -> Evaluation {
        let mut evaluation =
            Evaluation { total: self.total, deletions: self.deletions.clone(), ..Evaluation::default() };
        for name in names {
            let begun = changes.get(name).map_or(&[] as &[_], Vec::as_slice);
            let writes = self.objects.get(name).map_or(&[] as &[_], Vec::as_slice);
            evaluation.object(name, begun, writes);
        }
        evaluation
    }
}

impl Evaluation {
    fn object(&mut self, name: &str, begun: &[(u64, Cause)], writes: &[(u64, String)]) {
        // The agents that changed the object for each change, and those that applied it.
        let mut effective: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        let mut applied: BTreeMap<usize, BTreeSet<&str>> = BTreeMap::new();
        // The edits' own versions are not those of agents.
        let edits = begun.iter().filter(|(_, cause)| *cause == Cause::Edit).map(|(version, _)| *version);
        let mut known: BTreeSet<u64> = edits.collect();
        self.objects += writes.len();
        for (version, agent) in writes {
            let change = begun.iter().filter(|(start, _)| start < version).count();
            applied.entry(change).or_default().insert(agent);
            if known.insert(*version) {
                effective.entry(change).or_default().insert(agent);
            } else {
                self.unchanged += 1;
            }
        }
        for change in 0..=begun.len() {
            match effective.get(&change) {
                None => self.missing.push(format!("{name}, change {change}")),
                Some(agents) if agents.len() > 1 => {
                    let agents: Vec<&str> = agents.iter().copied().collect();
                    self.contested.push(format!("{name}, change {change}: {}", agents.join(", ")));
                }
                agents => self.applied_twice += usize::from(agents != applied.get(&change)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "shared-00001-4";

    /// Formats a record as the API server does.
    fn record(agent: &str, version: u64) -> String {
        format!(
            r#"{{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/mainstay-bench/configmaps/{NAME}?fieldManager=mainstay","verb":"patch","user":{{"username":"system:serviceaccount:mainstay-bench:{agent}","groups":[]}},"objectRef":{{"resource":"configmaps","namespace":"mainstay-bench","name":"{NAME}","apiVersion":"v1"}},"responseStatus":{{"metadata":{{}},"code":200}},"responseObject":{{"kind":"ConfigMap","metadata":{{"name":"{NAME}","resourceVersion":"{version}"}}}}}}"#
        )
    }

    fn object(agent: &str, version: u64) -> Write {
        Write::Object { name: NAME.to_owned(), agent: agent.to_owned(), version }
    }

    fn evaluate(writes: &[(&str, u64)], changes: &[(u64, Cause)]) -> Evaluation {
        let mut log = Log::default();
        for (agent, version) in writes {
            log.add(object(agent, *version));
        }
        log.evaluate([NAME], &HashMap::from([(NAME.to_owned(), changes.to_vec())]))
    }

    #[test]
    fn records_of_successful_writes_by_agents_are_read() {
        let line = record("agent-001", 7);
        assert_eq!(write(&line).unwrap(), Some(object("agent-001", 7)));
        let deleted = line.replace(r#""verb":"patch""#, r#""verb":"delete""#);
        let deletion = Write::Deletion { name: NAME.to_owned(), agent: "agent-001".to_owned() };
        assert_eq!(write(&deleted).unwrap(), Some(deletion));
        for (from, to) in [(NAME, "mainstay-inventory-a"), ("\"configmaps\"", "\"secrets\"")] {
            assert_eq!(write(&line.replace(from, to)).unwrap(), Some(Write::Other), "{to}");
        }
        for (from, to) in [
            (r#""code":200"#, r#""code":409"#),
            ("ResponseComplete", "RequestReceived"),
            ("fieldManager=mainstay", "dryRun=All"),
            ("system:serviceaccount:mainstay-bench:agent-001", "kubernetes-admin"),
            ("system:serviceaccount:mainstay-bench:", "system:serviceaccount:other:"),
        ] {
            assert_eq!(write(&line.replace(from, to)).unwrap(), None, "{to}");
        }
        assert!(write("{").is_err());
    }

    #[test]
    fn a_write_is_found_by_its_version() {
        let mut log = Log::default();
        for (agent, version) in [("one", 5), ("two", 11), ("one", 11)] {
            log.add(object(agent, version));
        }
        assert_eq!((log.writers(NAME, 11), log.writers(NAME, 5)), (vec!["two", "one"], vec!["one"]));
        assert!(log.writers(NAME, 6).is_empty() && log.writers("other", 5).is_empty());
    }

    #[test]
    fn a_log_is_read_from_an_offset() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        std::fs::write(&path, format!("{}\n", record("agent-001", 3))).unwrap();
        let from = length(&path).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{before}{}\n", record("agent-002", 4))).unwrap();
        let log = Log::read(&path, from).unwrap();
        assert_eq!((log.total, &log.objects[NAME]), (1, &vec![(4, "agent-002".to_owned())]));
        assert_eq!(Log::read(&path, 0).unwrap().total, 2);
    }

    #[test]
    fn one_agent_for_each_change_is_no_contest() {
        let changes = [(10, Cause::Edit), (20, Cause::Commit)];
        let evaluation = evaluate(&[("one", 5), ("one", 11), ("two", 21)], &changes);
        assert_eq!(evaluation, Evaluation { total: 3, objects: 3, ..Evaluation::default() });
    }

    #[test]
    fn two_agents_that_change_an_object_for_one_change_are_named() {
        let evaluation = evaluate(&[("one", 5), ("two", 12), ("one", 11)], &[(10, Cause::Edit)]);
        assert_eq!(evaluation.contested, ["shared-00001-4, change 1: one, two"]);
        assert_eq!((evaluation.unchanged, evaluation.missing.len()), (0, 0));
        assert_eq!(evaluate(&[("one", 5), ("two", 6)], &[]).contested, ["shared-00001-4, change 0: one, two"]);
    }

    #[test]
    fn an_apply_without_an_effect_is_counted_separately() {
        let evaluation = evaluate(&[("one", 5), ("one", 11), ("two", 11), ("one", 11)], &[(10, Cause::Commit)]);
        assert_eq!((evaluation.contested.len(), evaluation.applied_twice, evaluation.unchanged), (0, 1, 2));
        // Such an apply after the edit does not revert it.
        let evaluation = evaluate(&[("one", 5), ("two", 10)], &[(10, Cause::Edit)]);
        assert_eq!((evaluation.unchanged, evaluation.missing), (1, vec!["shared-00001-4, change 1".to_owned()]));
    }

    #[test]
    fn a_commit_may_begin_at_the_version_of_the_last_write() {
        let evaluation = evaluate(&[("one", 5), ("two", 6)], &[(5, Cause::Commit)]);
        assert_eq!(evaluation, Evaluation { total: 2, objects: 2, ..Evaluation::default() });
    }

    #[test]
    fn a_change_without_a_write_is_missing_in_the_log() {
        assert_eq!(evaluate(&[("one", 5)], &[(10, Cause::Edit)]).missing, ["shared-00001-4, change 1"]);
        assert_eq!(evaluate(&[], &[]).missing, ["shared-00001-4, change 0"]);
    }
}
