//! The protocol between `srd` commands and `srd serve`, over SRD messages; see `docs/tool.md`.

pub mod client;
pub mod link;
pub mod message;
pub mod token;

use srd::QKey;

/// Q_Key of the queue pair that accepts requests: the first one of a server's engine.
pub const CONTROL_QKEY: QKey = QKey(0x5352_4400);
/// Index of that queue pair within the engine.
pub const CONTROL_QP_INDEX: u8 = 0;

/// A random Q_Key. Its top bit is clear, because a set one marks a privileged Q_Key.
///
/// # Errors
/// The system provides no random numbers.
pub fn qkey_random() -> crate::failure::Result<QKey> {
    let mut bytes = [0; 4];
    let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    debug_assert_eq!(n, bytes.len(), "so few bytes come at once");
    Ok(QKey(u32::from_le_bytes(bytes) & 0x7fff_ffff))
}
