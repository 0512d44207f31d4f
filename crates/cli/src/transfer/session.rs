//! One end of a transfer: messages to and from the other end, and whether it still lives.

use crate::{
    app::{
        link::{Event, Link, Peer, Remote},
        message::{Body, Message, Refusal},
    },
    failure::Failure,
};
use srd::{CompletionQueue, PostError, Sge, Status, status_text};
use std::time::{Duration, Instant};

/// After this silence the other end is asked for a sign of life.
const PING_AFTER: Duration = Duration::from_secs(1);
/// Without progress for this long, the other end is stuck. A chunk takes as long at 0.1 Mb/s.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// Longest sleep before looking whether to stop.
const STOP_CHECK: Duration = Duration::from_millis(100);
/// How long the last message may take to arrive.
const LAST_MESSAGE_MAX: Duration = Duration::from_secs(6);

/// Tags of messages.
const TAG_PLAIN: u64 = 0;
const TAG_PING: u64 = 1;
const TAG_AWAITED: u64 = 2;

/// Why a transfer ended early.
#[derive(Debug)]
pub struct Abort {
    /// The message for the other end; `None` if it knows already or cannot be reached.
    tell: Option<Refusal>,
    /// What to tell the user.
    pub failure: Failure,
}

impl Abort {
    /// An error that the other end must be told as well.
    pub fn tell(why: Refusal, text: impl Into<String>) -> Self {
        Self { tell: Some(why), failure: Failure::new(text) }
    }

    /// Something with a file of ours.
    pub fn file(failure: Failure) -> Self {
        Self { tell: Some(Refusal::File), failure }
    }

    /// The user wants to stop.
    pub fn stopped(failure: Failure) -> Self {
        Self { tell: Some(Refusal::Cancelled), failure }
    }

    /// The other end is gone, or has ended the transfer itself.
    fn gone(text: impl Into<String>) -> Self {
        Self { tell: None, failure: Failure::new(text) }
    }
}

/// Errors of our own device: the other end may hear of them if that still works.
impl<E: Into<Failure>> From<E> for Abort {
    fn from(e: E) -> Self {
        Self { tell: Some(Refusal::Internal), failure: e.into() }
    }
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The other end said something.
    Message(Body),
    /// The write with this tag has completed: the data is there.
    Written(u64),
    /// Nothing yet.
    Quiet,
}

/// One end of a transfer.
pub struct Session<'a> {
    link: Link,
    cq: CompletionQueue,
    peer: Peer,
    id: u64,
    /// Ends the transfer when it gives an error.
    stop: &'a dyn Fn() -> Result<(), Failure>,
    heard: Instant,
    ping_last: Instant,
    pinging: bool,
    /// Only the last word is left to say.
    aborting: bool,
    /// End of the message that [`Session::send_and_wait`] waits for.
    awaited: Option<Status>,
}

impl<'a> Session<'a> {
    /// The end that has `link`, which completes to `cq`, and talks to `peer` only.
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
        // One is kept for a ping, one for the last word.
        self.link.can_send_more_than(2)
    }

    /// Sends a message and waits until the other end has it. Messages that arrive meanwhile are
    /// dropped: only for moments when none is expected.
    ///
    /// # Errors
    /// It did not arrive.
    pub fn send_and_wait(&mut self, body: Body) -> Result<(), Abort> {
        self.awaited = None;
        self.post(body, TAG_AWAITED)?;
        let deadline = Instant::now() + LAST_MESSAGE_MAX;
        while self.awaited.is_none() {
            if Instant::now() >= deadline {
                return Err(Abort::gone("the other end takes no messages any more"));
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

    /// What happens next, if something does in time.
    ///
    /// # Errors
    /// The other end has gone or given up, or the user wants to stop.
    pub fn next(&mut self, timeout: Duration) -> Result<Input, Abort> {
        (self.stop)().map_err(Abort::stopped)?;
        let Some(wc) = self.cq.wait(timeout.min(STOP_CHECK))? else {
            self.look()?;
            return Ok(Input::Quiet);
        };
        match self.link.handle(&wc)? {
            Some(Event::Written { tag, status: Status::Ok }) => {
                self.heard = Instant::now();
                Ok(Input::Written(tag))
            }
            // Given up: its memory has gone, so it fails here.
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
                    // A stranger's, or of a session before.
                    _ => Ok(Input::Quiet),
                }
            }
            None => Ok(Input::Quiet),
        }
    }

    fn message(&mut self, body: Body) -> Result<Input, Abort> {
        match body {
            // A sign of life of the device, not of progress: two ends that wait for each other
            // must not keep each other waiting.
            Body::Ping => Ok(Input::Quiet),
            Body::Fail(_, text) => Err(Abort::gone(format!("the other end says: {text}"))),
            body => {
                self.heard = Instant::now();
                Ok(Input::Message(body))
            }
        }
    }

    /// Nothing has come for a moment: is the other end there?
    fn look(&mut self) -> Result<(), Abort> {
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

    /// Tells the other end why this one gives up, if it can be told and has not been.
    pub fn abort(&mut self, abort: &Abort) {
        let Some(why) = abort.tell.filter(|_| !self.aborting) else { return };
        // The user may have asked to stop; the last word is said all the same.
        self.stop = &|| Ok(());
        self.aborting = true;
        let text = abort.failure.to_string();
        // If the message cannot be sent, the other end notices by its own timers.
        let _ = self.send_and_wait(Body::Fail(why, text));
    }
}

fn gone(status: Status) -> Abort {
    Abort::gone(format!("the other end has gone: {}", status_text(status)))
}
