//! The remedy for an object whose kind the cluster does not serve.

/// The beginning of the message about a kind that the cluster does not serve.
pub const NOT_SERVED: &str = "the cluster does not serve";

/// Returns whether a kind of this API group, or a resource with this suffix, is one of Flux.
pub fn is_of_flux(group: &str) -> bool {
    group.ends_with(".toolkit.fluxcd.io")
}

/// Returns the remedy for an object of this API group if the cluster does not serve its kind.
pub fn remedy(group: &str) -> &'static str {
    if is_of_flux(group) {
        "it is an object of Flux: remove its manifest; `mainstay convert flux` prints the counterparts of objects of Flux"
    } else if group == "argoproj.io" {
        "`mainstay convert argocd` prints the counterparts of Applications; otherwise add the CustomResourceDefinition"
    } else {
        "check apiVersion and kind, or add the CustomResourceDefinition to the repository"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undefined_kind_of_another_tool_names_the_conversion() {
        let flux = remedy("kustomize.toolkit.fluxcd.io");
        assert!(flux.contains("remove its manifest") && flux.contains("`mainstay convert flux`"), "{flux}");
        assert!(remedy("argoproj.io").contains("`mainstay convert argocd`"));
        assert!(remedy("example.org").contains("check apiVersion"));
        assert!(remedy("").contains("check apiVersion"));
    }
}
