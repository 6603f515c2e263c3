//! A packed chart of a chart repository, and Alerts about the GitSync that renders it.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path as UrlPath, State},
    http::StatusCode,
    routing::{get, post},
};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command, sync::watch, task::JoinHandle};

use super::{
    Error,
    observer::until_last,
    progress,
    stand::{DEADLINE, MANAGER, NAMESPACE},
    table::{Row, Target, duration},
    world::{SETTLED, World},
};

/// Number of objects of the chart.
const OBJECTS: usize = 300;
/// Number of Alerts in a namespace: the maximum. There are two namespaces.
const ALERTS: usize = 50;
/// Name of the chart, the HelmChart and the GitSync.
const NAME: &str = "packed";
/// Namespace of the Alerts that select nothing.
const OTHERS: &str = "mainstay-bench-alerts";
/// Target time until all services have the message about a new version.
const PROMISED: Duration = Duration::from_secs(5);
/// Metric of the agent that counts renders.
const RENDERS: &str = "mainstay_renders_total";

/// A chart repository that is also the service of all Providers.
struct Service {
    url: String,
    /// The Providers whose messages arrived.
    reported: watch::Receiver<HashSet<String>>,
    serving: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Served {
    directory: PathBuf,
    reported: watch::Sender<HashSet<String>>,
}

impl Service {
    async fn start(directory: &Path) -> Result<Self, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.map_err(Error::Start)?;
        let url = format!("http://{}", listener.local_addr().map_err(Error::Start)?);
        let (sender, reported) = watch::channel(HashSet::new());
        let router = Router::new()
            .route("/charts/{file}", get(file))
            .route("/hook/{provider}", post(message))
            .with_state(Arc::new(Served { directory: directory.to_owned(), reported: sender }));
        let serving = tokio::spawn(async move {
            // Ends with the benchmark.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, reported, serving })
    }
}

async fn file(State(served): State<Arc<Served>>, UrlPath(name): UrlPath<String>) -> Result<Vec<u8>, StatusCode> {
    fs::read(served.directory.join(name)).map_err(|_| StatusCode::NOT_FOUND)
}

async fn message(State(served): State<Arc<Served>>, UrlPath(provider): UrlPath<String>) {
    served.reported.send_modify(|reported| {
        reported.insert(provider);
    });
}

/// Measures all situations.
pub(super) async fn all(world: &mut World) -> Result<Vec<Row>, Error> {
    let directory = world.stand.directory().join("charts");
    fs::create_dir_all(&directory).map_err(Error::Load)?;
    let mut service = Service::start(&directory).await?;
    pack(&directory, "1.0.0").await?;
    progress("a packed chart");
    let mut rows = vec![first(world, &service).await?];
    progress("100 Alerts");
    rows.push(alerts(world, &service).await?);
    progress("a new version of the packed chart");
    pack(&directory, "1.1.0").await?;
    rows.push(upgraded(world, &mut service).await?);
    Ok(rows)
}

async fn first(world: &World, service: &Service) -> Result<Row, Error> {
    let before = world.stand.metric(RENDERS).await?;
    let mark = world.stand.mark().await?;
    let mut syncs = world.observe_syncs().await?;
    let start = Instant::now();
    let chart =
        json!({"repository": format!("{}/charts", service.url), "name": NAME, "version": "1.0.0", "insecure": true});
    apply(world, NAMESPACE, "HelmChart", NAME, chart).await?;
    apply(world, NAMESPACE, "GitSync", NAME, json!({"sourceRef": {"kind": "HelmChart", "name": NAME}})).await?;
    let wall = until_last(start, &syncs.all([(NAME.to_owned(), SETTLED.to_owned())].into(), DEADLINE).await?);
    let renders = world.stand.metric(RENDERS).await? - before;
    let situation = format!("a packed chart of {OBJECTS} objects from a chart repository, until its GitSync is Ready");
    world.stand.row(mark, situation, duration(wall), |_| vec![Target::new("1 render", renders == 1)]).await
}

async fn alerts(world: &World, service: &Service) -> Result<Row, Error> {
    let others = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHERS}});
    let namespaces = Api::<Namespace>::all(world.stand.client.clone());
    let how = PatchParams::apply(MANAGER).force();
    namespaces.patch(OTHERS, &how, &Patch::Apply(&others)).await.map_err(Error::Ask)?;
    let mark = world.stand.mark().await?;
    let start = Instant::now();
    for number in 0..ALERTS {
        let name = format!("{NAME}-{number:02}");
        let provider = json!({"type": "generic", "address": format!("{}/hook/{name}", service.url)});
        let alert = json!({"providerRef": {"name": name}, "eventSources": [{"kind": "GitSync", "name": NAME}]});
        for namespace in [NAMESPACE, OTHERS] {
            apply(world, namespace, "Provider", &name, provider.clone()).await?;
            apply(world, namespace, "Alert", &name, alert.clone()).await?;
        }
    }
    let wall = start.elapsed();
    let situation = format!("{} Providers and as many Alerts created", 2 * ALERTS);
    let of_status = |patches: u64| patches <= 8 * ALERTS as u64;
    world
        .stand
        .row(mark, situation, duration(wall), |requests| {
            vec![Target::new("at most 2 patches each", of_status(requests.of("patch", "")))]
        })
        .await
}

async fn upgraded(world: &mut World, service: &mut Service) -> Result<Row, Error> {
    world.observer.forget();
    service.reported.borrow_and_update();
    let mark = world.stand.mark().await?;
    let start = Instant::now();
    let api = api(world, NAMESPACE, "HelmChart");
    let change = Patch::Merge(json!({"spec": {"version": "1.1.0"}}));
    api.patch(NAME, &PatchParams::default(), &change).await.map_err(Error::Ask)?;
    let wanted = (0..OBJECTS).map(|number| (name_of(number), "1.1.0".to_owned())).collect();
    let wall = until_last(start, &world.observer.all(wanted, DEADLINE).await?);
    let reported = tokio::time::timeout(DEADLINE, service.reported.wait_for(|reported| reported.len() == ALERTS)).await;
    if !matches!(reported, Ok(Ok(_))) {
        return Err(Error::NotReached { missing: ALERTS, seconds: DEADLINE.as_secs() });
    }
    let reported = start.elapsed();
    let situation = format!(
        "a new version of the packed chart that changes all objects, until they are applied; {} later, {ALERTS} services \
         have the message",
        duration(reported.saturating_sub(wall))
    );
    let targets = vec![Target::new(format!("messages ≤ {} s", PROMISED.as_secs()), reported <= PROMISED)];
    world.stand.row(mark, situation, duration(wall), |_| targets).await
}

fn api(world: &World, namespace: &str, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("mainstay.dev", "v1alpha1", kind));
    Api::namespaced_with(world.stand.client.clone(), namespace, &resource)
}

async fn apply(world: &World, namespace: &str, kind: &str, name: &str, spec: Value) -> Result<(), Error> {
    let object = json!({
        "apiVersion": "mainstay.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    });
    let how = PatchParams::apply(MANAGER).force();
    api(world, namespace, kind).patch(name, &how, &Patch::Apply(&object)).await.map(drop).map_err(Error::Ask)
}

fn name_of(number: usize) -> String {
    format!("{NAME}-{number:03}")
}

/// Packs a version of the chart, and writes the index.
async fn pack(directory: &Path, version: &str) -> Result<(), Error> {
    let source = directory.join(NAME);
    let template = format!(
        "{{{{- range until {OBJECTS} }}}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {NAME}-{{{{ printf \"%03d\" . }}}}\n\
         data:\n  revision: {{{{ $.Chart.Version }}}}\n{{{{- end }}}}\n"
    );
    fs::create_dir_all(source.join("templates")).map_err(Error::Load)?;
    fs::write(source.join("templates/objects.yaml"), template).map_err(Error::Load)?;
    let metadata = format!("apiVersion: v2\nname: {NAME}\nversion: {version}\n");
    fs::write(source.join("Chart.yaml"), metadata).map_err(Error::Load)?;
    for arguments in [["package", NAME], ["repo", "index"]] {
        let mut command = Command::new("helm");
        command.args(arguments).args((arguments[0] == "repo").then_some(".")).current_dir(directory);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if !command.status().await.map_err(Error::Start)?.success() {
            return Err(Error::NotStarted);
        }
    }
    Ok(())
}
