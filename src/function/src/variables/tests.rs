//! Every variable is parsed or reported.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::unknown::REFUSED;
use super::*;
use mainstay_object::cron::Cron;

fn from(variables: &[(&str, &str)]) -> Result<Settings, Vec<String>> {
    let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Settings::from_env(Settings::default(), variables).map_err(|all| all.iter().map(ToString::to_string).collect())
}

#[test]
fn without_variables_the_settings_are_the_shipped_ones() {
    assert_eq!(from(&[]), Ok(Settings::default()));
    assert_eq!(
        from(&[("PATH", "/bin"), ("MAINSTAY_IDENTITY", "x"), ("MAINSTAY_DEV_TOKEN", "x")]),
        Ok(Settings::default())
    );
    let empty: Vec<_> = VARIABLES.iter().map(|known| (known.name, "")).collect();
    assert_eq!(from(&empty), Ok(Settings::default()));
    let empty: Vec<_> = REFUSED.iter().map(|(name, _)| (*name, "")).collect();
    assert_eq!(from(&empty), Ok(Settings::default()));
}

#[test]
fn documented_defaults_are_the_shipped_ones() {
    for known in VARIABLES.iter().filter(|known| !known.default.is_empty()) {
        assert_eq!(from(&[(known.name, known.default)]), Ok(Settings::default()), "{}", known.name);
    }
}

#[test]
fn each_variable_has_a_form_and_a_meaning() {
    for known in VARIABLES {
        let is_sentence = known.meaning.starts_with(char::is_uppercase) && known.meaning.ends_with('.');
        assert!(!known.form.is_empty() && is_sentence, "{known:?}");
    }
}

#[test]
fn reads_the_variables_of_kyma_functions() {
    let settings = from(&[
        ("APP_FUNCTION_BUILD_MAX_SIMULTANEOUS_JOBS", "1"),
        ("APP_FUNCTION_REQUEUE_DURATION", "5m"),
        ("APP_FUNCTION_GIT_FETCH_REQUEUE_DURATION", "10s"),
        ("APP_FUNCTION_TARGET_CPU_UTILIZATION_PERCENTAGE", "80"),
        ("APP_FUNCTION_IMAGE_PULL_ACCOUNT_NAME", "serverless-function"),
        ("APP_FUNCTION_PACKAGE_REGISTRY_CONFIG_SECRET_NAME", "packages"),
        ("WEBHOOK_VALIDATION_RESERVED_ENVS", "A, B,"),
        ("WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_CPU", "20m"),
        ("WEBHOOK_DEFAULTING_RUNTIME", "python312"),
        ("WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_DEFAULT_PRESET", "many"),
        ("WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_PRESETS_MAP", r#"{"many":{"min":2,"max":9}}"#),
        (
            "WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_PRESETS_MAP",
            r#"{"M":{"requestCpu":"1","requestMemory":"1Gi","limitCpu":2,"limitMemory":"2Gi"}}"#,
        ),
    ])
    .unwrap();
    assert_eq!(settings.max_simultaneous_jobs, 1);
    assert_eq!((settings.requeue.as_secs(), settings.git_fetch_requeue.as_secs()), (300, 10));
    assert_eq!(settings.target_cpu_percentage, 80);
    assert_eq!(settings.service_account.as_deref(), Some("serverless-function"));
    assert_eq!(settings.package_registry_secret, "packages");
    assert_eq!(settings.reserved_env, ["A", "B"]);
    assert_eq!(settings.min_resources.cpu, Amount::from("20m"));
    assert_eq!(settings.default_runtime, "python312");
    assert_eq!(settings.replicas.fallback().unwrap().max, Some(9));
    assert_eq!(settings.resources.fallback().unwrap().limit_cpu, Some(Amount::from("2")));
}

#[test]
fn passes_proxies_on_but_no_login_for_one() {
    let settings = from(&[
        ("HTTPS_PROXY", "http://proxy.corp:3128"),
        ("http_proxy", "http://walker:hunter2@proxy.corp:3128"),
        ("NO_PROXY", "10.0.0.0/8,.svc"),
    ]);
    let passed_on = [("HTTPS_PROXY", "http://proxy.corp:3128"), ("NO_PROXY", "10.0.0.0/8,.svc")];
    assert_eq!(settings.unwrap().proxies, passed_on.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn reads_base_images_that_are_pinned() {
    let digest = "0".repeat(64);
    let json =
        format!(r#"{{"nodejs22":"docker.io/library/node@sha256:{digest}","*":"scratch","python312":"oci:/base"}}"#);
    let settings = from(&[("MAINSTAY_BASE_IMAGES", &json), ("MAINSTAY_PLATFORM", "linux/arm64")]).unwrap();
    assert_eq!(settings.base_images["*"], BaseImage::Scratch);
    assert_eq!(settings.base_images["python312"], BaseImage::Layout("/base".into()));
    assert_eq!(settings.base_images["nodejs22"].to_string(), format!("docker.io/library/node@sha256:{digest}"));
    assert_eq!(settings.platform, "linux/arm64");
}

#[test]
fn retention_of_images_is_nightly_unless_it_is_set_otherwise() {
    assert!(Settings::default().retention.schedule.is_some());
    let retention = |variables: &[(&str, &str)]| from(variables).unwrap().retention;
    assert_eq!(retention(&[("MAINSTAY_IMAGE_RETENTION", "off")]).schedule, None);
    let chosen = [
        ("MAINSTAY_IMAGE_RETENTION", "0 4 * * 0"),
        ("MAINSTAY_IMAGE_RETENTION_BUILDS", "5"),
        ("MAINSTAY_IMAGE_RETENTION_GRACE", "72h"),
    ];
    let chosen = retention(&chosen);
    assert_eq!(chosen.schedule, Cron::parse("0 4 * * 0", TimeZone::UTC).ok());
    assert_eq!((chosen.builds, chosen.grace), (5, Duration::from_secs(72 * 3600)));
}

#[test]
fn an_invalid_value_is_reported_with_the_name_of_its_variable() {
    for (name, value, why) in [
        ("APP_FUNCTION_BUILD_MAX_SIMULTANEOUS_JOBS", "0", "\"0\" is not an integer of at least 1"),
        ("APP_FUNCTION_BUILD_MAX_SIMULTANEOUS_JOBS", "many", "\"many\" is not an integer of at least 1"),
        ("MAINSTAY_BUILDER_IMAGE", "a b", "it must be one word"),
        ("MAINSTAY_BUILDER_IMAGE", " ", "it must be one word"),
        ("APP_FUNCTION_REQUEUE_DURATION", "5", "the unit is missing: write 5s, 5m or 5h"),
        ("MAINSTAY_GIT_INTERVAL", "0s", "it must be longer than 0s"),
        ("MAINSTAY_BUILD_TTL", "59s", "it must be at least 1m"),
        ("MAINSTAY_BUILD_TTL", "soon", "a duration must have a form such as 30s, 1m or 1h30m"),
        ("MAINSTAY_BUILD_DEADLINE", "999ms", "it must be at least 1s"),
        (
            "MAINSTAY_TRUST_REGISTRY",
            "true",
            "it is not a setting of Mainstay; remove it: only an image whose digest a build reported is run, whatever \
             the registry holds",
        ),
        (
            "APP_FUNCTION_FUNCTION_READY_REQUEUE_DURATION",
            "5m",
            "it is not a setting of Mainstay; remove it: a Function is reconciled on changes, not periodically",
        ),
        ("MAINSTAY_PLATFORM", "amd64", "\"amd64\" is not a platform such as linux/amd64"),
        ("WEBHOOK_DEFAULTING_RUNTIME", "cobol85", "there is no such runtime"),
        ("WEBHOOK_VALIDATION_FUNCTION_RESOURCES_MIN_REQUEST_CPU", "x", "\"x\" is not a quantity"),
        (
            "MAINSTAY_BASE_IMAGES",
            r#"{"nodejs22":"node:22"}"#,
            "nodejs22: \"node:22\": the image must be pinned by its digest: `repository@sha256:…`",
        ),
        (
            "MAINSTAY_BASE_SCHEDULE",
            "sometimes",
            "it has 1 fields; write five: minute, hour, day of the month, month, day of the week",
        ),
        (
            "MAINSTAY_IMAGE_RETENTION",
            "never",
            "it has 1 fields; write five: minute, hour, day of the month, month, day of the week",
        ),
        ("MAINSTAY_IMAGE_RETENTION_BUILDS", "0", "\"0\" is not an integer of at least 1"),
        ("MAINSTAY_IMAGE_RETENTION_GRACE", "1h", "it must be at least 2h"),
        ("MAINSTAY_BASE_IMAGES", r#"{"cobol85":"scratch"}"#, "there is no runtime \"cobol85\""),
        ("WEBHOOK_DEFAULTING_FUNCTION_REPLICAS_DEFAULT_PRESET", "XXL", "the preset \"XXL\" does not exist"),
    ] {
        assert_eq!(from(&[(name, value)]), Err(vec![format!("{name}: {why}")]), "{name}={value}");
    }
    let broken = from(&[("WEBHOOK_DEFAULTING_FUNCTION_RESOURCES_PRESETS_MAP", r#"{"M":{"requestCPU":"1"}}"#)]);
    assert!(broken.unwrap_err()[0].contains("unknown field `requestCPU`"));
    let lacking = from(&[("WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_PRESETS_MAP", r#"{"normal":{"requestCpu":"1"}}"#)]);
    assert_eq!(
        lacking,
        Err(vec![
            "WEBHOOK_DEFAULTING_BUILD_JOB_RESOURCES_DEFAULT_PRESET: the preset \"normal\" lacks a request or a limit"
                .into()
        ])
    );
}

#[test]
fn kaniko_needs_an_image_of_its_own_base_images_and_fit_arguments() {
    let image = ("APP_FUNCTION_BUILD_EXECUTOR_IMAGE", "ghcr.io/osscontainertools/kaniko:v1.28.5");
    let kaniko = ("MAINSTAY_BUILDER", "kaniko");
    let settings = from(&[kaniko, image, ("APP_FUNCTION_BUILD_EXECUTOR_ARGS", "--cache=true,--push-retry=3")]).unwrap();
    assert_eq!(settings.executor(), Some(image.1));
    assert_eq!(settings.executor_args, ["--cache=true", "--push-retry=3"]);
    assert_eq!(from(&[image, ("MAINSTAY_BUILDER", "mainstay")]).unwrap().executor(), None);
    let all = from(&[
        kaniko,
        ("APP_FUNCTION_BUILD_EXECUTOR_ARGS", "--insecure,--destination=x"),
        ("MAINSTAY_BASE_IMAGES", r#"{"*": "scratch"}"#),
    ]);
    let all = all.unwrap_err();
    assert_eq!(all.len(), 4, "{all:?}");
    for (mistake, expected) in all.iter().zip([
        "APP_FUNCTION_BUILD_EXECUTOR_ARGS: remove --insecure: it applies to all registries",
        "APP_FUNCTION_BUILD_EXECUTOR_ARGS: remove --destination: each build has its own",
        "MAINSTAY_BASE_IMAGES: *: Kaniko builds on images in registries only, and \"scratch\" is not one",
        "MAINSTAY_BUILDER: Kaniko needs the image of its executor: name one in APP_FUNCTION_BUILD_EXECUTOR_IMAGE, such as \
         ghcr.io/osscontainertools/kaniko:",
    ]) {
        assert!(mistake.starts_with(expected), "{mistake}");
    }
    // Mainstay's own builder ignores the arguments of Kyma's chart.
    assert!(from(&[("APP_FUNCTION_BUILD_EXECUTOR_ARGS", "--insecure,--skip-tls-verify")]).is_ok());
    for (name, value, why) in [
        ("MAINSTAY_BUILDER", "docker", "must be mainstay or kaniko"),
        ("APP_FUNCTION_BUILD_EXECUTOR_IMAGE", "kaniko", "it is not the name of an image, such as"),
        ("APP_FUNCTION_BUILD_EXECUTOR_ARGS", "[1]", "it is not a JSON list of strings"),
    ] {
        assert!(from(&[(name, value)]).unwrap_err()[0].starts_with(&format!("{name}: {why}")), "{name}={value}");
    }
}

#[test]
fn all_unknown_and_invalid_variables_are_reported_at_once() {
    let all = from(&[
        ("APP_FUNCTION_KSERVICE_NAME", "x"),
        ("APP_FUNCTION_REQUEUE_DURATION", "soon"),
        ("WEBHOOK_DEFAULTING_RUNTIMES", "x"),
    ])
    .unwrap_err();
    assert_eq!(all.len(), 3);
    assert_eq!(all[0], "APP_FUNCTION_KSERVICE_NAME: it is not a setting of Mainstay; remove it, or correct its name");
}

#[test]
fn an_unknown_variable_is_reported_with_the_most_similar_name() {
    for (name, meant) in [
        ("MAINSTAY_BASE_IMAGE", "MAINSTAY_BASE_IMAGES"),
        ("MAINSTAY_PLATFROM", "MAINSTAY_PLATFORM"),
        ("MAINSTAY_INTERVAL", "MAINSTAY_GIT_INTERVAL"),
        ("MAINSTAY_BUILDER_IMAGES", "MAINSTAY_BUILDER_IMAGE"),
        ("MAINSTAY_IDENTIY", "MAINSTAY_IDENTITY"),
        ("APP_FUNCTION_REQUEUE_DURATIONS", "APP_FUNCTION_REQUEUE_DURATION"),
        ("WEBHOOK_DEFAULTING_RUNTIMES", "WEBHOOK_DEFAULTING_RUNTIME"),
    ] {
        for value in ["x", ""] {
            let update = format!("{name}: it is not a setting of Mainstay; did you mean {meant}?");
            assert_eq!(from(&[(name, value)]), Err(vec![update]), "{name}={value}");
        }
    }
    for name in ["MAINSTAY_UNHEARD_OF", "MAINSTAY_LOG_LEVEL", "MAINSTAY_TCP_TIMEOUT"] {
        let update = format!("{name}: it is not a setting of Mainstay; remove it, or correct its name");
        assert_eq!(from(&[(name, "1")]), Err(vec![update]));
    }
    for (name, value) in [("MAINSTAY_PORT", "8080"), ("MAINSTAY_PACKAGE_REGISTRY", "https://npm.example.org")] {
        assert!(from(&[(name, value)]).is_err(), "{name}");
    }
    assert_eq!(from(&[("MAINSTAY", "x"), ("MAINSTAYX", "x"), ("mainstay_platform", "x")]), Ok(Settings::default()));
}

#[test]
fn variables_that_kubernetes_sets_for_services_are_ignored() {
    for service in ["APP", "MAINSTAY", "MAINSTAY_PLATFORM", "MAINSTAY_X_Y"] {
        for (protocol, scheme) in [("TCP", "tcp"), ("UDP", "udp"), ("SCTP", "sctp")] {
            let address = format!("{scheme}://10.0.0.1:8080");
            let links = [
                ("SERVICE_HOST", "10.0.0.1"),
                ("SERVICE_PORT", "8080"),
                ("SERVICE_PORT_HTTP", "8080"),
                ("PORT", &address),
                (&format!("PORT_8080_{protocol}"), &address),
                (&format!("PORT_8080_{protocol}_PROTO"), scheme),
                (&format!("PORT_8080_{protocol}_PORT"), "8080"),
                (&format!("PORT_8080_{protocol}_ADDR"), "10.0.0.1"),
            ];
            for (end, value) in links {
                let name = format!("{service}_{end}");
                assert_eq!(from(&[(&name, value)]), Ok(Settings::default()), "{name}={value}");
            }
        }
    }
    assert!(from(&[("APP_SECRET_MUTATING_WEBHOOK_PORT", "8443")]).is_err());
}

#[test]
fn the_image_of_builds_may_need_a_login() {
    let bundle = |value: &str| {
        let key = from(&[("MAINSTAY_BASE_CA", value)]).map(|settings| settings.base_ca.unwrap());
        key.map(|key| format!("{} {}", key.secret, key.key))
    };
    assert_eq!(bundle("corporate"), Ok("corporate ca.crt".to_owned()));
    assert_eq!(bundle("corporate/bundle.pem"), Ok("corporate bundle.pem".to_owned()));
    for wrong in ["a b", "/ca.crt", "corporate/", "corporate/../x", "corporate/.."] {
        assert!(bundle(wrong).unwrap_err()[0].starts_with("MAINSTAY_BASE_CA: "), "{wrong}");
    }
    let name = "MAINSTAY_IMAGE_PULL_SECRET";
    assert_eq!(from(&[(name, "harbor")]).unwrap().image_pull_secret.as_deref(), Some("harbor"));
    let refused = from(&[(name, "a/b")]).unwrap_err();
    assert!(refused[0].starts_with("MAINSTAY_IMAGE_PULL_SECRET: \"a/b\" is not the name of a Secret: "), "{refused:?}");
}
