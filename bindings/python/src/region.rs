//! Registered memory, which is a buffer for Python: `memoryview(region)`,
//! `numpy.frombuffer(region)`.

use crate::errors::{DeviceError, device};
use pyo3::{buffer::PyUntypedBuffer, exceptions::PyBufferError, ffi, prelude::*};
use srd::{Access, MemoryRegion, ProtectionDomain, Sge};
use std::ffi::c_int;

/// A piece of memory that the device may read and write.
#[pyclass(frozen, module = "srd._native")]
pub struct Region {
    /// Before `buffer`: its memory must be there until the region is deregistered.
    pub region: MemoryRegion,
    /// The buffer of somebody else that is registered, held until then.
    _buffer: Option<PyUntypedBuffer>,
}

impl Region {
    fn access(remote_write: bool, remote_read: bool) -> Access {
        let mut access = Access::LOCAL_WRITE;
        access |= if remote_write { Access::REMOTE_WRITE } else { Access::NONE };
        access | if remote_read { Access::REMOTE_READ } else { Access::NONE }
    }

    /// Allocates zeroed memory.
    pub fn allocate(
        pd: &ProtectionDomain,
        nbytes: usize,
        write: bool,
        read: bool,
    ) -> PyResult<Self> {
        let region = pd.mr_allocate(nbytes, Self::access(write, read)).map_err(device)?;
        Ok(Self { region, _buffer: None })
    }

    /// Registers a writable, contiguous buffer.
    pub fn register(
        pd: &ProtectionDomain,
        buffer: &Bound<'_, PyAny>,
        write: bool,
        read: bool,
    ) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(buffer)?;
        if buffer.readonly() || !buffer.is_c_contiguous() {
            return Err(DeviceError::new_err(
                "the buffer must be writable and contiguous: give a bytearray or an array of numpy \
                 that numpy.ascontiguousarray(a).copy() has made",
            ));
        }
        let (base, len) = (buffer.buf_ptr().cast::<u8>(), buffer.len_bytes());
        // SAFETY: an exported buffer neither moves nor ends before it is released, which happens
        // when `_buffer` is dropped: after the region, and only when no request holds the region
        // (`QueuePair` keeps whole `Region`s). No Rust reference to the bytes is ever made.
        let region = unsafe { pd.mr_register(base, len, Self::access(write, read)) };
        Ok(Self { region: region.map_err(device)?, _buffer: Some(buffer) })
    }

    /// The piece of a request; `nbytes` is the rest from `offset` on unless given.
    pub fn piece(&self, offset: usize, nbytes: Option<usize>) -> PyResult<Sge> {
        let len = self.region.len();
        let rest = len.checked_sub(offset);
        let nbytes = nbytes.or(rest).filter(|n| rest.is_some_and(|rest| *n <= rest));
        let nbytes = nbytes.and_then(|n| u32::try_from(n).ok());
        let Some(nbytes) = nbytes else {
            return Err(DeviceError::new_err(format!(
                "offset {offset} and nbytes are beyond the region of {len} bytes, or more than \
                 4 GiB"
            )));
        };
        Ok(self.region.sge(offset, nbytes))
    }
}

#[pymethods]
impl Region {
    /// Length in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.region.len()
    }

    /// What a peer needs for `write` and `read`: address, key and length in bytes.
    #[getter]
    fn remote(&self) -> (u64, u32, usize) {
        (self.region.addr(), self.region.rkey().0, self.region.len())
    }

    fn __len__(&self) -> usize {
        self.region.len()
    }

    fn __repr__(&self) -> String {
        format!("<Region of {} bytes at 0x{:x}>", self.region.len(), self.region.addr())
    }

    /// # Safety
    /// Called by the interpreter, with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let region = &slf.get().region;
        let (base, len) = (region.as_mut_ptr(), region.len() as isize);
        // SAFETY: the view is the interpreter's. It gets a reference to this object, which keeps
        // the memory until the view is released.
        let done =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), base.cast(), len, 0, flags) };
        if done == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
