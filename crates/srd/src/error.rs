//! Errors, by the call that returns them: opening ([`DeviceError`]), objects ([`Error`]), posting
//! ([`PostError`]). Each maps to the errno of the corresponding verbs call. `Debug`, which `unwrap`
//! and a `main` that returns an error print, says the same as `Display`, after the variant's name.

use core::fmt;
use srd_datapath::OpenError;
use std::io;

/// Why a device could not be opened. The text says what to do.
#[non_exhaustive]
pub enum DeviceError {
    /// The network interface does not exist, or has no usable address.
    Interface {
        /// The requested name.
        name: String,
        /// The problem.
        problem: &'static str,
    },
    /// The sockets could not be opened; the source says why and what to do.
    Datapath(OpenError),
    /// The requested MTU does not fit the link, or the link's MTU is too small.
    Mtu {
        /// Requested payload in bytes (0 = from the link).
        asked: u16,
        /// Payload in bytes that fits the link.
        link: u16,
    },
    /// The key file cannot be used; the text says what to do.
    Key(srd_seal::KeyFileError),
    /// What the configuration says of sealing is contradictory; the text says what to do.
    Seal(&'static str),
    /// The host's file of settings cannot be used; the text says what to do.
    Settings(&'static str),
    /// The list of rails cannot be used; the text says what to write.
    Rails(String),
    /// A value of the configuration is invalid.
    Config(&'static str),
    /// A system call failed.
    Os {
        /// The operation that failed.
        what: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl DeviceError {
    /// The corresponding errno (positive).
    pub fn errno(&self) -> i32 {
        match self {
            Self::Interface { .. } => libc::ENODEV,
            Self::Datapath(e) => match e {
                OpenError::SlotTaken { .. } | OpenError::SlotsFull { .. } => libc::EADDRINUSE,
                OpenError::Address { .. } => libc::EADDRNOTAVAIL,
                OpenError::System { error, .. } => error.raw_os_error().unwrap_or(libc::EIO),
                _ => libc::EINVAL,
            },
            Self::Mtu { .. } => libc::EMSGSIZE,
            Self::Key(srd_seal::KeyFileError::Io(_, error)) => {
                error.raw_os_error().unwrap_or(libc::EIO)
            }
            Self::Key(_) => libc::EACCES,
            Self::Config(_) | Self::Rails(_) | Self::Seal(_) | Self::Settings(_) => libc::EINVAL,
            Self::Os { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interface { name, problem } => {
                write!(f, "interface {name}: {problem}; `ip -br addr` lists the interfaces")
            }
            Self::Datapath(e) => fmt::Display::fmt(e, f),
            Self::Mtu { asked: 0, link } => {
                write!(f, "the link carries only {link} bytes of payload; at least 64 are needed")
            }
            Self::Mtu { asked, link } => write!(
                f,
                "an MTU of {asked} bytes does not fit the link, which carries {link} bytes of \
                 payload; ask for at most that or leave it out"
            ),
            Self::Key(e) => fmt::Display::fmt(e, f),
            Self::Seal(text) | Self::Settings(text) => f.write_str(text),
            Self::Rails(text) => write!(f, "rails (SRD_RAILS): {text}"),
            Self::Config(text) => write!(f, "configuration: {text}"),
            Self::Os { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Interface { .. } => "Interface",
            Self::Datapath(_) => "Datapath",
            Self::Mtu { .. } => "Mtu",
            Self::Key(_) => "Key",
            Self::Seal(_) => "Seal",
            Self::Settings(_) => "Settings",
            Self::Rails(_) => "Rails",
            Self::Config(_) => "Config",
            Self::Os { .. } => "Os",
        };
        write!(f, "{name}: {self}")
    }
}

impl std::error::Error for DeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Os { source, .. } => Some(source),
            Self::Datapath(e) => Some(e),
            Self::Key(e) => Some(e),
            _ => None,
        }
    }
}

/// Why a call on an object was refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// A table is full (ENOMEM).
    NoRoom(&'static str),
    /// A value, or a state change, is not permitted (EINVAL).
    Invalid(&'static str),
    /// Something still uses the object (EBUSY).
    Busy(&'static str),
    /// The device belongs to the parent process: a child of `fork` must open its own (ENODEV).
    Forked,
    /// The device has been shut down (ENODEV).
    Closed,
}

impl Error {
    /// The corresponding errno (positive).
    pub const fn errno(self) -> i32 {
        match self {
            Self::NoRoom(_) => libc::ENOMEM,
            Self::Invalid(_) => libc::EINVAL,
            Self::Busy(_) => libc::EBUSY,
            Self::Forked | Self::Closed => libc::ENODEV,
        }
    }

    /// Converts the core's error; `what` names the object.
    pub(crate) fn from_core(error: srd_core::ObjectError, what: &'static str) -> Self {
        match error {
            srd_core::ObjectError::NoRoom => Self::NoRoom(what),
            srd_core::ObjectError::Busy => Self::Busy(what),
            _ => Self::Invalid(what),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom(what) => write!(
                f,
                "no room for another {what}: destroy one first; a number rests for a second \
                 before it is used again"
            ),
            Self::Invalid(what) => write!(f, "invalid: {what}"),
            Self::Busy(what) => write!(f, "still in use: {what}; destroy what uses it first"),
            Self::Forked => {
                f.write_str("the device belongs to the parent process; open another one after fork")
            }
            Self::Closed => f.write_str("the device has been shut down"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::NoRoom(_) => "NoRoom",
            Self::Invalid(_) => "Invalid",
            Self::Busy(_) => "Busy",
            Self::Forked => "Forked",
            Self::Closed => "Closed",
        };
        write!(f, "{name}: {self}")
    }
}

impl std::error::Error for Error {}

/// Why a work request was refused. Nothing was posted: no slot was taken and no completion follows.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PostError {
    /// The queue pair's state does not permit it: sends need RTS or SQD, receives any state but
    /// RESET and ERR (EINVAL).
    BadState,
    /// The address handle belongs to another protection domain (EINVAL).
    BadAh,
    /// The send or receive queue is full: poll the completion queue (ENOMEM).
    QueueFull,
    /// The completion queue has no free slot: poll it (ENOMEM).
    CqFull,
    /// The device's table of send requests is full: poll completion queues (ENOMEM).
    NoRoom,
    /// Longer than the operation allows: a message has at most one MTU, an RDMA operation 1 GiB
    /// (EINVAL).
    BadLength,
    /// The queue pair's type does not support the operation, or the device does not offer it
    /// (EINVAL).
    BadOpcode,
    /// No such memory region (EINVAL).
    BadLkey,
    /// The range is not within its memory region (EINVAL).
    OutOfBounds,
    /// The region was registered without the access right that the operation needs (EINVAL).
    BadAccess,
    /// The region belongs to another protection domain than the queue pair (EINVAL).
    WrongPd,
    /// More scatter/gather entries than the queue pair was created for (EINVAL).
    TooManySges,
    /// More inline bytes than the queue pair was created for, or inline data for a read (EINVAL).
    BadInline,
    /// The device belongs to the parent process (ENODEV).
    Forked,
    /// The device has been shut down (ENODEV).
    Closed,
}

impl PostError {
    /// The corresponding errno (positive).
    pub const fn errno(self) -> i32 {
        match self {
            Self::QueueFull | Self::CqFull | Self::NoRoom => libc::ENOMEM,
            Self::Forked | Self::Closed => libc::ENODEV,
            _ => libc::EINVAL,
        }
    }

    /// Whether the same request can succeed once completions have been polled.
    pub const fn is_full(self) -> bool {
        matches!(self, Self::QueueFull | Self::CqFull | Self::NoRoom)
    }
}

impl PostError {
    const fn name(self) -> &'static str {
        match self {
            Self::BadState => "BadState",
            Self::BadAh => "BadAh",
            Self::QueueFull => "QueueFull",
            Self::CqFull => "CqFull",
            Self::NoRoom => "NoRoom",
            Self::BadLength => "BadLength",
            Self::BadOpcode => "BadOpcode",
            Self::BadLkey => "BadLkey",
            Self::OutOfBounds => "OutOfBounds",
            Self::BadAccess => "BadAccess",
            Self::WrongPd => "WrongPd",
            Self::TooManySges => "TooManySges",
            Self::BadInline => "BadInline",
            Self::Forked => "Forked",
            Self::Closed => "Closed",
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BadState => {
                "the queue pair is not in a state that takes this request: call `activate` before \
                 the first post; in ERR, reset it or create another one"
            }
            Self::BadAh => {
                "the address handle belongs to another protection domain; create one in the queue \
                 pair's own"
            }
            Self::QueueFull => {
                "the send or receive queue is full: poll its completion queue, or create the queue \
                 pair with a deeper one (`sq_depth`, `rq_depth`; 256 unless set)"
            }
            Self::CqFull => {
                "the completion queue has no free slot: poll it, or create it with more slots than \
                 its queue pairs have requests outstanding"
            }
            Self::NoRoom => "the device's table of send requests is full; poll completion queues",
            Self::BadLength => {
                "longer than the operation allows: a message carries one MTU (`Device::mtu`), an \
                 RDMA operation 1 GiB"
            }
            Self::BadOpcode => {
                "the queue pair or the device does not offer this operation: RDMA needs an SRD \
                 queue pair"
            }
            Self::BadLkey => {
                "no memory region has this lkey: it was deregistered, or this is an rkey of a peer"
            }
            Self::OutOfBounds => {
                "a scatter/gather entry exceeds its memory region; `MemoryRegion::len` is its size"
            }
            Self::BadAccess => {
                "the memory region was registered without local write access, which receives and \
                 reads need (`Access::LOCAL_WRITE`)"
            }
            Self::WrongPd => {
                "the memory region belongs to another protection domain than the queue pair"
            }
            Self::TooManySges => {
                "more scatter/gather entries than the queue pair allows: set `send_sges_max` (up \
                 to 2) or `recv_sges_max` (up to 4) when it is created"
            }
            Self::BadInline => {
                "more inline data than the queue pair allows: set `inline_bytes_max` (up to 80) \
                 when it is created, or send from a memory region; a read has no inline data"
            }
            Self::Forked => "the device belongs to the parent process; open another one after fork",
            Self::Closed => "the device has been shut down",
        })
    }
}

impl fmt::Debug for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {self}", self.name())
    }
}

impl std::error::Error for PostError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `unwrap` prints is `Debug`.
    #[test]
    fn what_unwrap_prints_names_the_variant_and_says_what_to_do() {
        let post = [
            (PostError::BadState, "BadState: ", "`activate`"),
            (PostError::QueueFull, "QueueFull: ", "`rq_depth`"),
            (PostError::BadAccess, "BadAccess: ", "`Access::LOCAL_WRITE`"),
        ];
        for (error, name, advice) in post {
            let text = format!("{error:?}");
            assert!(text.starts_with(name) && text.contains(advice), "{text}");
        }
        assert!(format!("{:?}", Error::NoRoom("queue pair")).contains("destroy one first"));
        let name = "eth7".to_owned();
        let error = DeviceError::Interface { name, problem: "there is no such interface" };
        let text = format!("{error:?}");
        assert!(text.starts_with("Interface: ") && text.contains("`ip -br addr`"), "{text}");
    }
}
