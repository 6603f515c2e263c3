//! Service bindings: Secrets that ServiceBindingUsages bind to Functions, with the service catalog of the embedded
//! cluster, or a simulation elsewhere.

use devcluster::verbs::patch::Form;
use devcluster::{Action, Call, service_catalog};
use serde_json::{Value, json};

use mainstay_testkit::definitions::definition;
use mainstay_testkit::drift::patch_as;
use mainstay_testkit::functions::{API, DEPLOYMENTS, JOBS, inline};
use mainstay_testkit::server::TestServer;
use mainstay_testkit::world::{NAMESPACE, World};

const INSTANCES: (&str, &str) = ("servicecatalog.k8s.io/v1beta1", "serviceinstances");
const BINDINGS: (&str, &str) = ("servicecatalog.k8s.io/v1beta1", "servicebindings");
const USAGES: (&str, &str) = ("servicecatalog.kyma-project.io/v1alpha1", "servicebindingusages");
const LATER_INSTANCES: (&str, &str) = ("services.cloud.sap.com/v1", "serviceinstances");
const LATER_BINDINGS: (&str, &str) = ("services.cloud.sap.com/v1", "servicebindings");
const DIGEST: &str = "mainstay.dev/secrets-digest";
const SOURCE: &str = "module.exports = { main: () => \"Redis port: \" + process.env.REDIS_PORT }";

/// Returns a world with a service catalog and simulated Functions. The agent does not run yet.
async fn world() -> World {
    with_catalog(World::with_functions().await)
}

fn with_catalog(world: World) -> World {
    let kinds = [INSTANCES, BINDINGS, USAGES, LATER_INSTANCES, LATER_BINDINGS];
    let name = |(version, plural): (&str, &str)| format!("{plural}.{}", version.split_once('/').unwrap().0);
    let all = kinds.map(|kind| definition(&name(kind), service_catalog::DEFINITIONS));
    world.define_only(all.to_vec());
    world
}

/// Returns such a world in which the Function `hello` runs and is bound.
async fn bound() -> World {
    bound_in(world().await).await
}

async fn bound_in(mut world: World) -> World {
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    world.instance("redis");
    world.binding("redis", json!({}));
    world.usage("hello", "redis", "hello");
    world.is_bound("hello").await;
    world
}

/// Helpers of these tests.
trait BindingWorld {
    fn make(&self, of: (&str, &str), kind: &str, name: &str, spec: Value) -> Value;
    fn instance(&self, name: &str);
    /// Makes bindings of existing instances ready with a Secret, like the service catalog of the embedded cluster.
    /// Other clusters have none.
    fn provision(&self);
    fn inject(&self, of: (&str, &str), binding: &Value, instance: &Value);
    /// Creates a binding to the instance `redis`.
    fn binding(&self, name: &str, spec: Value);
    fn usage(&self, name: &str, binding: &str, function: &str) -> Value;
    fn usage_says(&self, usage: &str) -> Value;
    /// Waits until a usage is ready and the pods of `hello` use the Secret.
    async fn is_bound(&self, usage: &str);
    /// Waits until a usage fails with this reason and message.
    async fn fails(&self, usage: &str, reason: &str, message: &str);
    fn template(&self) -> Value;
    /// Returns the environment sources of the pods of `hello`.
    fn sources(&self) -> Value;
    fn digest(&self) -> Value;
}

impl BindingWorld for World {
    fn make(&self, of: (&str, &str), kind: &str, name: &str, spec: Value) -> Value {
        let metadata = json!({"name": name, "namespace": NAMESPACE});
        self.create(
            of.0,
            of.1,
            NAMESPACE,
            json!({"apiVersion": of.0, "kind": kind, "metadata": metadata, "spec": spec}),
        )
    }

    fn instance(&self, name: &str) {
        let spec = json!({"serviceClassExternalName": "redis", "servicePlanExternalName": "micro"});
        self.make(INSTANCES, "ServiceInstance", name, spec);
        self.provision();
    }

    fn provision(&self) {
        let TestServer::External(_) = self.server else { return };
        for (bindings, instances, field) in [
            (BINDINGS, INSTANCES, "/spec/instanceRef/name"),
            (LATER_BINDINGS, LATER_INSTANCES, "/spec/serviceInstanceName"),
        ] {
            for binding in self.server.objects(bindings.0, bindings.1, Some(NAMESPACE)) {
                let named = binding.pointer(field).and_then(Value::as_str).unwrap();
                let Some(instance) = self.get(instances.0, instances.1, named) else { continue };
                if binding["status"]["conditions"][0]["status"] != "True" {
                    self.inject(bindings, &binding, &instance);
                }
            }
        }
    }

    fn inject(&self, of: (&str, &str), binding: &Value, instance: &Value) {
        let owner = |object: &Value, version: &str, kind: &str| {
            let (name, uid) = (&object["metadata"]["name"], &object["metadata"]["uid"]);
            json!([{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true}])
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, is_later) = (text(&binding["metadata"]["name"]), of == LATER_BINDINGS);
        let secret =
            [text(&binding["spec"]["secretName"]), name.clone()].into_iter().find(|name| !name.is_empty()).unwrap();
        if self.get("v1", "secrets", &secret).is_none() {
            let owners = owner(binding, of.0, "ServiceBinding");
            let metadata = json!({"name": secret, "namespace": NAMESPACE, "ownerReferences": owners});
            let mut data = json!({"HOST": "redis", "PORT": "6379", "REDIS_PASSWORD": "hunter2"});
            if is_later {
                let about = json!({"instance_guid": "1", "instance_name": "redis", "plan": "micro", "type": "redis"});
                json_patch::merge(&mut data, &about);
            }
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
            self.create("v1", "secrets", NAMESPACE, secret);
        }
        let owners = owner(instance, of.0, "ServiceInstance");
        self.edit(of.0, of.1, &name, json!({"metadata": {"ownerReferences": owners}}));
        let now = jiff::Timestamp::now();
        let condition = |kind: &str| {
            json!({
                "type": kind, "status": "True", "reason": "Injected", "message": "", "lastTransitionTime": format!("{now:.0}"),
            })
        };
        let status = if is_later {
            json!({"ready": "True", "conditions": [condition("Succeeded"), condition("Ready")]})
        } else {
            json!({
                "conditions": [condition("Ready")], "asyncOpInProgress": false, "lastConditionState": "Ready",
                "orphanMitigationInProgress": false, "reconciledGeneration": 1, "unbindStatus": "Required",
            })
        };
        let patch = Action::Patch(Form::Merge, json!({"status": status}));
        self.try_as("catalog", Call::new(of.0, of.1, NAMESPACE, &name, patch).on("status")).unwrap();
    }

    fn binding(&self, name: &str, mut spec: Value) {
        spec["instanceRef"] = json!({"name": "redis"});
        self.make(BINDINGS, "ServiceBinding", name, spec);
        self.provision();
    }

    fn usage(&self, name: &str, binding: &str, function: &str) -> Value {
        let spec = json!({
            "serviceBindingRef": {"name": binding}, "usedBy": {"kind": "serverless-function", "name": function},
            "parameters": {"envPrefix": {"name": "REDIS_"}},
        });
        self.make(USAGES, "ServiceBindingUsage", name, spec)
    }

    fn usage_says(&self, usage: &str) -> Value {
        let Some(usage) = self.get(USAGES.0, USAGES.1, usage) else { return Value::Null };
        usage["status"]["conditions"][0].clone()
    }

    async fn is_bound(&self, usage: &str) {
        self.until("the usage is Ready", |w| w.usage_says(usage)["status"] == "True").await;
        let has_it = |w: &World| !w.sources().is_null() && w.is_rolled_out("hello") && w.is_running("hello");
        self.until_function("its pods get the Secret", has_it).await;
    }

    async fn fails(&self, usage: &str, reason: &str, message: &str) {
        let is = |w: &World| {
            let ready = w.usage_says(usage);
            let says = ready["message"].as_str().unwrap_or_default().ends_with(message);
            ready["status"] == "False" && ready["reason"] == reason && says
        };
        self.until_or(&format!("it fails for {reason}"), is, || self.usage_says(usage).to_string()).await;
    }

    fn template(&self) -> Value {
        self.children("hello", DEPLOYMENTS).first().map_or(Value::Null, |child| child["spec"]["template"].clone())
    }

    fn sources(&self) -> Value {
        self.template()["spec"]["containers"][0]["envFrom"].clone()
    }

    fn digest(&self) -> Value {
        self.template()["metadata"]["annotations"][DIGEST].clone()
    }
}

fn redis() -> Value {
    json!([{"prefix": "REDIS_", "secretRef": {"name": "redis"}}])
}

/// The tutorial, step by step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tutorial_of_bindings_runs_and_unbinding_takes_it_back_without_a_build() {
    let mut world = with_catalog(World::with_processes().await);
    world.start();
    world.function("my-function", inline(SOURCE));
    world.answers("my-function", "200 Redis port: undefined").await;
    world.instance("redis");
    world.binding("my-function", json!({}));
    world.usage("my-function", "my-function", "my-function");
    world.until("the usage is Ready", |w| w.usage_says("my-function")["status"] == "True").await;
    world.answers("my-function", "200 Redis port: 6379").await;
    // A rebuild keeps the binding.
    world.edit_function("my-function", json!({"spec": {"source": SOURCE.replace("Redis", "The Redis")}}));
    world.answers("my-function", "200 The Redis port: 6379").await;
    world.runs("my-function").await;
    let builds = world.builds();
    world.delete(USAGES.0, USAGES.1, "my-function");
    world.answers("my-function", "200 The Redis port: undefined").await;
    assert_eq!(builds.most(), 0, "nothing is built for it");
    assert!(world.get("v1", "secrets", "my-function").is_some(), "the Secret stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_gets_the_secret_of_its_binding_and_the_usage_says_so() {
    let world = bound().await;
    assert_eq!(world.sources(), redis());
    let usage = world.get(USAGES.0, USAGES.1, "hello").unwrap();
    let condition = &usage["status"]["conditions"][0];
    assert_eq!((&condition["type"], condition.get("reason"), condition.get("message")), (&json!("Ready"), None, None));
    assert!(condition["lastUpdateTime"].is_string() && condition["lastTransitionTime"].is_string(), "{condition}");
    let owner = &usage["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("ServiceBinding"), &json!("redis")));
    // Several usages are ordered by name. A later usage takes precedence.
    world.binding("other", json!({"secretName": "of-another-name"}));
    world.usage("a-first", "other", "hello");
    let both = json!([{"prefix": "REDIS_", "secretRef": {"name": "of-another-name"}}, redis()[0]]);
    world.until_function("both are there", |w| w.sources() == both).await;
    world.is_bound("a-first").await;
    // A change of the prefix.
    let spec = json!({"spec": {"parameters": {"envPrefix": {"name": "CACHE_"}}}});
    world.edit(USAGES.0, USAGES.1, "a-first", spec);
    world.until_function("the prefix is the new one", |w| w.sources()[0]["prefix"] == "CACHE_").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_before_its_binding_and_its_function_fails_and_becomes_ready_unaided() {
    let mut world = world().await;
    world.start();
    world.usage("hello", "redis", "hello");
    let missing = "Process error during 1 attempt; while getting ServiceBinding \"redis\" from namespace \
                   \"mainstay-tests\": servicebinding.servicecatalog.k8s.io \"redis\" not found";
    world.fails("hello", "ServiceBindingGetError", missing).await;
    world.binding("redis", json!({}));
    let not_ready = "cannot use ServiceBinding \"mainstay-tests/redis\" which is not in ready state";
    world.fails("hello", "ServiceBindingNotReadyError", not_ready).await;
    world.instance("redis");
    let missing = "while ensuring proper labels on kind serverless-function: functions.serverless.kyma-project.io \
                   \"hello\" not found";
    world.fails("hello", "EnsureLabelsAppliedError", missing).await;
    world.function("hello", inline("1"));
    world.is_bound("hello").await;
    assert_eq!(world.sources(), redis());
    world.delete_function("hello");
    world.fails("hello", "EnsureLabelsAppliedError", missing).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bindings_survive_another_agent_a_rebuild_and_a_sync() {
    let mut world = world().await;
    let function = json!({"apiVersion": API, "kind": "Function", "metadata": {"name": "hello"}, "spec": inline("1")});
    world.remote.file("hello.yaml", serde_yaml::to_string(&function).unwrap()).commit("one");
    world.synced(json!({"wait": false})).await;
    world.instance("redis");
    world.binding("redis", json!({}));
    world.usage("hello", "redis", "hello");
    world.is_bound("hello").await;
    // Labels and an annotation of another controller are not drift.
    let theirs = json!({
        "metadata": {"annotations": {"servicebindingusages.servicecatalog.kyma-project.io/tracing-information": "{}"}},
        "spec": {"labels": {"use-5b0e": "7"}},
    });
    patch_as(&world, "binding-usage-controller", (API, "functions", "hello"), Form::Merge, theirs);
    let generation = |w: &World| w.child("hello", DEPLOYMENTS)["metadata"]["generation"].clone();
    world.until_function("its pods have the label", |w| w.template()["metadata"]["labels"]["use-5b0e"] == "7").await;
    world.runs("hello").await;
    let mut changed = function.clone();
    changed["spec"]["source"] = json!("2");
    world.remote.file("hello.yaml", serde_yaml::to_string(&changed).unwrap());
    let image = world.function_status("hello")["image"].clone();
    world.commit("demo", "another source").await;
    world.until_function("it is built", |w| w.function_status("hello")["image"] != image).await;
    world.runs("hello").await;
    assert_eq!((world.sources(), &world.template()["metadata"]["labels"]["use-5b0e"]), (redis(), &json!("7")));
    world.quiet().await;
    let before = (generation(&world), world.get(USAGES.0, USAGES.1, "hello"));
    world.kill().await;
    world.start();
    // The rebuild completes after all other work of the new agent.
    let image = world.function_status("hello")["image"].clone();
    world.edit_function("hello", json!({"metadata": {"annotations": {"mainstay.dev/rebuild": "1"}}}));
    world.until_function("it is built again", |w| w.function_status("hello")["image"] != image).await;
    world.runs("hello").await;
    world.quiet().await;
    let generations = generation(&world).as_i64().unwrap() - before.0.as_i64().unwrap();
    assert_eq!(generations, 1, "only the other image");
    assert_eq!((world.get(USAGES.0, USAGES.1, "hello"), world.sources()), (before.1, redis()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_value_restarts_the_pods_and_another_label_does_not() {
    let world = bound().await;
    let (digest, jobs) = (world.digest(), world.children("hello", JOBS).len());
    assert_eq!(digest.as_str().unwrap().len(), 32);
    world.quiet().await;
    let generation = world.child("hello", DEPLOYMENTS)["metadata"]["generation"].clone();
    world.edit("v1", "secrets", "redis", json!({"metadata": {"labels": {"seen": "yes"}}}));
    world.quiet().await;
    assert_eq!(world.child("hello", DEPLOYMENTS)["metadata"]["generation"], generation);
    world.set_secret("redis", json!({"REDIS_PASSWORD": "another one"}));
    world.until_function("the digest is another", |w| w.digest() != digest).await;
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), jobs, "nothing is built for it");
    assert!(!world.template().to_string().contains("another one"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_usage_hands_over_a_credential() {
    let world = bound().await;
    let refused = |what: &str| {
        format!(
            "holds the credentials for {what}: the code of a Function may not read them; give the ServiceBinding a Secret of \
             its own"
        )
    };
    // Refused: the registry's Secret by its name, and a generated SSH key by its label.
    world.set_secret("key", json!({"key": "hunter2"}));
    world.edit("v1", "secrets", "key", json!({"metadata": {"labels": {"mainstay.dev/generate": "ssh-key"}}}));
    world.binding("registry", json!({"secretName": "serverless-registry-config-default"}));
    world.binding("key", json!({}));
    world.usage("registry", "registry", "hello");
    world.usage("key", "key", "hello");
    world.fails("registry", "PodPresetUpsertError", &refused("the image registry")).await;
    world.fails("key", "PodPresetUpsertError", &refused("a Git repository (a key that the agent generated)")).await;
    world.quiet().await;
    assert_eq!(world.sources(), redis(), "what is allowed stays");
    // Names that are not valid in a pod are refused too.
    let spec = json!({
        "serviceBindingRef": {"name": "redis"}, "usedBy": {"kind": "serverless-function", "name": "hello"},
        "parameters": {"envPrefix": {"name": "A=B"}},
    });
    world.make(USAGES, "ServiceBindingUsage", "odd", spec);
    let odd = "spec.parameters.envPrefix.name: \"A=B\" cannot begin the name of an environment variable; letters, digits \
               and underscores can, up to 256";
    world.fails("odd", "PodPresetUpsertError", odd).await;
    assert!(world.is_running("hello"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_binding_takes_its_usages_along_and_an_instance_its_bindings() {
    let world = bound().await;
    world.delete(INSTANCES.0, INSTANCES.1, "redis");
    let is_gone = |w: &World, of: (&str, &str), name: &str| w.get(of.0, of.1, name).is_none();
    world.until("the binding is gone", |w| is_gone(w, BINDINGS, "redis")).await;
    world.until("the usage is gone", |w| is_gone(w, USAGES, "hello")).await;
    world.until("the Secret is gone", |w| is_gone(w, ("v1", "secrets"), "redis")).await;
    world.until_function("nothing is bound", |w| w.sources().is_null() && w.is_running("hello")).await;
    assert_eq!(world.children("hello", JOBS).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_another_controller_are_left_to_it() {
    let world = bound().await;
    // Another controller starts later than the agent and writes its own status.
    let condition = json!({"type": "Ready", "status": "True", "lastUpdateTime": "2020-01-01T00:00:00Z"});
    let theirs = json!({"status": {"conditions": [condition]}});
    world.usage("theirs", "missing", "hello");
    world.fails("theirs", "ServiceBindingGetError", "not found").await;
    patch_as(&world, "service-binding-usage-controller", (USAGES.0, USAGES.1, "theirs"), Form::Merge, theirs);
    world.until_function("the agent hands over nothing", |w| w.sources().is_null() && w.is_running("hello")).await;
    world.usage("another", "missing", "hello");
    world.quiet().await;
    assert_eq!(world.usage_says("another"), Value::Null);
    assert_eq!(world.usage_says("theirs")["lastUpdateTime"], "2020-01-01T00:00:00Z");
    // The same holds for usages with labels of the other controller.
    world.delete(USAGES.0, USAGES.1, "theirs");
    world.until_function("the agent serves it again", |w| w.sources() == redis()).await;
    world.fails("another", "ServiceBindingGetError", "not found").await;
    let label = format!("use-{}", world.uid(USAGES.0, USAGES.1, "hello"));
    world.edit_function("hello", json!({"spec": {"labels": {label: "7"}}}));
    world.until_function("the agent hands over nothing", |w| w.sources().is_null() && w.is_running("hello")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usages_cost_nothing_where_they_are_not_used_or_do_not_change() {
    let mut world = World::with_functions().await;
    world.define_only(Vec::new());
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    let watched =
        |w: &World, name: &str| w.levers().counts().iter().any(|c| c.verb == "watch" && c.resource.starts_with(name));
    assert!(!watched(&world, "servicebinding"));
    // Definitions that are created later count, too.
    let world = with_catalog(world);
    world.usage("hello", "redis", "hello");
    world.fails("hello", "ServiceBindingGetError", "not found").await;
    world.instance("redis");
    world.binding("redis", json!({}));
    world.is_bound("hello").await;
    world.quiet().await;
    // Earlier Events may still be pending.
    let asked = |w: &World| w.requests().into_iter().filter(|(what, _)| !what.contains("events")).collect::<Vec<_>>();
    let before = asked(&world);
    // An unrelated usage, and a binding without a relevant change.
    let spec = json!({"serviceBindingRef": {"name": "redis"}, "usedBy": {"kind": "deployment", "name": "web"}});
    world.make(USAGES, "ServiceBindingUsage", "of-a-deployment", spec);
    let call = Action::Patch(Form::Merge, json!({"metadata": {"labels": {"seen": "yes"}}}));
    world.try_as("somebody", Call::new(BINDINGS.0, BINDINGS.1, NAMESPACE, "redis", call)).unwrap();
    world.quiet().await;
    assert_eq!(asked(&world), before);
    assert_eq!(world.usage_says("of-a-deployment"), Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bindings_and_triggers_that_do_not_change_cost_no_request() {
    let world = world().await;
    world.define(definition("triggers.eventing.knative.dev", mainstay_eventing::DEFINITIONS));
    let mut world = bound_in(world).await;
    world.usage("too-early", "not-there", "hello");
    world.fails("too-early", "ServiceBindingGetError", "not found").await;
    let trigger = json!({
        "apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": {"name": "hello"},
        "spec": {"broker": "default", "subscriber": {"ref": {"apiVersion": "v1", "kind": "Service", "name": "hello"}}},
    });
    world.remote.file("trigger.yaml", trigger.to_string()).commit("a Trigger");
    // The Trigger never becomes healthy, because the world has no eventing.
    world.sync("demo", json!({"wait": false}));
    world.ready("demo").await;
    // Waits for Events, which are written up to a second later.
    world.is_silent_while(world.levers(), async || {}).await;
    assert!(world.get("eventing.knative.dev/v1", "triggers", "hello").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_usage_whose_status_is_refused_is_tried_seldom_whatever_changes() {
    const EDITS: u64 = 40;
    let mut world = world().await;
    world.start();
    world.function("hello", inline("1"));
    world.runs("hello").await;
    world.levers().fail_next(devcluster::fault_injection::Fault {
        verb: "patch".into(),
        resource: "servicebindingusages".into(),
        code: 403,
        message: "not today".into(),
        times: 1_000_000,
        ..Default::default()
    });
    let tried = |w: &World| {
        let counts = w.levers().counts();
        let of_usages =
            counts.iter().filter(|count| count.verb == "patch" && count.resource.starts_with("servicebindingusages"));
        of_usages.map(|count| count.count).sum::<u64>()
    };
    world.usage("hello", "redis", "hello");
    world.until("it is tried", |w| tried(w) > 0).await;
    let (begin, before) = (std::time::Instant::now(), tried(&world));
    for number in 0..EDITS {
        // Another binding each time, so that the message changes.
        world.edit(USAGES.0, USAGES.1, "hello", json!({"spec": {"serviceBindingRef": {"name": format!("b{number}")}}}));
        world.quiet().await;
    }
    // The first retries come after 200 ms, 400 ms, and so on; later ones after at least 5 s.
    let own = tried(&world) - before;
    let most = 6 + begin.elapsed().as_secs() / 5;
    assert!(own <= most, "{own} attempts within {:?}", begin.elapsed());
    world.levers().clear_faults();
    world.instance("redis");
    world.binding("redis", json!({}));
    world.edit(USAGES.0, USAGES.1, "hello", json!({"spec": {"serviceBindingRef": {"name": "redis"}}}));
    world.is_bound("hello").await;
}

/// The later form needs no usage, because the Function names the Secret itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_function_names_the_secret_of_a_later_binding_and_another_value_restarts_it() {
    let mut world = world().await;
    world.start();
    let spec = json!({"serviceOfferingName": "redis", "servicePlanName": "micro"});
    world.make(LATER_INSTANCES, "ServiceInstance", "redis", spec);
    world.make(LATER_BINDINGS, "ServiceBinding", "redis", json!({"serviceInstanceName": "redis"}));
    world.provision();
    let is_ready = |w: &World| w.get(LATER_BINDINGS.0, LATER_BINDINGS.1, "redis").unwrap()["status"]["ready"] == "True";
    world.until("the binding is ready", is_ready).await;
    let secret = world.get("v1", "secrets", "redis").unwrap();
    let keys: Vec<&String> = secret["data"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["HOST", "PORT", "REDIS_PASSWORD", "instance_guid", "instance_name", "plan", "type"]);
    let mut spec = inline("1");
    spec["env"] = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "redis", "key": "PORT"}}}]);
    spec["secretMounts"] = json!([{"secretName": "redis", "mountPath": "/var/redis"}]);
    world.function("hello", spec);
    world.runs("hello").await;
    world.quiet().await;
    let (digest, generation) = (world.digest(), world.child("hello", DEPLOYMENTS)["metadata"]["generation"].clone());
    // Files are updated without a restart. A key that no variable uses causes no restart.
    world.set_secret("redis", json!({"HOST": "elsewhere"}));
    world.quiet().await;
    assert_eq!(
        (world.digest(), &world.child("hello", DEPLOYMENTS)["metadata"]["generation"]),
        (digest.clone(), &generation)
    );
    world.set_secret("redis", json!({"PORT": "6380"}));
    world.until_function("the digest is another", |w| w.digest() != digest).await;
    world.runs("hello").await;
    assert_eq!(world.children("hello", JOBS).len(), 1, "nothing is built for it");
    // A deleted Secret causes no restart, because running pods have its values.
    let digest = world.digest();
    world.delete(LATER_BINDINGS.0, LATER_BINDINGS.1, "redis");
    world.until("the Secret is gone", |w| w.get("v1", "secrets", "redis").is_none()).await;
    world.quiet().await;
    assert_eq!(world.digest(), digest);
    // A new agent, which has never read the Secret, restarts no pods either.
    world.stop().await;
    world.start();
    world.edit_function("hello", json!({"spec": {"minReplicas": 2, "maxReplicas": 2}}));
    world.until_function("it is scaled", |w| w.child("hello", DEPLOYMENTS)["spec"]["replicas"] == 2).await;
    assert_eq!(world.digest(), digest);
}
