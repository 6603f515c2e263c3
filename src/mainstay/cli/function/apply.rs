//! `mainstay function apply`: prints or applies the objects of a directory.
//!
//! Invariant: nothing is written before the server has accepted every object in a dry run. Invariant: only objects that
//! this command applied and that belong to this Function are deleted.
//!
//! Not here: the content of the objects, which the module `objects` determines without a cluster.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use serde_json::{Value, json};

use super::{
    companions,
    config::{Config, Schema},
    error::Error,
    fields::text_at,
    live,
    manifest::{self, Format},
    objects::{Code, objects},
    watch,
    workspace::{EMPTY, Workspace, read_text},
};
use crate::cli::{Exit, connection::Connection, output};
use mainstay_api::{Span, names};
use mainstay_cluster::{Apply, Cluster, Guard, Kind, Propagation};
use mainstay_object::printable;

/// Arguments of `function apply`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Configuration file of the Function
    #[arg(short, long, value_name = "FILE", default_value = "./config.yaml")]
    filename: PathBuf,
    /// Only print the objects to apply; no cluster is needed. The output of -o yaml or json can be committed
    #[arg(long)]
    dry_run: bool,
    /// Output format: text (the result for each object), json or yaml (the objects), or none
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value = "text", hide_possible_values = true)]
    output: Format,
    /// Reaction to a failure: nothing, or purge (delete the Function and the GitRepository that this run has created)
    #[arg(
        long,
        visible_alias = "onerror",
        value_name = "REACTION",
        value_enum,
        default_value = "nothing",
        hide_possible_values = true
    )]
    on_error: OnError,
    /// Wait until the Function runs, and print its conditions as they change; exit code 1 if it does not run
    #[arg(short, long, conflicts_with = "dry_run")]
    watch: bool,
    /// Timeout of --watch, such as 90s or 10m; by default none
    #[arg(short, long, value_name = "DURATION", requires = "watch")]
    timeout: Option<Span>,
    /// Take over fields of other field managers, including those of a GitSync
    #[arg(long, conflicts_with = "dry_run")]
    force: bool,
    #[command(flatten)]
    connection: Connection,
}

/// The reaction to a failure.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum OnError {
    /// Keep the applied objects
    Nothing,
    /// Delete the created objects
    Purge,
}

pub(super) async fn run(arguments: &Arguments) -> Result<Exit, crate::cli::Error> {
    let (config, objects) = read(arguments)?;
    if arguments.dry_run {
        for object in &objects {
            print(object, arguments.output, "would be applied (dry run)", Moment::Before)?;
            print(object, arguments.output, "would be applied (dry run)", Moment::After)?;
        }
        return Ok(Exit::Fine);
    }
    let cluster = arguments.connection.connect().await?;
    let targets = targets(&cluster, &arguments.filename, objects).await?;
    let mut applying =
        Applying { arguments, cluster: &cluster, config: &config, function_uid: None, created: Vec::new() };
    applying.check(&targets).await?;
    match applying.perform(&targets).await {
        Ok(None) => Ok(Exit::Fine),
        Ok(Some((kind, generation))) => {
            let deadline = arguments.timeout.filter(|span| !span.0.is_zero());
            let deadline = deadline.and_then(|span| Instant::now().checked_add(span.0));
            let on_stdout = arguments.output == Format::Text;
            watch::until_running(&cluster, &kind, &config.namespace, &config.name, generation, deadline, on_stdout)
                .await
        }
        Err(error) => {
            if arguments.on_error == OnError::Purge {
                applying.purge().await?;
            }
            Err(error)
        }
    }
}

/// Reads the configuration, and returns it with its objects.
fn read(arguments: &Arguments) -> Result<(Config, Vec<Value>), Error> {
    let path = &arguments.filename;
    let config = Config::read(&read_text(path)?, arguments.connection.given_namespace())
        .map_err(|problems| Error::unusable(path, &problems))?;
    let workspace = Workspace::of_file(path)?;
    let files = config.files();
    let code = match &files {
        None => Code::default(),
        Some([handler, dependencies]) => {
            let source = workspace.source(config.source.path())?;
            Code { source: source.read(handler)?, dependencies: source.read(dependencies)? }
        }
    };
    let objects = objects(&config, &code).map_err(|words| {
        let handler = files.as_ref().map(|[handler, _]| handler.as_str());
        Error::Invalid { path: path.clone(), words: of_files(&words, handler) }
    })?;
    Ok((config, objects))
}

/// Converts messages about an object to messages about the files of the workspace.
fn of_files(words: &str, handler: Option<&str>) -> String {
    let lines = words.lines().map(|line| match handler {
        Some(handler) if line == "missing field(s): spec.source" => format!("{handler}: {EMPTY}"),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// An object to apply, with its kind and the live object.
struct Target {
    kind: Arc<Kind>,
    object: Value,
    live: Option<Value>,
}

impl Target {
    fn name(&self) -> &str {
        text_at(&self.object, "/metadata/name")
    }

    fn namespace(&self) -> &str {
        text_at(&self.object, "/metadata/namespace")
    }

    fn is_function(&self) -> bool {
        &*self.kind.kind == "Function"
    }
}

async fn targets(cluster: &Cluster, path: &Path, mut objects: Vec<Value>) -> Result<Vec<Target>, crate::cli::Error> {
    let mut kinds = Vec::with_capacity(objects.len());
    let mut missing = Vec::new();
    for object in &mut objects {
        match served(cluster, object).await? {
            Some(kind) => kinds.push(kind),
            None => missing.push(companions::not_served(text_at(object, "/apiVersion"), text_at(object, "/kind"))),
        }
    }
    if !missing.is_empty() {
        missing.dedup();
        return Err(Error::NotServed { path: path.to_owned(), missing }.into());
    }
    let mut targets = Vec::with_capacity(objects.len());
    for (kind, object) in kinds.into_iter().zip(objects) {
        let (namespace, name) = (text_at(&object, "/metadata/namespace"), text_at(&object, "/metadata/name"));
        let live = cluster.get(&kind, Some(namespace), name).await?;
        targets.push(Target { kind, object, live });
    }
    Ok(targets)
}

/// Returns the kind of an object. If necessary, the object is changed to an equivalent version that the cluster
/// serves.
async fn served(cluster: &Cluster, object: &mut Value) -> Result<Option<Arc<Kind>>, crate::cli::Error> {
    let (api_version, kind) = (text_at(object, "/apiVersion").to_owned(), text_at(object, "/kind").to_owned());
    if let Some(served) = cluster.kind(&api_version, &kind).await? {
        return Ok(Some(served));
    }
    let Some(other) = companions::other_version(&api_version, &kind) else { return Ok(None) };
    let served = cluster.kind(other, &kind).await?;
    if served.is_some() {
        object["apiVersion"] = other.into();
    }
    Ok(served)
}

/// Returns the GitSync that manages a live object, as `namespace/name`.
fn managed_by(live: &Value) -> Option<String> {
    let label = live["metadata"]["labels"][names::SYNC_LABEL].as_str()?;
    Some(printable(&label.replacen('.', "/", 1)).into_owned())
}

/// Whether an object is printed before or after it is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Before,
    After,
}

/// Prints the object before it is applied, or the outcome afterwards.
fn print(object: &Value, format: Format, outcome: &str, moment: Moment) -> Result<(), crate::cli::Error> {
    match (manifest::text(object, format)?, moment) {
        (Some(text), Moment::Before) => output::print(&text),
        (None, Moment::After) if format == Format::Text => {
            let (kind, name) = (text_at(object, "/kind"), text_at(object, "/metadata/name"));
            output::print(&format!("- {kind} - {name} {outcome}\n"))
        }
        _ => Ok(()),
    }
}

/// The state of the command.
struct Applying<'a> {
    arguments: &'a Arguments,
    cluster: &'a Cluster,
    config: &'a Config,
    function_uid: Option<String>,
    /// The GitRepository and Function that this run has created: kind, name and UID.
    created: Vec<(Arc<Kind>, String, String)>,
}

impl Applying<'_> {
    /// Checks by a dry run whether the server accepts all objects.
    async fn check(&mut self, targets: &[Target]) -> Result<(), crate::cli::Error> {
        if !self.arguments.force {
            for target in targets {
                if let Some(sync) = target.live.as_ref().and_then(managed_by) {
                    let what = target.kind.key(Some(target.namespace()), target.name()).to_string();
                    return Err(Error::Managed { what, sync }.into());
                }
            }
        }
        let function = targets.iter().find(|target| target.is_function()).and_then(|target| target.live.as_ref());
        self.function_uid = function.map(|live| text_at(live, "/metadata/uid").to_owned());
        for target in targets {
            self.apply(target, Apply::dry_run).await?;
        }
        Ok(())
    }

    /// Applies all objects. Returns the kind and generation of the Function, if the command waits for the Function.
    async fn perform(&mut self, targets: &[Target]) -> Result<Option<(Arc<Kind>, i64)>, crate::cli::Error> {
        let mut waited_for = None;
        for target in targets {
            print(&target.object, self.arguments.output, "", Moment::Before)?;
            let answer = self.apply(target, |how| how).await;
            if answer.is_err() && self.arguments.output == Format::Text {
                let (kind, name) = (&target.kind.kind, target.name());
                output::print(&format!("X {kind} - {name} can't be applied\n"))?;
            }
            let answer = answer?;
            let outcome = match &target.live {
                None => "created",
                Some(live) if written(live) == written(&answer) => "unchanged",
                Some(_) => "updated",
            };
            print(&target.object, self.arguments.output, outcome, Moment::After)?;
            let is_parent = target.is_function() || &*target.kind.kind == "GitRepository";
            let uid = text_at(&answer, "/metadata/uid");
            if is_parent && target.live.is_none() {
                self.created.push((Arc::clone(&target.kind), target.name().to_owned(), uid.to_owned()));
            }
            if target.is_function() {
                self.function_uid = Some(uid.to_owned());
                let generation = answer["metadata"]["generation"].as_i64().unwrap_or_default();
                waited_for = Some((Arc::clone(&target.kind), generation)).filter(|_| self.arguments.watch);
                self.delete_obsolete(targets, uid).await?;
            }
        }
        if self.arguments.force
            && let Some(sync) = targets.iter().filter_map(|target| target.live.as_ref()).find_map(managed_by)
        {
            output::note(&format!("! the GitSync {sync} reverts this, unless `mainstay pause` has stopped it\n"));
        }
        Ok(waited_for)
    }

    async fn apply<'h>(
        &self,
        target: &Target,
        change: impl Fn(Apply<'h>) -> Apply<'h>,
    ) -> Result<Value, crate::cli::Error> {
        let Target { kind, object, .. } = target;
        let how = Apply { manager: names::FUNCTION_MANAGER, force: self.arguments.force, dry_run: false };
        let is_companion = companions::section(&kind.kind).is_some();
        let body = match self.function_uid.as_ref().filter(|_| is_companion) {
            Some(uid) => companions::owned(object.clone(), uid),
            None => object.clone(),
        };
        let answer = self.cluster.apply(kind, Some(target.namespace()), target.name(), &body, change(how)).await;
        answer.map_err(|error| match error.refusal() {
            Some(refusal) if !refusal.conflicts.is_empty() => {
                let what = kind.key(Some(target.namespace()), target.name()).to_string();
                Error::Conflict { what, fields: refusal.conflicts.clone() }.into()
            }
            _ => error.into(),
        })
    }

    /// Deletes objects that an earlier run applied for this Function and that the configuration no longer contains.
    async fn delete_obsolete(&self, targets: &[Target], function_uid: &str) -> Result<(), crate::cli::Error> {
        let Config { namespace, name, .. } = self.config;
        let schema = self.config.schema_version.unwrap_or(Schema::V0);
        for (kind, object) in live::referring(self.cluster, namespace, name, schema).await? {
            let own = text_at(&object, "/metadata/name");
            let is_wanted = targets.iter().any(|target| target.kind.kind == kind.kind && target.name() == own);
            if is_wanted || !is_ours(&object, function_uid) {
                continue;
            }
            let guard = Guard { uid: Some(text_at(&object, "/metadata/uid")), resource_version: None };
            self.cluster.delete(&kind, Some(namespace), own, guard, Propagation::Background).await?;
            let gone = json!({ "kind": &*kind.kind, "metadata": { "name": own } });
            if self.arguments.output == Format::Text {
                print(&gone, Format::Text, "deleted", Moment::After)?;
            }
        }
        Ok(())
    }

    /// Deletes the objects that this run has created. Each failure is printed, and the first failure is returned.
    async fn purge(&self) -> Result<(), crate::cli::Error> {
        for (kind, name, uid) in self.created.iter().rev() {
            let guard = Guard { uid: Some(uid), resource_version: None };
            let namespace = Some(self.config.namespace.as_str());
            match self.cluster.delete(kind, namespace, name, guard, Propagation::Foreground).await {
                Ok(_) => {
                    let gone = json!({ "kind": &*kind.kind, "metadata": { "name": name } });
                    print(&gone, self.arguments.output, "deleted", Moment::After)?;
                }
                Err(error) => output::note(&format!("! {} - {name} can't be removed: {error}\n", kind.kind)),
            }
        }
        Ok(())
    }
}

/// Returns an object without status, resource version and field managers.
fn written(object: &Value) -> Value {
    let mut written = object.clone();
    if let Some(fields) = written.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = written.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| name != "resourceVersion" && name != "managedFields");
    }
    written
}

/// Returns whether this command applied an object for the Function with this UID, and no GitSync manages it.
fn is_ours(object: &Value, function_uid: &str) -> bool {
    let list = |pointer: &str| object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
    let applied = |entry: &Value| entry["manager"] == names::FUNCTION_MANAGER && entry["operation"] == "Apply";
    list("/metadata/ownerReferences").iter().any(|owner| owner["uid"] == function_uid)
        && list("/metadata/managedFields").iter().any(applied)
        && managed_by(object).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_command_applied_for_the_function_is_its_own() {
        let object = |manager: &str, owner: &str, labels: Value| {
            json!({"metadata": {
                "labels": labels, "ownerReferences": [{"uid": owner}],
                "managedFields": [{"manager": manager, "operation": "Apply"}],
            }})
        };
        assert!(is_ours(&object("mainstay-function", "u", json!({})), "u"));
        assert!(!is_ours(&object("kubectl", "u", json!({})), "u"), "made by hand");
        assert!(!is_ours(&object("mainstay-function", "v", json!({})), "u"), "of another Function of that name");
        assert!(!is_ours(&object("mainstay-function", "u", json!({"mainstay.dev/sync": "flux.shop"})), "u"));
    }
}
