//! Packets in the network. A hop touches none of this: what it needs travels in the event.

/// Sent as ECN-capable.
pub(crate) const ECT: u8 = 1;
/// Marked "congestion experienced".
pub(crate) const CE: u8 = 2;

/// What the network itself looks at.
#[derive(Clone, Copy, Debug)]
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
    /// When it was handed to the card.
    pub sent_ps: u64,
}

/// A packet, or what was left of the last one here. Begins a cache line.
#[repr(align(64))]
struct Slot<P> {
    header: Header,
    payload: Option<P>,
}

/// The packets in flight.
pub(crate) struct Slab<P> {
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
}

impl<P> Slab<P> {
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }

    #[inline]
    pub fn insert(&mut self, header: Header, payload: P) -> u32 {
        let slot = Slot { header, payload: Some(payload) };
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = slot;
            return at;
        }
        self.slots.push(slot);
        (self.slots.len() - 1) as u32
    }

    /// Takes a packet out.
    ///
    /// # Panics
    /// If it was taken out before: an event would have outlived its packet.
    #[inline]
    pub fn remove(&mut self, at: u32) -> (Header, P) {
        let slot = &mut self.slots[at as usize];
        let payload = slot.payload.take().expect("an event outlived its packet");
        self.free.push(at);
        (slot.header, payload)
    }

    pub fn header(&self, at: u32) -> &Header {
        &self.slots[at as usize].header
    }

    pub fn header_mut(&mut self, at: u32) -> &mut Header {
        &mut self.slots[at as usize].header
    }

    pub fn payload(&self, at: u32) -> Option<&P> {
        self.slots[at as usize].payload.as_ref()
    }

    /// Reads a packet that is needed soon.
    #[inline]
    pub fn look(&self, at: u32) -> u64 {
        let slot = &self.slots[at as usize];
        slot.header.sent_ps ^ u64::from(slot.payload.is_some())
    }

    /// Packets in flight.
    pub fn live(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }
}

impl<P: Clone> Slab<P> {
    /// A second copy of a packet.
    pub fn duplicate(&mut self, at: u32) -> Option<u32> {
        let payload = self.slots[at as usize].payload.clone()?;
        Some(self.insert(*self.header(at), payload))
    }
}
