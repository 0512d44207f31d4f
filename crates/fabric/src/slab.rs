//! Packets in the network. A hop does not access them: the event carries what a hop needs.

/// Header flag: ECN-capable.
pub(crate) const ECT: u8 = 1;
/// Header flag: marked "congestion experienced".
pub(crate) const CE: u8 = 2;

/// The part of a packet that the network itself reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub src: u32,
    pub dst: u32,
    pub bytes: u32,
    /// Hash of addresses and ports.
    pub hash: u32,
    pub sport: u16,
    pub dport: u16,
    /// 0 = intact; otherwise a random number that chooses the damage.
    pub corrupt: u16,
    pub flags: u8,
    /// When it was handed to the card.
    pub sent_ps: u64,
}

/// A slot for a packet, aligned to a cache line. A free slot keeps the header of its last packet.
#[repr(align(64))]
pub(crate) struct Slot<P> {
    header: Header,
    payload: Option<P>,
}

/// All packets in flight.
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

    /// Removes and returns a packet.
    ///
    /// # Panics
    /// If the packet was already removed, which means that an event outlived its packet.
    #[inline]
    pub fn remove(&mut self, at: u32) -> (Header, P) {
        let slot = &mut self.slots[at as usize];
        let payload = slot.payload.take().expect("an event outlived its packet");
        self.free.push(at);
        (slot.header, payload)
    }

    /// The memory of a packet.
    pub fn slot(&self, at: u32) -> &Slot<P> {
        &self.slots[at as usize]
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

    /// Packets in flight.
    pub fn live(&self) -> u64 {
        (self.slots.len() - self.free.len()) as u64
    }
}

impl<P: Clone> Slab<P> {
    /// Copies a packet.
    pub fn duplicate(&mut self, at: u32) -> Option<u32> {
        let payload = self.slots[at as usize].payload.clone()?;
        Some(self.insert(*self.header(at), payload))
    }
}
