//! A stream over TCP with TLS 1.3: rustls over the kernel's sockets.

use crate::{
    NAME, Options, Result, Since, WRITE_BYTES, client_config, input_end, ready, server_config,
};
use rustls::{ClientConnection, ServerConnection, Stream};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

/// A socket whose segments carry `--size` bytes; 12 more are those of the timestamp option.
fn socket(options: &Options, to: SocketAddr) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_tcp_mss(options.need::<u32>("size")? + 12)?;
    Ok(socket)
}

/// Takes what arrives until the peer closes the stream.
pub fn serve(options: &Options) -> Result {
    let (config, cert) = server_config()?;
    let local: SocketAddr = options.need("local")?;
    let socket = socket(options, local)?;
    socket.set_reuse_address(true)?;
    socket.bind(&local.into())?;
    socket.listen(1)?;
    let listener = TcpListener::from(socket);
    ready(&cert);
    let (mut tcp, _) = listener.accept()?;
    tcp.set_nodelay(true)?;
    let mut tls = ServerConnection::new(Arc::new(config))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    let since = Since::now();
    let (mut bytes, mut room) = (0, vec![0; WRITE_BYTES]);
    let mut stream = Stream::new(&mut tls, &mut tcp);
    loop {
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(n) => bytes += n as u64,
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(e.into()),
        }
    }
    since.tell(bytes);
    tcp.shutdown(Shutdown::Write)?;
    input_end();
    Ok(())
}

/// Writes for `--seconds`.
pub fn drive(options: &Options) -> Result {
    let remote: SocketAddr = options.need("remote")?;
    let seconds: f64 = options.need("seconds")?;
    let socket = socket(options, remote)?;
    socket.connect(&remote.into())?;
    let mut tcp = TcpStream::from(socket);
    tcp.set_nodelay(true)?;
    let config = Arc::new(client_config(options)?);
    let mut tls = ClientConnection::new(config, NAME.try_into()?)?;
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    // As much as one write, so that no record waits for another write.
    tls.set_buffer_limit(Some(2 * WRITE_BYTES));
    let (since, data) = (Since::now(), vec![0x5D; WRITE_BYTES]);
    let mut bytes = 0;
    let mut stream = Stream::new(&mut tls, &mut tcp);
    while since.seconds() < seconds {
        stream.write_all(&data)?;
        bytes += data.len() as u64;
    }
    stream.flush()?;
    since.tell(bytes);
    tls.send_close_notify();
    tls.complete_io(&mut tcp)?;
    // The server's session tickets were never read. A socket that is closed with unread data resets
    // the connection, which would take what the server has not read yet with it.
    tcp.shutdown(Shutdown::Write)?;
    while tcp.read(&mut [0; 4096])? > 0 {}
    Ok(())
}
