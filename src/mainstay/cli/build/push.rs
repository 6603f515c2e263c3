//! `mainstay build push`: pushes the workspace of the earlier containers as an image to the registry.

use std::path::PathBuf;

use clap::Args;

use super::{internal, report, runtime};
use crate::cli::output;
use mainstay_api::build::{BuildFailure, FailureReason};
use mainstay_function::build::fetch::{self, SourceOf};
use mainstay_function::build::image::{Base, Bounds, Platform};
use mainstay_function::build::install;
use mainstay_function::build::push;
use mainstay_function::registry::{Deadlines, ImageRef};
use mainstay_function::runtimes::libraries;
use mainstay_object::failure::chain;

#[derive(Args, Debug)]
pub(in crate::cli) struct Push {
    /// Runtime of the Function, such as nodejs22
    #[arg(long, value_name = "NAME")]
    runtime: String,
    /// Directory shared by the containers of the Job
    #[arg(long, value_name = "DIRECTORY")]
    workspace: PathBuf,
    /// Directory with the keys of the registry Secret
    #[arg(long, value_name = "DIRECTORY")]
    registry: PathBuf,
    /// Directory with the files `source` and `dependencies`, which are fetched first; they must need no installation
    #[arg(long, value_name = "DIRECTORY")]
    inline: Option<PathBuf>,
    /// The workspace has the installed dependencies of the inline source
    #[arg(long, requires = "inline")]
    installed: bool,
    /// File with the CA bundle of the registry of the base image; may be missing
    #[arg(long, value_name = "FILE")]
    base_ca: Option<PathBuf>,
    /// Name of the image, with its tag
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Image to build on: `scratch`, `oci:DIRECTORY`, or NAME@sha256:…
    #[arg(long, value_name = "IMAGE", default_value = "scratch")]
    base: String,
    /// Let builds of other namespaces mount the layers of the base image, in the registry of the cluster
    #[arg(long)]
    share_base: bool,
    /// Operating system and architecture of the image
    #[arg(long, value_name = "OS/ARCHITECTURE", default_value = "linux/amd64")]
    platform: String,
    /// Directory of the packages of the runtime servers; by default that of the image, else of the user's cache
    #[arg(long, value_name = "DIRECTORY", env = libraries::VARIABLE, hide_env_values = true)]
    libraries: Option<PathBuf>,
    /// Previous image, by digest, whose dependencies are reused if `fetch` has found them unchanged
    #[arg(long, value_name = "IMAGE")]
    previous: Option<String>,
}

pub(super) async fn run(arguments: Push) -> Result<(), BuildFailure> {
    if let Some(directory) = arguments.inline.clone() {
        let request = fetch::Request {
            runtime: runtime(&arguments.runtime)?,
            workspace: arguments.workspace.clone(),
            source: SourceOf::Inline(directory),
            on: install::Platform { base: arguments.base.clone(), platform: arguments.platform.clone() },
            known_dependencies: None,
            is_installed: arguments.installed,
            for_kaniko: None,
            bounds: fetch::Bounds::default(),
        };
        let fetched = fetch::fetch(&request).await.map_err(|error| error.failure())?;
        if !fetched.dependencies.is_empty() && !arguments.installed {
            return Err(internal("the source has dependencies, which nothing has installed"));
        }
    }
    let built = push::push(&request(arguments)?).await.map_err(|error| error.failure())?;
    let reused = if built.reused { ", which the registry had" } else { "" };
    // The log is informational, so a failure to write this line is ignored.
    let _ = output::print(&format!("pushed {}{reused}, {} s after the build began\n", built.digest, built.seconds));
    report(&built);
    Ok(())
}

fn request(arguments: Push) -> Result<push::Request, BuildFailure> {
    let image = |text: &str| -> Result<ImageRef, BuildFailure> {
        text.parse().map_err(|error| internal(&format!("{text:?} is not a valid image name: {error}")))
    };
    Ok(push::Request {
        runtime: runtime(&arguments.runtime)?,
        workspace: arguments.workspace,
        registry: arguments.registry,
        base_ca: arguments.base_ca,
        image: image(&arguments.image)?,
        base: arguments.base.parse::<Base>().map_err(|error| BuildFailure {
            reason: FailureReason::BaseImage,
            message: format!("{:?}: {}", arguments.base, chain(&error)),
            retry: false,
            waits_for_registry: false,
        })?,
        shares_base: arguments.share_base,
        libraries: libraries::place(arguments.libraries),
        platform: arguments.platform.parse::<Platform>().map_err(|error| internal(&error))?,
        previous: arguments.previous.as_deref().map(image).transpose()?,
        bounds: Bounds::default(),
        deadlines: Deadlines::default(),
    })
}
