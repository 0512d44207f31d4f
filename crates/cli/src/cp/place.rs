//! The two ends of a copy as the user writes them: `FILE` or `HOST[:PORT]:NAME`.

use crate::host::HostName;
use std::path::PathBuf;

/// A local file, or a file of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file of this host.
    Local(PathBuf),
    /// A file in a server's folder.
    Remote(RemoteFile),
}

/// A file in a server's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// The server.
    pub host: HostName,
    /// Name below the server's folder.
    pub name: String,
}

impl Place {
    /// Parses a place. It is local if it has no colon, or a `/` before the first colon, unless it
    /// begins with an address in brackets.
    ///
    /// # Errors
    /// An error text for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("the name is empty".into());
        }
        let host_end = match text.strip_prefix('[') {
            Some(rest) => match rest.find("]:") {
                Some(at) => at + 2,
                None => return Ok(Self::Local(text.into())),
            },
            None => match text.find([':', '/']) {
                Some(at) if text[at..].starts_with(':') => at,
                _ => return Ok(Self::Local(text.into())),
            },
        };
        let (host, rest) = (&text[..host_end], &text[host_end + 1..]);
        // A number and another colon: the number is a port.
        let (host, name) = match rest.split_once(':') {
            Some((port, name)) if port.parse::<u16>().is_ok() => {
                (HostName::parse(&format!("{host}:{port}"))?, name)
            }
            _ => (HostName::parse(host)?, rest),
        };
        Ok(Self::Remote(RemoteFile { host, name: name.to_owned() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(host: &str, port: Option<u16>, name: &str) -> Result<Place, String> {
        let host = HostName { host: host.into(), port };
        Ok(Place::Remote(RemoteFile { host, name: name.into() }))
    }

    #[test]
    fn local_and_remote_names_are_distinguished() {
        for text in ["file", "/a:b", "./a:b", "dir/a:b", "[odd", "[odd]", "[x]y:z"] {
            assert_eq!(Place::parse(text), Ok(Place::Local(text.into())), "{text}");
        }
        assert_eq!(Place::parse("node7:a"), remote("node7", None, "a"));
        assert_eq!(Place::parse("node7:"), remote("node7", None, ""));
        assert_eq!(Place::parse("node7:/etc/x"), remote("node7", None, "/etc/x"));
        assert_eq!(Place::parse("node7:18702:a b"), remote("node7", Some(18_702), "a b"));
        assert_eq!(Place::parse("node7:x:y"), remote("node7", None, "x:y"));
        assert_eq!(Place::parse("[::1]:a"), remote("::1", None, "a"));
        assert_eq!(Place::parse("[::1]:18702:a"), remote("::1", Some(18_702), "a"));
        assert!(Place::parse("").is_err() && Place::parse(":a").is_err());
    }
}
