//! The part of the Python module `srd` that is not written in Python: `srd._native`.
//!
//! `srd/_native.pyi` has types and units of everything here.

mod completion;
mod device;
mod errors;
mod lab;
mod path_events;
mod queue_pair;
mod region;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("__commit__", option_env!("SRD_COMMIT"))?;
    errors::add(module)?;
    lab::add(module)?;
    module.add_class::<device::Device>()?;
    module.add_class::<device::Peer>()?;
    module.add_class::<path_events::PathEvents>()?;
    module.add_class::<path_events::PathEvent>()?;
    module.add_class::<region::Region>()?;
    module.add_class::<queue_pair::QueuePair>()?;
    module.add_class::<completion::Completion>()
}
