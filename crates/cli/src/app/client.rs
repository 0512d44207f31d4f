//! The client side of the protocol: a device, a link, and requests to the server.

use crate::{
    app::{
        CONTROL_QKEY, CONTROL_QP_INDEX,
        link::{Event, Link, LinkDepth, Peer},
        message::{Body, Message},
        qkey_random,
        token::{Token, nonce_random},
    },
    device::{DeviceArgs, OpenDevice},
    failure::{Failure, Result},
    host::{HostName, Server},
    signals::Stop,
};
use srd::{CompletionQueue, Progress, ProtectionDomain, Qpn, Status, status_text};
use std::time::{Duration, Instant};

/// Interval at which a wait checks for a stop request.
pub const STOP_CHECK: Duration = Duration::from_millis(100);
/// Time limit for an answer; longer than the device needs to detect that the peer does not exist.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// A client of one server.
pub struct Client {
    /// Carries requests and answers.
    pub link: Link,
    /// Completions of the link.
    pub cq: CompletionQueue,
    /// Protection domain of the link and of all other objects used with this server.
    pub pd: ProtectionDomain,
    /// The device.
    pub open: OpenDevice,
    /// Address of the server.
    pub server: Server,
    /// The server's request queue pair.
    pub control: Peer,
    token: Option<Token>,
    id_last: u64,
}

impl Client {
    /// Resolves the server's address and opens a device. Sends nothing yet.
    ///
    /// # Errors
    /// The host does not exist, or the device cannot be opened.
    pub fn open(
        args: &DeviceArgs,
        host: &HostName,
        progress: Progress,
        depth: LinkDepth,
    ) -> Result<Self> {
        let token = args.token()?;
        let server = host.resolve(args.port_base, args.ip)?;
        let open = args.open(server.local_ip, progress)?;
        let pd = open.device.pd_create()?;
        let cq_depth = u32::from(depth.sends) + u32::from(depth.recvs) + u32::from(depth.writes);
        let cq = open.device.cq_create(cq_depth)?;
        let link = Link::new(&pd, &cq, qkey_random()?, depth)?;
        let ah = pd.ah_create(server.ip)?;
        let qpn = Qpn(u16::from(server.slot) << 8 | u16::from(CONTROL_QP_INDEX));
        let control = Peer { ah, qpn, qkey: CONTROL_QKEY };
        Ok(Self { link, cq, pd, open, server, control, token, id_last: 0 })
    }

    /// Returns an unused request number.
    pub fn id_next(&mut self) -> u64 {
        self.id_last += 1;
        self.id_last
    }

    /// A message from this client.
    pub fn message(&self, id: u64, body: Body) -> Message {
        Message { id, reply_qkey: self.link.qkey(), body }
    }

    /// Sends a request and waits for its answer. Returns the queue pair that answered and the
    /// answer's body.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or sends an unexpected answer; or the user requested
    /// a stop.
    pub fn request(&mut self, id: u64, body: Body, stop: &Stop) -> Result<(Qpn, Body)> {
        let body = match self.token.clone() {
            Some(token) if body.opens() => self.prove(&token, id, body, stop)?,
            _ => body,
        };
        self.ask(id, body, stop)
    }

    /// Verifies that the server holds the token, and proves to the server that this client holds
    /// it.
    fn prove(&mut self, token: &Token, id: u64, body: Body, stop: &Stop) -> Result<Body> {
        let asked = nonce_random()?;
        let (_, answer) = self.ask(id, Body::Challenge { nonce: asked }, stop)?;
        let Body::Nonce { nonce, proof } = answer else {
            return Err(Failure::new("the server sent an answer that does not fit the request"));
        };
        // Hash comparison takes constant time.
        if token.of_server(self.control.qpn, &asked, &nonce) != proof {
            let (server, path) = (self.server, token.path.display());
            return Err(Failure::new(format!(
                "the server at {server} has another token than {path}: start it with a copy of \
                 this file, or use its own; if it should have this one, it is not your server"
            )));
        }
        let request = self.message(id, body);
        let proof = *token.of_client(self.link.qpn(), &nonce, &request).as_bytes();
        Ok(Body::Proved { proof, body: Box::new(request.body) })
    }

    fn ask(&mut self, id: u64, body: Body, stop: &Stop) -> Result<(Qpn, Body)> {
        let (message, control) = (self.message(id, body), self.control.clone());
        self.link.send(&control, &message, id)?;
        let deadline = Instant::now() + ANSWER_MAX;
        loop {
            stop.check()?;
            if Instant::now() >= deadline {
                let text = format!("the server at {} does not answer", self.server);
                return Err(Failure::new(text));
            }
            match self.event(STOP_CHECK)? {
                Some(Event::Sent { status, .. }) if status != Status::Ok => {
                    return Err(self.unreachable(status));
                }
                Some(Event::Message(arrival)) if arrival.ip == self.server.ip => {
                    let answer = arrival.message?;
                    match answer.body {
                        Body::Ping => {}
                        Body::Fail(_, text) if answer.id == id => {
                            return Err(Failure::new(format!("the server refuses: {text}")));
                        }
                        body if answer.id == id => return Ok((arrival.qpn, body)),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
    }

    /// Waits up to `timeout` for the next event of the link.
    ///
    /// # Errors
    /// The device is shut down.
    pub fn event(&mut self, timeout: Duration) -> Result<Option<Event>> {
        match self.cq.wait(timeout)? {
            Some(wc) => self.link.handle(&wc),
            None => Ok(None),
        }
    }

    /// Explains why a request could not be delivered, and what to do.
    pub fn unreachable(&self, status: Status) -> Failure {
        let server = self.server;
        Failure::new(match status {
            Status::LocalUnreachRemote if self.open.was_refused() => format!(
                "the server at {server} refuses this process because of its seal (the reason is \
                 above): start both sides with the same key file (--key, SRD_KEY_FILE), or both \
                 without one"
            ),
            Status::LocalUnreachRemote => return nobody(server),
            // The server's port was free, and this process has got it.
            Status::RemoteBadDestQpn
                if (self.open.device.ip(), self.open.device.slot()) == (server.ip, server.slot) =>
            {
                return nobody(server);
            }
            Status::RemoteBadDestQpn => format!(
                "the program at {server} is not `srd serve`: name the port that `srd serve` printed"
            ),
            other => format!("the server at {server}: {}", status_text(other)),
        })
    }
}

/// No process receives at the server's address, as far as can be told from here.
fn nobody(server: Server) -> Failure {
    Failure::new(format!(
        "nobody answers at {server}: start `srd serve --ip {}` there, or let UDP ports pass its \
         firewall",
        server.ip
    ))
}
