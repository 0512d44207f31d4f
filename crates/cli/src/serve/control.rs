//! The server's request handler: accepts requests, owns the sessions, and detects clients that have
//! gone.

use super::{
    copies::{Copies, CopyRequest},
    guard::Guard,
    limits::{Lease, Limits, Share},
    perf::{self, PerfSession},
    pool::Handles,
};
use crate::{
    app::{
        CONTROL_QKEY, CONTROL_QP_INDEX,
        link::{Arrival, Event, Link, LinkDepth, Peer},
        message::{Body, Message, PerfOpen, Refusal},
    },
    failure::{Failure, Result},
    files::Folder,
    output,
};
use srd::{AsyncEvent, CompletionQueue, Device, Endpoint, QKey, Qpn, Status, WorkCompletion};
use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

/// Depth of the completion queue: enough for all queues of all sessions.
const CQ_DEPTH: u32 = 1 << 19;
/// Buffers of the request link.
const DEPTH: LinkDepth = LinkDepth { sends: 512, recvs: 1024, writes: 0 };
/// Most unacknowledged answers to one queue pair; a client has one or two open requests.
const ANSWERS_QP_MAX: usize = 32;
/// Most unacknowledged answers to one host: half of all.
const ANSWERS_HOST_MAX: usize = DEPTH.sends as usize / 2;
/// Interval of pings, which test whether a client's device is alive without involving the program.
const PING_EVERY: Duration = Duration::from_secs(2);
/// Time that copies have at shutdown to tell their clients, and answers to arrive.
const SHUTDOWN_MAX: Duration = Duration::from_secs(3);
/// Tag of messages whose completion is ignored.
const TAG_NONE: u64 = u64::MAX;

/// The queue pair that requested a session, and its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientAddress {
    /// IP address of the host.
    pub ip: IpAddr,
    /// Queue pair number; the slot in it identifies the process.
    pub qpn: Qpn,
}

/// Counters for the summary.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    measurements: u64,
    refused: u64,
    malformed: u64,
}

/// The request handler.
pub struct Control {
    // Fields are dropped in this order: sessions before what they are made from.
    sessions: BTreeMap<ClientAddress, (PerfSession, Lease)>,
    /// The session of each queue pair, by the queue pair's index.
    owners: Vec<Option<ClientAddress>>,
    copies: Copies,
    limits: Limits,
    guard: Option<Guard>,
    link: Link,
    handles: Handles,
    cq: CompletionQueue,
    device: Device,
    tally: Tally,
    ended: bool,
}

impl Control {
    /// Creates the queue pair that accepts requests, which must be the device's first.
    ///
    /// # Errors
    /// The device has too few resources.
    pub fn new(
        device: &Device,
        folder: Option<Folder>,
        limits: Limits,
        guard: Option<Guard>,
    ) -> Result<Self> {
        let pd = device.pd_create()?;
        let cq = device.cq_create(CQ_DEPTH.min(device.attr().max_cqe))?;
        let link = Link::new(&pd, &cq, CONTROL_QKEY, DEPTH)?;
        if link.qpn().index() != CONTROL_QP_INDEX {
            return Err(Failure::new("the request queue pair is not the device's first"));
        }
        Ok(Self {
            sessions: BTreeMap::new(),
            owners: vec![None; 256],
            copies: Copies::new(folder, limits.clone()),
            limits,
            guard,
            link,
            handles: Handles::new(pd),
            cq,
            device: device.clone(),
            tally: Tally::default(),
            ended: false,
        })
    }

    /// Completion queue of the request link and of all measurements.
    pub fn cq(&self) -> &CompletionQueue {
        &self.cq
    }

    /// Whether a client asked the server to poll continuously.
    pub fn spins(&self) -> bool {
        self.sessions.values().any(|(session, _)| session.spins())
    }

    /// Whether the first session has ended.
    pub fn ended_first(&self) -> bool {
        self.ended
    }

    /// Handles one completion.
    ///
    /// # Errors
    /// The device is shut down.
    #[inline]
    pub fn handle(&mut self, wc: &WorkCompletion) -> Result {
        if wc.qpn == self.link.qpn() {
            return match self.link.handle(wc)? {
                Some(Event::Message(arrival)) => self.arrived(arrival),
                Some(Event::Sent { tag, status }) => {
                    self.sent(tag, status);
                    Ok(())
                }
                Some(Event::Written { .. }) | None => Ok(()),
            };
        }
        let Some(owner) = self.owners[usize::from(wc.qpn.index())] else { return Ok(()) };
        if let Some((session, _)) = self.sessions.get_mut(&owner)
            && let Err(e) = session.handle(wc)
        {
            self.end(owner, &format!("ended: {e}"));
        }
        Ok(())
    }

    /// Handles a received message.
    fn arrived(&mut self, arrival: Arrival) -> Result {
        let from = ClientAddress { ip: arrival.ip, qpn: arrival.qpn };
        if !self.limits.allows(from.ip) {
            self.tally.refused += 1;
            // Answers to unknown hosts must leave room for answers to clients.
            if let Some((id, qkey)) = arrival.head
                && self.link.can_send_more_than(usize::from(DEPTH.sends / 2))
            {
                let text = format!("{} is not allowed to use this server (--allow)", from.ip);
                self.answer(from, qkey, id, Body::Fail(Refusal::BadRequest, text));
            }
            return Ok(());
        }
        match arrival.message {
            Ok(message) => self.request(from, message),
            Err(e) => {
                self.tally.malformed += 1;
                if let Some((id, qkey)) = arrival.head {
                    let body = Body::Fail(Refusal::Version, e.to_string());
                    self.answer(from, qkey, id, body);
                }
                Ok(())
            }
        }
    }

    fn request(&mut self, from: ClientAddress, message: Message) -> Result {
        let (id, reply_qkey) = (message.id, message.reply_qkey);
        let answer = match self.admit(from, message) {
            Err(refusal) => refusal,
            Ok(body) => match self.grant(from, (id, reply_qkey), body)? {
                Some(answer) => answer,
                None => return Ok(()),
            },
        };
        self.tally.refused += u64::from(matches!(answer, Body::Fail(..)));
        self.answer(from, reply_qkey, id, answer);
        Ok(())
    }

    /// Checks whether the sender may make the request. Returns the request, or the answer if it may
    /// not.
    fn admit(&mut self, from: ClientAddress, message: Message) -> Result<Body, Body> {
        let refuse = |text: &str| Body::Fail(Refusal::BadRequest, text.into());
        let Message { id, reply_qkey, body } = message;
        match (body, &mut self.guard) {
            (Body::Challenge { nonce }, Some(guard)) => {
                Err(guard.challenged(self.link.qpn(), from, &nonce))
            }
            (Body::Challenge { .. } | Body::Proved { .. }, None) => Err(refuse(
                "the server has no --token-file: start it with the client's token file, or leave \
                 out the option at the client, too",
            )),
            (Body::Proved { proof, body }, Some(guard)) => {
                let request = Message { id, reply_qkey, body: *body };
                let good = guard.check(Instant::now(), from, &request, proof);
                good.map(|()| request.body).map_err(|e| refuse(&e.to_string()))
            }
            (body, Some(_)) if body.opens() => Err(refuse(
                "the server accepts only clients with its token: name it by --token-file",
            )),
            (body, _) => Ok(body),
        }
    }

    /// Executes a request. Returns the answer, unless there is none or another thread sends it.
    fn grant(
        &mut self,
        from: ClientAddress,
        (id, reply_qkey): (u64, QKey),
        body: Body,
    ) -> Result<Option<Body>> {
        Ok(Some(match body {
            // A ping is answered by its acknowledgment; other kinds are not requests.
            Body::Ping => return Ok(None),
            Body::PerfOpen(request) => self.perf_open(from, id, reply_qkey, &request)?,
            Body::PerfQuery => match self.sessions.get(&from) {
                Some((session, _)) => Body::PerfReport(session.report(&self.device)?),
                None => Body::Fail(Refusal::BadRequest, "there is no such session".into()),
            },
            Body::PerfClose => {
                self.end(from, "done");
                Body::PerfClosed
            }
            Body::PutOpen { size, name } => {
                let request = CopyRequest::Put { size, name };
                return Ok(self.copy(from, (id, reply_qkey), request));
            }
            Body::GetOpen { slots, name } => {
                let request = CopyRequest::Get { slots, name };
                return Ok(self.copy(from, (id, reply_qkey), request));
            }
            _ => Body::Fail(Refusal::BadRequest, "the server does not know this request".into()),
        }))
    }

    /// Starts a copy, whose thread answers, or returns the refusal.
    fn copy(
        &mut self,
        from: ClientAddress,
        reply: (u64, QKey),
        request: CopyRequest,
    ) -> Option<Body> {
        self.copies.begin(&self.device, from, reply, request)
    }

    fn perf_open(
        &mut self,
        from: ClientAddress,
        id: u64,
        reply_qkey: QKey,
        request: &PerfOpen,
    ) -> Result<Body> {
        // A pending event about an earlier process at this address must not end the new process's
        // session.
        self.events();
        self.end(from, "replaced by a new measurement");
        if let Err(e) = perf::check(&self.device, request) {
            return Ok(Body::Fail(Refusal::BadRequest, e.to_string()));
        }
        let share =
            Share { qps: u64::from(request.qps), memory: perf::memory_bytes(request), disk: 0 };
        let lease = match self.limits.take(from.ip, share) {
            Ok(lease) => lease,
            Err(e) => {
                output::note(&format!("srd: {} is refused a measurement: {e}", from.ip));
                return Ok(Body::Fail(Refusal::Busy, e.to_string()));
            }
        };
        let mut request = *request;
        // With --no-spin the measurement runs with the latency of a sleeping server.
        request.spin &= !self.limits.no_spin;
        let made = perf::open(&self.device, &self.cq, from, reply_qkey, &request);
        let (session, ready) = match made {
            Ok(made) => made,
            Err(e) => return Ok(Body::Fail(Refusal::BadRequest, e.to_string())),
        };
        for qpn in &ready.qpns {
            self.owners[usize::from(Qpn(*qpn).index())] = Some(from);
        }
        let what = format!("{:?}", request.operation).to_lowercase();
        let kind = if request.echo { "latency" } else { "bandwidth" };
        output::line(&format!("{} measures {kind} of {what} (request {id})", from.ip))?;
        self.tally.measurements += 1;
        self.sessions.insert(from, (session, lease));
        Ok(Body::PerfReady(ready))
    }

    /// Sends an answer if its limits allow. A client that does not acknowledge answers gets no more
    /// of them, and so leaves room for answers to others.
    fn answer(&mut self, to: ClientAddress, qkey: QKey, id: u64, body: Body) {
        let (of_qp, of_host) = self.link.outgoing_to(to.ip, to.qpn);
        if of_qp >= ANSWERS_QP_MAX || of_host >= ANSWERS_HOST_MAX || !self.link.can_send() {
            self.tally.refused += 1;
            return;
        }
        let Ok(ah) = self.handles.get(to.ip) else { return };
        let message = Message { id, reply_qkey: CONTROL_QKEY, body };
        // Fails only if the device is closing or its MTU is tiny: then no answer is possible.
        let _ = self.link.send(&Peer { ah, qpn: to.qpn, qkey }, &message, TAG_NONE);
    }

    /// Handles the completion of a sent message: pings show whether the client is alive.
    fn sent(&mut self, tag: u64, status: Status) {
        let found = self.sessions.iter_mut().find(|(_, (s, _))| s.number() == tag);
        if let Some((&from, (session, _))) = found {
            session.pinged();
            if status != Status::Ok {
                self.end(from, "the client has gone");
            }
        }
    }

    /// Ends a client's session, if it has one.
    fn end(&mut self, from: ClientAddress, why: &str) {
        let Some(session) = self.sessions.remove(&from) else { return };
        for owner in self.owners.iter_mut().filter(|o| **o == Some(from)) {
            *owner = None;
        }
        drop(session);
        self.ended = true;
        if why != "done" {
            output::note(&format!("srd: measurement of {}: {why}", from.ip));
        }
    }

    /// Periodic work.
    ///
    /// # Errors
    /// The device is shut down.
    pub fn housekeeping(&mut self, now: Instant) -> Result {
        self.events();
        self.ended |= self.copies.reap();
        let quiet: Vec<ClientAddress> = self
            .sessions
            .iter()
            .filter(|(_, (s, _))| s.ping_due(now, PING_EVERY))
            .map(|(from, _)| *from)
            .collect();
        for from in quiet {
            self.ping(from, now);
        }
        Ok(())
    }

    fn events(&mut self) {
        while let Some(event) = self.device.event_get() {
            self.event(event);
        }
    }

    fn ping(&mut self, from: ClientAddress, now: Instant) {
        if !self.link.can_send() {
            return;
        }
        let Ok(ah) = self.handles.get(from.ip) else { return };
        let Some((session, _)) = self.sessions.get_mut(&from) else { return };
        let message = Message { id: 0, reply_qkey: CONTROL_QKEY, body: Body::Ping };
        let peer = Peer { ah, qpn: from.qpn, qkey: session.reply_qkey() };
        if self.link.send(&peer, &message, session.number()).is_ok() {
            session.pinging(now);
        }
    }

    /// Handles a device event: a restarted or silent peer ends its sessions.
    fn event(&mut self, event: AsyncEvent) {
        match event {
            AsyncEvent::PeerReset(e)
            | AsyncEvent::PeerUnresponsive(e)
            | AsyncEvent::PeerUnreachable(e) => self.peer_gone(e),
            AsyncEvent::DatapathError(errno) => {
                let e = std::io::Error::from_raw_os_error(errno);
                output::note(&format!("srd: the network device failed: {e}"));
            }
            _ => {}
        }
    }

    fn peer_gone(&mut self, endpoint: Endpoint) {
        let base = self.device.port().udp_port - u16::from(self.device.slot());
        let of_peer = |a: &ClientAddress| {
            a.ip == endpoint.ip && u16::from(a.qpn.slot()) + base == endpoint.port
        };
        let gone: Vec<ClientAddress> = self.sessions.keys().copied().filter(of_peer).collect();
        for from in gone {
            self.end(from, "the client has gone");
        }
    }

    /// Ends all sessions, and gives copies time to tell their clients, and answers time to arrive.
    ///
    /// # Errors
    /// The device is shut down.
    pub fn shutdown(&mut self) -> Result {
        self.owners.fill(None);
        self.sessions.clear();
        self.copies.stop();
        let deadline = Instant::now() + SHUTDOWN_MAX;
        while (self.copies.any() || self.link.is_sending()) && Instant::now() < deadline {
            // The copies' threads do not drive the device, and answers leave when it is driven.
            if let Some(wc) = self.cq.wait(Duration::from_millis(10))? {
                self.handle(&wc)?;
            }
            self.copies.reap();
        }
        Ok(())
    }

    /// Summary of the sessions in one line.
    pub fn summary(&self) -> String {
        let Tally { measurements, refused, malformed } = self.tally;
        let Copies { done, failed, .. } = self.copies;
        format!(
            "served {measurements} measurements and {done} copies; {failed} copies failed, \
             {refused} requests were refused, {malformed} messages were malformed"
        )
    }
}
