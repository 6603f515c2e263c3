//! Field ownership as clients observe it, in tables of short scenarios.

mod applied;
mod lists;
mod migration;
mod patches;
mod random;
mod tracked;

use serde_json::Value;

use super::fields::FieldSet;
use super::{ApplyContext, apply, equal_but_times, track};
use crate::schema::{self, Schema};
use crate::status::Status;

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: d}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec:
      containers:
      - {name: a, image: a:1, ports: [{containerPort: 80}]}
";

fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap()
}

fn config_map(data: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {data}\n")
}

/// One object and the writes to it. As in the API server, a write without a change is skipped.
struct Story {
    schema: Schema,
    api_version: String,
    live: Option<Value>,
    clock: u32,
    writes: u32,
}

impl Story {
    fn of(api_version: &str, kind: &str) -> Self {
        let schema = schema::builtin(api_version, kind).unwrap();
        Self::with(schema, api_version)
    }

    fn with(schema: Schema, api_version: &str) -> Self {
        Self { schema, api_version: api_version.to_owned(), live: None, clock: 0, writes: 0 }
    }

    fn config_map() -> Self {
        Self::of("v1", "ConfigMap")
    }

    fn context<'a>(&'a self, manager: &'a str, now: &'a str) -> ApplyContext<'a> {
        let (manager, subresource) = manager.split_once('/').unwrap_or((manager, ""));
        ApplyContext {
            schema: &self.schema,
            api_version: &self.api_version,
            manager,
            subresource,
            force: false,
            now,
            reset: &[],
        }
    }

    fn tick(&mut self) -> String {
        self.clock += 1;
        format!("2026-01-01T{:02}:{:02}:{:02}Z", self.clock / 3600, self.clock / 60 % 60, self.clock % 60)
    }

    fn write(&mut self, mut new: Value) {
        schema::normalise(&self.schema, &mut new);
        if self.live.as_ref().is_some_and(|live| equal_but_times(live, &new)) {
            return;
        }
        self.live = Some(new);
        self.writes += 1;
    }

    fn try_apply(&mut self, manager: &str, config: &str, force: bool) -> Result<&mut Self, Status> {
        let now = self.tick();
        let cx = ApplyContext { force, ..self.context(manager, &now) };
        let new = apply(&cx, self.live.as_ref(), &yaml(config))?;
        self.write(new);
        Ok(self)
    }

    fn apply(&mut self, manager: &str, config: &str) -> &mut Self {
        self.try_apply(manager, config, false).unwrap()
    }

    fn force(&mut self, manager: &str, config: &str) -> &mut Self {
        self.try_apply(manager, config, true).unwrap()
    }

    /// Writes the object by a verb other than apply.
    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Value)) -> &mut Self {
        let now = self.tick();
        let mut new = self.live.clone().unwrap();
        change(&mut new);
        track(&self.context(manager, &now), self.live.as_ref(), &mut new);
        self.write(new);
        self
    }

    fn create(&mut self, manager: &str, object: &str) -> &mut Self {
        let now = self.tick();
        let mut new = yaml(object);
        track(&self.context(manager, &now), None, &mut new);
        self.write(new);
        self
    }

    /// Applies a merge patch, written in YAML.
    fn patch(&mut self, manager: &str, patch: &str) -> &mut Self {
        let patch = yaml(patch);
        self.update(manager, |new| *new = super::merge(new, &patch))
    }

    fn live(&self) -> &Value {
        self.live.as_ref().unwrap()
    }

    fn at(&self, pointer: &str) -> Option<&Value> {
        self.live().pointer(pointer)
    }

    #[track_caller]
    fn has(&mut self, pointer: &str, expected: &str) -> &mut Self {
        let expected = if expected == "absent" { None } else { Some(yaml(expected)) };
        assert_eq!(self.at(pointer), expected.as_ref(), "at {pointer}");
        self
    }

    /// Returns the owners and their fields, one manager a line: `m Apply .data.a`.
    fn owners(&self) -> String {
        let entries = self.at("/metadata/managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
        let line = |entry: &Value| {
            let text = |key: &str| entry[key].as_str().unwrap_or_default();
            let sub = if text("subresource").is_empty() { String::new() } else { format!("/{}", text("subresource")) };
            let paths = FieldSet::decode(&entry["fieldsV1"]).unwrap().paths().join(" ");
            format!("{}{sub} {} {paths}", text("manager"), text("operation"))
        };
        entries.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn owned(&mut self, expected: &str) -> &mut Self {
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
        assert_eq!(self.owners(), expected.join("\n"));
        self
    }

    #[track_caller]
    fn written(&mut self, times: u32) -> &mut Self {
        assert_eq!(self.writes, times, "number of writes");
        self
    }

    #[track_caller]
    fn refused(&mut self, manager: &str, config: &str, code: u16, message: &str) -> &mut Self {
        let status = self.try_apply(manager, config, false).err().expect("it is refused");
        assert_eq!((status.code, status.message.as_str()), (code, message));
        self
    }
}
