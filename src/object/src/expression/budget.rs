//! A limit for the steps of several evaluations together.

use super::error::Fault;
use super::limits::STEPS;
use super::steps::Steps;

/// The steps that several evaluations may take together. Each of them takes at most [`STEPS`], too.
#[derive(Debug)]
pub struct Budget {
    all: u32,
    left: u32,
}

impl Budget {
    /// Returns a budget of this number of steps.
    pub fn new(steps: u32) -> Self {
        Self { all: steps, left: steps }
    }

    /// Whether no steps remain. Every further evaluation fails.
    pub fn is_spent(&self) -> bool {
        self.left == 0
    }

    /// Evaluates with the remaining steps.
    pub(super) fn evaluate<T>(&mut self, evaluation: impl FnOnce(&mut Steps) -> Result<T, Fault>) -> Result<T, Fault> {
        let mut steps = Steps::at_most(self.left);
        let given = steps.left();
        let evaluated = evaluation(&mut steps);
        self.left -= given - steps.left();
        evaluated.map_err(|fault| {
            if !fault.is_final || given == STEPS {
                return fault;
            }
            Fault { what: format!("the expressions take more than {} steps together", self.all), ..fault }
        })
    }
}
