//! The label selector of an object that has pods, as a query of the API server. The pods of a CronJob are those of its
//! Jobs.

use serde_json::Value;

/// Maximum number of requirements of a selector, and of values of a requirement.
const MOST: usize = 100;

/// The label of a Job's pods.
pub(crate) const JOB_NAME: &str = "batch.kubernetes.io/job-name";

/// Returns the name of a Job if a CronJob owns it.
pub(crate) fn job_of(cron_job: &Value, job: &Value) -> Option<String> {
    let uid = cron_job.pointer("/metadata/uid")?.as_str()?;
    let mut owners = job.pointer("/metadata/ownerReferences")?.as_array()?.iter();
    let is_its = owners.any(|owner| owner.get("uid").is_some_and(|owner| owner == uid));
    job.pointer("/metadata/name")?.as_str().filter(|name| is_its && word(name).is_some()).map(str::to_owned)
}

/// Returns the selector of an object with a pod template, such as a Deployment or a Job. `None` without one, and if a
/// part of the selector cannot be written as a query: an omitted part would select more pods.
pub(crate) fn selector_of(live: &Value) -> Option<String> {
    live.pointer("/spec/template")?;
    let selector = live.pointer("/spec/selector")?.as_object()?;
    // The selector of a ReplicationController is the labels themselves.
    let is_plain = live.get("kind").is_some_and(|kind| kind == "ReplicationController");
    let labels = if is_plain { Some(selector) } else { selector.get("matchLabels").and_then(Value::as_object) };
    let labels = labels.into_iter().flatten().map(|(label, value)| {
        let (label, value) = (word(label)?, value.as_str()?);
        (value.is_empty() || word(value).is_some()).then(|| format!("{label}={value}"))
    });
    let expressions = selector.get("matchExpressions").filter(|_| !is_plain).and_then(Value::as_array);
    let all: Option<Vec<String>> = labels.chain(expressions.into_iter().flatten().map(requirement)).collect();
    all.filter(|all| !all.is_empty() && all.len() <= MOST).map(|all| all.join(","))
}

fn requirement(one: &Value) -> Option<String> {
    let label = word(one.get("key")?.as_str()?)?;
    let values = one.get("values").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let values: Option<Vec<&str>> = values.iter().map(|value| value.as_str().and_then(word)).collect();
    let values = values.filter(|values| values.len() <= MOST)?.join(",");
    match one.get("operator")?.as_str()? {
        "In" => Some(format!("{label} in ({values})")),
        "NotIn" => Some(format!("{label} notin ({values})")),
        "Exists" => Some(label.to_owned()),
        "DoesNotExist" => Some(format!("!{label}")),
        _ => None,
    }
}

/// Returns a label or a value if it has only the characters of one.
fn word(text: &str) -> Option<&str> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    (!text.is_empty() && text.len() <= 320 && text.bytes().all(is_word)).then_some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_becomes_a_query() {
        let check = |selector: Value, expected: Option<&str>| {
            let live = json!({"kind": "Deployment", "spec": {"selector": selector, "template": {}}});
            assert_eq!(selector_of(&live).as_deref(), expected, "{selector}");
        };
        check(json!({"matchLabels": {"app": "web", "empty": ""}}), Some("app=web,empty="));
        let expressions = json!([
            {"key": "a", "operator": "In", "values": ["x", "y"]}, {"key": "b", "operator": "NotIn", "values": ["z"]},
            {"key": "c.d/e", "operator": "Exists"}, {"key": "f", "operator": "DoesNotExist"},
        ]);
        check(json!({"matchExpressions": expressions}), Some("a in (x,y),b notin (z),c.d/e,!f"));
        for refused in [
            json!({}),
            json!({"matchLabels": {"app": "web,b"}}),
            json!({"matchLabels": {"app": 3}}),
            json!({"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "a", "operator": "Near"}]}),
            json!({"matchExpressions": [{"key": "a) or (b", "operator": "Exists"}]}),
        ] {
            check(refused, None);
        }
    }

    #[test]
    fn a_cron_job_has_the_jobs_that_name_it_as_their_owner() {
        let cron_job = json!({"metadata": {"uid": "u"}});
        let job = |name: &str, uid: &str| {
            job_of(&cron_job, &json!({"metadata": {"name": name, "ownerReferences": [{"uid": "x"}, {"uid": uid}]}}))
        };
        assert_eq!(job("backup-1", "u").as_deref(), Some("backup-1"));
        assert_eq!([job("backup-1", "v"), job("a) or (b", "u"), job("", "u")], [None, None, None]);
        assert_eq!(job_of(&json!({}), &json!({"metadata": {"name": "a", "ownerReferences": [{}]}})), None);
    }

    #[test]
    fn an_object_without_pods_has_no_selector() {
        for live in [
            json!(null),
            json!({"kind": "Service", "spec": {"selector": {"app": "web"}}}),
            json!({"kind": "Deployment", "spec": {"selector": "app", "template": {}}}),
        ] {
            assert_eq!(selector_of(&live), None, "{live}");
        }
        let plain = json!({"kind": "ReplicationController", "spec": {"selector": {"app": "web"}, "template": {}}});
        assert_eq!(selector_of(&plain).as_deref(), Some("app=web"));
    }
}
