//! The commands of the README and the book in order: where and how each runs, and its output.

/// The environment of a sequence of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    /// A new clone, and a terminal beside `mainstay dev`.
    Demo,
    /// A cluster: install, uninstall, and install again.
    Cluster,
    /// `mainstay dev` with the example Functions.
    Functions,
    /// Not run here, with the reason.
    Elsewhere(&'static str),
}

/// One command.
pub(super) struct Row {
    pub(super) scene: Scene,
    /// The command in the README or the book.
    pub(super) command: &'static str,
    /// Script that prepares the reader's situation.
    pub(super) before: &'static str,
    /// Script to run instead: the same with existing names.
    pub(super) instead: Option<&'static str>,
    /// Texts that the output must contain.
    pub(super) expected: &'static [&'static str],
    /// Whether to repeat the command until the output is as expected.
    pub(super) repeated: bool,
    /// A command that shows the effect, and its final output.
    pub(super) effect: Option<(&'static str, &'static str)>,
}

impl Row {
    const fn new(scene: Scene, command: &'static str, expected: &'static [&'static str]) -> Self {
        Self { scene, command, before: "", instead: None, expected, repeated: false, effect: None }
    }
    const fn before(mut self, script: &'static str) -> Self {
        self.before = script;
        self
    }
    const fn instead(mut self, script: &'static str) -> Self {
        self.instead = Some(script);
        self
    }
    const fn repeated(mut self) -> Self {
        self.repeated = true;
        self
    }
    const fn effect(mut self, script: &'static str, expected: &'static str) -> Self {
        self.effect = Some((script, expected));
        self
    }
}

const fn demo(command: &'static str, expected: &'static [&'static str]) -> Row {
    Row::new(Scene::Demo, command, expected)
}

const fn cluster(command: &'static str, expected: &'static [&'static str]) -> Row {
    Row::new(Scene::Cluster, command, expected)
}

const fn functions(command: &'static str, expected: &'static [&'static str]) -> Row {
    Row::new(Scene::Functions, command, expected)
}

const fn elsewhere(command: &'static str, why: &'static str) -> Row {
    Row::new(Scene::Elsewhere(why), command, &[])
}

const SECOND: &str = "needs a second cluster; tests/sync/remote_clusters.rs has one";
const FUZZING: &str = "needs a nightly toolchain, and takes as long as it is let";

/// In the order of the README and the book. `GIT_URL`, `HTTP_URL`, `MANIFESTS` and `PORT` are replaced at run time.
pub(super) const ROWS: &[Row] = &[
    // Quick start
    demo("cargo run -- dev", &["An embedded cluster is at http", "GitSync default/demo keeps it on ", "9 created"])
        .instead(
            "mainstay dev > dev.log 2>&1 & \
             until grep -q '9 created' dev.log; do sleep 0.1; done; cat dev.log",
        ),
    demo("export KUBECONFIG=$PWD/.mainstay/kubeconfig", &[]),
    demo(
        "kubectl get gitsyncs,deployments --all-namespaces",
        &["gitsync.mainstay.dev/demo", "deployment.apps/web", "deployment.apps/api"],
    ),
    demo("kubectl -n shop scale deployment web --replicas 5", &["deployment.apps/web scaled"])
        .effect("kubectl -n shop get deployment web -o jsonpath='{.spec.replicas}'", "2"),
    demo("kubectl -n shop delete service api", &["service \"api\" deleted"])
        .effect("kubectl -n shop get service api -o name", "service/api"),
    demo("cd .mainstay/demo", &[]),
    demo("sed -i 's/Welcome/Hello/' web/configmap.yaml && git commit -am 'say hello'", &["say hello", "1 file changed"])
        .effect("kubectl -n shop get configmap web -o jsonpath='{.data.GREETING}'", "Hello to the shop"),
    demo(
        "mainstay status",
        &[
            "GitSync default/demo\n",
            "9 managed, 9 healthy, 0 failed",
            "reverted    2 times",
            "after kubectl changed Deployment.apps shop/web: spec.replicas",
            "deleted Service shop/api",
        ],
    )
    .repeated(),
    // In a real cluster
    elsewhere(
        "docker build -f manifests/Dockerfile -t registry.example.com/mainstay:0.1.0 . && docker push \
         registry.example.com/mainstay:0.1.0",
        "needs Docker",
    ),
    cluster(
        "mainstay install --git-url git@github.com:team/shop.git --git-path apps --image registry.example.com/mainstay:0.1.0 |\n  \
         kubectl apply -f -",
        &["namespace/mainstay-system created", "deployment.apps/mainstay created"],
    )
    .instead(
        "mainstay install --git-url GIT_URL --name shop --known-hosts known_hosts --git-path apps \
         --image registry.example.com/mainstay:0.1.0 | kubectl apply -f -",
    ),
    cluster("mainstay identity", &["ssh-ed25519 "]),
    cluster("mainstay sync -n mainstay-system", &["GitSync mainstay-system/shop: commit ", "1 object, 1 healthy, 0 failed"]),
    cluster(
        "kubectl -n mainstay-system wait --for=condition=Ready gitsync/shop",
        &["gitsync.mainstay.dev/shop condition met"],
    ),
    elsewhere(".ci/test --install", "this is it"),
    cluster("mainstay install --values values.yaml --extra-arg=--audit-interval=2h", &["replicas: 2", "- --audit-interval=2h"])
        .before("echo '{git: {url: \"https://git.example.com/team/shop\"}, replicas: 2}' > values.yaml"),
    cluster(
        "mainstay install --git-url git@github.com:team/shop.git --image registry.example.com/mainstay:0.1.0 \\\n  --profile restricted \
         --kinds ConfigMap,Service,apps/Deployment --namespaces shop --target-namespace shop --egress-policy",
        &["name: mainstay-restricted", "name: mainstay-egress"],
    ),
    cluster("mainstay check", &["ok     GitRepository mainstay-system/shop: ", " answers: main is at "]),
    cluster("mainstay check --repository shop", &[" answers: main is at "]),
    cluster(
        "mainstay check --git-url git@github.com:team/shop.git --secret shop-git",
        &[" answers: "],
    )
    .instead("mainstay check --git-url GIT_URL --secret shop-git"),
    cluster("mainstay uninstall --dry-run", &["GitSync mainstay-system/shop will be deleted, its objects stay"])
        .effect("kubectl -n mainstay-system get gitsync shop -o name", "gitsync.mainstay.dev/shop"),
    cluster("mainstay uninstall", &["Namespace mainstay-system"])
        .instead("mainstay uninstall --yes")
        .effect("kubectl get configmap prices -o name", "configmap/prices"),
    elsewhere(
        "cd manifests && kustomize edit set image mainstay=registry.example.com/mainstay:0.1.0 && cd ..",
        "needs kustomize, and changes the checkout",
    ),
    cluster("kubectl apply -k manifests", &["deployment.apps/mainstay created", "namespace/mainstay-system created"])
        .before("until ! kubectl get namespace mainstay-system; do sleep 0.1; done")
        .instead("kubectl apply -k MANIFESTS"),
    elsewhere(
        "helm install mainstay manifests/chart -n mainstay-system --create-namespace \\\n  \
         --set git.url=git@github.com:team/shop.git --set 'git.paths={apps}' --set image=registry.example.com/mainstay:0.1.0",
        "another way to the same objects, which tests/cli/chart/releases.rs goes",
    ),
    cluster(
        "kubectl -n mainstay-system wait --for=condition=Ready gitsync/shop",
        &["gitsync.mainstay.dev/shop condition met"],
    )
    .before("sed 's|https://git.example.com/team/shop.git|HTTP_URL|' follow.yaml | kubectl apply -f -"),
    // Private repositories
    cluster(
        "kubectl -n mainstay-system create secret generic shop-git --from-literal=username=reader --from-literal=password=TOKEN",
        &["secret/shop-git created"],
    ),
    cluster(
        "kubectl -n mainstay-system create secret generic proxy --from-literal=address=http://proxy.example.com:3128 \\\n  \
         --from-literal=username=walker --from-literal=password=WORD",
        &["secret/proxy created"],
    ),
    cluster("ssh-keygen -t ed25519 -N '' -C mainstay -f shop-git", &["Your public key has been saved in shop-git.pub"]),
    cluster("ssh-keyscan git.example.com > known_hosts", &[])
        .instead("ssh-keyscan -p PORT 127.0.0.1 > known_hosts")
        .effect("ssh-keygen -lf known_hosts | grep -c ED25519", "1"),
    cluster(
        "kubectl -n mainstay-system create secret generic shop-git --from-file=key=shop-git --from-file=known_hosts",
        &["secret/shop-git created"],
    )
    .before("kubectl -n mainstay-system delete secret shop-git"),
    cluster(
        "kubectl -n mainstay-system create configmap mainstay-known-hosts --from-file=known_hosts --dry-run=client -o yaml |\n  \
         kubectl apply --server-side --force-conflicts -f -",
        &["configmap/mainstay-known-hosts serverside-applied"],
    ),
    // Webhooks
    cluster(
        "kubectl -n mainstay-system create secret generic hook --from-literal=token=$(openssl rand -hex 20)",
        &["secret/hook created"],
    ),
    cluster("kubectl -n mainstay-system get receiver shop -o jsonpath='{.status.url}'", &["/hook/"])
        .before("kubectl apply -f receiver.yaml && kubectl -n mainstay-system wait --for=condition=Ready receiver/shop")
        .instead("kubectl -n mainstay-system get receiver shop -o jsonpath='{.status.webhookPath}'"),
    demo("kubectl create secret generic hook --from-literal=token=$(openssl rand -hex 20)", &["secret/hook created"]),
    demo(
        "kubectl apply -f - <<< '{\"apiVersion\": \"mainstay.dev/v1alpha1\", \"kind\": \"Receiver\", \"metadata\": {\"name\": \"hook\"},\n  \
         \"spec\": {\"type\": \"generic\", \"secretRef\": {\"name\": \"hook\"}}}'",
        &["receiver.mainstay.dev/hook created"],
    ),
    demo("kubectl wait --for=condition=Ready receiver/hook", &["receiver.mainstay.dev/hook condition met"]),
    demo(
        "curl -X POST \"$(kubectl get receiver hook -o jsonpath='{.status.url}')\"",
        &["looking up the remote for GitSync demo"],
    ),
    // Signed commits
    cluster(
        "kubectl -n mainstay-system create secret generic shop-signers \\\n  \
         --from-file=alice.asc --from-file=bob.sshpub=id_ed25519.pub --from-file=team=allowed_signers",
        &["secret/shop-signers created"],
    )
    .before("cp shop-git.pub id_ed25519.pub && cp shop-git.pub alice.asc && cp shop-git.pub allowed_signers"),
    // Mirrors
    cluster(
        "kubectl -n mainstay-system apply -f - <<'EOF'\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata:\n  \
         name: mainstay-mirrors\nspec:\n  accessModes: [ReadWriteOnce]\n  resources:\n    requests:\n      storage: 2Gi\nEOF",
        &["persistentvolumeclaim/mainstay-mirrors created"],
    ),
    cluster(
        "kubectl -n mainstay-system patch deployment mainstay --patch '\nspec:\n  \
         strategy: {type: Recreate, rollingUpdate: null}\n  template:\n    spec:\n      \
         volumes: [{name: data, emptyDir: null, persistentVolumeClaim: {claimName: mainstay-mirrors}}]\n'",
        &["deployment.apps/mainstay patched"],
    )
    .effect(
        "kubectl -n mainstay-system get deployment mainstay \
         -o jsonpath='{.spec.template.spec.volumes[?(@.name==\"data\")].persistentVolumeClaim.claimName}'",
        "mainstay-mirrors",
    ),
    // Encrypted Secrets
    cluster("age-keygen -o keys.txt", &["age1"]).effect("grep -c AGE-SECRET-KEY keys.txt", "1"),
    cluster(
        "kubectl -n shop create secret generic sops-keys --from-file=keys.agekey=keys.txt",
        &["secret/sops-keys created"],
    )
    .before("kubectl create namespace shop"),
    cluster(
        "cat > .sops.yaml <<'.'\ncreation_rules:\n- path_regex: .*\\.secret\\.yaml\n  \
         encrypted_regex: ^(data|stringData)$\n  age: age1…\n.",
        &[],
    ),
    cluster("sops --encrypt --in-place apps/db.secret.yaml", &[])
        .before(
            "mkdir -p apps && kubectl create secret generic db --from-literal=password=words --dry-run=client -o yaml \
             > apps/db.secret.yaml && sed -i \"s/age1…/$(age-keygen -y keys.txt)/\" .sops.yaml",
        )
        .effect("grep -c 'password: ENC' apps/db.secret.yaml", "1"),
    // Other clusters
    elsewhere("kubectl --context prod -n kube-system create serviceaccount mainstay", SECOND),
    elsewhere("kubectl --context prod create clusterrolebinding mainstay --clusterrole cluster-admin --serviceaccount kube-system:mainstay", SECOND),
    elsewhere("kubectl --context prod config view --raw --minify --flatten > prod.yaml", SECOND),
    elsewhere("kubectl --kubeconfig prod.yaml config unset users", SECOND),
    elsewhere("kubectl --kubeconfig prod.yaml config set-credentials mainstay --token \"$(kubectl --context prod -n kube-system create token mainstay --duration 8760h)\"", SECOND),
    elsewhere("kubectl --kubeconfig prod.yaml config set-context --current --user mainstay", SECOND),
    elsewhere("kubectl -n shop create secret generic prod --from-file value=prod.yaml", SECOND),
    // Drift
    demo("mainstay ignore-for deploy/web -n shop > rule.yaml", &["/spec/replicas"])
        .instead("mainstay ignore-for deploy/web -n shop > rule.yaml; test $? = 1 && cat rule.yaml"),
    demo(
        "kubectl patch gitsync shop -n mainstay-system --type merge --patch-file rule.yaml",
        &["gitsync.mainstay.dev/demo patched"],
    )
    .instead("kubectl patch gitsync demo -n default --type merge --patch-file rule.yaml")
    .effect("kubectl -n default get gitsync demo -o jsonpath='{.spec.ignore[0].paths[0]}'", "/spec/replicas"),
    // Pausing
    demo("mainstay pause deploy/web -n shop --for 30m", &["Deployment.apps shop/web is paused until "])
        .effect("mainstay status | grep -c 'Deployment.apps shop/web until '", "1"),
    demo("mainstay resume deploy/web -n shop", &["Deployment.apps shop/web"])
        .effect("mainstay status | grep -c 'Deployment.apps shop/web until ' || true", "0"),
    // Functions
    functions("cargo run -- dev examples/functions", &["function default/hello  Running  DeploymentReady"]).instead(
        "mainstay dev examples/functions > dev.log 2>&1 & \
         until grep -q 'default/hello  Running  DeploymentReady' dev.log; do sleep 0.2; done; \
         export KUBECONFIG=$PWD/.mainstay/kubeconfig; cat dev.log",
    ),
    functions(
        "curl \"http://$(kubectl get service hello -o jsonpath='{.spec.clusterIP}')/?name=Ada\"",
        &["Hello, Ada!"],
    )
    // As its comment states: only root may bind port 80.
    .instead(
        "address=$(kubectl get service hello -o jsonpath='{.spec.clusterIP}'); \
         curl -sS \"http://$address/?name=Ada\" || curl -sS \"http://$address:8080/?name=Ada\"",
    ),
    functions("kubectl get functions", &["CONFIGURED", "hello", "nodejs22"]),
    functions(
        "kubectl logs -l serverless.kyma-project.io/function-name=hello,serverless.kyma-project.io/resource=deployment",
        &["Listening on"],
    )
    .repeated(),
    functions("kubectl describe function hello", &["DeploymentReady"]),
    functions(
        "kubectl exec \"$(kubectl get deployment -l serverless.kyma-project.io/function-name=hello -o name)\" -- env",
        &["GREETING=Hello"],
    ),
    functions("kubectl port-forward service/hello 8000:80", &["Hello, Ada!"]).instead(
        "kubectl port-forward service/hello :80 > forward.log & \
         until port=$(sed -n 's/.*127.0.0.1:\\([0-9]*\\) .*/\\1/p' forward.log | head -1) && [ -n \"$port\" ]; do sleep 0.1; done; \
         curl -sS \"http://127.0.0.1:$port/?name=Ada\"",
    ),
    functions(
        "kubectl get --raw '/api/v1/namespaces/default/services/hello:80/proxy/?name=Ada'",
        &["Hello, Ada!"],
    ),
    functions("kubectl delete service hello", &["service \"hello\" deleted"])
        .effect("kubectl get service hello -o name", "service/hello"),
    // From a directory to a Function
    functions("mainstay function init --runtime python312 --dir shop", &["- Project generated in ", "/shop"])
        .effect("ls shop | tr '\\n' ' '", "config.yaml handler.py requirements.txt"),
    functions("mainstay function run -f shop/config.yaml --port 8000", &["hello world"]).instead(
        "mainstay function run -f shop/config.yaml --port 0 > run.log & \
         until port=$(sed -n 's/^Listening on .* //p' run.log) && [ -n \"$port\" ]; do sleep 0.1; done; \
         curl -sS \"http://127.0.0.1:$port/\"; kill -INT $!; wait $!",
    ),
    functions("mainstay function apply -f shop/config.yaml --dry-run -o yaml > shop.yaml", &[])
        .effect("kubectl apply --dry-run=server -o name -f shop.yaml", "function.serverless.kyma-project.io/shop"),
    functions(
        "mainstay function apply -f shop/config.yaml --watch",
        &["- Function - shop created", "  Running  True  DeploymentReady"],
    )
    .effect(
        "address=$(kubectl get service shop -o jsonpath='{.spec.clusterIP}'); \
         curl -sS \"http://$address/\" || curl -sS \"http://$address:8080/\"",
        "hello world",
    ),
    functions("mainstay function sync shop --dir copy", &["- Function synchronised in "])
        .effect("diff -r shop copy && echo the same", "the same"),
    // Exposing a Function
    functions(
        "kubectl apply -f - <<'EOF'\napiVersion: gateway.kyma-project.io/v1alpha1\nkind: APIRule\nmetadata:\n  \
         name: hello\nspec:\n  gateway: kyma-gateway.kyma-system.svc.cluster.local\n  \
         service: {host: hello.localhost, name: hello, port: 80}\n  rules:\n    - path: /.*\n      \
         methods: [GET, POST, PUT, DELETE]\n      accessStrategies: [{handler: noop, config: {}}]\nEOF",
        &["apirule.gateway.kyma-project.io/hello created"],
    ),
    functions("kubectl get apirules hello -o jsonpath='{.status.APIRuleStatus.code}'", &["OK"]).repeated(),
    functions("curl \"http://hello.localhost:8080/?name=Ada\"", &["Hello, Ada!"])
        .instead(
            "port=$(sed -n 's/^Hosts of APIRules are served on port \\([0-9]*\\):.*/\\1/p' dev.log); \
             curl -sS \"http://hello.localhost:$port/?name=Ada\"",
        )
        .repeated(),
    functions("kubectl describe apirules hello", &["Exposed", "served at hello.localhost"]),
    functions("curl --cacert .mainstay/gateway-ca.pem \"https://hello.localhost:8443/?name=Ada\"", &["Hello, Ada!"]).instead(
        "port=$(sed -n 's/^Over HTTPS: .*:\\([0-9]*\\)$/\\1/p' dev.log); \
         curl -sS --cacert .mainstay/gateway-ca.pem \"https://hello.localhost:$port/?name=Ada\"",
    ),
    functions(
        "kubectl patch apirules.v1alpha1.gateway.kyma-project.io hello --type merge -p '{\"spec\": {\"rules\": [{\"path\": \"/.*\", \"methods\": [\"GET\"], \
         \"accessStrategies\": [{\"handler\": \"oauth2_introspection\", \"config\": {\"required_scope\": [\"read\"]}}]}]}}'",
        &["apirule.gateway.kyma-project.io/hello patched"],
    ),
    functions("curl http://hello.localhost:8080/", &["The request could not be authorized"])
        .instead(
            "port=$(sed -n 's/^Hosts of APIRules are served on port \\([0-9]*\\):.*/\\1/p' dev.log); \
             curl -sS http://hello.localhost:$port/",
        )
        .repeated(),
    functions(
        "curl -H \"Authorization: Bearer $(mainstay dev token --scope read)\" http://hello.localhost:8080/",
        &["Hello"],
    )
    .instead(
        "port=$(sed -n 's/^Hosts of APIRules are served on port \\([0-9]*\\):.*/\\1/p' dev.log); \
             curl -sS -H \"Authorization: Bearer $(mainstay dev token --scope read)\" http://hello.localhost:$port/",
    ),
    functions(
        "curl -H \"Authorization: Bearer $(mainstay dev token --scope write)\" http://hello.localhost:8080/",
        &["The requested action was forbidden"],
    )
    .instead(
        "port=$(sed -n 's/^Hosts of APIRules are served on port \\([0-9]*\\):.*/\\1/p' dev.log); \
             curl -sS -H \"Authorization: Bearer $(mainstay dev token --scope write)\" http://hello.localhost:$port/",
    ),
    // Bindings of services
    functions(
        "kubectl apply -f - <<'EOF'\napiVersion: servicecatalog.k8s.io/v1beta1\nkind: ServiceInstance\n\
         metadata: {name: redis}\nspec: {serviceClassExternalName: redis, servicePlanExternalName: micro}\n---\n\
         apiVersion: servicecatalog.k8s.io/v1beta1\nkind: ServiceBinding\nmetadata: {name: redis}\n\
         spec: {instanceRef: {name: redis}}\n---\napiVersion: servicecatalog.kyma-project.io/v1alpha1\n\
         kind: ServiceBindingUsage\nmetadata: {name: hello}\nspec:\n  serviceBindingRef: {name: redis}\n  \
         usedBy: {kind: serverless-function, name: hello}\n  parameters: {envPrefix: {name: REDIS_}}\nEOF",
        &["servicebindingusage.servicecatalog.kyma-project.io/hello created"],
    )
    .effect(
        "kubectl exec \"$(kubectl get deployment -l serverless.kyma-project.io/function-name=hello -o name)\" -- env | \
         grep REDIS_PORT",
        "REDIS_PORT=6379",
    ),
    functions(
        "kubectl get servicebindingusage hello -o jsonpath='{.status.conditions[0].status}'",
        &["True"],
    )
    .repeated(),
    functions("kubectl delete servicebindingusage hello", &["deleted"]).effect(
        "kubectl exec \"$(kubectl get deployment -l serverless.kyma-project.io/function-name=hello -o name)\" -- env | \
         grep -c REDIS_ || true",
        "0",
    ),
    // Events
    functions(
        "kubectl apply -f - <<'EOF'\napiVersion: eventing.knative.dev/v1alpha1\nkind: Trigger\nmetadata:\n  \
         name: hello\nspec:\n  broker: default\n  \
         filter: {attributes: {eventtypeversion: v1, source: shop, type: user.created}}\n  \
         subscriber: {ref: {apiVersion: v1, kind: Service, name: hello}}\nEOF",
        &["trigger.eventing.knative.dev/hello created"],
    ),
    functions("kubectl get triggers", &["hello", "True", "http://hello.default.svc.cluster.local/"]).repeated(),
    functions(
        "curl http://gateway.localhost:8080/shop/v1/events -d '{\"event-type\": \"user.created\", \
         \"event-type-version\": \"v1\", \"event-time\": \"2020-04-02T21:37:00Z\", \"data\": {\"name\": \"Ada\"}}'",
        &["event-id"],
    )
    .instead(
        "port=$(sed -n 's/^Hosts of APIRules are served on port \\([0-9]*\\):.*/\\1/p' dev.log); \
         curl -sS \"http://gateway.localhost:$port/shop/v1/events\" -d '{\"event-type\": \"user.created\", \
         \"event-type-version\": \"v1\", \"event-time\": \"2020-04-02T21:37:00Z\", \"data\": {\"name\": \"Ada\"}}'",
    ),
    // Settings
    elsewhere(
        "kubectl -n mainstay-system create configmap mainstay-settings \\\n  \
         --from-literal=webhook.values.function.resources.defaultPreset=L \\\n  \
         --from-literal=containers.manager.envs.functionBuildMaxSimultaneousJobs=8 \\\n  \
         --from-literal=MAINSTAY_BASE_IMAGES='{\"nodejs22\": \"docker.io/library/node@sha256:…\"}'",
        "the digest is left out: `operator_settings` has such a ConfigMap",
    ),
    // Working on it
    elsewhere("cargo install cargo-fuzz --locked", FUZZING),
    elsewhere("cp Cargo.lock tests/fuzz/ && mkdir -p tests/fuzz/corpus/TARGET", FUZZING),
    elsewhere(
        "cargo +nightly fuzz run --fuzz-dir tests/fuzz TARGET tests/fuzz/corpus/TARGET tests/fuzz/seeds/TARGET -- \
         -max_total_time=3600",
        FUZZING,
    ),
    elsewhere(
        "MAINSTAY_TEST_KUBECONFIG=~/.kube/config cargo test --test sync --test drift -- --test-threads 1 sync:: drift::",
        "runs these tests on another cluster",
    ),
    cluster(
        "kubectl delete namespaces,customresourcedefinitions,clusterroles,clusterrolebindings -l mainstay.dev/tests",
        &["No resources found"],
    ),
];
