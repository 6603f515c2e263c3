//! Reads the archive of an artifact: a tar file, with or without gzip.
//!
//! Invariant: an archive takes bounded memory, whatever its headers claim. Only one file is in memory at a time.
//! Invariant: a path stays within the artifact. Links and devices are refused.
//! Not here: how the files are stored (`artifact`). Packed charts in a chart are checked by `manifest`, which uses
//! [`entry_role`], too.

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::{Archive, Entry, EntryType, PaxExtensions};

use super::error::Fault;

/// Maximum length of a path, in bytes.
const PATH_BYTES: u64 = 4096;
/// Maximum size of a header in PAX format, in bytes.
const HEADER_BYTES: u64 = 64 << 10;
/// The first bytes of gzip.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The limits of an archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArchiveLimits {
    /// Unpacked bytes of the whole archive.
    pub(super) bytes: u64,
    /// Bytes of a file.
    pub(super) file_bytes: u64,
    /// Number of files.
    pub(super) files: usize,
}

/// The files of an archive that become the root of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// All files.
    Top,
    /// The files of the only directory, as in a packed chart. Files beside the directory are refused.
    Directory,
}

/// The role of an entry in an archive whose entries are read as they are (`raw`). Otherwise the library reads each header
/// into memory, whatever its size is.
#[derive(Debug, PartialEq, Eq)]
pub enum EntryRole {
    /// A header of a later entry, and the path that the header gives to that entry.
    Header(Option<Vec<u8>>),
    /// A file, a directory, a link or a device.
    Member,
}

/// Returns the role of an entry. The content of a header is read.
///
/// # Errors
/// If a header is too large, is invalid, or changes the content of the later entry.
pub fn entry_role<R: Read>(entry: &mut Entry<'_, R>) -> Result<EntryRole, Fault> {
    let size = entry.header().entry_size().map_err(unreadable)?;
    Ok(match entry.header().entry_type() {
        EntryType::GNULongName => {
            let name = content(entry, size, PATH_BYTES, "a path in the archive in bytes")?;
            EntryRole::Header(Some(name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()))
        }
        EntryType::XHeader => {
            let header = content(entry, size, HEADER_BYTES, "a header of the archive in bytes")?;
            EntryRole::Header(extended_path(&header)?)
        }
        EntryType::XGlobalHeader | EntryType::GNULongLink => EntryRole::Header(None),
        _ => EntryRole::Member,
    })
}

/// A file of an archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ArchiveFile {
    /// Path of the file, without a leading slash.
    pub(super) path: String,
    pub(super) executable: bool,
    pub(super) content: Vec<u8>,
}

/// Passes each file of the archive to `each`.
pub(super) fn unpack(
    archive: impl Read,
    limits: ArchiveLimits,
    root: Root,
    mut each: impl FnMut(ArchiveFile) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut directory: Option<String> = None;
    let mut each = |mut file: ArchiveFile| {
        if root == Root::Directory {
            let beside = || broken(format!("{} is outside the directory of the chart", shown(file.path.as_bytes())));
            let (first, rest) = file.path.split_once('/').ok_or_else(beside)?;
            if directory.get_or_insert_with(|| first.to_owned()) != first {
                return Err(beside());
            }
            let rest = rest.to_owned();
            file.path = rest;
        }
        each(file)
    };
    let mut packed = BufReader::new(archive);
    let is_gzip = packed.fill_buf().map_err(Fault::disk)?.starts_with(&GZIP);
    let plain: Box<dyn Read + '_> = if is_gzip { Box::new(MultiGzDecoder::new(packed)) } else { Box::new(packed) };
    let mut archive = Archive::new(Bounded { inner: plain, left: limits.bytes, is_over: false });
    let read = read(&mut archive, limits, &mut each);
    if archive.into_inner().is_over {
        return Err(Fault::TooLarge { what: "the unpacked artifact in bytes", limit: limits.bytes });
    }
    read
}

fn read<R: Read>(
    archive: &mut Archive<R>,
    limits: ArchiveLimits,
    each: &mut impl FnMut(ArchiveFile) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut paths = Paths::default();
    let mut long = None;
    for entry in archive.entries().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        if let EntryRole::Header(path) = entry_role(&mut entry)? {
            long = path.or(long);
            continue;
        }
        let size = entry.header().entry_size().map_err(unreadable)?;
        match entry.header().entry_type() {
            EntryType::Directory => long = None,
            EntryType::Regular | EntryType::Continuous => {
                let path = long.take().unwrap_or_else(|| entry.path_bytes().into_owned());
                let path = paths.add(&path, limits.files)?;
                let executable = entry.header().mode().is_ok_and(|mode| mode & 0o100 != 0);
                let content = content(&mut entry, size, limits.file_bytes, "a file of the artifact in bytes")?;
                each(ArchiveFile { path, executable, content })?;
            }
            kind => {
                let path = long.take().unwrap_or_else(|| entry.path_bytes().into_owned());
                let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
                let what = if is_link { "a link" } else { "not a file" };
                return Err(broken(format!(
                    "{} is {what}; the archive must contain only files and directories",
                    shown(&path)
                )));
            }
        }
    }
    Ok(())
}

/// Returns the path in a header in PAX format.
fn extended_path(header: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    let mut path = None;
    for extension in PaxExtensions::new(header) {
        let extension = extension.map_err(unreadable)?;
        match extension.key_bytes() {
            b"path" => path = Some(extension.value_bytes().to_vec()),
            b"size" => return Err(broken("a file has its size in an extended header".to_owned())),
            // Such a header gives the file a different path and content.
            key if key.starts_with(b"GNU.sparse.") => {
                return Err(broken("it has a sparse file; pack it without `--sparse`".to_owned()));
            }
            _ => {}
        }
    }
    Ok(path)
}

/// Returns the content of an entry. The size is checked before memory is allocated.
fn content(entry: &mut impl Read, size: u64, limit: u64, what: &'static str) -> Result<Vec<u8>, Fault> {
    if size > limit {
        return Err(Fault::TooLarge { what, limit });
    }
    let mut content = Vec::new();
    entry.take(limit).read_to_end(&mut content).map_err(unreadable)?;
    if content.len() as u64 == size { Ok(content) } else { Err(broken("it ends within a file".to_owned())) }
}

/// The paths of the files that were read so far.
#[derive(Default)]
struct Paths {
    files: BTreeSet<String>,
    directories: BTreeSet<String>,
}

impl Paths {
    /// Checks the path of the next file.
    fn add(&mut self, path: &[u8], most: usize) -> Result<String, Fault> {
        let refuse = |why: &str| Err(broken(format!("{} {why}", shown(path))));
        let Ok(text) = std::str::from_utf8(path) else { return refuse("is a path that is not UTF-8 text") };
        let mut text = text;
        while let Some(rest) = text.strip_prefix("./") {
            text = rest;
        }
        let is_plain = |part: &str| !matches!(part, "" | "." | "..") && !part.eq_ignore_ascii_case(".git");
        let has_odd = text.chars().any(|c| c.is_control() || c == '\\');
        if has_odd || text.len() as u64 > PATH_BYTES || !text.split('/').all(is_plain) {
            return refuse("is a path outside the artifact, or one that Git does not allow");
        }
        if self.files.len() >= most {
            return Err(Fault::TooLarge { what: "the number of files of the artifact", limit: most as u64 });
        }
        let parents = || text.match_indices('/').map(|(at, _)| &text[..at]);
        if self.directories.contains(text) || parents().any(|parent| self.files.contains(parent)) {
            return refuse("is both a file and a directory");
        }
        if !self.files.insert(text.to_owned()) {
            return refuse("is in the archive twice");
        }
        self.directories.extend(parents().map(str::to_owned));
        Ok(text.to_owned())
    }
}

fn shown(path: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(path).chars().take(200).collect();
    format!("{text:?}")
}

fn broken(what: String) -> Fault {
    Fault::Archive { what }
}

fn unreadable(_: io::Error) -> Fault {
    broken("it is not a tar file, or it is truncated".to_owned())
}

/// A reader that ends at a limit.
struct Bounded<R> {
    inner: R,
    left: u64,
    is_over: bool,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        let Some(left) = self.left.checked_sub(length as u64) else {
            self.is_over = true;
            return Err(io::Error::other("it is larger than the limit"));
        };
        self.left = left;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const LIMITS: ArchiveLimits = ArchiveLimits { bytes: 1 << 20, file_bytes: 64 << 10, files: 4 };

    fn header(path: &str, kind: EntryType, size: usize) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(size as u64);
        header.set_cksum();
        header
    }

    fn packed(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, kind, content) in entries {
            builder.append(&header(path, *kind, content.len()), *content).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn paths(archive: &[u8]) -> Result<Vec<String>, String> {
        paths_below(archive, Root::Top)
    }

    fn paths_below(archive: &[u8], root: Root) -> Result<Vec<String>, String> {
        let mut found = Vec::new();
        let read = unpack(archive, LIMITS, root, |file| {
            found.push(file.path);
            Ok(())
        });
        read.map(|()| found).map_err(|fault| fault.to_string())
    }

    #[test]
    fn reads_files_with_and_without_gzip() {
        let long = "x".repeat(90);
        let path = format!("{long}/{long}.yaml");
        let mut builder = tar::Builder::new(Vec::new());
        builder.append(&header("./", EntryType::Directory, 0), &b""[..]).unwrap();
        builder.append(&header("./a/b.yaml", EntryType::Regular, 2), &b"x\n"[..]).unwrap();
        let mut large = tar::Header::new_gnu();
        large.set_size(0);
        large.set_mode(0o755);
        builder.append_data(&mut large, &path, &b""[..]).unwrap();
        let plain = builder.into_inner().unwrap();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        for archive in [plain.clone(), gzip.finish().unwrap()] {
            assert_eq!(paths(&archive), Ok(vec!["a/b.yaml".to_owned(), path.clone()]));
        }
        assert!(paths(&plain[..700]).is_err(), "it is cut off");
    }

    #[test]
    fn refuses_paths_that_lead_out_links_and_doubles() {
        let regular = EntryType::Regular;
        for path in ["../a", "/a", "a/../../b", "a//b", "a\\b", ".git/config", "a/.GIT/x", "..", ""] {
            let said = paths(&packed(&[(path, regular, b"")])).unwrap_err();
            assert!(said.contains("outside the artifact"), "{path}: {said}");
        }
        for kind in [EntryType::Symlink, EntryType::Link] {
            assert!(paths(&packed(&[("a", kind, b"")])).unwrap_err().contains("\"a\" is a link"));
        }
        assert!(paths(&packed(&[("a", EntryType::Fifo, b"")])).unwrap_err().contains("is not a file"));
        assert!(paths(&packed(&[("a", regular, b""), ("a", regular, b"")])).unwrap_err().contains("twice"));
        for pair in [["a", "a/b"], ["a/b", "a"]] {
            let said = paths(&packed(&pair.map(|path| (path, regular, &b""[..])))).unwrap_err();
            assert!(said.contains("both a file and a directory"), "{said}");
        }
    }

    #[test]
    fn leaves_out_the_only_directory_of_a_packed_chart() {
        let below = |paths: &[&str]| {
            let entries: Vec<_> = paths.iter().map(|path| (*path, EntryType::Regular, &b""[..])).collect();
            paths_below(&packed(&entries), Root::Directory)
        };
        assert_eq!(below(&["shop/Chart.yaml", "./shop/a/b"]), Ok(vec!["Chart.yaml".to_owned(), "a/b".to_owned()]));
        for beside in [&["Chart.yaml"][..], &["shop/Chart.yaml", "other/Chart.yaml"], &["shop/a", "b"]] {
            assert!(below(beside).unwrap_err().contains("is outside the directory of the chart"), "{beside:?}");
        }
        assert!(below(&["shop/../../a"]).unwrap_err().contains("outside the artifact"));
        assert!(below(&["shop/.git/config"]).unwrap_err().contains("outside the artifact"));
    }

    #[test]
    fn refuses_archives_beyond_a_limit_before_they_are_read() {
        let mut claim = header("a", EntryType::Regular, 1 << 30).as_bytes().to_vec();
        claim.extend([0; 1024]);
        assert!(paths(&claim).unwrap_err().contains("a file of the artifact in bytes is larger"));
        let names = ["a", "b", "c", "d", "e"].map(|path| (path, EntryType::Regular, &b""[..]));
        assert!(paths(&packed(&names)).unwrap_err().contains("the number of files of the artifact is larger"));
        let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        bomb.write_all(header("a", EntryType::Directory, 8 << 20).as_bytes()).unwrap();
        bomb.write_all(&vec![0; 8 << 20]).unwrap();
        assert!(paths(&bomb.finish().unwrap()).unwrap_err().contains("the unpacked artifact in bytes is larger"));
        let long = header("././@LongLink", EntryType::GNULongName, 1 << 20);
        let mut claim = long.as_bytes().to_vec();
        claim.extend(vec![b'x'; 1 << 20]);
        assert!(paths(&claim).unwrap_err().contains("a path in the archive in bytes is larger"));
        let sparse = packed(&[("a", EntryType::XHeader, b"22 GNU.sparse.major=1\n"), ("b", EntryType::Regular, b"")]);
        assert!(paths(&sparse).unwrap_err().contains("it has a sparse file"));
    }
}
