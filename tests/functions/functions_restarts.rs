//! A new agent with Functions of an earlier one: other settings, other base images, or no changes.

use devcluster::{
    Action, Call,
    verbs::delete::{DeleteOptions, Propagation},
};
use mainstay_function::{BaseImage, presets::ResourcesPreset};
use serde_json::{Value, json};

use mainstay_testkit::{
    functions::{Builds, DEPLOYMENTS, JOBS, Kind, PODS, inline},
    world::{NAMESPACE, World},
};

/// Returns the name of a base image; each digit gives a different name.
fn base_name(digit: &str) -> String {
    format!("registry.example.org/library/node@sha256:{}", digit.repeat(64))
}

fn base(digit: &str) -> BaseImage {
    BaseImage::parse(&base_name(digit)).unwrap()
}

/// Returns the number of all Jobs for the images of a Function.
fn jobs_of(builds: &Builds, function: &str) -> usize {
    let of = format!("/{NAMESPACE}_{function}:");
    builds.all().iter().filter(|(image, _)| image.contains(&of)).map(|(_, jobs)| jobs.len()).sum()
}

/// Returns the resource versions of a Function and its children of some kinds.
fn versions(world: &World, name: &str, kinds: &[Kind]) -> Vec<Value> {
    let children = kinds.iter().flat_map(|kind| world.children(name, *kind));
    let all = children.chain(world.function_now(name));
    all.map(|object| object["metadata"]["resourceVersion"].clone()).collect()
}

/// Returns the causes of a Function's Job.
fn cause(world: &World, name: &str) -> Value {
    world.child(name, JOBS)["metadata"]["annotations"]["mainstay.dev/build-cause"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_base_image_of_a_runtime_builds_its_functions_once_each_while_the_old_images_serve() {
    let mut world = World::with_functions().await;
    for (runtime, digit) in [("nodejs22", "1"), ("*", "2")] {
        world.functions.base_images.insert(runtime.to_owned(), base(digit));
    }
    let builds = world.builds();
    world.start();
    let affected = ["first", "second"];
    for name in affected {
        world.function(name, inline("1"));
    }
    // Another runtime, and a Function with its own base image.
    let mut spec = inline("1");
    spec["runtime"] = json!("python312");
    world.function("python", spec);
    let mut spec = inline("1");
    spec["runtimeImageOverride"] = json!(base_name("3"));
    world.function("own", spec);
    let all = ["first", "second", "python", "own"];
    for name in all {
        world.runs(name).await;
    }
    world.quiet().await;
    world.stop().await;
    let images = all.map(|name| world.function_status(name)["image"].clone());
    let untouched = |w: &World| ["python", "own"].map(|name| versions(w, name, &[JOBS, DEPLOYMENTS]));
    let serving = |w: &World| affected.map(|name| versions(w, name, &[DEPLOYMENTS])[0].clone());
    let (before, served) = (untouched(&world), serving(&world));

    world.functions.base_images.insert("nodejs22".to_owned(), base("4"));
    world.builds_wait();
    world.start();
    for (name, image) in affected.iter().zip(&images) {
        world.says(name, "BuildReady", "Unknown JobRunning").await;
        assert_eq!(cause(&world, name), "BASE");
        assert!(world.said(name, "Running").starts_with("True"), "the old image serves");
        assert_eq!(world.function_status(name)["image"], *image);
    }
    assert_eq!(serving(&world), served, "nothing is rolled out before it is built");
    world.builds_succeed();
    for (name, image) in affected.iter().zip(&images) {
        world.runs(name).await;
        assert_ne!(world.function_status(name)["image"], *image);
        let said = world.said(name, "BuildReady");
        assert!(said.ends_with("BASE)"), "{said}");
        assert_eq!(jobs_of(&builds, name), 2, "one for each base image");
    }
    world.quiet().await;
    world.stop().await;
    let settled = all.map(|name| versions(&world, name, &[JOBS, DEPLOYMENTS]));
    world.start();
    world.quiet().await;
    world.quiet().await;
    assert_eq!(untouched(&world), before, "what stands on another image is left alone");
    assert_eq!(all.map(|name| versions(&world, name, &[JOBS, DEPLOYMENTS])), settled);
    assert_eq!(all.map(|name| jobs_of(&builds, name)), [2, 2, 1, 1]);
}

/// Changes the base image of a Function, or removes it (null). The Function is built once, even if the agent ends
/// during the build, and then does not change any more.
async fn another_base(world: &mut World, builds: &Builds, image: Value) -> Value {
    let (before, jobs) = (world.function_status("hello")["image"].clone(), jobs_of(builds, "hello"));
    world.builds_wait();
    world.edit_function("hello", json!({"spec": {"runtimeImageOverride": image}}));
    let generation = world.function_now("hello").unwrap()["metadata"]["generation"].clone();
    let begun = |w: &World| {
        let status = w.function_status("hello");
        status["observedGeneration"] == generation && w.said("hello", "BuildReady").starts_with("Unknown JobRunning")
    };
    world.until_function("a build for it", begun).await;
    assert_eq!(cause(world, "hello"), "BASE");
    world.kill().await;
    world.start();
    world.builds_succeed();
    world.runs("hello").await;
    let after = world.function_status("hello")["image"].clone();
    assert_ne!(after, before);
    assert_eq!(world.function_status("hello")["runtimeImageOverride"], image);
    assert_eq!(jobs_of(builds, "hello"), jobs + 1, "one Job for one change");
    world.quiet().await;
    let settled = versions(world, "hello", &[JOBS, DEPLOYMENTS]);
    assert_eq!(settled.len(), 3, "one Job, one Deployment and the Function");
    world.stop().await;
    world.start();
    world.quiet().await;
    world.quiet().await;
    assert_eq!(versions(world, "hello", &[JOBS, DEPLOYMENTS]), settled);
    assert_eq!(jobs_of(builds, "hello"), jobs + 1, "a new agent builds nothing");
    after
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_base_image_of_its_own_that_comes_changes_and_goes_is_one_build_each_time() {
    let mut world = World::with_functions().await;
    let builds = world.builds();
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let own = world.function_status("hello")["image"].clone();
    let [one, two] = ["1", "2"].map(|digit| json!(base_name(digit)));
    let first = another_base(&mut world, &builds, one.clone()).await;
    let second = another_base(&mut world, &builds, two).await;
    assert_ne!(first, second);
    // An earlier image is identified by its tag, whatever was built in between.
    let tag = |image: &Value| image.as_str().unwrap().split('@').next().unwrap().to_owned();
    assert_eq!(tag(&another_base(&mut world, &builds, one).await), tag(&first));
    assert_eq!(tag(&another_base(&mut world, &builds, Value::Null).await), tag(&own));
    let all = builds.all();
    assert_eq!((all.len(), all.values().map(Vec::len).sum::<usize>()), (3, 5), "{all:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_of_presets_are_not_written_into_a_function_and_other_presets_build_nothing() {
    let mut world = World::with_functions().await;
    let builds = world.builds();
    world.start();
    let created = world.function("hello", json!({"source": "1"}));
    world.runs("hello").await;
    let as_created = |w: &World| {
        let now = w.function_now("hello").unwrap();
        let metadata = |object: &Value| {
            let metadata = &object["metadata"];
            (metadata["generation"].clone(), metadata["labels"].clone(), metadata["annotations"].clone())
        };
        assert_eq!((&now["spec"], metadata(&now)), (&created["spec"], metadata(&created)));
    };
    as_created(&world);
    assert_eq!(created["metadata"]["generation"], 1);
    assert_eq!(created["spec"], json!({"source": "1"}));
    assert_eq!(world.function_status("hello")["runtime"], "nodejs22", "what it has is told in its status");
    let requested = |w: &World, kind: Kind| {
        let pod = w.child("hello", kind)["spec"]["template"]["spec"].clone();
        let all = ["initContainers", "containers"].into_iter().filter_map(|list| pod[list].as_array().cloned());
        all.flatten().map(|container| container["resources"]["requests"]["cpu"].clone()).collect::<Vec<_>>()
    };
    assert_eq!((requested(&world, JOBS), requested(&world, DEPLOYMENTS)), (vec![json!("200m"); 2], vec![json!("50m")]));
    world.quiet().await;
    let settled = versions(&world, "hello", &[JOBS, DEPLOYMENTS]);

    // The operator raises the resources of builds, and changes the default runtime.
    world.stop().await;
    let preset = ResourcesPreset {
        request_cpu: Some("1500m".into()),
        request_memory: Some("1500Mi".into()),
        limit_cpu: Some("2".into()),
        limit_memory: Some("2Gi".into()),
    };
    world.functions.build_resources.unnamed = Some(preset);
    world.functions.default_runtime = "python313".to_owned();
    world.start();
    world.quiet().await;
    world.quiet().await;
    assert_eq!(versions(&world, "hello", &[JOBS, DEPLOYMENTS]), settled, "nothing is built or rolled out for it");
    as_created(&world);

    world.edit_function("hello", json!({"spec": {"source": "2"}}));
    world.runs("hello").await;
    assert_eq!(requested(&world, JOBS), vec![json!("1500m"); 2], "the next build has them");
    assert_eq!(requested(&world, DEPLOYMENTS), [json!("50m")]);
    assert_eq!(world.function_now("hello").unwrap()["spec"], json!({"source": "2"}));
    assert_eq!(jobs_of(&builds, "hello"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_job_is_deleted_and_nothing_is_built_again() {
    let mut world = World::with_functions().await;
    let builds = world.builds();
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let (image, job) = (world.function_status("hello")["image"].clone(), world.child_name("hello", JOBS));
    assert_eq!(world.child("hello", JOBS)["spec"]["ttlSecondsAfterFinished"], 3600);
    // As the cluster's TTL controller does.
    let how = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
    let call = Call::new(JOBS.0, JOBS.1, NAMESPACE, &job, Action::Delete(how));
    world.try_as("kube-controller-manager", call).unwrap();
    let gone = |w: &World| {
        let pods = w.children("hello", PODS);
        w.children("hello", JOBS).is_empty() && pods.iter().all(|pod| pod["spec"]["restartPolicy"] != "Never")
    };
    world.until_function("it and its pod are gone", gone).await;
    world.quiet().await;
    world.stop().await;
    world.start();
    world.quiet().await;
    world.edit_function("hello", json!({"spec": {"env": [{"name": "A", "value": "1"}]}}));
    world.runs("hello").await;
    assert!(gone(&world), "it does not come back");
    assert_eq!((world.function_status("hello")["image"].clone(), jobs_of(&builds, "hello")), (image, 1));
}
