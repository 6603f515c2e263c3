//! The form of a Function: its fields, and the object that they describe.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::filter::Query;
use crate::form::{EditForm, ObjectForm, Suggested, line, lines, new, set};
use crate::function_rows::{
    EMPTY_MOUNTS, EMPTY_ROWS, MOUNTS, MountRow, VARIABLES, VariableRow, entry, mount_entry, mounts, sent_mounts,
    sent_variables, variables,
};
use crate::git_place::GitPlace;
use crate::readers::Readers;
use crate::remote::hide_login;
use crate::row::FleetKind;
use crate::source::is_git;
use mainstay_api::names;

/// CPU and memory of each pod: the name of the field in the form, its label, and its two names in `spec.resources`.
pub(crate) const AMOUNTS: [(&str, &str, [&str; 2]); 4] = [
    ("request-cpu", "CPU, reserved", ["requests", "cpu"]),
    ("request-memory", "Memory, reserved", ["requests", "memory"]),
    ("limit-cpu", "CPU, at most", ["limits", "cpu"]),
    ("limit-memory", "Memory, at most", ["limits", "memory"]),
];

/// The fields, as the user wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FunctionFields {
    pub(crate) name: String,
    pub(crate) runtime: String,
    pub(crate) source: String,
    pub(crate) dependencies: String,
    /// With code in Git: what it follows, and its directory.
    pub(crate) reference: String,
    pub(crate) directory: String,
    pub(crate) least: String,
    pub(crate) most: String,
    /// The preset of CPU and memory.
    pub(crate) preset: String,
    pub(crate) variables: Vec<VariableRow>,
    /// The amounts of [`AMOUNTS`].
    pub(crate) amounts: [String; 4],
    pub(crate) mounts: Vec<MountRow>,
    /// Labels of the pods, one `KEY=VALUE` in each line.
    pub(crate) labels: String,
    /// The place of the code in Git of a new Function.
    pub(crate) git: GitPlace,
}

impl ObjectForm for FunctionFields {
    const KIND: FleetKind = FleetKind::Function;
    const PLURAL: &'static str = "functions";
    const PATH: &'static str = "/create";
    const SIZE: usize = 2 << 20;
    const WITHIN: Duration = Duration::from_secs(20);
    const SUGGESTED: Suggested = Suggested::Repositories;

    fn read(form: &Query) -> Self {
        let one = |name: &str| line(form.get(name));
        let many = |name: &str| lines(form.all(name).next().unwrap_or_default());
        Self {
            name: one("name"),
            runtime: one("runtime"),
            source: many("source"),
            dependencies: many("deps"),
            reference: one("reference"),
            directory: one("directory"),
            least: one("least"),
            most: one("most"),
            preset: one("preset"),
            variables: sent_variables(form),
            amounts: AMOUNTS.map(|(name, _, _)| one(name)),
            mounts: sent_mounts(form),
            labels: many("labels"),
            git: GitPlace::read(one),
        }
    }

    fn forget_positions(&mut self) {
        for row in &mut self.variables {
            row.at = None;
        }
        for row in &mut self.mounts {
            row.at = None;
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn wanted(&self, live: Option<&Value>, namespace: &str) -> Result<Value, String> {
        self.check_sizes()?;
        let (mut wanted, before) = match live {
            Some(live) => (live.clone(), Self::of(live)),
            None => (self.new_function(namespace)?, Self::default()),
        };
        let pointer = preset_pointer(&wanted);
        // The form has only the fields of the type of the source.
        let code = if is_git(&wanted) {
            [
                (&self.reference, &before.reference, "/spec/reference"),
                (&self.directory, &before.directory, "/spec/baseDir"),
            ]
        } else {
            [(&self.source, &before.source, "/spec/source"), (&self.dependencies, &before.dependencies, "/spec/deps")]
        };
        let texts =
            [(&self.runtime, &before.runtime, "/spec/runtime"), (&self.preset, &before.preset, pointer.as_str())];
        for (text, before, pointer) in texts.into_iter().chain(code) {
            if text != before {
                set(&mut wanted, pointer, (!text.is_empty()).then(|| json!(text)));
            }
        }
        let numbers = [
            (&self.least, &before.least, "/spec/minReplicas", "Minimum pods"),
            (&self.most, &before.most, "/spec/maxReplicas", "Maximum pods"),
        ];
        for (text, before, pointer, label) in numbers {
            if text != before {
                let number = (!text.is_empty()).then(|| text.parse::<u32>()).transpose();
                let number =
                    number.map_err(|_| format!("{label}: write a number such as 2, or nothing for the default."))?;
                set(&mut wanted, pointer, number.map(|number| json!(number)));
            }
        }
        if self.variables != before.variables {
            let all = self
                .variables
                .iter()
                .map(|row| entry(row, &before.variables, &wanted))
                .collect::<Result<Vec<_>, _>>()?;
            set(&mut wanted, "/spec/env", (!all.is_empty()).then(|| json!(all)));
        }
        self.set_pod_fields(&before, &mut wanted)?;
        if live.is_none() && !self.git.is_chosen && self.source.trim().is_empty() {
            return Err("Code: it is empty.".to_owned());
        }
        Ok(wanted)
    }

    fn hide(object: &mut Value) -> bool {
        hide_login(object, "/spec/gitRepository/url")
    }

    fn effect(readers: &Readers, live: Option<&Value>, wanted: &Value) -> Result<String, String> {
        let inputs = (readers.functions.changed_inputs)(live, wanted)?;
        Ok(match live {
            None => "Its image is built, and then its pods start.".to_owned(),
            Some(_) if inputs.is_empty() => {
                "No image is built: code, dependencies and runtime stay the same.".to_owned()
            }
            Some(_) => format!(
                "The image is rebuilt, because this changes: {}. The present version serves until then.",
                inputs.join(", ")
            ),
        })
    }
}

impl EditForm for FunctionFields {
    fn of(function: &Value) -> Self {
        let text = |pointer: &str| function.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let number = |pointer: &str| function.pointer(pointer).and_then(Value::as_i64).map(|number| number.to_string());
        Self {
            name: line(text("/metadata/name")),
            runtime: line(text("/spec/runtime")),
            source: lines(text("/spec/source")),
            dependencies: lines(text("/spec/deps")),
            reference: line(text("/spec/reference")),
            directory: line(text("/spec/baseDir")),
            least: number("/spec/minReplicas").unwrap_or_default(),
            most: number("/spec/maxReplicas").unwrap_or_default(),
            preset: line(text(&preset_pointer(function))),
            variables: variables(function),
            amounts: AMOUNTS.map(|(_, _, [part, name])| {
                match function.pointer(&format!("/spec/resources/{part}/{name}")) {
                    Some(Value::String(amount)) => line(amount),
                    Some(Value::Number(amount)) => amount.to_string(),
                    _ => String::new(),
                }
            }),
            mounts: mounts(function),
            labels: labels_text(function),
            git: GitPlace::default(),
        }
    }

    fn refusal(live: &Value) -> Option<&'static str> {
        let is_longer = |(list, most): &(&str, usize)| {
            let all = live.pointer(&format!("/spec/{list}")).and_then(Value::as_array);
            all.is_some_and(|all| all.len() > *most)
        };
        let has_too_many = [("env", VARIABLES), ("secretMounts", MOUNTS)].iter().any(is_longer);
        has_too_many
            .then_some("The Function has more variables or Secrets as files than this form. Change its manifest.")
    }
}

impl FunctionFields {
    /// Returns the rows of the form: the variables and empty rows for further ones.
    pub(crate) fn rows(&self) -> Vec<VariableRow> {
        self.variables.iter().cloned().chain((0..EMPTY_ROWS).map(|_| VariableRow::empty())).collect()
    }

    /// Returns the rows for Secrets as files, with empty rows for further ones.
    pub(crate) fn mount_rows(&self) -> Vec<MountRow> {
        self.mounts.iter().cloned().chain((0..EMPTY_MOUNTS).map(|_| MountRow::default())).collect()
    }

    /// Returns whether a field of the pods is set that the preset does not determine.
    pub(crate) fn has_pod_fields(&self) -> bool {
        self.amounts.iter().any(|amount| !amount.is_empty()) || !self.mounts.is_empty() || !self.labels.is_empty()
    }

    /// Fails if the form has more rows than a form shows.
    fn check_sizes(&self) -> Result<(), String> {
        if self.variables.len() > VARIABLES {
            return Err(format!("Variables: at most {VARIABLES}. Change the manifest."));
        }
        if self.mounts.len() > MOUNTS {
            return Err(format!("Secrets as files: at most {MOUNTS}. Change the manifest."));
        }
        Ok(())
    }

    /// Returns a new Function, without the fields that a live one may have, too.
    fn new_function(&self, namespace: &str) -> Result<Value, String> {
        let mut function = new(Self::KIND, &self.name, namespace)?;
        if self.git.is_chosen {
            set(&mut function, "/spec", Some(self.git.spec()?));
        }
        Ok(function)
    }

    /// Sets the changed fields of the pods: CPU and memory, Secrets as files, and labels.
    fn set_pod_fields(&self, before: &Self, wanted: &mut Value) -> Result<(), String> {
        for ((_, _, [part, name]), (amount, before)) in AMOUNTS.iter().zip(self.amounts.iter().zip(&before.amounts)) {
            if amount != before {
                let value = (!amount.is_empty()).then(|| json!(amount));
                set(wanted, &format!("/spec/resources/{part}/{name}"), value);
                for parent in [format!("/spec/resources/{part}"), "/spec/resources".to_owned()] {
                    if wanted.pointer(&parent).is_some_and(|left| *left == json!({})) {
                        set(wanted, &parent, None);
                    }
                }
            }
        }
        if self.mounts != before.mounts {
            let all = self.mounts.iter().map(|row| mount_entry(row, &before.mounts, wanted));
            let all = all.collect::<Result<Vec<_>, _>>()?;
            set(wanted, "/spec/secretMounts", (!all.is_empty()).then(|| json!(all)));
        }
        if self.labels != before.labels {
            let lines = self.labels.lines().map(str::trim).filter(|line| !line.is_empty());
            let all = lines.map(label).collect::<Result<Map<String, Value>, _>>()?;
            set(wanted, "/spec/labels", (!all.is_empty()).then(|| all.into()));
        }
        Ok(())
    }
}

/// Returns a label of a line `KEY=VALUE`.
fn label(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("Labels: write each one as KEY=VALUE in a line of its own.")?;
    Ok((name.trim().to_owned(), json!(value.trim())))
}

/// Returns the labels of the pods as a browser sends them.
fn labels_text(function: &Value) -> String {
    let all = function.pointer("/spec/labels").and_then(Value::as_object).into_iter().flatten();
    let all = all.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)));
    lines(&all.collect::<Vec<_>>().join("\n"))
}

/// Returns the place of the preset of CPU and memory: the field if it is set, and the label otherwise.
fn preset_pointer(function: &Value) -> String {
    if function.pointer("/spec/profile").is_some_and(Value::is_string) {
        return "/spec/profile".to_owned();
    }
    format!("/metadata/labels/{}", names::FUNCTION_RESOURCES_PRESET.replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::{keeper_of_label, manifest, patch};
    use crate::function_rows::UNKNOWN;

    fn live() -> Value {
        json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "labels": {"team": "a", "mainstay.dev/sync": "x.y"}},
            "spec": {
                "source": "one\r\ntwo\rthree\n", "deps": "{}", "runtime": "nodejs22", "minReplicas": 1,
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
                    {"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            },
            "status": {"commit": "x"},
        })
    }

    fn change(change: impl FnOnce(&mut FunctionFields)) -> Result<Option<Value>, String> {
        let mut fields = FunctionFields::of(&live());
        change(&mut fields);
        Ok(patch(&live(), &fields.wanted(Some(&live()), "shop")?))
    }

    fn row(name: &str, origin: &str, value: &str) -> VariableRow {
        VariableRow { name: name.into(), origin: origin.into(), value: value.into(), at: None }
    }

    #[test]
    fn untouched_fields_change_nothing_although_browsers_rewrite_line_ends() {
        assert_eq!(change(|_| ()), Ok(None));
        let mut form = form_urlencoded::Serializer::new(String::new());
        let fields = FunctionFields::of(&live());
        form.extend_pairs([("name", "web"), ("runtime", "nodejs22"), ("deps", "{}"), ("least", "1")]);
        form.append_pair("source", &fields.source.replace('\n', "\r\n"));
        for row in fields.rows() {
            form.extend_pairs([("env-name", row.name), ("env-origin", row.origin), ("env-value", row.value)]);
            form.append_pair("env-at", &row.at.map(|at| at.to_string()).unwrap_or_default());
        }
        let sent = FunctionFields::read(&Query::parse(form.finish().as_bytes()));
        assert_eq!(sent, fields);
    }

    #[test]
    fn a_change_is_a_patch_of_its_fields_only() {
        assert_eq!(change(|fields| fields.source = "new\n".into()), Ok(Some(json!({"spec": {"source": "new\n"}}))));
        assert_eq!(change(|fields| fields.dependencies.clear()), Ok(Some(json!({"spec": {"deps": null}}))));
        assert_eq!(change(|fields| fields.most = "3".into()), Ok(Some(json!({"spec": {"maxReplicas": 3}}))));
        let label = json!({"metadata": {"labels": {names::FUNCTION_RESOURCES_PRESET: "L"}}});
        assert_eq!(change(|fields| fields.preset = "L".into()), Ok(Some(label)));
        let added = change(|fields| {
            fields.variables[0].value = "2".into();
            fields.variables.push(row("C", "ConfigMap", "m/k"));
        });
        let env = &added.unwrap().unwrap()["spec"]["env"];
        assert_eq!(env[0], json!({"name": "A", "value": "2"}));
        assert_eq!(env[1]["valueFrom"]["secretKeyRef"]["optional"], true);
        assert_eq!(env[3], json!({"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}}));
        assert_eq!(change(|fields| fields.variables.clear()), Ok(Some(json!({"spec": {"env": null}}))));
    }

    #[test]
    fn a_changed_row_keeps_the_fields_that_the_form_has_not() {
        let mut live = live();
        live["spec"]["env"][0]["extra"] = json!(1);
        let of_file = json!({"name": "F", "valueFrom": {"fileKeyRef": {"path": "a", "key": "b"}}});
        live["spec"]["env"].as_array_mut().unwrap().push(of_file.clone());
        live["spec"]["secretMounts"] = json!([{"secretName": "tls", "mountPath": "/etc/tls", "optional": true}]);
        let change = |change: &dyn Fn(&mut FunctionFields)| {
            let mut fields = FunctionFields::of(&live);
            change(&mut fields);
            fields.wanted(Some(&live), "shop").map(|wanted| wanted["spec"].clone())
        };
        assert_eq!(change(&|_| ()).unwrap(), live["spec"]);
        let spec = change(&|fields| {
            fields.variables[0].name = "A2".into();
            fields.variables[1].value = "s2/k2".into();
            fields.variables[2].name = "P2".into();
            fields.mounts[0].directory = "/etc/x".into();
        });
        let spec = spec.unwrap();
        assert_eq!(spec["env"][0], json!({"name": "A2", "value": "1", "extra": 1}));
        let of_secret = json!({"name": "s2", "key": "k2", "optional": true});
        assert_eq!(spec["env"][1], json!({"name": "B", "valueFrom": {"secretKeyRef": of_secret}}));
        assert_eq!(spec["env"][2]["valueFrom"], live["spec"]["env"][2]["valueFrom"]);
        assert_eq!(spec["env"][3], of_file);
        assert_eq!(spec["secretMounts"][0], json!({"secretName": "tls", "mountPath": "/etc/x", "optional": true}));
        let moved = change(&|fields| fields.variables[1] = VariableRow { at: Some(1), ..row("B", "value", "2") });
        assert_eq!(moved.unwrap()["env"][1], json!({"name": "B", "value": "2"}));
        for (name, origin, value) in
            [("F2", UNKNOWN, ""), ("F", "value", ""), ("F", "value", "1"), ("F", "Secret", "s/k")]
        {
            let changed = VariableRow { at: Some(3), ..row(name, origin, value) };
            let problem = change(&|fields| fields.variables[3] = changed.clone()).unwrap_err();
            assert!(problem.contains("does not know its origin"), "{problem}");
        }
        // A row without its position, and one with the position of another object, are those of equal fields.
        let without = change(&|fields| fields.variables.iter_mut().for_each(|row| row.at = None));
        assert_eq!(without.unwrap(), live["spec"]);
        let wrong = change(&|fields| fields.variables.iter_mut().for_each(|row| row.at = Some(usize::MAX)));
        assert_eq!(wrong.unwrap(), live["spec"]);
    }

    #[test]
    fn a_form_of_another_version_changes_the_rows_with_the_same_names() {
        let mut before = live();
        before["spec"]["secretMounts"] = json!([
            {"secretName": "a", "mountPath": "/a"}, {"secretName": "b", "mountPath": "/b", "optional": true},
        ]);
        let mut after = before.clone();
        for list in ["env", "secretMounts"] {
            after["spec"][list].as_array_mut().unwrap().remove(0);
        }
        let mut fields = FunctionFields::of(&before);
        fields.variables[1].value = "s2/k2".into();
        fields.mounts[1].directory = "/b2".into();
        fields.forget_positions();
        let spec = fields.wanted(Some(&after), "shop").unwrap()["spec"].clone();
        let of_secret = json!({"name": "s2", "key": "k2", "optional": true});
        assert_eq!(spec["env"][1], json!({"name": "B", "valueFrom": {"secretKeyRef": of_secret}}));
        assert_eq!(spec["env"][2], live()["spec"]["env"][2]);
        assert_eq!(spec["secretMounts"][1], json!({"secretName": "b", "mountPath": "/b2", "optional": true}));
    }

    #[test]
    fn rows_beyond_the_maximum_are_a_problem() {
        let problem = |pair: &str, count: usize| {
            let form = vec![pair; count].join("&");
            let fields = FunctionFields::read(&Query::parse(format!("name=a&source=x&{form}").as_bytes()));
            fields.wanted(None, "shop").err().unwrap_or_default()
        };
        let variable = "env-name=A&env-origin=value&env-value=1&env-at=";
        assert_eq!(problem(variable, VARIABLES), "");
        assert!(problem(variable, VARIABLES + 1).starts_with("Variables: at most 200."));
        assert!(problem(variable, 1000).starts_with("Variables: at most 200."), "the form is cut");
        let mount = "mount-secret=a&mount-directory=/a&mount-at=";
        assert_eq!(problem(mount, MOUNTS), "");
        assert!(problem(mount, MOUNTS + 1).starts_with("Secrets as files: at most 50."));
    }

    #[test]
    fn fields_of_the_pods_are_set_and_removed_one_by_one() {
        let mut live = live();
        live["spec"]["resources"] =
            json!({"requests": {"cpu": "50m", "ephemeral-storage": "1Gi"}, "limits": {"cpu": 1}});
        live["spec"]["secretMounts"] = json!([{"secretName": "tls", "mountPath": "/etc/tls"}]);
        live["spec"]["labels"] = json!({"team": "a", "tier": "web"});
        let change = |change: &dyn Fn(&mut FunctionFields)| {
            let mut fields = FunctionFields::of(&live);
            change(&mut fields);
            fields.wanted(Some(&live), "shop").map(|wanted| patch(&live, &wanted))
        };
        assert_eq!(change(&|_| ()), Ok(None));
        let amounts = change(&|fields| fields.amounts = ["", "64Mi", "", ""].map(str::to_owned));
        let expected = json!({"spec": {"resources": {"requests": {"cpu": null, "memory": "64Mi"}, "limits": null}}});
        assert_eq!(amounts, Ok(Some(expected)));
        let mounts = change(&|fields| {
            fields.mounts.push(MountRow { secret: "key".into(), directory: "/etc/key".into(), at: None });
        });
        let mounts = &mounts.unwrap().unwrap()["spec"]["secretMounts"];
        assert_eq!((&mounts[0]["secretName"], &mounts[1]["mountPath"]), (&json!("tls"), &json!("/etc/key")));
        assert_eq!(change(&|fields| fields.mounts.clear()), Ok(Some(json!({"spec": {"secretMounts": null}}))));
        let labels = change(&|fields| fields.labels = " team = b \n\nnew=".into());
        assert_eq!(labels, Ok(Some(json!({"spec": {"labels": {"team": "b", "tier": null, "new": ""}}}))));
        assert!(change(&|fields| fields.labels = "team".into()).unwrap_err().starts_with("Labels: "));
        for (secret, directory) in [("", "/a"), ("a", ""), ("a", "b")] {
            let mount = MountRow { secret: secret.into(), directory: directory.into(), at: None };
            let problem = change(&|fields| fields.mounts = vec![mount.clone()]).unwrap_err();
            assert!(problem.starts_with("Secrets as files: "), "{problem}");
        }
    }

    #[test]
    fn a_function_of_git_keeps_the_fields_that_its_form_has_not() {
        let live = json!({"spec": {"type": "git", "source": "repo", "deps": "x", "reference": "main", "baseDir": "/"}});
        let form = FunctionFields::read(&Query::parse(b"reference=next&directory=%2F"));
        let wanted = form.wanted(Some(&live), "shop").unwrap();
        assert_eq!(patch(&live, &wanted), Some(json!({"spec": {"reference": "next"}})));
    }

    #[test]
    fn an_invalid_field_is_named() {
        let problem = |change_fields: fn(&mut FunctionFields)| change(change_fields).unwrap_err();
        assert!(problem(|fields| fields.least = "-1".into()).starts_with("Minimum pods"));
        assert!(problem(|fields| fields.variables.push(row("", "value", "1"))).contains("no name"));
        assert!(
            problem(|fields| fields.variables.push(row("X", "Secret", "s")))
                .starts_with("Variable X: write the Secret")
        );
        assert!(
            problem(|fields| fields.variables[2].value = "spec.nodeName".into()).starts_with("Variable P: a field")
        );
        let create = |name: &str, source: &str| {
            FunctionFields { name: name.into(), source: source.into(), ..FunctionFields::default() }
                .wanted(None, "shop")
        };
        assert!(create("a b", "x").unwrap_err().starts_with("Name: "));
        assert!(create("web", " \n").unwrap_err().starts_with("Code: "));
        let made = create("web", "x").unwrap();
        assert_eq!(
            (&made["metadata"], &made["spec"]),
            (&json!({"name": "web", "namespace": "shop"}), &json!({"source": "x"}))
        );
    }

    #[test]
    fn a_new_function_of_git_has_its_place_and_no_code() {
        let form = b"name=web&place=git&repository=repo&reference=main&directory=f&source=x&deps=y&runtime=nodejs22";
        let wanted = FunctionFields::read(&Query::parse(form)).wanted(None, "shop").unwrap();
        let expected =
            json!({"type": "git", "source": "repo", "reference": "main", "baseDir": "f", "runtime": "nodejs22"});
        assert_eq!(wanted["spec"], expected);
        let without = FunctionFields::read(&Query::parse(b"name=web&place=git")).wanted(None, "shop");
        assert!(without.unwrap_err().starts_with("GitRepository: "));
        // The fields of the other choice are ignored.
        let inline =
            FunctionFields::read(&Query::parse(b"name=web&place=inline&source=x&repository=repo&reference=main"));
        assert_eq!(inline.wanted(None, "shop").unwrap()["spec"], json!({"source": "x"}));
    }

    #[test]
    fn a_manifest_has_what_its_author_writes() {
        let shown = manifest(FleetKind::Function, &live());
        assert_eq!(shown["metadata"], json!({"name": "web", "namespace": "shop", "labels": {"team": "a"}}));
        assert!(shown.get("status").is_none() && shown["spec"] == live()["spec"]);
        let keeper = keeper_of_label(&live()).unwrap();
        assert_eq!(keeper.git_sync, Some(FleetKind::GitSync.key("x", "y")));
    }

    #[test]
    fn objects_of_any_form_have_fields() {
        for strange in [
            json!(null),
            json!({"spec": 7}),
            json!({"spec": {"resources": [1], "labels": [], "secretMounts": [7]}}),
            json!({"spec": {"env": [null, 1, {"name": 2}]}, "metadata": []}),
        ] {
            let fields = FunctionFields::of(&strange);
            assert_eq!(fields.wanted(Some(&strange), "n").map(|wanted| patch(&strange, &wanted)), Ok(None));
            let amounts = ["1", "", "", "1Gi"].map(str::to_owned);
            let labels = "a=b".to_owned();
            let changed = FunctionFields { runtime: "r".into(), preset: "L".into(), amounts, labels, ..fields };
            assert!(changed.wanted(Some(&strange), "n").is_ok());
        }
    }
}
