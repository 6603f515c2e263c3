//! Image registries: names of images, the choice of the registry, its credentials, and a client of its API.
//!
//! Invariant: credentials go to the host they were given for and to no other.
