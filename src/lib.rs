//! Mainstay.
