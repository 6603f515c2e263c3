//! placeholder
use crate::{schema::Schema, status::Status};
use serde_json::Value;
/// placeholder
pub struct ApplyContext<'a> {
    /// x
    pub schema: &'a Schema,
    /// x
    pub api_version: &'a str,
    /// x
    pub manager: &'a str,
    /// x
    pub subresource: &'a str,
    /// x
    pub force: bool,
    /// x
    pub now: &'a str,
    /// x
    pub reset: &'a [&'a [&'a str]],
}
/// placeholder
pub fn apply(_cx: &ApplyContext<'_>, live: Option<&Value>, config: &Value) -> Result<Value, Status> {
    Ok(live.map_or_else(|| config.clone(), |l| merge(l, config)))
}
/// placeholder
pub fn track(_cx: &ApplyContext<'_>, _old: Option<&Value>, _new: &mut Value) {}
/// placeholder
pub fn equal_but_times(a: &Value, b: &Value) -> bool {
    a == b
}
/// placeholder
pub fn strategic(_s: &Schema, live: &Value, patch: &Value) -> Result<Value, Status> {
    Ok(merge(live, patch))
}
/// placeholder
pub fn merge(live: &Value, patch: &Value) -> Value {
    let mut l = live.clone();
    json_patch::merge(&mut l, patch);
    l
}
/// placeholder
pub fn json(live: &Value, patch: &Value) -> Result<Value, Status> {
    let mut l = live.clone();
    let p: json_patch::Patch = serde_json::from_value(patch.clone()).map_err(|e| Status::bad_request(e.to_string()))?;
    json_patch::patch(&mut l, &p).map_err(|e| Status::bad_request(e.to_string()))?;
    Ok(l)
}
