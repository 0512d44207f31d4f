//! Ping-pong over TCP without Nagle's algorithm.

use super::{Since, percentiles, say_ready};
use crate::{Result, options::Options};
use serde_json::{Value, json};
use srd_datapath::clock::now_ns;
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

struct Player {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Player {
    fn new(stream: TcpStream, size: usize, spin: bool) -> Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(spin)?;
        Ok(Self { stream, buffer: vec![0x5D; size] })
    }

    fn send(&mut self) -> Result<()> {
        Ok(self.stream.write_all(&self.buffer)?)
    }

    /// Whether a whole message arrived; otherwise the peer has closed the connection.
    fn receive(&mut self) -> io::Result<bool> {
        let mut have = 0;
        while have < self.buffer.len() {
            match self.stream.read(&mut self.buffer[have..]) {
                Ok(0) => return Ok(false),
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(e) => return Err(e),
            }
        }
        Ok(true)
    }
}

/// `--local IP:PORT --size BYTES --wait spin|block`; serves one connection.
pub fn serve(o: &mut Options) -> Result<Value> {
    let listener = TcpListener::bind(o.need::<SocketAddr>("local")?)?;
    let (size, spin) = (o.or("size", 64)?, o.or("wait", "spin".to_owned())? == "spin");
    o.end()?;
    say_ready(&Value::Null);
    let mut player = Player::new(listener.accept()?.0, size, spin)?;
    let since = Since::now();
    let mut answered = 0_u64;
    while player.receive()? {
        player.send()?;
        answered += 1;
    }
    Ok(json!({"answered": answered, "cpu_seconds": since.cpu_seconds()}))
}

/// `--remote IP:PORT --size BYTES --wait spin|block --seconds S`.
pub fn drive(o: &mut Options) -> Result<Value> {
    let stream = TcpStream::connect(o.need::<SocketAddr>("remote")?)?;
    let (size, spin) = (o.or("size", 64)?, o.or("wait", "spin".to_owned())? == "spin");
    let seconds = Duration::try_from_secs_f64(o.need("seconds")?)?;
    o.end()?;
    let mut player = Player::new(stream, size, spin)?;
    let since = Since::now();
    let end = now_ns() + seconds.as_nanos() as u64;
    let mut rtt_ns = Vec::new();
    while now_ns() < end {
        let start = now_ns();
        player.send()?;
        if !player.receive()? {
            return Err("the peer closed the connection".into());
        }
        rtt_ns.push(now_ns() - start);
    }
    Ok(json!({
        "packets": rtt_ns.len(), "seconds": since.seconds(), "cpu_seconds": since.cpu_seconds(),
        "rtt_ns": percentiles(rtt_ns)?,
    }))
}
