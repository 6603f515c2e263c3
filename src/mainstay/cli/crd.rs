//! `mainstay crd`: prints the CRDs, which are generated from the types, as one YAML stream.

use super::{Error, Exit, output};

pub(super) fn run() -> Result<Exit, Error> {
    output::print(&yaml()?)?;
    Ok(Exit::Fine)
}

/// Returns all CRDs as YAML documents.
fn yaml() -> Result<String, Error> {
    let mut text = String::new();
    for definition in mainstay_api::definitions() {
        text.push_str("---\n");
        text.push_str(&serde_yaml::to_string(&definition).map_err(Error::WriteYaml)?);
    }
    Ok(text)
}
