//! What the user makes: queue pairs, completion queues, regions, address handles, requests.

pub(crate) mod cq;
pub(crate) mod keys;
pub(crate) mod memory;
pub(crate) mod qp;
pub(crate) mod tiling;
pub(crate) mod wr;
