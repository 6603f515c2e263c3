//! Jobs and CronJobs.

use serde_json::{Value, json};

use super::fill::{Fill, Object, at, items, text};
use super::pod;
use super::pod_rules;
use super::{label_selector, rules};
use crate::status::Cause;

/// The label with a Job's UID on its pods, and its deprecated name.
const UID_LABELS: [&str; 2] = ["batch.kubernetes.io/controller-uid", "controller-uid"];
/// The label with a Job's name on its pods, and its deprecated name.
const NAME_LABELS: [&str; 2] = ["batch.kubernetes.io/job-name", "job-name"];

pub(super) fn default_job(job: &mut Object) {
    let Some(spec) = job.object("spec") else { return };
    pod::default_template(spec);
    let policy = spec.get("podFailurePolicy").is_some();
    let unlimited = spec.contains_key("backoffLimitPerIndex");
    if !spec.contains_key("completions") && !spec.contains_key("parallelism") {
        spec.value("completions", 1);
    }
    spec.value("parallelism", 1);
    spec.value("backoffLimit", if unlimited { i32::MAX } else { 6 });
    spec.text("completionMode", "NonIndexed");
    spec.value("suspend", false);
    spec.value("podReplacementPolicy", if policy { "Failed" } else { "TerminatingOrFailed" });
    spec.value("manualSelector", false);
    let labels = at(&spec["template"], &["metadata", "labels"]).clone();
    if labels.is_object()
        && let Some(metadata) = job.object("metadata")
    {
        metadata.value("labels", labels);
    }
}

/// Sets the defaults of a CronJob. The Job template only gets the defaults of pods.
pub(super) fn default_cron_job(cron: &mut Object) {
    let Some(spec) = cron.object("spec") else { return };
    spec.text("concurrencyPolicy", "Allow");
    spec.value("suspend", false);
    spec.value("successfulJobsHistoryLimit", 3);
    spec.value("failedJobsHistoryLimit", 1);
    let Some(template) = spec.object("jobTemplate") else { return };
    template.value("metadata", json!({}));
    if let Some(spec) = template.object("spec") {
        pod::default_template(spec);
    }
}

/// Sets the selector and template labels from the Job's UID and name.
pub(super) fn prepare_create(job: &mut Object) {
    job.insert("status".into(), json!({}));
    let name = text(job.get("metadata").unwrap_or(&Value::Null), &["name"]).to_owned();
    let uid = text(job.get("metadata").unwrap_or(&Value::Null), &["uid"]).to_owned();
    let Some(spec) = job.inner("spec") else { return };
    if spec.get("manualSelector") == Some(&Value::Bool(true)) {
        return;
    }
    let template = spec.get("template").map(|t| at(t, &["metadata", "labels"]).clone()).unwrap_or_default();
    spec.value("selector", json!({"matchLabels": {UID_LABELS[0]: uid}}));
    let add = |metadata: &mut Object| {
        if let Some(labels) = metadata.object("labels") {
            for key in UID_LABELS {
                labels.text(key, &uid);
            }
            for key in NAME_LABELS {
                labels.text(key, &name);
            }
        }
    };
    if let Some(metadata) = spec.inner("template").and_then(|t| t.object("metadata")) {
        add(metadata);
    }
    // In a real server, a Job without labels shares its template's label map, so the Job gets these four labels, too.
    if let Some(metadata) = job.object("metadata")
        && (metadata.get("labels").unwrap_or(&Value::Null) == &template)
    {
        add(metadata);
    }
}

/// Keeps the selector and generated labels if the new version lacks them.
pub(super) fn prepare_update(old: &Value, job: &mut Object) {
    let Some(spec) = job.inner("spec") else { return };
    let had = at(old, &["spec", "selector"]);
    if spec.get("selector").is_some() || had.is_null() {
        return;
    }
    spec.insert("selector".into(), had.clone());
    let labels = at(old, &["spec", "template", "metadata", "labels"]);
    if let Some(new) = spec.inner("template").and_then(|t| t.object("metadata")).and_then(|m| m.object("labels")) {
        for key in UID_LABELS.iter().chain(&NAME_LABELS) {
            if let Some(value) = labels.get(*key) {
                new.value(key, value.clone());
            }
        }
    }
}

pub(super) fn validate_job(job: &Value, old: Option<&Value>, causes: &mut Vec<Cause>) {
    let spec = &job["spec"];
    generated_selector(job, causes);
    rules::jobs::validate(spec, "spec", causes);
    if spec["selector"].is_null() {
        causes.push(Cause::required("spec.selector", ""));
    }
    if !label_selector::matches(&spec["selector"], at(spec, &["template", "metadata", "labels"])) {
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            at(spec, &["template", "metadata", "labels"]),
            why,
        ));
    }
    let Some(old) = old else { return };
    for field in ["completions", "selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"]
    {
        // Elastic indexed Jobs may change completions together with parallelism.
        let elastic =
            field == "completions" && spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
        if at(old, &["spec", field]) != &spec[field] && !elastic {
            causes.push(Cause::invalid(format!("spec.{field}"), &spec[field], "field is immutable"));
        }
    }
    template_change(&spec["template"], old, causes);
}

/// Validates a change of a Job's template. A suspended Job without active pods may change its scheduling fields and
/// resources.
fn template_change(template: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let (before, status) = (at(old, &["spec", "template"]), &old["status"]);
    let suspended = items(status, &["conditions"]).iter().any(|c| c["type"] == "Suspended" && c["status"] == "True");
    let idle = (status["startTime"].is_null() || suspended) && status["active"].as_i64().unwrap_or(0) == 0;
    if at(old, &["spec", "suspend"]) != true || !idle {
        if before != template {
            causes.push(Cause::invalid("spec.template", template, "field is immutable"));
        }
        return;
    }
    let mut allowed = before["spec"].clone();
    let new = &template["spec"];
    take(&mut allowed, new, &["nodeSelector", "tolerations", "schedulingGates"]);
    let mut affinity = at(before, &["spec", "affinity"]).as_object().cloned().map_or_else(|| json!({}), Value::Object);
    take(&mut affinity, &new["affinity"], &["nodeAffinity"]);
    let empty = affinity.as_object().is_some_and(Object::is_empty) && new["affinity"].is_null();
    let affinity = if empty { json!({}) } else { json!({"affinity": affinity}) };
    take(&mut allowed, &affinity, &["affinity"]);
    for list in ["containers", "initContainers"] {
        let wanted = items(new, &[list]);
        let Some(containers) =
            allowed.get_mut(list).and_then(Value::as_array_mut).filter(|all| all.len() == wanted.len())
        else {
            continue;
        };
        for (container, wanted) in containers.iter_mut().zip(wanted) {
            if container["name"] == wanted["name"] {
                take(container, wanted, &["resources"]);
            }
        }
    }
    if &allowed != new {
        causes.push(Cause::invalid("spec.template.spec", new, "field is immutable"));
    }
}

/// Copies fields from one object to another. A missing field is removed.
fn take(object: &mut Value, from: &Value, fields: &[&str]) {
    let Some(object) = object.as_object_mut() else { return };
    for field in fields {
        match from.get(*field) {
            Some(value) => object.insert((*field).to_owned(), value.clone()),
            None => object.remove(*field),
        };
    }
}

/// Validates that a generated selector was not changed.
fn generated_selector(job: &Value, causes: &mut Vec<Cause>) {
    let (spec, metadata) = (&job["spec"], &job["metadata"]);
    if spec["manualSelector"] == true || spec["selector"].is_null() || metadata["uid"].is_null() {
        return;
    }
    let values = [(UID_LABELS, &metadata["uid"]), (NAME_LABELS, &metadata["name"])];
    let pairs =
        values.iter().flat_map(|(names, value)| names.iter().map(|name| ((*name).to_owned(), (*value).clone())));
    let expected: Object = pairs.collect();
    if !label_selector::matches(&spec["selector"], &Value::Object(expected)) {
        let why = "`selector` not auto-generated";
        causes.push(Cause::invalid("spec.selector", &spec["selector"], why));
    }
}

pub(super) fn validate_cron_job(cron: &Value, causes: &mut Vec<Cause>) {
    let name = text(cron, &["metadata", "name"]);
    if name.len() > 52 {
        causes.push(Cause::invalid("metadata.name", &name.into(), "must be no more than 52 characters"));
    }
    let spec = &cron["spec"];
    let schedule = text(spec, &["schedule"]);
    if schedule.is_empty() {
        causes.push(Cause::required("spec.schedule", ""));
    } else if let Some(why) = schedule_fault(schedule) {
        causes.push(Cause::invalid("spec.schedule", &schedule.into(), &why));
    }
    if let Some(zone) = spec["timeZone"].as_str() {
        let faults = zone_faults(zone);
        causes.extend(faults.iter().map(|why| Cause::invalid("spec.timeZone", &zone.into(), why)));
    }
    for field in ["startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        if spec[field].as_i64().is_some_and(|n| n < 0) {
            causes.push(Cause::invalid(format!("spec.{field}"), &spec[field], "must be greater than or equal to 0"));
        }
    }
    let policy = text(spec, &["concurrencyPolicy"]);
    if !matches!(policy, "Allow" | "Forbid" | "Replace") {
        causes.push(Cause::not_supported("spec.concurrencyPolicy", &policy.into(), &["Allow", "Forbid", "Replace"]));
    }
    let job = at(spec, &["jobTemplate", "spec"]);
    rules::jobs::validate(job, "spec.jobTemplate.spec", causes);
    if !job["selector"].is_null() {
        let why = "`selector` will be auto-generated";
        causes.push(Cause::invalid("spec.jobTemplate.spec.selector", &job["selector"], why));
    }
    if job["manualSelector"] == true {
        let field = "spec.jobTemplate.spec.manualSelector";
        causes.push(Cause::not_supported(field, &true.into(), &["nil", "false"]));
    }
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// Returns the errors of a time zone name, which is case-sensitive.
fn zone_faults(zone: &str) -> Vec<String> {
    if zone.is_empty() {
        return vec!["timeZone must be nil or non-empty string".to_owned()];
    }
    let mut faults = Vec::new();
    if zone.eq_ignore_ascii_case("local") {
        let why = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        faults.push(why.to_owned());
    }
    let known = jiff::tz::TimeZone::get(zone).is_ok_and(|found| found.iana_name() == Some(zone)) || zone == "Local";
    if !known {
        faults.push(format!("unknown time zone {zone}"));
    }
    faults
}

/// Validates a cron schedule.
fn schedule_fault(schedule: &str) -> Option<String> {
    let schedule = match schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        Some(_) => return Some("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".to_owned()),
        None => schedule.trim(),
    };
    if let Some(duration) = schedule.strip_prefix("@every ")
        && !is_duration(duration)
    {
        return Some(format!("failed to parse duration {schedule}: time: invalid duration {duration:?}"));
    }
    if let Some(descriptor) = schedule.strip_prefix('@') {
        let known = ["yearly", "annually", "monthly", "weekly", "daily", "midnight", "hourly"].contains(&descriptor)
            || descriptor.starts_with("every ");
        return (!known).then(|| format!("unrecognized descriptor: {schedule}"));
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != 5 {
        return Some(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    let ranges: [(u32, u32, &[&str]); 5] = [(0, 59, &[]), (0, 23, &[]), (1, 31, &[]), (1, 12, &MONTHS), (0, 6, &DAYS)];
    fields.iter().zip(ranges).find_map(|(field, range)| field.split(',').find_map(|part| part_fault(part, range)))
}

fn part_fault(part: &str, (low, high, names): (u32, u32, &[&str])) -> Option<String> {
    let (range, step) = part.split_once('/').map_or((part, None), |(r, s)| (r, Some(s)));
    if let Some(step) = step {
        match step.parse::<u32>() {
            Ok(0) => return Some(format!("step of range should be a positive number: {part}")),
            Ok(_) => {}
            Err(_) => {
                return Some(format!(
                    "failed to parse int from {step}: strconv.Atoi: parsing \"{step}\": invalid syntax"
                ));
            }
        }
    }
    if matches!(range, "*" | "?") {
        return None;
    }
    let mut bounds: Vec<u32> = Vec::new();
    for bound in range.splitn(2, '-') {
        let number = names
            .iter()
            .position(|n| n.eq_ignore_ascii_case(bound))
            .and_then(|p| u32::try_from(p).ok().map(|p| p + low))
            .or_else(|| bound.parse().ok());
        match number {
            None => {
                return Some(format!(
                    "failed to parse int from {bound}: strconv.Atoi: parsing \"{bound}\": invalid syntax"
                ));
            }
            Some(n) if n < low => return Some(format!("beginning of range ({n}) below minimum ({low}): {part}")),
            Some(n) if n > high => return Some(format!("end of range ({n}) above maximum ({high}): {part}")),
            Some(n) => bounds.push(n),
        }
    }
    match bounds[..] {
        [first, last] if first > last => {
            Some(format!("beginning of range ({first}) beyond end of range ({last}): {part}"))
        }
        _ => None,
    }
}

/// Returns whether a string is a Go duration, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return true;
    }
    let units = ["ns", "us", "µs", "ms", "s", "m", "h"];
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let after = &rest[number..];
        let length = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        if !rest[..number].bytes().any(|b| b.is_ascii_digit()) || !units.contains(&&after[..length]) {
            return false;
        }
        rest = &after[length..];
    }
    !text.is_empty() && text != "-" && text != "+"
}

/// Fails on an invalid quantity in the pod template.
pub(super) fn check(object: &Value, path: &[&str]) -> Result<(), String> {
    pod_rules::check_quantities(at(object, path))
}

/// Returns whether a Job has completed or failed.
pub fn finished(job: &Value) -> bool {
    items(job, &["status", "conditions"])
        .iter()
        .any(|c| matches!(text(c, &["type"]), "Complete" | "Failed") && c["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_schedules() {
        for good in ["* * * * *", "*/5 0-12 1,15 jan-mar MON", "@hourly", "@every 5m", "0 0 * * 0"] {
            assert_eq!(schedule_fault(good), None, "{good}");
        }
        assert_eq!(schedule_fault("bogus").as_deref(), Some("expected exactly 5 fields, found 1: [bogus]"));
        assert_eq!(schedule_fault("61 * * * *").as_deref(), Some("end of range (61) above maximum (59): 61"));
        assert!(schedule_fault("a * * * *").is_some());
    }
}
