//! Hostile conditions for real processes: packet floods, lying peers, peers killed with requests in
//! progress, and the loss of one of two interfaces. `srd net check` runs them beside honest
//! traffic, which must not suffer.

pub mod flood;
mod forge;
mod heard;
pub mod liar;
mod party;
mod pretend;
pub mod rails;
pub mod readers;

#[cfg(test)]
mod tests;
