//! The HTTP that a monitoring system needs: one request per connection, without a body.
//!
//! Nobody who asks is trusted. The head of a request, the time of a connection and the number of
//! connections are bounded, and who is slow makes room for who comes: the oldest connection ends
//! when there are too many. What a request says about a body has no effect; the body is not read.

use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Longest head of a request in bytes. Prometheus sends about 300.
const HEAD_BYTES_MAX: usize = 8192;
/// Longest time of a connection, from the first byte that is wanted to the last one that is read.
const TIME_MAX: Duration = Duration::from_secs(10);
/// Connections that are served at once. When another one comes, the oldest one is ended.
const SERVED_MAX: usize = 16;
/// Connections that exist at once, those included that were ended and have not noticed it yet: if
/// there are so many, the next one waits until one has.
const OPEN_MAX: usize = 2 * SERVED_MAX;
/// Most bytes that are thrown away behind the head, so that the reader gets the answer: a
/// connection that is closed with bytes unread is reset.
const REST_BYTES_MAX: usize = 64 * 1024;
/// Pause after the system has refused a connection, for example for want of file descriptors.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// Status code with its words.
    pub status: &'static str,
    /// Value of the header `Content-Type`.
    pub kind: &'static str,
    /// The body.
    pub text: String,
}

/// Connections that exist.
#[derive(Default)]
struct Open {
    /// The oldest first, each with its number.
    streams: Mutex<VecDeque<(u64, Arc<TcpStream>)>>,
    /// One has ended.
    ended: Condvar,
}

/// Answers requests for ever. `answer` gets the method and the path.
pub fn serve<F>(listener: &TcpListener, answer: F)
where
    F: Fn(&str, &str) -> Answer + Send + Sync + 'static,
{
    let (answer, open) = (Arc::new(answer), Arc::new(Open::default()));
    for number in 0.. {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(REFUSED_PAUSE);
            continue;
        };
        let stream = Arc::new(stream);
        open.enter(number, &stream);
        let place = Place { open: Arc::clone(&open), number };
        let answer = Arc::clone(&answer);
        // Without a thread the connection ends.
        let _ = thread::Builder::new().spawn(move || {
            let _place = place;
            // The reader may have gone, or may be too slow.
            let _ = connection(&stream, &*answer);
        });
    }
}

/// A connection's place, which is free again when this is dropped.
struct Place {
    open: Arc<Open>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.leave(self.number);
    }
}

impl Open {
    /// Adds a connection, and ends those that are too old then.
    fn enter(&self, number: u64, stream: &Arc<TcpStream>) {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let full = |streams: &mut VecDeque<_>| streams.len() >= OPEN_MAX;
        let waited = self.ended.wait_while(streams, full);
        let mut streams = waited.unwrap_or_else(PoisonError::into_inner);
        streams.push_back((number, Arc::clone(stream)));
        let old = streams.len().saturating_sub(SERVED_MAX);
        for (_, stream) in streams.iter().take(old) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn leave(&self, number: u64) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|(of, _)| *of != number);
        self.ended.notify_one();
    }
}

/// Reads a request and answers it.
fn connection(stream: &TcpStream, answer: impl Fn(&str, &str) -> Answer) -> io::Result<()> {
    let end = Instant::now() + TIME_MAX;
    let text = |status, text: &str| Answer { status, kind: "text/plain", text: text.to_owned() };
    let head = head_read(stream, end)?;
    let line = head.as_deref().map(|head| head.split(|&b| b == b'\r').next().unwrap_or_default());
    let line = line.map(String::from_utf8_lossy).unwrap_or_default();
    let mut words = line.split(' ');
    let (answer, body) = match (words.next(), words.next(), words.next(), words.next()) {
        _ if head.is_none() => {
            (text("431 Request Header Fields Too Large", "the head is too long\n"), true)
        }
        (Some(method), Some(target), Some(version), None) if version.starts_with("HTTP/1.") => {
            let path = target.split('?').next().unwrap_or_default();
            (answer(method, path), method != "HEAD")
        }
        _ => (text("400 Bad Request", "not a request of HTTP/1\n"), true),
    };
    let mut bytes = format!(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        answer.status,
        answer.kind,
        answer.text.len()
    );
    if body {
        bytes.push_str(&answer.text);
    }
    all_write(stream, bytes.as_bytes(), end)?;
    stream.shutdown(Shutdown::Write)?;
    let (mut rest, mut room) = (0, [0; 4096]);
    while rest < REST_BYTES_MAX {
        match some_read(stream, &mut room, end)? {
            0 => break,
            more => rest += more,
        }
    }
    Ok(())
}

/// The head of the request, which ends with an empty line; `None` if it is too long.
fn head_read(stream: &TcpStream, end: Instant) -> io::Result<Option<Vec<u8>>> {
    let (mut head, mut room) = (Vec::new(), [0; 1024]);
    while head.len() < HEAD_BYTES_MAX {
        let more = some_read(stream, &mut room, end)?;
        if more == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // The empty line may have begun in what came before.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&room[..more]);
        if head[from..].windows(4).any(|four| four == b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
    Ok(None)
}

/// The time that is left until `end`.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn some_read(mut stream: &TcpStream, room: &mut [u8], end: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(left(end)?))?;
    stream.read(room)
}

fn all_write(mut stream: &TcpStream, mut bytes: &[u8], end: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(end)?))?;
        match stream.write(bytes)? {
            0 => return Err(ErrorKind::WriteZero.into()),
            wrote => bytes = &bytes[wrote..],
        }
    }
    Ok(())
}
