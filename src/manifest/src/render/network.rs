//! Runs programs without network access: the calling thread and all of its child processes can no longer create
//! sockets.
//!
//! Without this restriction, a tool could fetch any address, including addresses in the cluster, and without the
//! agent's proxy. Checking the inputs of a kustomization is not sufficient, because patches can change generators.
//!
//! Invariant: a program that starts after [`cut_off`] has no socket and cannot create a socket.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, sock_filter};

/// The bit in a system call's number that marks the x32 ABI.
const X32: u32 = 0x4000_0000;

/// The reason that network access could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("the kernel does not keep the tool from the network; it needs CONFIG_SECCOMP_FILTER")]
pub(super) struct NotCutOff(#[source] seccompiler::Error);

/// Removes network access from this thread and its children, permanently. `arch` is the processor's name in Rust.
pub(super) fn cut_off(arch: &str) -> Result<(), NotCutOff> {
    let filter = filter(arch).map_err(NotCutOff)?;
    seccompiler::apply_filter(&filter).map_err(NotCutOff)
}

/// Refuses the creation of sockets, of socket pairs and of io_uring instances. A datagram socket of a pair can send to
/// other sockets, and the kernel creates sockets through io_uring.
fn filter(arch: &str) -> Result<BpfProgram, seccompiler::Error> {
    let refused = [libc::SYS_socket, libc::SYS_socketpair, libc::SYS_io_uring_setup].map(|call| (call, Vec::new()));
    let errno = libc::EACCES.unsigned_abs();
    let arch = arch.try_into()?;
    let filter = SeccompFilter::new(BTreeMap::from(refused), SeccompAction::Allow, SeccompAction::Errno(errno), arch)?;
    let known: BpfProgram = filter.try_into()?;
    Ok(other_abi_refused(errno).into_iter().chain(known).collect())
}

/// Refuses every call with the x32 bit. The x32 ABI has different numbers for the calls of x86-64, and the other rules
/// do not contain these numbers. No call of another architecture has the bit.
fn other_abi_refused(errno: u32) -> [sock_filter; 3] {
    // `BPF_LD | BPF_W | BPF_ABS`, `BPF_JMP | BPF_JGE | BPF_K` and `BPF_RET | BPF_K` of `linux/bpf_common.h`.
    const LOAD_NUMBER: u16 = 0x20;
    const IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    // The number of the call is the first field of the filter's input.
    let load = sock_filter { code: LOAD_NUMBER, jt: 0, jf: 0, k: 0 };
    let compare = sock_filter { code: IF_AT_LEAST, jt: 0, jf: 1, k: X32 };
    let refuse = sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ERRNO | errno };
    [load, compare, refuse]
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

    #[cfg(target_arch = "x86_64")]
    #[test]
    #[expect(unsafe_code, reason = "no crate makes system calls of x32")]
    fn system_calls_of_x32_are_refused() {
        let call = |number: libc::c_long| {
            // SAFETY: each call creates a socket or fails; no call reads or writes memory of this process.
            let code = unsafe { libc::syscall(number, libc::AF_INET, libc::SOCK_STREAM, 0) };
            if code >= 0 { None } else { std::io::Error::last_os_error().raw_os_error() }
        };
        let alone = std::thread::spawn(move || {
            cut_off(std::env::consts::ARCH).unwrap();
            [libc::SYS_socket, libc::SYS_getpid].map(|number| call(number | libc::c_long::from(X32)))
        });
        // A kernel without x32 returns ENOSYS for calls that no filter refuses.
        assert_eq!(alone.join().unwrap(), [Some(libc::EACCES); 2]);
    }
}
