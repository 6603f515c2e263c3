//! Answers requests: judges them, finds their session, reads the cluster, and renders a page.

mod act;
mod answer;
mod assets;
mod console;
mod live;
mod log;
mod pages;
mod read;
mod session;
mod watched;

pub use console::{Console, Settings};
