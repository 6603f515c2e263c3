//! Jobs, and the Job templates of CronJobs.

use super::{invalid, nonnegative};
use crate::kinds::hooks::{
    fill::{at, items, text},
    metadata::{NameRule, name_fault, qualified_faults},
    pod_rules::{self, Restarts, duplicate},
};
use crate::status::Cause;
use serde_json::Value;

/// Maximum parallelism and maximum failed indexes of an indexed Job.
const MOST_INDEXED: i64 = 100_000;

/// Validates the spec of a Job at `path`.
pub(in crate::kinds::hooks) fn validate(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let counts = ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"];
    nonnegative(path, spec, &counts, causes);
    nonnegative(path, spec, &["backoffLimitPerIndex", "maxFailedIndexes"], causes);
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        let why = "when maxFailedIndexes is specified";
        causes.push(Cause::required(format!("{path}.backoffLimitPerIndex"), why));
    }
    if let Some(manager) = spec["managedBy"].as_str() {
        prefixed_path(&format!("{path}.managedBy"), manager, causes);
    }
    completion_mode(spec, path, causes);
    for (index, rule) in items(spec, &["podFailurePolicy", "rules"]).iter().enumerate() {
        failure_rule(spec, rule, &format!("{path}.podFailurePolicy.rules[{index}]"), causes);
    }
    success_policy(spec, path, causes);
    let replacement = &spec["podReplacementPolicy"];
    let allowed: &[&str] =
        if spec["podFailurePolicy"].is_null() { &["Failed", "TerminatingOrFailed"] } else { &["Failed"] };
    if replacement.as_str().is_some_and(|given| !allowed.contains(&given)) {
        causes.push(Cause::not_supported(format!("{path}.podReplacementPolicy"), replacement, allowed));
    }
    pod_rules::validate_template(&spec["template"], &format!("{path}.template"), Restarts::Finishing, causes);
    let restart = at(spec, &["template", "spec", "restartPolicy"]);
    if !spec["podFailurePolicy"].is_null() && restart == "OnFailure" {
        let why = "only \"Never\" is supported when podFailurePolicy is specified";
        causes.push(Cause::invalid(format!("{path}.template.spec.restartPolicy"), restart, why));
    }
}

/// Validates a name such as `acme.io/foo`.
fn prefixed_path(field: &str, name: &str, causes: &mut Vec<Cause>) {
    if name.is_empty() {
        causes.push(Cause::required(field, ""));
        return;
    }
    let Some((prefix, path)) = name.split_once('/').filter(|(prefix, path)| !prefix.is_empty() && !path.is_empty())
    else {
        causes.push(Cause::invalid(field, &name.into(), "must be a domain-prefixed path (such as \"acme.io/foo\")"));
        return;
    };
    if let Some(why) = name_fault(prefix, NameRule::Subdomain) {
        causes.push(Cause::invalid(field, &prefix.into(), &why));
    }
    if path.contains(|c: char| c.is_whitespace() || c.is_control()) {
        causes.push(Cause::invalid(field, &path.into(), "Invalid path"));
    }
}

fn completion_mode(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let number = |field: &str| spec[field].as_i64();
    let mut too_much = |field: &str, why: String| {
        causes.push(Cause::invalid(format!("{path}.{field}"), &spec[field], &why));
    };
    match text(spec, &["completionMode"]) {
        "Indexed" => {
            if number("parallelism").is_some_and(|n| n > MOST_INDEXED) {
                let why = format!("must be less than or equal to {MOST_INDEXED} when completion mode is Indexed");
                too_much("parallelism", why);
            }
            let (completions, lost) = (number("completions"), number("maxFailedIndexes"));
            if completions.zip(lost).is_some_and(|(all, lost)| lost > all) {
                too_much("maxFailedIndexes", "must be less than or equal to completions".to_owned());
            }
            if lost.is_some_and(|n| n > MOST_INDEXED) {
                too_much("maxFailedIndexes", format!("must be less than or equal to {MOST_INDEXED}"));
            }
            if completions.is_none() {
                causes.push(Cause::required(format!("{path}.completions"), "when completion mode is Indexed"));
            }
        }
        "NonIndexed" | "" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"].iter().filter(|field| !spec[**field].is_null()) {
                too_much(field, "requires indexed completion mode".to_owned());
            }
        }
        other => {
            let field = format!("{path}.completionMode");
            causes.push(Cause::not_supported(field, &other.into(), &["NonIndexed", "Indexed"]));
        }
    }
}

fn failure_rule(spec: &Value, rule: &Value, here: &str, causes: &mut Vec<Cause>) {
    let known = ["Count", "FailIndex", "FailJob", "Ignore"];
    let (action, field) = (text(rule, &["action"]), format!("{here}.action"));
    match action {
        "" => causes.push(Cause::required(field, &valid_values(&known))),
        "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
            causes.push(Cause::invalid(field, &action.into(), "requires the backoffLimitPerIndex to be set"));
        }
        other if !known.contains(&other) => causes.push(Cause::not_supported(field, &action.into(), &known)),
        _ => {}
    }
    let codes = &rule["onExitCodes"];
    if !codes.is_null() {
        exit_codes(spec, codes, &format!("{here}.onExitCodes"), causes);
    }
    let conditions = items(rule, &["onPodConditions"]);
    for (index, pattern) in conditions.iter().enumerate() {
        let here = format!("{here}.onPodConditions[{index}]");
        let (kind, status) = (text(pattern, &["type"]), text(pattern, &["status"]));
        let faults = qualified_faults(kind);
        causes.extend(faults.iter().map(|why| Cause::invalid(format!("{here}.type"), &kind.into(), why)));
        let known = ["False", "True", "Unknown"];
        if status.is_empty() {
            causes.push(Cause::required(format!("{here}.status"), &valid_values(&known)));
        } else if !known.contains(&status) {
            causes.push(Cause::not_supported(format!("{here}.status"), &status.into(), &known));
        }
    }
    match (codes.is_null(), conditions.is_empty()) {
        (false, false) => {
            causes.push(invalid(here, "", "specifying both OnExitCodes and OnPodConditions is not supported"));
        }
        (true, true) => causes.push(invalid(here, "", "specifying one of OnExitCodes and OnPodConditions is required")),
        _ => {}
    }
}

fn valid_values(known: &[&str]) -> String {
    let quoted: Vec<String> = known.iter().map(|value| format!("{value:?}")).collect();
    format!("valid values: [{}]", quoted.join(" "))
}

fn exit_codes(spec: &Value, codes: &Value, here: &str, causes: &mut Vec<Cause>) {
    let (operator, field) = (text(codes, &["operator"]), format!("{here}.operator"));
    let known = ["In", "NotIn"];
    if operator.is_empty() {
        causes.push(Cause::required(field, &valid_values(&known)));
    } else if !known.contains(&operator) {
        causes.push(Cause::not_supported(field, &operator.into(), &known));
    }
    if let Some(name) = codes["containerName"].as_str() {
        let listed = |list: &str| items(spec, &["template", "spec", list]).iter().any(|c| c["name"] == name);
        if !listed("containers") && !listed("initContainers") {
            let why = "must be one of the container or initContainer names in the pod template";
            causes.push(Cause::invalid(format!("{here}.containerName"), &name.into(), why));
        }
    }
    let (values, field) = (items(codes, &["values"]), format!("{here}.values"));
    if values.is_empty() {
        causes.push(invalid(&field, "[]", "at least one value is required"));
    }
    for (index, value) in values.iter().enumerate() {
        let here = format!("{field}[{index}]");
        if operator == "In" && value == 0 {
            causes.push(Cause::invalid(&here, value, "must not be 0 for the In operator"));
        }
        if values[..index].contains(value) {
            causes.push(duplicate(here, value));
        }
    }
    if !values.is_sorted_by_key(Value::as_i64) {
        causes.push(Cause::invalid(field, &codes["values"], "must be ordered"));
    }
}

fn success_policy(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let policy = &spec["successPolicy"];
    if policy.is_null() {
        return;
    }
    let rules = items(policy, &["rules"]);
    if spec["completionMode"] != "Indexed" {
        let printed = |rule: &Value| {
            format!(
                "{{\"SucceededIndexes\":{},\"SucceededCount\":{}}}",
                rule["succeededIndexes"], rule["succeededCount"]
            )
        };
        let all: Vec<String> = rules.iter().map(printed).collect();
        let printed = format!("{{\"Rules\":[{}]}}", all.join(","));
        causes.push(invalid(format!("{path}.successPolicy"), &printed, "requires indexed completion mode"));
        return;
    }
    let field = format!("{path}.successPolicy.rules");
    if rules.is_empty() {
        let why = "at least one rules must be specified when the successPolicy is specified";
        causes.push(Cause::required(&field, why));
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    for (index, rule) in rules.iter().enumerate() {
        success_rule(rule, completions, &format!("{field}[{index}]"), causes);
    }
}

fn success_rule(rule: &Value, completions: i64, here: &str, causes: &mut Vec<Cause>) {
    let (indexes, count) = (&rule["succeededIndexes"], &rule["succeededCount"]);
    if indexes.is_null() && count.is_null() {
        let why = "at least one of succeededCount or succeededIndexes must be specified";
        causes.push(Cause::required(here, why));
    }
    let mut total = 0;
    if let Some(text) = indexes.as_str() {
        match indexes_of(text, completions) {
            Ok(found) => total = found,
            Err(why) => {
                let why = format!("error parsing succeededIndexes: {why}");
                causes.push(Cause::invalid(format!("{here}.succeededIndexes"), indexes, &why));
            }
        }
    }
    let Some(wanted) = count.as_i64() else { return };
    nonnegative(here, rule, &["succeededCount"], causes);
    let field = format!("{here}.succeededCount");
    if wanted > completions {
        let why = format!("must be less than or equal to {completions} (the number of specified completions)");
        causes.push(Cause::invalid(&field, count, &why));
    }
    if !indexes.is_null() && wanted > total {
        let why = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        causes.push(Cause::invalid(field, count, &why));
    }
}

/// Returns the number of indexes in a list such as `1,3-5`.
fn indexes_of(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let index = |text: &str| -> Result<i64, String> {
        let number = text.parse::<i32>();
        let number = number.map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if i64::from(number) >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number.into()) }
    };
    let (mut total, mut last) = (0, None::<i64>);
    for interval in text.split(',') {
        let limits: Vec<&str> = interval.split('-').collect();
        if limits.len() > 2 {
            return Err(format!(
                "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
            ));
        }
        let first = index(limits[0])?;
        if let Some(before) = last.filter(|before| *before >= first) {
            return Err(format!("non-increasing order, previous: {before}, current: {first}"));
        }
        let end = match limits.get(1) {
            Some(end) => index(end)?,
            None => first,
        };
        if limits.len() == 2 && end <= first {
            return Err(format!("non-increasing order, previous: {first}, current: {end}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}
