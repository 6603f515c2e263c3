//! `mainstay renderer`: the container of the agent's pod that renders kustomizations and charts.

use std::path::PathBuf;

use super::{Error, Exit, logs, stop};
use mainstay_manifest::render;

/// Arguments of `renderer`.
#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Directory shared with the agent: the input is in `files` and is only read; the socket is in `socket`
    #[arg(long, value_name = "DIR", env = "MAINSTAY_RENDERER")]
    shared: PathBuf,
    /// Format of log lines
    #[arg(long, value_name = "FORMAT", value_enum, default_value = "text")]
    log_format: logs::Format,
}

pub(super) async fn run(arguments: Arguments) -> Result<Exit, Error> {
    logs::start(arguments.log_format, "info");
    let (path, stop) = (std::env::var_os("PATH"), stop::on_signal()?);
    render::serve(&arguments.shared, path.as_deref(), &stop).await.map_err(Error::Renderer)?;
    Ok(Exit::Fine)
}
