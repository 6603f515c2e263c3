//! `mainstay completion`: what a shell needs to complete our commands.

use clap::Command;
use clap_complete::Shell;

use super::{Error, Exit, output};

/// Arguments of `completion`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// The shell
    shell: Shell,
}

/// Prints the completion of `command`.
pub(super) fn run(arguments: &Arguments, mut command: Command) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "mainstay", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Fine)
}
