//! `mainstay runtimes`: fetches the packages of the runtime servers in advance.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Error, Exit, output};
use mainstay_function::runtimes::libraries;

#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Fetch the locked packages of the runtime servers (Express, Bottle) with npm and pip
    Fetch {
        /// Directory for the packages; by default that of the image, else of the user's cache
        #[arg(value_name = "DIRECTORY", env = libraries::VARIABLE, hide_env_values = true)]
        directory: Option<PathBuf>,
    },
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    let What::Fetch { directory } = arguments.what;
    let fetched = tokio::task::spawn_blocking(|| libraries::fetch_all(&libraries::place(directory))).await;
    let fetched = fetched.unwrap_or_else(|_| Ok(Vec::new())).map_err(Error::Libraries)?;
    let lines: Vec<_> = fetched.iter().map(|path| format!("{}\n", path.display())).collect();
    output::print(&lines.concat())?;
    Ok(Exit::Fine)
}
