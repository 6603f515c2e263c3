//! A node that runs pods as processes of this machine.
//!
//! A pod is the node's when all of its images are: a *host image* names programs that are installed here, an image of
//! the embedded registry is unpacked. Every pod has an address of its own in 127.0.0.0/8, and so has every Service,
//! which leads to its ready pods.
//!
//! [`supervisor`] follows the event log and gives every pod a task ([`pod`]); that one takes its containers from start
//! to end ([`container`]), with what they are given ([`environment`], [`paths`], [`volumes`], [`image`]), what is asked
//! of them ([`probes`]), what is run beside them ([`exec`]) and what they say ([`logs`]; [`queue_proxy`] is a container without a process), and tells the API ([`status`]). [`proxy`] listens for
//! Services, and [`names`] has programs find them.
//!
//! Invariant: no process outlives the node: a container is a process group that is killed as a whole, and a
//! [`watchdog`] does so when this process can no longer do it itself.
//!
//! Deliberately absent: namespaces, users and the other walls of a container. What runs here runs as whoever started
//! the cluster. A resize changes the status only, and ephemeral containers are not run: there is no wall to look behind.

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
