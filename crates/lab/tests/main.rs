//! All integration tests of this crate: one program, because each program is linked by itself.

mod common;

mod apps;
mod away;
mod beside_elephant;
mod browser;
mod closed_forms;
mod copa;
mod dead_spines;
mod determinism;
mod documents;
mod fields;
mod honest;
mod host_model;
mod limits;
mod load;
mod mixed;
mod one_sender;
mod own_policies;
mod phases;
mod readers;
mod report;
mod rings;
mod rivals;
mod saa;
mod spraying;
mod state;
mod tcp;
mod timeline;
mod traces;
