//! Tests of the stages.
