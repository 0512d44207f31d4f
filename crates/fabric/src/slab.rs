//! Packets in the network. Headers and payloads lie in separate arrays: a hop touches only the 32
//! bytes of the header.

/// Sent as ECN-capable.
pub(crate) const ECT: u8 = 1;
/// Marked "congestion experienced".
pub(crate) const CE: u8 = 2;

/// What the network itself looks at.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Header {
    pub src: u32,
    pub dst: u32,
    pub bytes: u32,
    /// Hash of addresses and ports.
    pub hash: u32,
    pub sport: u16,
    pub dport: u16,
    /// 0 = intact.
    pub corrupt: u16,
    pub flags: u8,
    /// Switches passed.
    pub hops: u8,
    /// When it was handed to the card.
    pub sent_ps: u64,
}

/// The packets in flight.
pub(crate) struct Slab<P> {
    pub headers: Vec<Header>,
    payloads: Vec<Option<P>>,
    free: Vec<u32>,
}

impl<P> Slab<P> {
    pub const fn new() -> Self {
        Self { headers: Vec::new(), payloads: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub fn insert(&mut self, header: Header, payload: P) -> u32 {
        if let Some(at) = self.free.pop() {
            self.headers[at as usize] = header;
            self.payloads[at as usize] = Some(payload);
            return at;
        }
        self.headers.push(header);
        self.payloads.push(Some(payload));
        (self.headers.len() - 1) as u32
    }

    /// Takes a packet out.
    ///
    /// # Panics
    /// If it was taken out before: an event would have outlived its packet.
    #[inline]
    pub fn remove(&mut self, at: u32) -> (Header, P) {
        let payload = self.payloads[at as usize].take().expect("an event outlived its packet");
        self.free.push(at);
        (self.headers[at as usize], payload)
    }

    pub fn payload(&self, at: u32) -> Option<&P> {
        self.payloads[at as usize].as_ref()
    }

    /// Packets in flight.
    pub fn live(&self) -> u64 {
        (self.headers.len() - self.free.len()) as u64
    }
}

impl<P: Clone> Slab<P> {
    /// A second copy of a packet.
    pub fn duplicate(&mut self, at: u32) -> Option<u32> {
        let payload = self.payloads[at as usize].clone()?;
        Some(self.insert(self.headers[at as usize], payload))
    }
}
