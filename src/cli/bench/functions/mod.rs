//! What Functions cost.
