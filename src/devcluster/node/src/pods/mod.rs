//! A node that runs pods as processes of this machine.
//!
//! A pod runs here if all of its images do: a *host image* names installed programs, and an image of the embedded
//! registry is unpacked. Each pod and each Service has an address in 127.0.0.0/8. A Service forwards to its ready pods.
//!
//! [`supervisor`] reads the event log and starts a task per pod ([`pod`]). A pod runs its containers ([`container`])
//! with their inputs ([`environment`], [`paths`], [`volumes`], [`image`]), probes ([`probes`]), commands ([`exec`]) and
//! logs ([`logs`]), and reports its status ([`status`]). [`queue_proxy`] is a container without a process. [`proxy`]
//! listens for Services, and [`names`] resolves their names in programs.
//!
//! Invariant: no process outlives the node. A container is a process group that is killed as a whole. A [`watchdog`]
//! kills the group if this process cannot.
//!
//! Not here: isolation (namespaces, users). Containers run as the user who started the cluster. A resize only changes
//! the status. Ephemeral containers are not run.

mod claim;
mod container;
mod context;
mod environment;
mod exec;
mod image;
mod interpreters;
mod kubelet;
mod logs;
mod marks;
mod meter;
mod names;
mod options;
mod paths;
mod pod;
mod probes;
mod process;
mod program;
mod proxy;
mod queue_proxy;
mod slot;
mod status;
mod supervisor;
mod tokens;
mod unpack;
mod unpacked;
mod usage;
mod volumes;
mod watchdog;

pub use self::kubelet::Node;
pub use self::options::{FrontOptions, HostImage, NodeOptions};
pub use self::proxy::LOOPBACK;
