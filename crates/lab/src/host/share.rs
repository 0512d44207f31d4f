//! Engines of one server share what they know of remote addresses, as processes of a user do:
//! through the same table, in memory.

use super::SrdHost;
use srd_core::Time;
use srd_fabric::HostId;
use srd_share::{Member, Owner, Table};
use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

/// The table of a server, made when its first engine sends something.
pub type ServerTable = Rc<OnceCell<Arc<Table>>>;

/// An engine's part in it.
pub(super) struct Share {
    table: ServerTable,
    /// Number of the engine on its server.
    process: u32,
    member: Option<Member>,
}

impl Share {
    /// Its slot, taken when it is first needed.
    fn member(&mut self, host: HostId) -> &mut Member {
        self.member.get_or_insert_with(|| {
            let table = self.table.get_or_init(Arc::default);
            let owner = Owner::of(0, u64::from(self.process) + 1);
            table.join(owner, super::ip_of(host), |_| true).expect("64 engines at most")
        })
    }
}

impl SrdHost {
    /// The engine is number `process` of those that share a table. Its configuration says that it
    /// shares ([`srd_core::EngineConfig::host_shared`]).
    pub fn share_set(&mut self, table: ServerTable, process: u32) {
        self.share = Some(Share { table, process, member: None });
    }

    /// Tells the others what they should know now, and hears of them.
    pub(super) fn share_turn(&mut self, now: Time) {
        let Some(share) = &mut self.share else { return };
        let wanted = self.engine.grants_wanted();
        if wanted || share.member.is_some() {
            let member = share.member(self.id);
            if let Some(engines) = member.granters(now.0, wanted) {
                self.engine.granters_set(engines);
            }
        }
        while let Some(note) = self.engine.share_next(now) {
            let member = share.member(self.id);
            let view = member.exchange(now.0, now, &note);
            self.engine.share_view(note.ip, &view);
        }
    }
}
