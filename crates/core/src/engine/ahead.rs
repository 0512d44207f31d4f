//! The memory that the next packets and timers of an engine will need, for who runs thousands of
//! engines that no cache holds together, as a simulator does, and has it fetched before its turn.

use super::Engine;
use crate::events::Observer;
use crate::memory::first;

/// Contexts, and addresses, of which [`Engine::ahead`] tells: the first ones, which are all that
/// most simulated hosts have.
const FIRST: usize = 2;

impl<O: Observer> Engine<O> {
    /// Calls `see` with the address and the length of memory outside of the engine itself that its
    /// next calls will probably need. Changes nothing; nothing depends on what is done with it.
    #[inline]
    pub fn ahead(&self, mut see: impl FnMut(*const u8, usize)) {
        let see = &mut see;
        first(see, self.contexts.all(), FIRST);
        first(see, self.paths.all(), FIRST);
        self.shared.timers.ahead(see);
        self.shared.out.ahead(see);
        self.objects.cqs.ahead(see);
        self.objects.wrs.ahead(see);
    }
}
