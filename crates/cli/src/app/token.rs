//! A secret shared by server and clients, and the proofs that each end holds it. The secret itself
//! is never sent.

use super::message::Message;
use crate::failure::{Failure, Result};
use blake3::Hash;
use rustix::rand::{GetRandomFlags, getrandom};
use srd::Qpn;
use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Shortest token in bytes. A client that receives a proof can try tokens against it offline, so a
/// token must be too long to guess.
const TOKEN_BYTES_MIN: usize = 32;
/// Longest token in bytes.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Permission bits of group and others.
const MODE_OTHERS: u32 = 0o077;

/// Bytes of a nonce or a proof.
pub const PROOF_BYTES: usize = 32;

/// The token.
#[derive(Clone)]
pub struct Token {
    key: [u8; 32],
    /// The token's file, for error messages.
    pub path: PathBuf,
}

impl Token {
    /// Reads a token file. White space at its end is ignored.
    ///
    /// # Errors
    /// The file cannot be read, others can read it, or it is too short or too long.
    pub fn read(path: &Path) -> Result<Self> {
        let what = path.display();
        let failed = |e| Failure::new(format!("{what}: {e}"));
        let recipe = format!("(umask 077; head -c 32 /dev/urandom | base64 > {what})");
        let file = File::open(path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Failure::new(format!(
                "{what}: no such file; copy the token from another host (scp -p), or make the \
                 first one by: {recipe}"
            )),
            _ => failed(e),
        })?;
        let meta = file.metadata().map_err(failed)?;
        let own = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid());
        if !meta.is_file() || !own || meta.mode() & MODE_OTHERS != 0 {
            return Err(Failure::new(format!(
                "{what}: a token must be a regular file of this user that nobody else can read or \
                 write: chmod 600 {what}"
            )));
        }
        let mut bytes = Vec::new();
        file.take(TOKEN_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        let secret = bytes.trim_ascii_end();
        if secret.len() < TOKEN_BYTES_MIN || bytes.len() as u64 > TOKEN_BYTES_MAX {
            return Err(Failure::new(format!(
                "{what}: a token has from {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} random bytes; \
                 make one by: {recipe}"
            )));
        }
        let key = blake3::derive_key("software SRD 2026 srd serve token v1", secret);
        Ok(Self { key, path: path.to_owned() })
    }

    /// The server's proof: queue pair `qpn` answers the client's nonce `asked` with its own
    /// `nonce`.
    pub fn of_server(
        &self,
        qpn: Qpn,
        asked: &[u8; PROOF_BYTES],
        nonce: &[u8; PROOF_BYTES],
    ) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"server").update(&qpn.0.to_le_bytes()).update(asked).update(nonce);
        hasher.finalize()
    }

    /// The client's proof: queue pair `qpn` sends `request` in answer to the server's `nonce`.
    pub fn of_client(&self, qpn: Qpn, nonce: &[u8; PROOF_BYTES], request: &Message) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"client").update(&qpn.0.to_le_bytes()).update(nonce);
        hasher.update(&request.to_bytes());
        hasher.finalize()
    }
}

/// Unpredictable bytes for a nonce.
///
/// # Errors
/// The system provides no random numbers.
pub fn nonce_random() -> Result<[u8; PROOF_BYTES]> {
    let mut bytes = [0; PROOF_BYTES];
    let n = getrandom(&mut bytes, GetRandomFlags::empty())?;
    debug_assert_eq!(n, bytes.len(), "so few bytes come at once");
    Ok(bytes)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    /// A token read from a temporary file that contains `bytes`.
    pub fn token(name: &str, bytes: &[u8], mode: u32) -> Result<Token> {
        let file = format!("srd-token-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(file);
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let token = Token::read(&path);
        fs::remove_file(&path).unwrap();
        token
    }

    #[test]
    fn tokens_are_long_and_private() {
        let a = token("a", &[b'a'; 32], 0o600).unwrap();
        assert_eq!(a.key, token("line", &[&[b'a'; 32][..], b"\n"].concat(), 0o400).unwrap().key);
        assert_ne!(a.key, token("b", &[b'b'; 32], 0o600).unwrap().key);
        for (name, len, mode) in
            [("short", 31, 0o600), ("long", 4097, 0o600), ("group", 32, 0o640), ("all", 32, 0o602)]
        {
            assert!(token(name, &vec![b'a'; len], mode).is_err(), "{name}");
        }
        assert!(Token::read(Path::new("/")).is_err());
    }
}
