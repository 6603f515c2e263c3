//! placeholder
use crate::status::Cause;
use serde_json::Value;
/// placeholder
#[derive(Clone, Debug)]
pub struct Schema;
/// placeholder
pub fn builtin(_a: &str, _k: &str) -> Option<Schema> {
    Some(Schema)
}
/// placeholder
pub fn metadata() -> Schema {
    Schema
}
/// placeholder
pub fn structural(_s: &Value, _p: bool) -> Result<Schema, Vec<Cause>> {
    Ok(Schema)
}
/// placeholder
pub fn drop_unknown(_s: &Schema, _v: &mut Value) -> Vec<String> {
    vec![]
}
/// placeholder
pub fn check_types(_s: &Schema, _v: &Value, _k: &str) -> Result<(), String> {
    Ok(())
}
/// placeholder
pub fn apply_defaults(_s: &Schema, _v: &mut Value) {}
/// placeholder
pub fn normalise(_s: &Schema, _v: &mut Value) {}
/// placeholder
pub fn validate(_s: &Schema, _v: &Value, _o: Option<&Value>) -> Vec<Cause> {
    vec![]
}
/// placeholder
pub fn validate_definition(_v: &Value) -> Vec<Cause> {
    vec![]
}
