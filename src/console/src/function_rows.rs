//! The rows of the form of a Function: its variables, and its Secrets as files.
//!
//! Invariant: a changed row keeps the fields of the live object that the form does not show. A row without a position is that
//! of the live row with the same name.

use serde_json::{Value, json};

use crate::filter::Query;
use crate::form::{line, lines, set};
use crate::shown::{VariableValue, variable};

/// Maximum number of variables in a form, and the number of empty rows for further ones.
pub(crate) const VARIABLES: usize = 200;
pub(crate) const EMPTY_ROWS: usize = 3;

/// Maximum number of Secrets as files in a form, and the number of empty rows for further ones.
pub(crate) const MOUNTS: usize = 50;
pub(crate) const EMPTY_MOUNTS: usize = 2;

/// The origin of a variable's value, by its word in the form.
pub(crate) const ORIGINS: [(&str, &str); 3] =
    [("value", "value"), ("Secret", "key of a Secret"), ("ConfigMap", "key of a ConfigMap")];
/// The words for a field of the pod and for an unknown origin, which the form keeps and does not change.
pub(crate) const FIELD: &str = "field";
pub(crate) const UNKNOWN: &str = "unknown";

/// A variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VariableRow {
    pub(crate) name: String,
    /// The origin of the value: a word of [`ORIGINS`], [`FIELD`], or [`UNKNOWN`].
    pub(crate) origin: String,
    /// The value, or the object and its key as `NAME/KEY`.
    pub(crate) value: String,
    /// The position of the variable in the live object; `None` for a new one.
    pub(crate) at: Option<usize>,
}

impl VariableRow {
    /// Returns a row for a further variable.
    pub(crate) fn empty() -> Self {
        Self { origin: "value".to_owned(), ..Self::default() }
    }

    fn of((at, one): (usize, &Value)) -> Self {
        let variable = variable(one);
        let (origin, value) = match variable.value {
            VariableValue::Plain(_) if one.get("valueFrom").is_some_and(|from| !from.is_null()) => {
                (UNKNOWN, String::new())
            }
            VariableValue::Plain(_) => ("value", lines(one["value"].as_str().unwrap_or_default())),
            VariableValue::KeyOf { kind, name, key } => (kind, format!("{name}/{key}")),
            VariableValue::Field(path) => (FIELD, path),
        };
        Self { name: line(&variable.name), origin: origin.to_owned(), value, at: Some(at) }
    }

    /// Returns whether the row has the same fields as a row of the live object.
    fn is_same(&self, live: &Self) -> bool {
        (&self.name, &self.origin, &self.value) == (&live.name, &live.origin, &live.value)
    }
}

/// A Secret whose keys are files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MountRow {
    pub(crate) secret: String,
    /// The directory in the container.
    pub(crate) directory: String,
    /// The position in the live object; `None` for a new one.
    pub(crate) at: Option<usize>,
}

impl MountRow {
    fn is_same(&self, live: &Self) -> bool {
        (&self.secret, &self.directory) == (&live.secret, &live.directory)
    }
}

/// Reads the variables of a form.
pub(crate) fn sent_variables(form: &Query) -> Vec<VariableRow> {
    let rows = form.all("env-name").zip(form.all("env-origin")).zip(form.all("env-value"));
    let row = |(((name, origin), value), at): (((&str, &str), &str), Option<usize>)| VariableRow {
        name: line(name),
        origin: line(origin),
        value: lines(value),
        at,
    };
    let rows = rows.zip(positions(form, "env-at")).map(row);
    rows.filter(|row| !(row.name.is_empty() && row.value.is_empty())).collect()
}

/// Reads the Secrets as files of a form.
pub(crate) fn sent_mounts(form: &Query) -> Vec<MountRow> {
    let rows = form.all("mount-secret").zip(form.all("mount-directory")).zip(positions(form, "mount-at"));
    let rows = rows.map(|((secret, directory), at)| MountRow { secret: line(secret), directory: line(directory), at });
    rows.filter(|row| !(row.secret.is_empty() && row.directory.is_empty())).collect()
}

/// Returns the variables of a Function, as many as a form has.
pub(crate) fn variables(function: &Value) -> Vec<VariableRow> {
    entries(function, "env", VARIABLES).iter().enumerate().map(VariableRow::of).collect()
}

/// Returns the Secrets as files of a Function, as many as a form has.
pub(crate) fn mounts(function: &Value) -> Vec<MountRow> {
    entries(function, "secretMounts", MOUNTS).iter().enumerate().map(mount).collect()
}

fn mount((at, one): (usize, &Value)) -> MountRow {
    let text = |name: &str| line(one.get(name).and_then(Value::as_str).unwrap_or_default());
    MountRow { secret: text("secretName"), directory: text("mountPath"), at: Some(at) }
}

/// Returns the positions of rows in the live object. A form without them has new rows only.
fn positions<'q>(form: &'q Query, name: &'q str) -> impl Iterator<Item = Option<usize>> + use<'q> {
    form.all(name).map(|at| at.parse::<usize>().ok()).chain(std::iter::repeat(None))
}

/// Returns the position of the live row that has the fields of a row. The live object may have changed since the form.
fn unchanged<T>(live: &[T], own: Option<usize>, is_same: impl Fn(&T) -> bool) -> Option<usize> {
    own.filter(|at| live.get(*at).is_some_and(&is_same)).or_else(|| live.iter().position(is_same))
}

/// Returns a Secret as files: the live one with the changed fields, or a new one.
pub(crate) fn mount_entry(row: &MountRow, before: &[MountRow], live: &Value) -> Result<Value, String> {
    let all = entries(live, "secretMounts", MOUNTS);
    if let Some(at) = unchanged(before, row.at, |one| row.is_same(one)) {
        return Ok(all[at].clone());
    }
    if row.secret.is_empty() || !row.directory.starts_with('/') {
        return Err("Secrets as files: write the name of a Secret, and a directory such as /etc/tls.".to_owned());
    }
    let at = row.at.or_else(|| before.iter().position(|one| one.secret == row.secret));
    let own = at.and_then(|at| Some((all.get(at)?, before.get(at)?)));
    let mut mount = own.map(|(live, _)| live.clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
    if own.is_none_or(|(_, before)| before.secret != row.secret) {
        set(&mut mount, "/secretName", Some(json!(row.secret)));
    }
    if own.is_none_or(|(_, before)| before.directory != row.directory) {
        set(&mut mount, "/mountPath", Some(json!(row.directory)));
    }
    Ok(mount)
}

/// Returns the entries of a list of a Function, as many as a form has.
fn entries<'f>(function: &'f Value, list: &str, most: usize) -> &'f [Value] {
    let all = function.pointer(&format!("/spec/{list}")).and_then(Value::as_array);
    let all = all.map(Vec::as_slice).unwrap_or_default();
    &all[..all.len().min(most)]
}

/// Returns a variable of the object: the live one with the changed fields, or a new one.
pub(crate) fn entry(row: &VariableRow, before: &[VariableRow], live: &Value) -> Result<Value, String> {
    let all = entries(live, "env", VARIABLES);
    if let Some(at) = unchanged(before, row.at, |one| row.is_same(one)) {
        return Ok(all[at].clone());
    }
    let name = &row.name;
    if name.is_empty() {
        return Err("A variable has a value and no name.".to_owned());
    }
    let at = row.at.or_else(|| before.iter().position(|one| one.name == row.name));
    let own = at.and_then(|at| Some((all.get(at)?, before.get(at)?)));
    if own.is_some_and(|(_, before)| before.origin == UNKNOWN) {
        return Err(format!("Variable {name}: this form does not know its origin. Change the manifest."));
    }
    let mut one = own.map(|(live, _)| live.clone()).filter(Value::is_object).unwrap_or_else(|| json!({}));
    if own.is_none_or(|(_, before)| before.name != row.name) {
        set(&mut one, "/name", Some(json!(name)));
    }
    let has_origin = own.is_some_and(|(_, before)| before.origin == row.origin);
    if !(has_origin && own.is_some_and(|(_, before)| before.value == row.value)) {
        set_value(&mut one, row, has_origin)?;
    }
    Ok(one)
}

/// Sets the value of a variable. With the same origin as before, the other fields of the origin stay.
fn set_value(one: &mut Value, row: &VariableRow, has_origin: bool) -> Result<(), String> {
    let name = &row.name;
    let (field, kind) = match row.origin.as_str() {
        "value" => {
            set(one, "/valueFrom", None);
            set(one, "/value", Some(json!(row.value)));
            return Ok(());
        }
        "Secret" => ("secretKeyRef", "Secret"),
        "ConfigMap" => ("configMapKeyRef", "ConfigMap"),
        _ => return Err(format!("Variable {name}: a field of the pod cannot be changed here. Change the manifest.")),
    };
    let parts = row.value.trim().split_once('/').filter(|(object, key)| !object.is_empty() && !key.is_empty());
    let (object, key) = parts.ok_or_else(|| format!("Variable {name}: write the {kind} and its key as NAME/KEY."))?;
    if !has_origin {
        set(one, "/value", None);
        set(one, "/valueFrom", Some(json!({})));
    }
    set(one, &format!("/valueFrom/{field}/name"), Some(json!(object)));
    set(one, &format!("/valueFrom/{field}/key"), Some(json!(key)));
    Ok(())
}
