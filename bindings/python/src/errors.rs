//! Exceptions. The text of each says what to do.

use pyo3::{create_exception, exceptions::PyException, prelude::*};

create_exception!(srd, SrdError, PyException, "Base of all errors of this module.");
create_exception!(srd, SpecError, SrdError, "An experiment, a field or a value does not exist.");
create_exception!(
    srd,
    DeviceError,
    SrdError,
    "A device or an object of it cannot be made or used."
);
create_exception!(srd, PostError, SrdError, "A request was refused; nothing was posted.");
create_exception!(srd, QueueFull, PostError, "A queue is full: take completions, then post again.");
create_exception!(srd, RequestFailed, SrdError, "A posted request ended with an error.");

/// Adds the exceptions.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("SrdError", py.get_type::<SrdError>())?;
    module.add("SpecError", py.get_type::<SpecError>())?;
    module.add("DeviceError", py.get_type::<DeviceError>())?;
    module.add("PostError", py.get_type::<PostError>())?;
    module.add("QueueFull", py.get_type::<QueueFull>())?;
    module.add("RequestFailed", py.get_type::<RequestFailed>())
}

/// An error of a device or of an object.
pub fn device(error: impl std::fmt::Display) -> PyErr {
    DeviceError::new_err(error.to_string())
}

/// A refused request.
pub fn post(error: srd::PostError) -> PyErr {
    use srd::PostError as E;
    match error {
        E::QueueFull | E::CqFull | E::NoRoom => {
            QueueFull::new_err(format!("{error}: call poll() or wait(), then post again"))
        }
        other => PostError::new_err(other.to_string()),
    }
}
