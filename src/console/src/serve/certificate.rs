//! The certificate of the server, from the files of a Secret of type `kubernetes.io/tls`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;

use mainstay_cluster::ServedCertificate;
use mainstay_cluster::certificate::certified;
use mainstay_object::Secret;
use mainstay_object::failure::chain;

/// Interval at which the files are read again. A kubelet updates the files within one or two minutes.
const READ_EVERY: Duration = Duration::from_secs(5);

/// Why the server cannot use its certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file is missing or unreadable.
    #[error("the file {} cannot be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        cause: io::Error,
    },
    /// The files do not match.
    #[error("{}: tls.crt and tls.key are not a certificate and its key", directory.display())]
    Pair {
        /// The directory.
        directory: PathBuf,
    },
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls,
}

/// A certificate whose files may change.
pub struct Certificate {
    directory: PathBuf,
    served: Arc<ServedCertificate>,
    config: Arc<ServerConfig>,
    known: (String, Secret<String>),
}

impl Certificate {
    /// Reads `tls.crt` and `tls.key` of a directory.
    ///
    /// # Errors
    /// Fails if the files cannot be read, or are not a certificate and its key.
    pub fn read(directory: &Path) -> Result<Self, CertificateError> {
        let served = Arc::new(ServedCertificate::default());
        let known = files(directory)?;
        serve(&served, directory, &known)?;
        let config = Arc::clone(&served).config(None).ok_or(CertificateError::Tls)?;
        Ok(Self { directory: directory.to_owned(), served, config: Arc::new(config), known })
    }

    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Reads the files again at intervals. The previous certificate stays in use while the files cannot be used.
    pub(super) async fn follow(mut self) {
        let mut problem = String::new();
        loop {
            tokio::time::sleep(READ_EVERY).await;
            let next = files(&self.directory).and_then(|next| {
                if next != self.known {
                    serve(&self.served, &self.directory, &next)?;
                }
                Ok(next)
            });
            match next {
                Ok(next) => {
                    self.known = next;
                    problem.clear();
                }
                Err(error) => {
                    let why = chain(&error);
                    if why != problem {
                        tracing::warn!(
                            why,
                            "could not load the new certificate of the console; the previous one stays in use"
                        );
                    }
                    problem = why;
                }
            }
        }
    }
}

fn files(directory: &Path) -> Result<(String, Secret<String>), CertificateError> {
    let text = |name: &str| {
        let path = directory.join(name);
        std::fs::read_to_string(&path).map_err(|cause| CertificateError::File { path, cause })
    };
    Ok((text("tls.crt")?, Secret::new(text("tls.key")?)))
}

fn serve(
    served: &ServedCertificate,
    directory: &Path,
    (certificate, key): &(String, Secret<String>),
) -> Result<(), CertificateError> {
    let certified =
        certified(certificate, key).ok_or_else(|| CertificateError::Pair { directory: directory.to_owned() })?;
    served.set(Some(certified));
    Ok(())
}
