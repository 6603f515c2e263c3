//! Tests of the children.
