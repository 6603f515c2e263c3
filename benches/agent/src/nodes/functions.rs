//! The measured Functions.

use std::time::Duration;

use serde_json::{Value, json};

/// Namespace of the Functions.
pub(super) const NAMESPACE: &str = "default";

/// A measured Function.
pub(super) struct Case {
    /// Part of the Function's name.
    pub name: &'static str,
    /// Display name.
    pub title: &'static str,
    /// Target time until the Function runs on two idle cores.
    pub promised: Duration,
    spec: Value,
}

impl Case {
    /// Returns the Function object.
    pub(super) fn object(&self, name: &str) -> Value {
        let mut spec = self.spec.clone();
        spec["buildProfile"] = "local-dev".into();
        json!({
            "apiVersion": "serverless.kyma-project.io/v1alpha1", "kind": "Function",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        })
    }
}

fn case(name: &'static str, title: &'static str, seconds: u64, spec: Value) -> Case {
    Case { name, title, promised: Duration::from_secs(seconds), spec }
}

/// Returns all cases. The Git case requires a repository.
pub(super) fn all(repository: Option<&str>) -> Vec<Case> {
    let modules = r#"{"type": "module", "dependencies": {"nanoid": "5.1.6", "lodash-es": "4.17.21"}}"#;
    let imports = "import { nanoid } from 'nanoid';\nimport { chunk } from 'lodash-es';\nexport const main = () => chunk([nanoid()], 1);\n";
    let requests = "import requests\n\ndef main(event, context):\n    return requests.__version__\n";
    let mut cases = vec![
        case(
            "nodejs",
            "Node.js",
            5,
            json!({"runtime": "nodejs22", "source": "module.exports = { main: () => 'hello' };\n"}),
        ),
        case(
            "python",
            "Python",
            5,
            json!({"runtime": "python311", "source": "def main(event, context):\n    return 'hello'\n"}),
        ),
        case("modules", "ESM with dependencies", 7, json!({"runtime": "nodejs22", "source": imports, "deps": modules})),
        case(
            "packages",
            "Python with requirements",
            10,
            json!({"runtime": "python311", "source": requests, "deps": "requests==2.32.5\n"}),
        ),
    ];
    if let Some(repository) = repository {
        let spec = json!({
            "runtime": "nodejs22", "type": "git", "source": repository, "reference": "main", "baseDir": "/hello",
        });
        cases.push(case("git", "Git", 7, spec));
    }
    cases
}
