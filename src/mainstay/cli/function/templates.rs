//! The files of a new workspace.

use mainstay_function::runtimes::{Language, Runtime};
use mainstay_object::syntax;

/// Name of the Function if the directory's name is not allowed.
const FIRST: &str = "first-function";

/// Returns the name of the Function: that of the directory, if it is allowed.
pub(super) fn name(directory: Option<&str>) -> String {
    let fits = directory.filter(|name| syntax::dns_label(name).is_empty());
    fits.unwrap_or(FIRST).to_owned()
}

/// Returns the handler and the dependency file, each with name and content.
pub(super) fn files(name: &str, runtime: &Runtime) -> [(String, String); 2] {
    let (handler, dependencies) = match runtime.language {
        Language::NodeJs => (
            "module.exports = {\n  main: function (event, context) {\n    return 'Hello Serverless'\n  }\n}\n"
                .to_owned(),
            format!("{{\n  \"name\": \"{name}\",\n  \"version\": \"0.0.1\",\n  \"dependencies\": {{}}\n}}"),
        ),
        Language::Python => ("def main(event, context):\n    return \"hello world\"\n".to_owned(), String::new()),
    };
    [(runtime.handler_file().to_owned(), handler), (runtime.dependency_file().to_owned(), dependencies)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_called_as_its_directory_where_it_may_be() {
        assert_eq!(name(Some("my-function")), "my-function");
        for other in [None, Some("My Function"), Some("a.b"), Some("-"), Some("1st")] {
            assert_eq!(name(other), "first-function", "{other:?}");
        }
    }

    #[test]
    fn the_dependencies_of_a_new_function_are_none() {
        let [_, (name, text)] = files("a", mainstay_function::runtimes::find("nodejs22").unwrap());
        assert_eq!(name, "package.json");
        let expected = serde_json::json!({"name": "a", "version": "0.0.1", "dependencies": {}});
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
    }
}
