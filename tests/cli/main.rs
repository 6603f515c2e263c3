//! Integration tests: the commands, the embedded cluster behind `mainstay dev`, and the documentation.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod chart;
mod check;
mod cli;
mod cluster_flags;
mod console;
mod convert;
mod dev;
mod dev_choices;
mod dev_functions;
mod dev_local;
mod dev_work_tree;
mod explain_commands;
mod first_hour;
mod function_cli;
mod function_run;
mod get_command;
mod install;
mod manifests;
mod onboarding;
mod output_formats;
mod page_answer;
mod reference;
mod registry_copies;
mod remote_clusters;
mod rights;
mod see_before;
mod status_command;
mod sync_command;
mod tutorials;
mod ui;
