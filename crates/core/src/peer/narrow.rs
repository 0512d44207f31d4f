//! What a handshake has shown about the size of packets (see `engine/narrow.rs`).

/// What the handshake of a context has shown about sizes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Narrow {
    /// Payload of packets as large as the Open of ours that was answered; 0: none was.
    pub answered: u16,
    /// Rounds in a row in which it was, and the last of them.
    pub rounds: u8,
    pub round: u8,
    /// Payload of packets as large as the largest Open of the peer; 0: none came, `u16::MAX`: a
    /// full one.
    pub heard: u16,
}
