//! What a network's worst members do to real processes: flood them, lie to them, and die with work
//! of theirs half done; and a network that takes one of two interfaces away. `srd net check` runs
//! these beside honest traffic, which must not suffer.

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
