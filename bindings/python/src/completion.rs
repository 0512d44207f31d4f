//! Ends of requests.

use crate::errors::RequestFailed;
use pyo3::prelude::*;
use srd::{CompletionError, CompletionOp, WorkCompletion};

/// The end of a request, or a message that has arrived.
#[pyclass(frozen, module = "srd._native")]
pub struct Completion(pub WorkCompletion);

#[pymethods]
impl Completion {
    /// Number of the request, as the method that posted it returned it.
    #[getter]
    fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// What has ended: `send`, `write`, `read`, `recv`, `recv_imm` or `recv_unsolicited`.
    #[getter]
    fn op(&self) -> &'static str {
        match self.0.op {
            CompletionOp::Send => "send",
            CompletionOp::Write => "write",
            CompletionOp::Read => "read",
            CompletionOp::Recv => "recv",
            CompletionOp::RecvRdmaImm => "recv_imm",
            CompletionOp::RecvUnsolicited => "recv_unsolicited",
        }
    }

    /// Whether it succeeded.
    #[getter]
    fn ok(&self) -> bool {
        self.0.is_ok()
    }

    /// EFA's status number; 0 is success.
    #[getter]
    fn status(&self) -> u32 {
        self.0.status as u32
    }

    /// What the status means, and what to do.
    #[getter]
    fn text(&self) -> &'static str {
        srd::status_text(self.0.status)
    }

    /// Bytes sent, received, written or read.
    #[getter]
    fn nbytes(&self) -> u32 {
        self.0.byte_len
    }

    /// Immediate data, 32 bits, or `None`.
    #[getter]
    fn imm(&self) -> Option<u32> {
        self.0.imm
    }

    /// Address and queue pair number of the sender of a message, or `None`.
    #[getter]
    fn source(&self) -> Option<(String, u16)> {
        self.0.src_ip.map(|ip| (ip.to_string(), self.0.src_qpn.0))
    }

    /// Raises `RequestFailed` unless it succeeded.
    pub fn check(&self) -> PyResult<()> {
        self.0.ok().map(|_| ()).map_err(failed)
    }

    fn __repr__(&self) -> String {
        let state = if self.ok() { "ok" } else { self.text() };
        format!("<Completion {} {}: {state}, {} bytes>", self.op(), self.id(), self.nbytes())
    }
}

fn failed(error: CompletionError) -> PyErr {
    RequestFailed::new_err(error.to_string())
}
