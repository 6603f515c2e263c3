//! No network: whoever begins a program here takes from it, and from all that it begins, the means to speak to anybody.
//!
//! Tools fetch what they are given by an address, also from the pod itself, where no proxy is asked. What a kustomization may be
//! given is more than anybody can look through: generators are themselves patched.
//!
//! Invariant: a program that was begun after [`cut_off`] has no socket and can make none.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// Why a program is not cut off.
#[derive(Debug, thiserror::Error)]
#[error("the kernel does not keep the tool from the network; it needs CONFIG_SECCOMP_FILTER")]
pub(super) struct NotCutOff(#[source] seccompiler::Error);

/// Takes the network from this thread, for good, and from what it begins. `arch` is the processor, as Rust calls it.
pub(super) fn cut_off(arch: &str) -> Result<(), NotCutOff> {
    let filter = filter(arch).map_err(NotCutOff)?;
    seccompiler::apply_filter(&filter).map_err(NotCutOff)
}

/// Refuses to make a socket, a pair of them (one of datagrams can be sent from to others), and rings by which the kernel would
/// make one.
fn filter(arch: &str) -> Result<BpfProgram, seccompiler::Error> {
    let refused = [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_io_uring_setup].map(|call| (call, Vec::new()));
    let errno = libc::EACCES.unsigned_abs();
    let arch = arch.try_into()?;
    let filter = SeccompFilter::new(BTreeMap::from(refused), SeccompAction::Allow, SeccompAction::Errno(errno), arch)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::unix::net::{UnixDatagram, UnixStream};

    use super::*;

    #[test]
    fn a_thread_that_is_cut_off_has_no_sockets_and_others_have() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let alone = std::thread::spawn(move || {
            cut_off(std::env::consts::ARCH).unwrap();
            let refused = [
                TcpStream::connect(address).map(drop),
                UdpSocket::bind("[::]:0").map(drop),
                UnixDatagram::unbound().map(drop),
                UnixDatagram::pair().map(drop),
                UnixStream::connect("/nothing").map(drop),
            ];
            refused.map(|refused| refused.unwrap_err().kind())
        });
        assert_eq!(alone.join().unwrap(), [std::io::ErrorKind::PermissionDenied; 5]);
        TcpStream::connect(address).unwrap();
    }
}
