//! The point in time up to which all arrived packets have been read.
//!
//! A missing acknowledgment means a lost packet only if the acknowledgment is not waiting in the
//! socket. The socket returns datagrams in the order of arrival, so whatever arrived before the
//! packet that was read last has been read. A socket that is never empty (overload, or a flood of
//! junk) therefore delays loss timers by the age of its oldest packet, but never stops them.

use srd_core::{Span, Time};

/// Most datagrams in a receive buffer; used if arrivals carry no stamps. 16 MiB (which the kernel
/// makes of the requested 8 MiB) at 512 bytes each, the least that the kernel charges for a
/// datagram.
const SOCKET_DATAGRAMS_MAX: usize = 32_768;

/// Largest assumed age of unread packets if arrivals carry no stamps: the maximum retransmission
/// timeout (`rto_max` of `EngineConfig::sockets`).
const UNSTAMPED_MAX: Span = Span::from_ms(100);

/// The result of one or several consecutive reads of the socket.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// Datagrams read.
    pub received: usize,
    /// Whether more datagrams may be waiting.
    pub more: bool,
    /// When the last batch was taken from the socket.
    pub taken_at: Option<Time>,
    /// How long its last datagram had waited by then; zero if the datapath does not know.
    pub waited: Span,
}

/// State of the packets that have not been read yet.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Arrivals {
    /// Everything that arrived before this time has been read.
    read_until: Time,
    /// Start of a count, and the datagrams read since. Once the count reaches the socket's
    /// capacity, everything that was in the socket at the start has been read.
    counted_from: Time,
    counted: usize,
}

impl Arrivals {
    /// Records the reads of a turn that first polled the socket after `before` and finished its
    /// last poll before `now`. Returns the time up to which all arrivals have been read.
    pub(crate) fn note(&mut self, before: Time, now: Time, look: &Look) -> Time {
        if !look.more {
            *self = Self { read_until: now, counted_from: now, counted: 0 };
            return now;
        }
        self.counted += look.received;
        let known = match look.taken_at {
            Some(at) if look.waited > Span::ZERO => Time(at.0.saturating_sub(look.waited.0)),
            _ if self.counted >= SOCKET_DATAGRAMS_MAX => {
                let read = self.counted_from;
                (self.counted_from, self.counted) = (before, 0);
                read
            }
            _ => Time(now.0.saturating_sub(UNSTAMPED_MAX.0)),
        };
        self.read_until = self.read_until.max(known).min(now);
        self.read_until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(taken_at: Time, waited: Span) -> Look {
        Look { received: 64, more: true, taken_at: Some(taken_at), waited }
    }

    #[test]
    fn stamps_tell_how_far_a_full_socket_is_read() {
        let (mut a, ms) = (Arrivals::default(), |n: u64| Time(n * 1_000_000));
        let (began, now) = (ms(5_000), ms(5_001));
        let long = full(now, Span::from_secs(3));
        assert_eq!(a.note(began, now, &long), ms(2_001), "a process that was stopped");
        assert_eq!(a.note(now, ms(5_002), &full(ms(5_002), Span::from_ms(1))), ms(5_001));
        let older = full(ms(5_003), Span::from_ms(50));
        assert_eq!(a.note(ms(5_002), ms(5_003), &older), ms(5_001), "what is read stays read");
        let empty = Look::default();
        assert_eq!(a.note(ms(5_003), ms(5_004), &empty), ms(5_004));
    }

    #[test]
    fn without_stamps_time_and_datagrams_bound_what_may_wait() {
        let (mut a, ms) = (Arrivals::default(), |n: u64| Time(n * 1_000_000));
        assert_eq!(a.note(ms(999), ms(1_000), &Look::default()), ms(1_000));
        let look = full(ms(1_010), Span::ZERO);
        assert_eq!(a.note(ms(1_009), ms(1_010), &look), ms(1_000), "as of the empty look");
        assert_eq!(a.note(ms(1_299), ms(1_300), &look), ms(1_200), "by time");
        let rest = Look { received: SOCKET_DATAGRAMS_MAX, ..look };
        assert_eq!(a.note(ms(1_300), ms(1_301), &rest), ms(1_200), "counted from before that");
        assert_eq!(a.note(ms(1_302), ms(1_303), &rest), ms(1_300), "by datagrams");
    }
}
