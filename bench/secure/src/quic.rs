//! A stream over QUIC: quinn over one UDP socket, in a runtime of one thread, with segmented sends.

use crate::{
    NAME, Options, Result, Since, WRITE_BYTES, client_config, input_end, ready, server_config,
};
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustix::net::sockopt;
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    net::{SocketAddr, UdpSocket},
    sync::Arc,
};

/// Bytes of a datagram beyond `--size`: header, tag and the head of a frame of the stream.
const OVERHEAD: u16 = 50;
/// Packets that quinn sends by one segmented call at most.
const SEGMENTS: u32 = 10;
/// Most bytes of such a call: those of the longest datagram over IPv4.
const SEGMENTED_BYTES: u32 = 65_507;
/// Window of the receiver: more than a link of this machine holds.
const WINDOW_BYTES: u32 = 16 << 20;

/// Buffers of a socket that are asked for.
const BUFFER_BYTES: usize = 8 << 20;

fn transport(options: &Options) -> Result<Arc<TransportConfig>> {
    let mut config = TransportConfig::default();
    let packet = options.need::<u16>("size")? + OVERHEAD;
    config.initial_mtu(packet);
    // The kernel refuses longer ones, which quinn takes for lost: nearly all of a stream.
    config.enable_segmentation_offload(SEGMENTS * u32::from(packet) <= SEGMENTED_BYTES);
    config.mtu_discovery_config(None);
    config.stream_receive_window(VarInt::from_u32(WINDOW_BYTES));
    config.receive_window(VarInt::from_u32(WINDOW_BYTES));
    config.send_window(WINDOW_BYTES.into());
    Ok(Arc::new(config))
}

fn endpoint(options: &Options, at: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(options.need::<u16>("size")? + OVERHEAD)?;
    let socket = Socket::new(Domain::for_address(at), Type::DGRAM, Some(Protocol::UDP))?;
    // As much as the kernel gives, so that full buffers do not slow it: with privileges, as SRD and
    // raw UDP, more than others may have.
    if sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
        socket.set_recv_buffer_size(BUFFER_BYTES)?;
    }
    socket.set_send_buffer_size(BUFFER_BYTES)?;
    socket.bind(&at.into())?;
    Ok(Endpoint::new(config, server, UdpSocket::from(socket), Arc::new(TokioRuntime))?)
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// Takes what arrives until the peer closes the stream.
pub fn serve(options: &Options) -> Result {
    let (tls, cert) = server_config()?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport(options)?);
    block_on(async {
        let endpoint = endpoint(options, options.need("local")?, Some(config))?;
        ready(&cert);
        let connection = endpoint.accept().await.ok_or("the endpoint was closed")?.await?;
        let mut stream = connection.accept_uni().await?;
        let since = Since::now();
        let (mut bytes, mut room) = (0, vec![0; WRITE_BYTES]);
        while let Some(n) = stream.read(&mut room).await? {
            bytes += n as u64;
        }
        since.tell(bytes);
        // Tells the peer that all has arrived.
        connection.close(VarInt::from_u32(0), b"");
        endpoint.wait_idle().await;
        Ok(())
    })?;
    input_end();
    Ok(())
}

/// Writes for `--seconds`.
pub fn drive(options: &Options) -> Result {
    let remote: SocketAddr = options.need("remote")?;
    let seconds: f64 = options.need("seconds")?;
    let mut config =
        ClientConfig::new(Arc::new(QuicClientConfig::try_from(client_config(options)?)?));
    config.transport_config(transport(options)?);
    block_on(async {
        let any = SocketAddr::new([0, 0, 0, 0].into(), 0);
        let endpoint = endpoint(options, any, None)?;
        let connection = endpoint.connect_with(config, remote, NAME)?.await?;
        let mut stream = connection.open_uni().await?;
        let (since, data) = (Since::now(), vec![0x5D; WRITE_BYTES]);
        let mut bytes = 0;
        while since.seconds() < seconds {
            stream.write_all(&data).await?;
            bytes += data.len() as u64;
        }
        stream.finish()?;
        connection.closed().await;
        since.tell(bytes);
        Ok(())
    })
}
