//! Changed base images: built at the time of a schedule.

use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use mainstay_object::cron::Cron;

use super::*;

/// Returns a Function that was built on an empty base image. The base image of its runtime has changed; the schedule is
/// daily.
fn on_an_older_base() -> Case {
    let mut case = Case::new();
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    let Decision { record, image, .. } = case.decide();
    assert_eq!(record.moves_at, None);
    (case.status.built, case.status.image) = (record.built, image.map(|image| image.name));
    (case.children.jobs, case.children.pods) = (vec![], vec![]);
    case.settings.base_images.clear();
    case.settings.base_schedule = Some(Cron::parse("30 2 * * *", TimeZone::UTC).unwrap());
    case
}

#[test]
fn another_base_image_of_the_runtime_is_built_at_the_time_of_the_schedule_and_the_old_image_serves_until_then() {
    let mut case = on_an_older_base();
    let due: Timestamp = "2026-01-01T02:30:00Z".parse().unwrap();
    let decision = case.decide();
    assert_eq!((decision.record.moves_at, decision.requeue_after), (Some(due), Some(Duration::from_secs(8400))));
    assert!(
        message(&decision, Reason::JobFinished)
            .ends_with("it will be rebuilt on the new base image at 2026-01-01T02:30:00Z")
    );
    assert!(!words(&decision).contains(&"put Job".to_owned()));
    assert_eq!(decision.image.map(|image| image.name), case.status.image);

    // A restart or another reconcile keeps the time. An earlier schedule changes it.
    case.status.moves_at = Some(Time(due));
    case.now = due - jiff::SignedDuration::from_secs(60);
    assert_eq!(case.decide().record.moves_at, Some(due));
    let sooner = Cron::parse("* * * * *", TimeZone::UTC).unwrap();
    let daily = case.settings.base_schedule.replace(sooner);
    case.now -= jiff::SignedDuration::from_secs(600);
    assert_eq!(case.decide().record.moves_at, Some(case.now + jiff::SignedDuration::from_secs(60)));
    case.settings.base_schedule = daily;

    // A restarted agent builds an overdue image, even before the Function is queued.
    case.now = due + jiff::SignedDuration::from_secs(3600);
    case.admission = Admission::Absent;
    let decision = case.decide();
    assert_eq!((decision.in_queue, decision.record.moves_at), (true, Some(due)));
    case.admission = Admission::Admitted;
    let decision = case.decide();
    assert!(words(&decision).contains(&"put Job".to_owned()), "{:?}", words(&decision));
    case.job("k", 1, ended("Complete", "CompletionsReached"));
    case.pod("k", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    let decision = case.decide();
    assert_eq!(decision.record.moves_at, None);
    assert_eq!(decision.record.built.unwrap().tag, case.tag());
    assert_eq!(
        decision.image.map(|image| image.name),
        case.status.image,
        "it is the same image, and no pod is replaced"
    );
}

#[test]
fn changes_by_a_user_do_not_wait_for_the_schedule() {
    for change in [json!({"source": "2"}), json!({"runtimeImageOverride": format!("a/b@{DIGEST}")})] {
        let mut case = on_an_older_base();
        let mut spec = serde_json::to_value(&case.function.spec).unwrap();
        json_patch::merge(&mut spec, &change);
        case.function.spec = serde_json::from_value(spec).unwrap();
        let decision = case.decide();
        assert!(words(&decision).contains(&"put Job".to_owned()), "{change}: {:?}", words(&decision));
    }
    let mut case = on_an_older_base();
    case.settings.base_schedule = None;
    assert!(words(&case.decide()).contains(&"put Job".to_owned()), "without a schedule it is built at once");
}

#[test]
fn a_tag_is_resolved_again_at_each_time_of_the_schedule() {
    let mut case = on_an_older_base();
    case.function.spec.runtime_image_override = Some("a/b:1".to_owned());
    let first = case.tag();
    case.status.built.as_mut().unwrap().tag.clone_from(&first);
    case.job("j", 1, ended("Complete", "CompletionsReached"));
    case.pod("j", terminated("push", 0, &json!({"digest": DIGEST}).to_string()));
    case.status.built = case.decide().record.built;
    let decision = case.decide();
    assert_eq!(decision.requeue_after, Some(Duration::from_secs(8400)));
    assert!(!words(&decision).contains(&"put Job".to_owned()));
    case.now = "2026-01-01T02:29:59Z".parse().unwrap();
    assert_eq!(case.tag(), first);
    case.now = "2026-01-01T02:30:00Z".parse().unwrap();
    assert_ne!(case.tag(), first);
    assert!(words(&case.decide()).contains(&"put Job".to_owned()));
    case.settings.base_schedule = None;
    assert_eq!(
        case.tag(),
        {
            case.now += jiff::SignedDuration::from_hours(48);
            case.tag()
        },
        "without one it is never asked"
    );
}
