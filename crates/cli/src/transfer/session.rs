//! One end of a transfer: exchanges messages with the other end, and checks that it is alive.

use crate::{
    app::{
        link::{Event, Link, Peer, Remote},
        message::{Body, Message, Refusal},
    },
    failure::Failure,
};
use srd::{CompletionQueue, PostError, Sge, Status, status_text};
use std::time::{Duration, Instant};

/// Silence after which the other end is pinged.
const PING_AFTER: Duration = Duration::from_secs(1);
/// Time without progress after which the other end counts as stuck. One chunk takes as long at 0.1
/// Mb/s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Longest sleep between checks for a stop request.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// Time limit for the delivery of the last message.
const LAST_MESSAGE_MAX: Duration = Duration::from_secs(6);

/// Tags of messages.
const TAG_PLAIN: u64 = 0;
const TAG_PING: u64 = 1;
const TAG_AWAITED: u64 = 2;

/// Why a transfer ended early.
#[derive(Debug)]
pub struct Abort {
    /// The reason sent to the other end; `None` if it knows already or cannot be reached.
    tell: Option<Refusal>,
    /// The error text for the user.
    pub failure: Failure,
}

impl Abort {
    /// An error that the other end must be told.
    pub fn tell(why: Refusal, text: impl Into<String>) -> Self {
        Self { tell: Some(why), failure: Failure::new(text) }
    }

    /// An error with a local file.
    pub fn file(failure: Failure) -> Self {
        Self { tell: Some(Refusal::File), failure }
    }

    /// The user requested a stop.
    pub fn stopped(failure: Failure) -> Self {
        Self { tell: Some(Refusal::Cancelled), failure }
    }

    /// The other end is gone, or has ended the transfer.
    fn gone(text: impl Into<String>) -> Self {
        Self { tell: None, failure: Failure::new(text) }
    }
}

/// Errors of the local device: the other end is told if that is still possible.
impl<E: Into<Failure>> From<E> for Abort {
    fn from(e: E) -> Self {
        Self { tell: Some(Refusal::Internal), failure: e.into() }
    }
}

/// An event in a transfer.
#[derive(Debug)]
pub enum Input {
    /// A message of the other end.
    Message(Body),
    /// The write with this tag completed: the data has arrived.
    Written(u64),
    /// Nothing happened.
    Quiet,
}

/// One end of a transfer.
pub struct Session<'a> {
    link: Link,
    cq: CompletionQueue,
    peer: Peer,
    id: u64,
    /// Ends the transfer if it returns an error.
    stop: &'a dyn Fn() -> Result<(), Failure>,
    heard: Instant,
    ping_last: Instant,
    pinging: bool,
    /// Only the final `Fail` message remains to be sent.
    aborting: bool,
    /// Status of the message that [`Session::send_and_wait`] waits for.
    awaited: Option<Status>,
}

impl<'a> Session<'a> {
    /// Creates the end that owns `link`, which completes to `cq`, and talks only to `peer`.
    pub fn new(
        link: Link,
        cq: CompletionQueue,
        peer: Peer,
        id: u64,
        stop: &'a dyn Fn() -> Result<(), Failure>,
    ) -> Self {
        let now = Instant::now();
        Self {
            link,
            cq,
            peer,
            id,
            stop,
            heard: now,
            ping_last: now,
            pinging: false,
            aborting: false,
            awaited: None,
        }
    }

    fn post(&mut self, body: Body, tag: u64) -> Result<(), Abort> {
        let message = Message { id: self.id, reply_qkey: self.link.qkey(), body };
        self.link.send(&self.peer, &message, tag)?;
        Ok(())
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The device is shut down.
    pub fn send(&mut self, body: Body) -> Result<(), Abort> {
        self.post(body, TAG_PLAIN)
    }

    /// Whether a message can be sent now.
    pub fn can_send(&self) -> bool {
        // One buffer is reserved for a ping, one for the final message.
        self.link.can_send_more_than(2)
    }

    /// Sends a message and waits until it is acknowledged. Drops messages that arrive meanwhile, so
    /// use it only when none is expected.
    ///
    /// # Errors
    /// The message was not delivered.
    pub fn send_and_wait(&mut self, body: Body) -> Result<(), Abort> {
        self.awaited = None;
        self.post(body, TAG_AWAITED)?;
        let deadline = Instant::now() + LAST_MESSAGE_MAX;
        while self.awaited.is_none() {
            if Instant::now() >= deadline {
                return Err(Abort::gone("the other end no longer accepts messages"));
            }
            self.next(STOP_CHECK)?;
        }
        Ok(())
    }

    /// Writes into the other end's memory; [`Input::Written`] with `tag` follows.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn write(&self, data: Sge, remote: Remote, tag: u64) -> Result<(), PostError> {
        self.link.write(&self.peer, data, remote, tag)
    }

    /// Waits up to `timeout` for the next event.
    ///
    /// # Errors
    /// The other end has gone or has given up, or the user requested a stop.
    pub fn next(&mut self, timeout: Duration) -> Result<Input, Abort> {
        (self.stop)().map_err(Abort::stopped)?;
        let Some(wc) = self.cq.wait(timeout.min(STOP_CHECK))? else {
            self.liveness_check()?;
            return Ok(Input::Quiet);
        };
        match self.link.handle(&wc)? {
            Some(Event::Written { tag, status: Status::Ok }) => {
                self.heard = Instant::now();
                Ok(Input::Written(tag))
            }
            // After an abort, the other end's memory is gone, so the write fails.
            Some(Event::Written { .. }) if self.aborting => Ok(Input::Quiet),
            Some(Event::Written { status, .. }) => Err(gone(status)),
            Some(Event::Sent { tag, status }) => {
                if status != Status::Ok {
                    return Err(gone(status));
                }
                match tag {
                    TAG_PING => self.pinging = false,
                    TAG_AWAITED => self.awaited = Some(status),
                    _ => {}
                }
                Ok(Input::Quiet)
            }
            Some(Event::Message(arrival)) => {
                let ours = arrival.ip == self.peer.ah.ip() && arrival.qpn == self.peer.qpn;
                match arrival.message {
                    Ok(message) if ours && message.id == self.id => self.message(message.body),
                    Err(e) if ours => Err(Abort::tell(Refusal::BadRequest, e.to_string())),
                    // From another peer or an earlier session.
                    _ => Ok(Input::Quiet),
                }
            }
            None => Ok(Input::Quiet),
        }
    }

    fn message(&mut self, body: Body) -> Result<Input, Abort> {
        match body {
            // A ping shows that the device is alive, not that there is progress: it must not reset
            // the progress timer, or two ends that wait for each other would wait forever.
            Body::Ping => Ok(Input::Quiet),
            Body::Fail(_, text) => Err(Abort::gone(format!("the other end reports: {text}"))),
            body => {
                self.heard = Instant::now();
                Ok(Input::Message(body))
            }
        }
    }

    /// Nothing arrived for a while: checks whether the other end is alive.
    fn liveness_check(&mut self) -> Result<(), Abort> {
        let now = Instant::now();
        if now.duration_since(self.heard) > SILENCE_MAX {
            let seconds = SILENCE_MAX.as_secs();
            let text = format!("no progress for {seconds} s: the other end is stuck");
            return Err(Abort::tell(Refusal::Internal, text));
        }
        let since = now.duration_since(self.heard.max(self.ping_last));
        if since > PING_AFTER && !self.pinging && self.link.can_send() {
            self.ping_last = now;
            self.pinging = true;
            self.post(Body::Ping, TAG_PING)?;
        }
        Ok(())
    }

    /// Tells the other end why this one gives up, unless it knows already or cannot be reached.
    pub fn abort(&mut self, abort: &Abort) {
        let Some(why) = abort.tell.filter(|_| !self.aborting) else { return };
        // After a stop request the final message is still sent.
        self.stop = &|| Ok(());
        self.aborting = true;
        let text = abort.failure.to_string();
        // If it cannot be sent, the other end's timers detect the end.
        let _ = self.send_and_wait(Body::Fail(why, text));
    }
}

fn gone(status: Status) -> Abort {
    Abort::gone(format!("the other end has gone: {}", status_text(status)))
}
