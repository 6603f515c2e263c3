//! The status of a Function after a pass, and what of it is news.
//!
//! Invariant: equal facts give an equal status, so that nothing is written when nothing changed.
//! Invariant: `observedGeneration` moves in the same step that says of every condition whether it still holds.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::resolve::Warning;
use super::stage::{Record, Said};
use crate::api::Function;
use crate::api::function::FunctionStatus;
use crate::api::function_conditions::{self as conditions, Reason, Status, Type};

/// What a pass found out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// What was said, in order.
    pub said: Vec<Said>,
    /// Conditions that still are what was last said of them.
    pub affirmed: Vec<Type>,
    /// What is recorded of builds; `None`: the pass did not come to it.
    pub record: Option<Record>,
    /// Commit and tree of a Git Function.
    pub source: Option<(String, String)>,
    /// The runtime.
    pub runtime: Option<String>,
    /// What was noticed; `None`: the pass did not come to it.
    pub warnings: Option<Vec<Warning>>,
}

/// What of the warnings an earlier pass has not told. What the status holds was told, by whichever agent.
pub fn unheard<'p>(old: &FunctionStatus, pass: &'p Pass) -> impl Iterator<Item = &'p Warning> {
    let told = old.warnings.clone();
    pass.warnings.iter().flatten().filter(move |warning| !told.contains(&warning.to_string()))
}

/// The status after a pass, and what of it is news, in order.
pub fn after(old: &FunctionStatus, function: &Function, pass: &Pass, now: Timestamp) -> (FunctionStatus, Vec<Said>) {
    let generation = function.metadata.generation;
    let mut new = old.clone();
    let mut news = Vec::new();
    for said in &pass.said {
        if say(&mut new, said, generation, now) || said.done {
            news.push(said.clone());
        }
    }
    for kind in &pass.affirmed {
        if let Some(condition) = new.conditions.iter_mut().find(|condition| condition.type_ == kind.as_str()) {
            condition.observed_generation = generation;
        }
    }
    if old.observed_generation != generation {
        let message = match pass.record {
            None => "waits for the configuration to be right",
            Some(_) => "waits for what comes before it",
        };
        doubt(&mut new, message, generation, now);
    }
    new.observed_generation = generation;
    facts(&mut new, function, pass);
    if let Some(record) = &pass.record {
        builds(&mut new, record);
    }
    (new, news)
}

/// What a pass did not come to was said of an earlier generation, and is not known of this one. What runs goes on running.
fn doubt(status: &mut FunctionStatus, message: &str, generation: Option<i64>, now: Timestamp) {
    let first = status.conditions.first().map(|condition| condition.type_.clone());
    for kind in [Type::ConfigurationReady, Type::BuildReady] {
        let is_stale = conditions::find(&status.conditions, kind).is_some_and(|condition| {
            condition.observed_generation != generation && condition.status != Status::Unknown.as_str()
        });
        if is_stale {
            say(status, &Said::new(kind, Status::Unknown, Reason::Pending, message), generation, now);
        }
    }
    // What was said last stays first.
    status.conditions.sort_by_key(|condition| Some(&condition.type_) != first.as_ref());
}

/// Whether that is news.
fn say(status: &mut FunctionStatus, said: &Said, generation: Option<i64>, now: Timestamp) -> bool {
    let old = conditions::find(&status.conditions, said.condition).cloned();
    let same = old.as_ref().is_some_and(|old| {
        old.status == said.status.as_str() && old.reason == said.reason.as_str() && old.message == said.message
    });
    let speaks_of = if said.outdated { old.and_then(|old| old.observed_generation) } else { generation };
    if same {
        if let Some(condition) = status.conditions.iter_mut().find(|c| c.type_ == said.condition.as_str()) {
            condition.observed_generation = speaks_of;
        }
        return false;
    }
    conditions::set(&mut status.conditions, said.condition, said.status, said.reason, &said.message, speaks_of, now)
}

/// Longest text that is repeated from the specification, in bytes. An inline source may take most of the room that the
/// API server has for an object; twice it would not fit, and no status could be written at all.
const LONGEST_COPY: usize = 64 << 10;

fn copied(text: Option<&String>) -> Option<String> {
    text.filter(|text| text.len() <= LONGEST_COPY).cloned()
}

fn facts(status: &mut FunctionStatus, function: &Function, pass: &Pass) {
    let spec = &function.spec;
    if pass.source.is_none() && status.source.as_deref() != Some(&spec.source) {
        // The tree was another repository's.
        status.tree = None;
    }
    status.source = copied(Some(&spec.source));
    if pass.runtime.is_some() {
        status.runtime.clone_from(&pass.runtime);
    }
    if let Some(warnings) = &pass.warnings {
        status.warnings = warnings.iter().map(ToString::to_string).collect();
    }
    status.runtime_image_override = copied(spec.runtime_image_override.as_ref());
    if let Some((commit, tree)) = &pass.source {
        status.commit = Some(commit.clone());
        status.tree = Some(tree.clone());
        status.reference.clone_from(&spec.reference);
        status.base_dir.clone_from(&spec.base_dir);
    } else if pass.record.is_some() {
        // The source is not in Git any more.
        (status.commit, status.tree, status.reference, status.base_dir) = (None, None, None, None);
    }
}

fn builds(status: &mut FunctionStatus, record: &Record) {
    status.built.clone_from(&record.built);
    status.image.clone_from(&record.image);
    status.queue = record.queue.and_then(|queue| i64::try_from(queue).ok());
    status.retry_at = record.retry_at.map(Time);
    match &record.building {
        Some((tag, attempt)) => {
            status.building = Some(tag.clone());
            status.builds = Some(*attempt);
        }
        // How many it took stays to be seen.
        None => status.building = None,
    }
}

/// A merge patch that makes `old` say what `new` says: fields that went away are set to null.
pub fn patch(old: &FunctionStatus, new: &FunctionStatus) -> Value {
    let value = |status: &FunctionStatus| serde_json::to_value(status).unwrap_or_default();
    let (old, mut new) = (value(old), value(new));
    if let (Some(old), Some(new)) = (old.as_object(), new.as_object_mut()) {
        for key in old.keys() {
            new.entry(key.clone()).or_insert(Value::Null);
        }
        new.retain(|key, value| old.get(key) != Some(value));
    }
    serde_json::json!({ "status": new })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::FunctionSpec;

    #[test]
    fn a_warning_is_news_until_the_status_holds_it() {
        let warning = |reason, message: &str| Warning { reason, message: message.to_owned() };
        let with = |warnings: Option<Vec<Warning>>| Pass { warnings, ..Pass::default() };
        let function = Function::new("hello", FunctionSpec::default());
        let mut status = FunctionStatus::default();
        let mut told = |pass: Pass| {
            let news = unheard(&status, &pass).map(|warning| warning.message.clone()).collect::<Vec<_>>();
            (status, _) = after(&status, &function, &pass, Timestamp::UNIX_EPOCH);
            (news.concat(), status.warnings.join("|"))
        };
        let (a, b) = (warning("EnvIgnored", "a"), warning("PresetUnknown", "b"));
        let mut check = |pass: Option<Vec<Warning>>, news: &str, held: &str| {
            assert_eq!(told(with(pass)), (news.to_owned(), held.to_owned()));
        };
        check(Some(vec![a.clone()]), "a", "EnvIgnored: a");
        check(Some(vec![a.clone(), b.clone()]), "b", "EnvIgnored: a|PresetUnknown: b");
        check(None, "", "EnvIgnored: a|PresetUnknown: b");
        check(Some(vec![b.clone()]), "", "PresetUnknown: b");
        check(Some(vec![]), "", "");
        check(Some(vec![b]), "b", "PresetUnknown: b");
    }

    /// A status in which all is so of generation 1, then a pass for generation 2; each condition as it is then.
    fn next(pass: &Pass) -> [String; 3] {
        let mut function = Function::new("hello", FunctionSpec::default());
        function.metadata.generation = Some(1);
        let all = Type::ALL.map(|kind| Said::new(kind, Status::True, Reason::JobFinished, "m"));
        let first = Pass { said: all.to_vec(), record: Some(Record::default()), ..Pass::default() };
        let (old, _) = after(&FunctionStatus::default(), &function, &first, Timestamp::UNIX_EPOCH);
        function.metadata.generation = Some(2);
        let (new, _) = after(&old, &function, pass, Timestamp::UNIX_EPOCH);
        assert_eq!(new.observed_generation, Some(2));
        Type::ALL.map(|kind| {
            let condition = conditions::find(&new.conditions, kind).expect("all are said");
            format!("{} of {}", condition.status, condition.observed_generation.unwrap_or_default())
        })
    }

    #[test]
    fn what_a_pass_did_not_come_to_is_not_known_of_a_new_generation() {
        let said = |kind, status| vec![Said::new(kind, status, Reason::ApplyFailed, "m")];
        let record = Some(Record::default());
        let (wrong, runs) = ("False of 2", "True of 1");
        assert_eq!(Type::ALL.map(Type::as_str), ["ConfigurationReady", "BuildReady", "Running"]);
        let refused = Pass { said: said(Type::ConfigurationReady, Status::False), ..Pass::default() };
        assert_eq!(next(&refused), [wrong, "Unknown of 2", runs]);
        // The pass ended before it came to the build, or to anything.
        assert_eq!(next(&Pass { record: record.clone(), ..refused }), [wrong, "Unknown of 2", runs]);
        let nothing = Pass { record: record.clone(), ..Pass::default() };
        assert_eq!(next(&nothing), ["Unknown of 2", "Unknown of 2", runs]);
        // The old image serves, and is said to be the old generation's.
        let mut serves = said(Type::Running, Status::True);
        serves[0].outdated = true;
        let affirmed = vec![Type::ConfigurationReady, Type::BuildReady];
        let both = Pass { said: serves, affirmed: affirmed.clone(), record: record.clone(), ..Pass::default() };
        assert_eq!(next(&both), ["True of 2", "True of 2", runs]);
        let both = Pass { said: said(Type::Running, Status::True), affirmed, record, ..Pass::default() };
        assert_eq!(next(&both), ["True of 2"; 3]);
    }

    #[test]
    fn a_large_source_is_not_repeated() {
        let source = |bytes: usize| {
            let spec = FunctionSpec { source: "x".repeat(bytes), ..FunctionSpec::default() };
            let function = Function::new("hello", spec);
            let (status, _) = after(&FunctionStatus::default(), &function, &Pass::default(), Timestamp::UNIX_EPOCH);
            status.source.map(|source| source.len())
        };
        assert_eq!([source(10), source(1 << 20)], [Some(10), None]);
    }
}
