//! The inputs of a commit that are not in its tree: the values of variables and of charts, and the decryption keys.
//!
//! Invariant: if the values or the keys cannot be read, they are unknown. Earlier ones do not take their place.
//!
//! Not here: the objects that contain the inputs (`sources`).

use std::sync::Arc;

use super::chart_values::{ChartValues, SecretValues};
use super::outcome::Refused;
use super::resolve::SyncRequest;
use super::values::Values;
use mainstay_manifest::sops::Keys;
use mainstay_manifest::{Decryption, Form};
use mainstay_object::Digest;

/// The inputs, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    values: Option<InputValues>,
    decryption: Option<Decryption>,
}

/// The values of variables and of charts.
#[derive(Debug, Default)]
pub(super) struct InputValues {
    /// The values of variables; `None` without substitution.
    variables: Option<Arc<Values>>,
    /// The values of the chart; `None` if no source has values.
    chart: Option<Arc<ChartValues>>,
}

impl InputValues {
    pub(super) fn new(variables: Option<Values>, chart: Option<ChartValues>) -> Self {
        Self { variables: variables.map(Arc::new), chart: chart.map(Arc::new) }
    }

    /// Returns a digest of all values; `None` if there are none.
    fn digest(&self) -> Option<Digest> {
        let variables = self.variables.as_ref().map(|values| values.digest);
        match (variables, self.chart.as_ref().map(|values| values.digest)) {
            (Some(variables), Some(chart)) => Some(Digest::of(format!("{variables} {chart}").as_bytes())),
            (variables, chart) => variables.or(chart),
        }
    }
}

impl Inputs {
    /// Returns known inputs.
    pub(super) fn known(values: InputValues, decryption: Decryption) -> Self {
        Self { values: Some(values), decryption: Some(decryption) }
    }

    /// Keeps the values as read.
    ///
    /// # Errors
    ///
    /// The error of the read. The values are then unknown.
    pub(super) fn set_values(&mut self, read: Result<InputValues, Refused>) -> Result<(), Refused> {
        keep(&mut self.values, read)
    }

    /// Keeps the decryption as read.
    ///
    /// # Errors
    ///
    /// The error of the read. The keys are then unknown.
    pub(super) fn set_decryption(&mut self, read: Result<Decryption, Refused>) -> Result<(), Refused> {
        keep(&mut self.decryption, read)
    }

    /// Whether the values and the keys are known.
    pub(super) fn are_known(&self) -> bool {
        self.values.is_some() && self.decryption.is_some()
    }

    /// Returns the values of variables; `None` without substitution.
    pub(super) fn variables(&self) -> Option<&Arc<Values>> {
        self.values.as_ref()?.variables.as_ref()
    }

    /// Returns the values of the chart; `None` if no source has values.
    pub(super) fn chart(&self) -> Option<&ChartValues> {
        self.values.as_ref()?.chart.as_deref()
    }

    /// Returns the values of the chart that are from Secrets.
    pub(super) fn secret_of_chart(&self) -> Option<&SecretValues> {
        self.chart()?.secret.as_ref()
    }

    /// Returns the values from Secrets, of variables and of the chart.
    pub(super) fn secret_values(&self) -> Vec<String> {
        let of_variables = self.variables().map(|values| values.secrets()).unwrap_or_default();
        let of_chart = self.secret_of_chart().into_iter().flat_map(|secret| secret.texts.clone());
        of_variables.into_iter().chain(of_chart).collect()
    }

    /// Returns a digest of all values; `None` if there are none.
    pub(super) fn digest(&self) -> Option<Digest> {
        self.values.as_ref()?.digest()
    }

    /// Returns the decryption of files that SOPS encrypted.
    pub(super) fn decryption(&self) -> Decryption {
        self.decryption.clone().unwrap_or_default()
    }

    /// Returns the decryption keys, if there are any.
    pub(super) fn keys(&self) -> Option<&Arc<Keys>> {
        self.decryption.as_ref()?.keys()
    }

    /// Returns the form in which objects are decoded. With variables, the original string of each scalar is kept.
    pub(super) fn form(&self) -> Form {
        if self.variables().is_some() { Form::WithExpressions } else { Form::Final }
    }

    /// Adds the values and the keys to a request.
    pub(super) fn add_to(&self, request: &mut SyncRequest) {
        request.values = self.digest();
        request.keys = self.decryption.as_ref().and_then(Decryption::key_id);
    }
}

fn keep<T>(known: &mut Option<T>, read: Result<T, Refused>) -> Result<(), Refused> {
    *known = None;
    *known = Some(read?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use mainstay_api::conditions::Reason;

    use super::*;

    fn unreadable<T>() -> Result<T, Refused> {
        Err(Refused::invalid(Reason::SpecInvalid, "spec.decryption is not set"))
    }

    #[test]
    fn inputs_are_known_once_both_were_read_and_until_one_cannot_be_read() {
        let mut inputs = Inputs::default();
        assert!(inputs.set_values(Ok(InputValues::default())).is_ok() && !inputs.are_known());
        assert!(inputs.set_decryption(Ok(Decryption::default())).is_ok() && inputs.are_known());
        assert!(inputs.set_values(unreadable()).is_err() && !inputs.are_known());
        assert!(inputs.set_values(Ok(InputValues::default())).is_ok() && inputs.are_known());
        assert!(inputs.set_decryption(unreadable()).is_err() && !inputs.are_known());
    }
}
