//! CronJobs: the Jobs that they create, and their status.

use serde_json::{Value, json};

use crate::world::{Answer, World, claim};

/// A CronJob that is due every second. The name of a Job contains the minute, so there is one Job per minute.
fn cron(name: &str, outcome: &str) -> Value {
    let pod = json!({
        "metadata": {"annotations": {"devcluster.dev/outcome": outcome}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]},
    });
    let template = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, "spec": {"backoffLimit": 0, "template": pod}});
    json!({"metadata": {"name": name}, "spec": {"schedule": "@every 1s", "jobTemplate": template}})
}

async fn until(w: &World, what: &str, done: impl Fn(&Answer) -> bool) -> Value {
    w.until(&w.path("batch/v1", "cronjobs/c"), what, done).await.body
}

#[test]
fn a_cron_job_makes_jobs_and_remembers_the_last() {
    claim(async |w| {
        let made = w.post(&w.path("batch/v1", "cronjobs"), cron("c", "")).await.code(201).body;
        let done = until(w, "a Job has succeeded", |a| a.body["status"]["lastSuccessfulTime"].is_string()).await;
        let scheduled = done["status"]["lastScheduleTime"].as_str().unwrap();
        let jobs = w.get(&w.path("batch/v1", "jobs")).await.ok();
        let job = &jobs["items"][0];
        let minute = jiff_minutes(
            job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"].as_str().unwrap(),
        );
        assert_eq!(job["metadata"]["name"], format!("c-{minute}"));
        assert_eq!((&job["metadata"]["labels"]["a"], &job["metadata"]["annotations"]["c"]), (&json!("b"), &json!("d")));
        assert_eq!(
            job["metadata"]["ownerReferences"],
            json!([{
                "apiVersion": "batch/v1", "kind": "CronJob", "name": "c", "uid": made["metadata"]["uid"],
                "controller": true, "blockOwnerDeletion": true,
            }])
        );
        assert!(scheduled >= made["metadata"]["creationTimestamp"].as_str().unwrap(), "{scheduled}");
        let name = job["metadata"]["name"].as_str().unwrap();
        assert_eq!(w.event("CronJob", "c", "SuccessfulCreate").await["message"], format!("Created job {name}"));
        let event = w.event("CronJob", "c", "SawCompletedJob").await;
        assert_eq!(event["message"], format!("Saw completed job: {name}, condition: Complete"));
        assert_eq!(event["source"]["component"], "cronjob-controller");
    });
}

/// Converts a time to minutes since 1970.
fn jiff_minutes(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_second() / 60
}

#[test]
fn a_running_job_is_in_the_list_of_its_cron_job() {
    claim(async |w| {
        w.post(&w.path("batch/v1", "cronjobs"), cron("c", "never-ready")).await.code(201);
        let live = until(w, "a Job runs", |a| a.body["status"]["active"][0].is_object()).await;
        let active = &live["status"]["active"][0];
        let name = active["name"].as_str().unwrap();
        let job = w.get(&w.path("batch/v1", &format!("jobs/{name}"))).await.ok();
        assert_eq!((&active["uid"], &active["namespace"]), (&job["metadata"]["uid"], &json!(w.ns)));
        assert_eq!((&active["apiVersion"], &active["kind"]), (&json!("batch/v1"), &json!("Job")));
        w.delete(&w.path("batch/v1", &format!("jobs/{name}")), json!({"propagationPolicy": "Background"}))
            .await
            .code(200);
        let gone = |a: &Answer| {
            a.body["status"]["active"].as_array().is_none_or(|list| list.iter().all(|job| job["uid"] != active["uid"]))
        };
        until(w, "the Job is no longer listed", gone).await;
        assert_eq!(w.event("CronJob", "c", "MissingJob").await["message"], format!("Active job went missing: {name}"));
    });
}

#[test]
fn a_job_that_still_runs_forbids_the_next_one_where_it_must_not_have_company() {
    claim(async |w| {
        let mut body = cron("c", "never-ready");
        body["spec"]["concurrencyPolicy"] = "Forbid".into();
        w.post(&w.path("batch/v1", "cronjobs"), body).await.code(201);
        let event = w.event("CronJob", "c", "JobAlreadyActive").await;
        let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
        assert_eq!((&event["message"], &event["type"]), (&json!(message), &json!("Normal")));
        let jobs = w.get(&w.path("batch/v1", "jobs")).await.ok();
        assert_eq!(jobs["items"].as_array().map(Vec::len), Some(1));
    });
}

#[test]
fn a_job_that_still_runs_makes_way_where_the_next_one_replaces_it() {
    claim(async |w| {
        let mut body = cron("c", "never-ready");
        body["spec"]["concurrencyPolicy"] = "Replace".into();
        w.post(&w.path("batch/v1", "cronjobs"), body).await.code(201);
        let first = w.event("CronJob", "c", "SuccessfulCreate").await;
        let name = first["message"].as_str().and_then(|text| text.strip_prefix("Created job ")).unwrap().to_owned();
        assert_eq!(w.event("CronJob", "c", "SuccessfulDelete").await["message"], format!("Deleted job {name}"));
    });
}

#[test]
fn a_suspended_cron_job_makes_no_jobs() {
    claim(async |w| {
        let mut body = cron("c", "");
        body["spec"]["suspend"] = true.into();
        w.post(&w.path("batch/v1", "cronjobs"), body).await.code(201);
        w.post(&w.path("batch/v1", "cronjobs"), cron("other", "")).await.code(201);
        let ran = |a: &Answer| a.body["status"]["lastSuccessfulTime"].is_string();
        w.until(&w.path("batch/v1", "cronjobs/other"), "another one has run", ran).await;
        let live = w.get(&w.path("batch/v1", "cronjobs/c")).await.ok();
        assert_eq!(live["status"], json!({}));
        w.merge(&w.path("batch/v1", "cronjobs/c"), json!({"spec": {"suspend": false}})).await.code(200);
        until(w, "it runs again", ran).await;
    });
}

#[test]
fn finished_jobs_go_when_there_are_too_many() {
    claim(async |w| {
        let mut body = cron("c", "");
        body["spec"]["successfulJobsHistoryLimit"] = 0.into();
        w.post(&w.path("batch/v1", "cronjobs"), body).await.code(201);
        until(w, "a Job has succeeded", |a| a.body["status"]["lastSuccessfulTime"].is_string()).await;
        let event = w.event("CronJob", "c", "SuccessfulDelete").await;
        assert!(event["message"].as_str().unwrap().starts_with("Deleted job c-"), "{event}");
        let none = |a: &Answer| a.body["items"] == json!([]);
        w.until(&w.path("v1", "pods"), "its pods are gone as well", none).await;
    });
}

#[test]
fn a_cron_job_that_cannot_work_is_refused() {
    claim(async |w| {
        let path = w.path("batch/v1", "cronjobs");
        let with = |field: &str, value: Value| {
            let mut body = cron("c", "");
            body["spec"][field] = value;
            body
        };
        for (body, cause) in [
            (with("schedule", "".into()), "FieldValueRequired spec.schedule: Required value"),
            (
                with("schedule", "61 * * * *".into()),
                "FieldValueInvalid spec.schedule: Invalid value: \"61 * * * *\": end of range (61) above maximum (59): 61",
            ),
            (
                with("schedule", "@never".into()),
                "FieldValueInvalid spec.schedule: Invalid value: \"@never\": unrecognized descriptor: @never",
            ),
            (
                with("timeZone", "Mars/Crater".into()),
                "FieldValueInvalid spec.timeZone: Invalid value: \"Mars/Crater\": unknown time zone Mars/Crater",
            ),
            (
                with("timeZone", "".into()),
                "FieldValueInvalid spec.timeZone: Invalid value: \"\": timeZone must be nil or non-empty string",
            ),
            (
                with("startingDeadlineSeconds", (-1).into()),
                "FieldValueInvalid spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                with("failedJobsHistoryLimit", (-1).into()),
                "FieldValueInvalid spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                with("concurrencyPolicy", "Never".into()),
                "FieldValueNotSupported spec.concurrencyPolicy: Unsupported value: \"Never\": supported values: \"Allow\", \"Forbid\", \"Replace\"",
            ),
            (
                cron(&"c".repeat(53), ""),
                &*format!(
                    "FieldValueInvalid metadata.name: Invalid value: \"{}\": must be no more than 52 characters",
                    "c".repeat(53)
                ),
            ),
        ] {
            let answer = w.post(&path, body).await.code(422);
            assert!(answer.causes().iter().any(|c| c == cause), "{cause}: {:?}", answer.causes());
        }
    });
}
