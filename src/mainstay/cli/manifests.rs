//! `mainstay manifests`: prints which files of a directory the agent would read, and why the agent skips the others.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use ignore::WalkBuilder;
use serde_json::{Value, json};

use super::overlays::{self, Overlays};
use super::{Error, Exit, output};
use mainstay_api::names::IGNORE_FILE;
use mainstay_git::{BlobId, Entry, EntryKind, thread_time};
use mainstay_manifest::{FileReport, FileState, Limits};
use mainstay_object::{counted, printable};

#[derive(clap::Args, Debug)]
pub(super) struct Arguments {
    /// Directory to read, as the `baseDir` of its repository; files that Git ignores are skipped
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// Output format
    #[arg(long, short, value_name = "FORM", value_enum, default_value = "text")]
    output: Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Text,
    Json,
}

/// Prints the use of each file. The exit code is 1 if a file has a problem.
pub(super) fn run(arguments: &Arguments) -> Result<Exit, Error> {
    let reports = reports(&arguments.path)?;
    let has_problems = reports.iter().any(|report| matches!(report.state, FileState::Problems(_)));
    let text = match arguments.output {
        Form::Text => text(&reports),
        Form::Json => format!("{:#}\n", Value::from(reports.iter().map(as_json).collect::<Vec<_>>())),
    };
    output::print(&text)?;
    if let Some(overlays) = overlays(&arguments.path, &reports)? {
        output::note(&format!("warning: {overlays} as PATH, or the others in {IGNORE_FILE}\n"));
    }
    Ok(if has_problems { Exit::Differs } else { Exit::Fine })
}

fn unread(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |cause| Error::ReadFile { path, cause }
}

/// Returns the root of the repository around a directory, or the directory itself if there is none, and the canonical
/// directory.
fn root_of(path: &Path) -> Result<(PathBuf, PathBuf), Error> {
    let directory = fs::canonicalize(path).map_err(unread(path))?;
    let root = directory.ancestors().find(|above| above.join(".git").exists()).unwrap_or(&directory).to_owned();
    Ok((root, directory))
}

/// Returns the choices if a base and its overlays would be built side by side.
fn overlays(path: &Path, reports: &[FileReport]) -> Result<Option<Overlays>, Error> {
    let (root, directory) = root_of(path)?;
    let built = reports.iter().filter(|report| matches!(report.state, FileState::Built));
    let paths = built.map(|report| report.path.clone()).filter(|path| overlays::is_kustomization(path));
    let read = |path: String| {
        let file = root.join(&path);
        Ok((path, fs::read(&file).map_err(unread(&file))?))
    };
    let files = paths.map(read).collect::<Result<_, Error>>()?;
    Ok(overlays::among(&format!("/{}", relative(&root, &directory)), &files))
}

fn reports(path: &Path) -> Result<Vec<FileReport>, Error> {
    let (root, directory) = root_of(path)?;
    fs::read_dir(&directory).map_err(unread(path))?;
    let base_dir = relative(&root, &directory);
    let mut listing = Vec::new();
    for above in directory.ancestors().skip(1).take_while(|above| above.starts_with(&root)) {
        listing.extend(entry(&root, &above.join(IGNORE_FILE)).map_err(unread(above))?);
    }
    let mut walk = WalkBuilder::new(&directory);
    walk.hidden(false).ignore(false).follow_links(false).filter_entry(|entry| entry.file_name() != ".git");
    for found in walk.build() {
        let found = found
            .map_err(|error| unread(path)(error.into_io_error().unwrap_or_else(|| io::ErrorKind::Other.into())))?;
        listing.extend(entry(&root, found.path()).map_err(unread(found.path()))?);
    }
    let mut failed = None;
    let mut read = |entry: &Entry| {
        let path = root.join(&entry.path);
        let content = match entry.kind {
            EntryKind::Symlink => fs::read_link(&path).map(|target| target.into_os_string().into_encoded_bytes()),
            EntryKind::File | EntryKind::Submodule => fs::read(&path),
        };
        Ok(content.unwrap_or_else(|cause| {
            failed = Some(Error::ReadFile { path, cause });
            Vec::new()
        }))
    };
    let limits = Limits::new(thread_time);
    let reports = mainstay_manifest::report(&listing, &base_dir, &mut read, &limits).map_err(Error::Manifests)?;
    failed.map_or(Ok(reports), Err)
}

/// Returns the path below the root of the repository, as Git writes it.
fn relative(root: &Path, path: &Path) -> String {
    let below = path.strip_prefix(root).unwrap_or(path);
    below.components().map(|part| part.as_os_str().to_string_lossy()).collect::<Vec<_>>().join("/")
}

/// Returns the listing entry of a file or a link; `None` for a directory and for a missing path.
fn entry(root: &Path, path: &Path) -> io::Result<Option<Entry>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let kind = if metadata.is_file() {
        EntryKind::File
    } else if metadata.is_symlink() {
        EntryKind::Symlink
    } else {
        return Ok(None);
    };
    let path = relative(root, path);
    // The id may be arbitrary, because it is not used for caching.
    let id: BlobId = "0".repeat(40).parse().expect("40 digits are an id");
    Ok(Some(Entry { path, id, size: metadata.len(), kind, executable: false, flaw: None }))
}

fn text(reports: &[FileReport]) -> String {
    let mut text = String::new();
    let (mut read, mut objects, mut built, mut left_out, mut wrong) = (0, 0, 0, 0, 0);
    for FileReport { path, state } in reports {
        let path = printable(path);
        match state {
            FileState::Read(count) => {
                (read, objects) = (read + 1, objects + count);
                text += &format!("read      {path}: {}\n", counted(*count, "object"));
            }
            FileState::Built => {
                built += 1;
                text += &format!("built     {path}: its directory is a kustomization\n");
            }
            FileState::Rendered => {
                built += 1;
                text += &format!("rendered  {path}: its directory is a Helm chart\n");
            }
            FileState::LeftOut(why) => {
                left_out += 1;
                text += &format!("left out  {path}: {why}\n");
            }
            FileState::Problems(problems) => {
                wrong += 1;
                text.extend(problems.iter().map(|problem| format!("problem   {problem}\n")));
            }
        }
    }
    let [files, objects] = [counted(read, "file"), counted(objects, "object")];
    let built = if built > 0 { format!("{built} built, ") } else { String::new() };
    text + &format!("{files} read with {objects}, {built}{left_out} left out, {wrong} with problems\n")
}

fn as_json(report: &FileReport) -> Value {
    let file = &report.path;
    match &report.state {
        FileState::Read(objects) => json!({"file": file, "state": "read", "objects": objects}),
        FileState::Built => json!({"file": file, "state": "built"}),
        FileState::Rendered => json!({"file": file, "state": "rendered"}),
        FileState::LeftOut(why) => json!({"file": file, "state": "leftOut", "reason": why}),
        FileState::Problems(problems) => {
            let problem = |problem: &mainstay_manifest::Problem| {
                let place = &problem.place;
                json!({
                    "document": place.document, "line": place.line, "column": place.column,
                    "problem": problem.what, "hint": problem.hint,
                })
            };
            json!({"file": file, "state": "problem", "problems": problems.iter().map(problem).collect::<Vec<_>>()})
        }
    }
}
